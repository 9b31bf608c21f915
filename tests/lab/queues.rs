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

fn p99(row: &Row) -> f64 {
    row.versus_first.unwrap().p99.unwrap().median
}

fn loose(claimed: f64) -> f64 {
    if form() == Form::Long { claimed } else { claimed * 1.12 }
}

#[test]
fn the_choice_of_two_halves_the_tail_of_queues() {
    let workload = Workload { scale: 2, ..Workload::queued(0.0, 0.6) };
    let random = Policy { pick: Strategy::Random, ..off() };
    let report = run(workload, vec![random, off()], by_form(1, 2, 10));
    assert!(p99(&report.rows[1]) <= loose(0.62), "{}", p99(&report.rows[1]));
}

#[test]
fn a_tie_gives_the_shorter_of_two_queues_for_hardly_more_work() {
    // The tenth of a millisecond between two copies needs the finer grain; random choice on a slow machine does not
    // compare, see the probation of replicas.
    let workload = Workload::queued(0.0, 0.6);
    let report = run(workload, vec![off(), Policy::hedge(Hedge::Tied)], by_form(1, 2, 10));
    let tied = &report.rows[1];
    assert!(p99(tied) <= loose(0.93), "{}", p99(tied));
    assert!(tied.twice <= 0.015, "{}", tied.twice);
}

#[test]
fn hedges_that_stop_what_they_replace_shorten_the_tail_and_the_work() {
    let workload = Workload { scale: 5, ..Workload::queued(0.005, 0.6) };
    let report = run(workload, vec![off(), Policy::hedge(Hedge::Auto)], by_form(1, 3, 10));
    let hedged = &report.rows[1];
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
