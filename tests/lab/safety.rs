//! Hedges do no harm at any load, and would if nothing bounded them.

use canopy_lab::{
    safety::{self, Settings, plot},
    workload::Workload,
};
use canopy_tests::form::by_form;

use crate::seeds::naming;

/// In short form fewer queries, seeds and loads, and wider bounds.
fn settings(hiccups: f64) -> Settings {
    let settings = Settings::default();
    let mut workload = Workload { queries: by_form(500, 1000, 5000), ..settings.workload.clone() };
    workload.latency.hiccups.share = hiccups;
    let loads: &[f64] = by_form(&[0.6], &[0.3, 0.6, 0.8], &[0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9]);
    let (slack, seeds) = by_form((1.3, 5), (1.15, 5), (1.0, 10));
    Settings { workload, loads: loads.to_vec(), slack, seeds, threads: 2, ..settings }
}

#[test]
fn with_hiccups_hedges_do_no_harm_at_any_load_and_unbounded_ones_diverge() {
    let settings = settings(0.005);
    naming(1, settings.seeds, || {
        let report = safety::run(&settings, &|_| {}).unwrap();
        assert!(report.broken.is_empty(), "{}", report.broken.join("\n"));
        // What is judged is that they hedge and win, not that they are switched off.
        assert!(report.rows[0].p99.median < 0.9, "{:?}", report.rows[0].p99);
        let svg = plot::svg(&report).unwrap();
        assert!(svg.contains("without bounds") && svg.contains("times the budget"));
    });
}

#[test]
fn without_hiccups_hedges_do_no_harm_at_any_load() {
    let settings = Settings { uncapped: false, ..settings(0.0) };
    naming(1, settings.seeds, || {
        let report = safety::run(&settings, &|_| {}).unwrap();
        assert!(report.broken.is_empty(), "{}", report.broken.join("\n"));
    });
}

#[test]
fn a_single_shard_is_safe_too() {
    let mut settings = Settings { uncapped: false, ..settings(0.005) };
    settings.workload.shards = 1;
    // One shard has a hiccup in a hundredth as many queries as a hundred of them.
    settings.workload.queries *= 20;
    naming(1, settings.seeds, || {
        let report = safety::run(&settings, &|_| {}).unwrap();
        assert!(report.broken.is_empty(), "{}", report.broken.join("\n"));
    });
}

#[test]
fn the_same_seed_gives_the_same_history_on_any_number_of_threads() {
    let mut settings = settings(0.005);
    settings.workload.queries = 200;
    (settings.loads, settings.step) = (vec![0.7], None);
    let text = |settings: &Settings| serde_json::to_string(&safety::run(settings, &|_| {}).unwrap()).unwrap();
    let one = text(&settings);
    assert_eq!(one, text(&Settings { threads: 1, ..settings.clone() }));
    settings.workload.seed = 2;
    assert_ne!(one, text(&settings));
}
