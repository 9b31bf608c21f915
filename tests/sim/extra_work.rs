//! Extra work is bounded for the whole tree: whatever fails, however many levels there are, the leaves are asked for
//! hardly more than was offered. Each level would otherwise multiply the retries of the one above.

use std::{sync::atomic::Ordering, time::Duration};

use canopy_aggregator::{config::GatherConfig, hedge::HedgeMode};
use canopy_common::error::ErrorClass;
use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::{Fault, Script},
    sim_tree::{Happening, Report, Scenario},
};

use crate::seeds::each;

const RATIO: f64 = 0.05;
const FLOOR: u32 = 5;
const BURST: u32 = 20;
/// The root and its aggregators.
const ENGINES: f64 = 4.0;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Eight leaves, 32 shards with two replicas, and two levels of aggregators between root and leaves.
fn three_levels(seed: u64, hedge: HedgeMode) -> Scenario {
    let corpus = std::sync::Arc::new(ModelCorpus::generate(seed, 32, 20));
    let mut scenario =
        Scenario { queries: 250, budget: ms(400), corpus, ..Scenario::calm(seed) }.two_levels();
    scenario.shape.leaves = 8;
    scenario.shape.gather = GatherConfig {
        hedge,
        extra_work: RATIO,
        extra_work_floor: FLOOR,
        extra_work_burst: BURST,
        ..scenario.shape.gather
    };
    scenario
}

/// Shards asked at the leaves, and offered.
fn asked(scenario: &Scenario, report: &Report) -> (f64, f64) {
    let asked: u64 = report.leaves.iter().map(|leaf| leaf.seen.shards.load(Ordering::SeqCst)).sum();
    (asked as f64, (scenario.queries * scenario.corpus.shards.len()) as f64)
}

fn bounded(scenario: &Scenario, report: &Report) {
    let (asked, offered) = asked(scenario, report);
    let seconds = (scenario.every * scenario.queries as u32 + scenario.budget).as_secs_f64();
    let floor = ENGINES * (f64::from(FLOOR) * seconds + f64::from(BURST));
    assert!(asked <= (1.0 + RATIO) * offered + floor, "{asked} of {offered}, floor {floor}");
    for answered in &report.answered {
        assert!(answered.took <= scenario.latest(), "{answered:?}");
        assert!(answered.coverage.adds_up());
    }
    // What has a sound replica of its own is whole.
    let partial = report.answered.iter().filter(|answered| answered.coverage.answered < 20).count();
    assert_eq!(partial, 0);
}

#[test]
fn with_all_replicas_of_a_shard_erring_the_leaves_are_not_asked_again_and_again() {
    for class in [ErrorClass::Internal, ErrorClass::Overloaded] {
        let scenario = |seed| {
            let mut scenario = three_levels(seed, HedgeMode::Auto);
            let errs = Script { fault: Fault::Refuse(class), ..Default::default() };
            scenario.happenings =
                vec![(ms(300), Happening::Script(2, errs)), (ms(300), Happening::Script(3, errs))];
            scenario
        };
        each(1, scenario, bounded);
    }
}

#[test]
fn with_all_replicas_of_a_shard_gone_neither() {
    let scenario = |seed| {
        let mut scenario = three_levels(seed, HedgeMode::Auto);
        scenario.happenings = (2..4).map(|leaf| (ms(300), Happening::Kill(format!("leaf-{leaf}")))).collect();
        scenario
    };
    each(1, scenario, bounded);
}

#[test]
fn with_leaves_that_hang_hedges_stay_within_the_budget() {
    for mode in [HedgeMode::Auto, HedgeMode::Delay(ms(5)), HedgeMode::Quantile(0.5)] {
        let scenario = |seed| {
            let mut scenario = three_levels(seed, mode);
            let slow = Script { start: ms(60), ..Default::default() };
            let hangs = Script { fault: Fault::Hang(0), ..Default::default() };
            scenario.happenings =
                vec![(ms(300), Happening::Script(2, slow)), (ms(900), Happening::Script(5, hangs))];
            scenario
        };
        each(1, scenario, |scenario, report| {
            let (asked, offered) = asked(scenario, report);
            let seconds = (scenario.every * scenario.queries as u32 + scenario.budget).as_secs_f64();
            let floor = ENGINES * (f64::from(FLOOR) * seconds + f64::from(BURST));
            assert!(asked <= (1.0 + RATIO) * offered + floor, "{mode}: {asked} of {offered}, floor {floor}");
        });
    }
}
