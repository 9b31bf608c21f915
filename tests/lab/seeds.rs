//! A failure says which seeds repeat it. Every figure here is of seeds, and none can be looked into without its own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use canopy_lab::{
    jobs,
    overload::{self, Protection},
    policy::{Hedge, Policy},
    tail::{self, Settings, report::Report},
    workload::Workload,
};

/// Judges what the seeds `first` and up made; a failure names them.
pub fn naming<T>(first: u64, seeds: u32, judge: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(judge)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a word");
        panic!("failed with seeds {first} to {}: {text}", first + u64::from(seeds) - 1)
    })
}

/// Runs `lab tail` and judges what it reports.
pub fn tail<T>(settings: &Settings, judge: impl FnOnce(&Report) -> T) -> T {
    naming(settings.workload.seed, settings.seeds, || {
        judge(&tail::run(settings, &|_| {}).unwrap_or_else(|error| panic!("{error}")))
    })
}

fn settings(seeds: u32) -> Settings {
    let workload = Workload { queries: 100, warmup: 0, seed: 40, ..Workload::plain(0.0) };
    Settings { workload, shards: vec![2], arms: vec![Policy::hedge(Hedge::Off)], seeds, threads: 2 }
}

fn said(failing: impl FnOnce()) -> String {
    *catch_unwind(AssertUnwindSafe(failing)).unwrap_err().downcast::<String>().unwrap()
}

#[test]
fn a_bound_that_is_not_kept_names_the_seeds() {
    let text =
        said(|| tail(&settings(3), |report| assert!(report.rows.is_empty(), "{} rows", report.rows.len())));
    assert_eq!(text, "failed with seeds 40 to 42: 1 rows");
}

#[test]
fn an_arm_that_panics_names_its_own_seed() {
    let settings = settings(1);
    let run = |seed: &u64| {
        let workload = Workload { queries: 600, seed: *seed, ..settings.workload.clone() };
        canopy_lab::arm::run(&workload, &settings.arms[0], &|_| assert_ne!(*seed, 41, "not this one"))
    };
    let text = jobs::run(&[40, 41, 42], 1, run).unwrap_err().to_string();
    assert!(
        text.contains("off with 100 shards and seed 41: it panicked") && text.contains("not this one"),
        "{text}"
    );
}

fn burst() -> overload::Settings {
    let arms = vec![Protection::None, Protection::Protected];
    overload::Settings {
        times: (1, 3, 5),
        arms,
        seeds: 2,
        threads: 2,
        seed: 40,
        ..overload::Settings::default()
    }
}

#[test]
fn a_burst_that_panics_names_its_own_seed() {
    let failed = overload::run(&burst(), &|_| panic!("not this one")).unwrap_err().to_string();
    assert!(
        failed.contains("the arm none and seed 4") && failed.contains("panicked: not this one"),
        "{failed}"
    );
}

#[test]
fn a_burst_with_the_same_seeds_has_the_same_history_and_with_others_another() {
    let text = |settings: &overload::Settings| {
        let report = overload::run(settings, &|_| {}).unwrap();
        serde_json::to_string(&report.arms).unwrap()
    };
    let one = text(&burst());
    assert_eq!(one, text(&overload::Settings { threads: 1, ..burst() }));
    assert_ne!(one, text(&overload::Settings { seed: 41, ..burst() }));
}
