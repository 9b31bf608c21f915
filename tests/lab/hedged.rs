//! What hedging makes of the tail where nothing queues, against the unhedged arm and against the exact values.

use canopy_lab::{
    exact::{Scatter, optimum},
    latency::Latency,
    policy::{Hedge, Policy, Wait},
    tail::{Settings, report::Report},
    workload::Workload,
};
use canopy_tests::form::{Form, by_form, form};

use crate::seeds;

const SHARDS: u32 = 100;

fn queries() -> u64 {
    by_form(2000, 5000, 50_000)
}

/// Bounds are those that are claimed in long form; fewer queries know their 99th percentile less well.
fn slack() -> f64 {
    if form() == Form::Long { 1.0 } else { 1.1 }
}

fn run<T>(workload: Workload, arms: Vec<Policy>, judge: impl FnOnce(&Report) -> T) -> T {
    let workload = Workload { queries: queries(), ..workload };
    let settings = Settings { workload, shards: vec![SHARDS], arms, seeds: 1, threads: 2 };
    seeds::tail(&settings, |report| {
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        judge(report)
    })
}

fn off() -> Policy {
    Policy::hedge(Hedge::Off)
}

fn auto(budget: f64) -> Policy {
    Policy { budget, ..Policy::hedge(Hedge::Auto) }
}

fn l1() -> Workload {
    Workload::plain(0.005)
}

#[test]
fn a_copy_after_a_fixed_time_is_measured_as_the_formula_says() {
    let arms = vec![off(), Policy::hedge(Hedge::Delay(16.46)), Policy::hedge(Hedge::Quantile(0.95))];
    run(l1(), arms, |report| {
        for row in &report.rows[1..] {
            let exact = row.exact.as_ref().unwrap();
            let near = |measured: f64, right: f64, what: &str| {
                let bound = if form() == Form::Long { 0.05 } else { 0.1 };
                assert!((measured / right - 1.0).abs() < bound, "{} {what}: {measured} for {right}", row.arm);
            };
            near(row.times.p50, exact.p50, "p50");
            near(row.times.p99, exact.p99, "p99");
            near(row.extra, exact.extra, "extra");
            assert_eq!((row.complete, row.false_flags), (1.0, 0));
        }
    });
}

#[test]
fn auto_comes_close_to_the_best_there_is_within_its_budget() {
    run(l1(), vec![off(), auto(0.05), auto(0.02)], |report| {
        for (row, p99, extra) in [(&report.rows[1], 0.19, 0.052), (&report.rows[2], 0.21, 0.021)] {
            let versus = row.versus_first.unwrap();
            let measured = versus.p99.unwrap().median;
            assert!(measured <= p99 * slack(), "{}: p99 {measured}", row.arm);
            assert!(row.extra <= extra, "{}: extra {}", row.arm, row.extra);
            assert!(versus.p50.unwrap().median <= 0.90, "{}", row.arm);
            // What beats the optimum is measured wrongly.
            let best = optimum(Latency::with_hiccups(0.005), SHARDS, 0.99, row.policy.budget, 1);
            let best = best.quantile(0.99, SHARDS);
            assert!(row.times.p99 > 0.93 * best, "{}: {} beats {best}", row.arm, row.times.p99);
        }
        let one = Scatter::unhedged(Latency::with_hiccups(0.005)).quantile(0.99, 1);
        assert!(report.rows[1].times.p99 <= 1.6 * slack() * one, "{} of {one}", report.rows[1].times.p99);
    });
}

#[test]
fn two_copies_save_what_one_cannot() {
    let ratio = |report: &Report| report.rows[1].versus_first.unwrap().p999.unwrap().median;
    run(l1(), vec![off(), auto(0.02)], |one| assert!(ratio(one) >= 0.85, "{}", ratio(one)));
    run(Workload { replicas: 3, ..l1() }, vec![off(), auto(0.02)], |two| {
        assert!(ratio(two) <= 0.24 * by_form(1.6, 1.4, 1.0), "{}", ratio(two));
        assert!(two.rows[1].extra <= 0.022, "{}", two.rows[1].extra);
    });
}

#[test]
fn a_little_grace_for_the_last_shard_completes_nearly_all_and_flags_the_rest() {
    let wait = Wait::Adaptive { enough: 0.99, grace: 0.05 };
    let workload = Workload { deadline: 250.0, ..l1() };
    let hedged = Policy { wait, ..auto(0.05) };
    run(workload, vec![off(), hedged, Policy { wait, ..off() }], |report| {
        let row = &report.rows[1];
        let p999 = row.versus_first.unwrap().p999.unwrap().median;
        assert!(p999 <= 0.19 * slack(), "{p999}");
        assert!(row.coverage >= 0.9995 && row.complete >= 0.97, "{} {}", row.coverage, row.complete);
        let unhedged = &report.rows[2];
        let right = unhedged.exact.as_ref().unwrap().coverage;
        assert!((unhedged.coverage - right).abs() < 0.001, "{} {right}", unhedged.coverage);
        assert!(report.rows.iter().all(|row| row.false_flags == 0));
    });
}
