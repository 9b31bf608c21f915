//! The measuring instrument itself, without any policy: unhedged quantiles, the share of queries with a slow shard, the
//! wait in a queue, and that a run repeats.

use canopy_lab::{
    exact,
    latency::{Body, Latency},
    policy::{Hedge, Policy},
    preset::SHARDS,
    tail::{self, Settings, plot},
    workload::{Rate, Workload},
};
use canopy_tests::form::by_form;

use crate::seeds;

fn off() -> Policy {
    Policy::hedge(Hedge::Off)
}

fn settings(workload: Workload, shards: &[u32], arms: Vec<Policy>) -> Settings {
    Settings { workload, shards: shards.to_vec(), arms, seeds: 1, threads: 2 }
}

#[test]
fn an_unhedged_root_is_measured_as_the_formula_says_for_every_number_of_shards() {
    let queries = by_form(3000, 5000, 50_000);
    let bound = by_form(0.12, 0.10, 0.05);
    let workload = Workload { queries, ..Workload::plain(0.005) };
    seeds::tail(&settings(workload, &SHARDS, vec![off()]), |report| {
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        for row in &report.rows {
            let deviation = row.deviation.unwrap();
            for (off, what) in [(deviation.p50, "p50"), (deviation.p99, "p99")] {
                assert!(off.by.abs() <= bound, "{} shards, {what}: {off:?}", row.shards);
            }
            // A replica that was passed over for long gets a copy now and then.
            assert!(row.extra < 0.001, "{}", row.extra);
            assert_eq!((row.coverage, row.complete, row.false_flags), (1.0, 1.0, 0));
        }
    });
}

#[test]
fn at_least_one_of_many_shards_is_slow_as_often_as_the_formula_says() {
    let queries = by_form(3000, 5000, 50_000);
    let workload = Workload { queries, ..Workload::plain(0.01) };
    seeds::tail(&settings(workload, &[1, 100], vec![off()]), |report| {
        assert!(report.faults.is_empty(), "{:?}", report.faults);
        for row in &report.rows {
            let slow = row.any_slow.unwrap();
            let deviation = (slow.formula * (1.0 - slow.formula) / queries as f64).sqrt();
            assert!((slow.measured - slow.formula).abs() < 4.0 * deviation, "{} {slow:?}", row.shards);
            assert!((slow.exact - slow.formula).abs() < 1e-6);
        }
        assert!((report.rows[1].any_slow.unwrap().formula - 0.634).abs() < 0.0005);
    });
}

#[test]
fn the_wait_in_a_queue_is_the_one_of_the_textbook() {
    let queries = by_form(30_000, 60_000, 400_000);
    let bodies = [Body::Exponential { mean: 8.0 }, Body::Lognormal { mean: 8.0, sigma: 0.5 }];
    for body in bodies {
        let latency = Latency { body, ..Latency::with_hiccups(0.0) };
        let mut workload =
            Workload { latency, shards: 1, replicas: 1, queries, ..Workload::queued(0.0, 0.5) };
        workload.rates = vec![Rate { from: 0.0, per_ms: workload.rate_at(0.5) }];
        seeds::tail(&settings(workload, &[1], vec![off()]), |report| {
            let row = &report.rows[0];
            let right = latency.mean() + exact::queue_wait(&latency, 0.5);
            let mean = row.times.mean;
            assert!((mean / right - 1.0).abs() < 0.06, "{body:?}: {mean} where {right}");
            assert!((row.executed - 0.5).abs() < 0.02, "{body:?}: {}", row.executed);
        });
    }
}

#[test]
fn the_same_seed_gives_the_same_report_on_any_number_of_threads_and_another_seed_another() {
    let workload = Workload { queries: 300, warmup: 50, ..Workload::queued(0.01, 0.5) };
    let arms = vec![off(), Policy::hedge(Hedge::Delay(20.0)), Policy::hedge(Hedge::Auto)];
    let first = settings(workload, &[5, 20], arms);
    let text = |settings: &Settings| serde_json::to_string(&tail::run(settings, &|_| {}).unwrap()).unwrap();
    let one = text(&first);
    assert_eq!(one, text(&first));
    assert_eq!(one, text(&Settings { threads: 1, ..first.clone() }));
    let other = Workload { seed: 2, ..first.workload.clone() };
    assert_ne!(one, text(&Settings { workload: other, ..first }));
}

#[test]
fn a_report_becomes_a_chart() {
    let workload = Workload { queries: 100, warmup: 0, ..Workload::plain(0.01) };
    let arms = vec![off(), Policy::hedge(Hedge::Delay(20.0))];
    let report = tail::run(&settings(workload, &[1, 10], arms), &|_| {}).unwrap();
    let svg = plot::svg(&report).unwrap();
    for word in ["<svg", "p99.9 against shards", "delay:20", "extra requests, %", "10 shards"] {
        assert!(svg.contains(word), "{word}");
    }
}
