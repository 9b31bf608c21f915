//! More than the leaves can do: a burst and what it leaves behind, and three times as much all the time.
//!
//! Bounds are wider in the short form, which has fewer queries; those of the long one are the promise.

use canopy_lab::overload::{self, Protection, Settings, plot, report::Run};
use canopy_tests::form::by_form;

/// Goodput over capacity that a protected tree keeps.
fn least() -> f64 {
    by_form(0.93, 0.94, 0.95)
}

fn refuses_at_once(run: &Run) {
    assert!(run.refused > 0.3 && run.refusals.p99 < 1.0, "{run:?}");
}

#[test]
fn unprotected_arms_stay_down_after_a_burst_and_the_protected_one_is_well_within_a_second() {
    let times = by_form((3, 9, 16), (5, 15, 30), (10, 20, 60));
    let report = overload::run(&Settings { times, threads: 2, ..Settings::default() }, &|_| {}).unwrap();
    for arm in &report.arms {
        let run = &arm.runs[0];
        let (before, after) = (run.before.unwrap(), run.after.unwrap());
        assert!(before > 0.99, "{run:?}");
        match arm.protection {
            Protection::None | Protection::Timeouts => {
                assert!(after < 0.05 && run.well_after.is_none(), "{run:?}");
                assert!(run.attempts_after.unwrap() > 2.5, "{run:?}");
            }
            Protection::Protected => {
                assert!(arm.burst.worst >= least(), "{run:?}");
                assert!(after >= 0.99 && run.attempts_after.unwrap() <= 1.1, "{run:?}");
                assert!(run.well_after.is_some_and(|seconds| seconds <= 1), "{run:?}");
                assert!(run.begun <= 1.1, "{run:?}");
                refuses_at_once(run);
            }
        }
    }
    let svg = plot::svg(&report).unwrap();
    assert!(svg.contains("answered in time") && svg.contains("timeouts"));
}

#[test]
fn three_times_the_load_leaves_goodput_where_it_was() {
    let seconds = by_form(8, 15, 30);
    let steady = Settings {
        load: 3.0,
        burst: 3.0,
        times: (0, seconds, seconds),
        arms: vec![Protection::Protected],
        seeds: by_form(2, 4, 10),
        threads: 2,
        ..Settings::default()
    };
    let report = overload::run(&steady, &|_| {}).unwrap();
    let arm = &report.arms[0];
    // The first two seconds, in which the limit learns how small the tree is, weigh most in the short form.
    assert!(arm.burst.worst >= by_form(0.88, 0.93, 0.95), "{:?}", arm.runs);
    arm.runs.iter().for_each(refuses_at_once);
    assert!(arm.runs.iter().all(|run| run.before.is_none() && run.after.is_none()));
}

/// The limit of the root begins far above what such a tree can do.
#[test]
fn a_tree_of_four_threads_behind_a_root_of_large_bounds_is_protected_too() {
    let (from, until, end) = by_form((1, 7, 10), (3, 13, 18), (5, 25, 35));
    for (workers, replicas) in [(1, 1), (1, 2), (4, 1)] {
        let small = Settings {
            workers,
            replicas,
            times: (from, until, end),
            arms: vec![Protection::Protected],
            threads: 2,
            ..Settings::default()
        };
        let report = overload::run(&small, &|_| {}).unwrap();
        let run = &report.arms[0].runs[0];
        assert!(run.burst >= by_form(0.8, 0.88, 0.9), "{workers} workers, {replicas} replicas: {run:?}");
        assert!(run.after.unwrap() >= 0.98, "{workers} workers, {replicas} replicas: {run:?}");
        refuses_at_once(run);
    }
}
