//! Where leaves have queues: choice, hedges and ties against the same arrivals and service times.

use canopy_aggregator::pick::Strategy;
use canopy_lab::{
    leaf::Cancel,
    policy::{Hedge, Policy},
    tail::{
        self, Settings,
        report::{Report, Row},
    },
    workload::{Rate, Workload},
};
use canopy_tests::form::{Form, by_form, form};

fn off() -> Policy {
    Policy::hedge(Hedge::Off)
}

fn run(workload: Workload, arms: Vec<Policy>, seeds: u32) -> Report {
    let workload = Workload { queries: by_form(800, 1200, 5000), warmup: 300, ..workload };
    tail::run(&Settings { workload, shards: vec![100], arms, seeds, threads: 2 }, &|_| {}).unwrap()
}

/// Ten seeds in every form; 5,000 queries an arm in the short one, 50,000 in the long one.
fn ten_seeds(workload: Workload, shards: u32, warmup: u64, arms: Vec<Policy>) -> Report {
    let seeds = by_form(2, 10, 10);
    let workload = Workload { queries: by_form(400, 500, 5000), warmup, ..workload };
    tail::run(&Settings { workload, shards: vec![shards], arms, seeds, threads: 2 }, &|_| {}).unwrap()
}

fn picked(pick: Strategy, hedge: Hedge) -> Policy {
    Policy { pick, ..Policy::hedge(hedge) }
}

fn p99(row: &Row) -> f64 {
    row.versus_first.unwrap().p99.unwrap().median
}

fn loose(claimed: f64) -> f64 {
    if form() == Form::Long { claimed } else { claimed * 1.12 }
}

#[test]
fn a_choice_shortens_the_tail_of_queues_and_a_tie_shortens_it_more_for_hardly_more_work() {
    // The tenth of a millisecond between two copies needs the fine grain.
    let workload = Workload { scale: 20, ..Workload::queued(0.0, 0.6) };
    let arms = [(Strategy::Random, Hedge::Off), (Strategy::Adaptive, Hedge::Off)];
    let ties = [(Strategy::Random, Hedge::Tied), (Strategy::Adaptive, Hedge::Tied)];
    let arms = arms.into_iter().chain(ties).map(|(pick, hedge)| picked(pick, hedge)).collect();
    let report = ten_seeds(workload, 100, 300, arms);
    let [_, chosen, tied @ ..] = &report.rows[..] else { panic!("four arms") };
    assert!(p99(chosen) <= loose(0.62), "{}", p99(chosen));
    for tied in tied {
        println!("{} over random: p99 {:.3}, twice {:.4}", tied.arm, p99(tied), tied.twice);
        assert!(p99(tied) <= loose(0.56), "{}: {}", tied.arm, p99(tied));
        assert!(p99(tied) <= loose(0.93) * p99(chosen), "{}: {} of {}", tied.arm, p99(tied), p99(chosen));
        assert!(tied.twice <= 0.015, "{}: {}", tied.arm, tied.twice);
    }
}

#[test]
fn one_slow_replica_of_three_costs_twenty_callers_little() {
    let slow = |times: f64| {
        let mut workload = Workload { replicas: 3, callers: 20, slow: times, ..Workload::queued(0.0, 0.6) };
        workload.rates = vec![Rate { from: 0.0, per_ms: workload.rate_at(0.6) }];
        let strategies = [Strategy::LeastOutstanding, Strategy::PowerOfTwo, Strategy::Adaptive];
        let arms = strategies.into_iter().map(|pick| picked(pick, Hedge::Off)).collect();
        // Ten queries for each caller and replica tell them apart; what counts is what comes then.
        let workload = Workload { queries: by_form(4000, 5000, 50_000), warmup: 4000, scale: 2, ..workload };
        let seeds = by_form(2, 10, 10);
        tail::run(&Settings { workload, shards: vec![1], arms, seeds, threads: 2 }, &|_| {}).unwrap()
    };
    let (report, healthy) = (slow(3.0), slow(1.0));
    let adaptive = &report.rows[2];
    let share = adaptive.share_of_replicas[0];
    println!(
        "one of three 3 x slow, 20 callers: p99 {:.0} ms, {:.3} of least outstanding, share {share:.3}; healthy {:.0} ms",
        adaptive.times.p99,
        p99(adaptive),
        healthy.rows[2].times.p99
    );
    assert!(p99(adaptive) <= loose(0.28), "{}", p99(adaptive));
    assert!(adaptive.times.p99 <= 3.0 * healthy.rows[2].times.p99);
    assert!(share < 0.15, "{share}");
}

#[test]
fn figures_do_not_depend_on_how_finely_time_is_measured() {
    let at = |scale: u32| {
        let mut workload = Workload { replicas: 3, callers: 20, slow: 3.0, ..Workload::queued(0.0, 0.6) };
        workload.rates = vec![Rate { from: 0.0, per_ms: workload.rate_at(0.6) }];
        let arms = vec![picked(Strategy::Random, Hedge::Off), off()];
        let workload = Workload { queries: 8000, warmup: 2000, scale, ..workload };
        tail::run(&Settings { workload, shards: vec![1], arms, seeds: 2, threads: 2 }, &|_| {}).unwrap()
    };
    let (coarse, fine) = (at(2), at(20));
    for (coarse, fine) in coarse.rows.iter().zip(&fine.rows) {
        let ratio = fine.times.p99 / coarse.times.p99;
        assert!((0.85..1.15).contains(&ratio), "{}: {} {}", fine.arm, coarse.times.p99, fine.times.p99);
    }
}

#[test]
fn hedges_that_stop_what_they_replace_shorten_the_tail_and_the_work() {
    let workload = Workload { scale: 5, ..Workload::queued(0.005, 0.6) };
    let report = ten_seeds(workload, 100, 1000, vec![off(), Policy::hedge(Hedge::Auto)]);
    let hedged = &report.rows[1];
    println!("auto over choice alone: p99 {:.3}, extra {:.4}", p99(hedged), hedged.extra);
    assert!(p99(hedged) <= loose(0.60), "{}", p99(hedged));
    assert!(hedged.extra <= 0.055, "{}", hedged.extra);
    assert!(hedged.executed < report.rows[0].executed, "{} {}", hedged.executed, report.rows[0].executed);
}

#[test]
fn at_no_load_do_hedges_hurt() {
    let loads: &[f64] = by_form(&[0.6], &[0.3, 0.8], &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]);
    for load in loads {
        let mut workload = Workload { scale: 5, ..Workload::queued(0.0, *load) };
        workload.rates = vec![Rate { from: 0.0, per_ms: workload.rate_at(*load) }];
        let report = run(workload, vec![off(), Policy::hedge(Hedge::Auto)], by_form(1, 3, 10));
        let hedged = &report.rows[1];
        let bound = if *load > 0.85 { 1.10 } else { 1.05 };
        assert!(p99(hedged) <= loose(bound), "at {load}: {}", p99(hedged));
        assert!(hedged.extra <= 1.1 * 0.05, "at {load}: {}", hedged.extra);
    }
}

#[test]
fn hedges_without_bound_and_without_cancel_are_a_catastrophe() {
    let workload = Workload { cancel: Cancel::Never, scale: 2, ..Workload::queued(0.0, 0.6) };
    let random = Policy { pick: Strategy::Random, ..off() };
    let wild = Policy {
        budget: 1.0,
        hedge: Hedge::Delay(14.0),
        ..random.clone().with("extra_work", 1.0).with("extra_work_burst", 1_000_000)
    };
    let report = run(workload, vec![random, wild], 1);
    let wild = &report.rows[1];
    assert!(p99(wild) > 3.0 && wild.extra > 0.5, "{} {}", p99(wild), wild.extra);
}
