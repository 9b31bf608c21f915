//! Processes die and come back, hosts lose their power, aggregators leave politely. With two replicas nothing is lost by
//! a death that the network tells of, and little by one that it does not.

use std::time::Duration;

use canopy_tests::sim_tree::{Happening, Report, Scenario};

use crate::seeds::each;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn all_whole(scenario: &Scenario, report: &Report) {
    assert_eq!(report.answered.len(), scenario.queries);
    for answered in &report.answered {
        assert!(answered.coverage.complete(), "{answered:?}");
    }
}

#[test]
fn a_rolling_restart_of_all_leaves_loses_nothing() {
    for levels in [1, 2] {
        let scenario = |seed| {
            let calm = Scenario { queries: 400, ..Scenario::calm(seed) };
            let mut scenario = if levels == 2 { calm.two_levels() } else { calm };
            for leaf in 0..4 {
                let name = format!("leaf-{leaf}");
                let at = 300 + 900 * leaf;
                scenario.happenings.push((ms(at), Happening::Kill(name.clone())));
                scenario.happenings.push((ms(at + 400), Happening::Start(name)));
            }
            scenario
        };
        each(3, scenario, all_whole);
    }
}

#[test]
fn aggregators_crash_and_return_and_nothing_is_lost() {
    let scenario = |seed| {
        let mut scenario = Scenario { queries: 300, ..Scenario::calm(seed).two_levels() };
        for aggregator in 0..3 {
            let name = format!("agg-{aggregator}");
            let at = 300 + 800 * aggregator;
            scenario.happenings.push((ms(at), Happening::Kill(name.clone())));
            scenario.happenings.push((ms(at + 500), Happening::Start(name)));
        }
        scenario
    };
    each(3, scenario, all_whole);
}

#[test]
fn without_any_aggregator_the_leaves_are_asked_directly() {
    let scenario = |seed| {
        let mut scenario = Scenario::calm(seed).two_levels();
        scenario.happenings = (0..3).map(|n| (ms(200), Happening::Kill(format!("agg-{n}")))).collect();
        scenario
    };
    each(3, scenario, all_whole);
}

#[test]
fn an_aggregator_that_drains_finishes_what_runs() {
    let scenario = |seed| {
        let mut scenario = Scenario { queries: 200, ..Scenario::calm(seed).two_levels() };
        scenario.happenings = vec![(ms(500), Happening::Drain(0)), (ms(1000), Happening::Drain(2))];
        scenario
    };
    each(3, scenario, all_whole);
}

#[test]
fn without_a_second_replica_exactly_the_dead_leafs_documents_are_missing() {
    let scenario = |seed| {
        let mut scenario = Scenario { queries: 120, ..Scenario::calm(seed) };
        scenario.shape.replicas = 1;
        scenario.happenings = vec![(ms(500), Happening::Kill("leaf-2".to_owned()))];
        scenario
    };
    each(3, scenario, |scenario, report| {
        let dead = scenario.corpus.shards.iter().enumerate().filter(|(number, _)| number % 4 == 2);
        let dead: u64 = dead.map(|(_, shard)| shard.documents.len() as u64).sum();
        for answered in &report.answered {
            let coverage = &answered.coverage;
            if answered.at + ms(100) < ms(500) {
                assert!(coverage.complete(), "{answered:?}");
            }
            if answered.at > ms(520) {
                assert_eq!(coverage.documents_searched, scenario.corpus.documents() - dead);
                assert_eq!((coverage.answered, coverage.unavailable), (9, 3), "{answered:?}");
                assert!(answered.took < ms(100), "a refused connection is not waited for: {answered:?}");
            }
        }
    });
}

#[test]
fn a_host_without_power_is_worked_around_and_taken_back() {
    for levels in [1, 2] {
        let scenario = |seed| {
            let calm = Scenario { queries: 1500, ..Scenario::calm(seed) };
            let mut scenario = if levels == 2 { calm.two_levels() } else { calm };
            scenario.happenings = vec![
                (ms(500), Happening::Crash("leaf-1".to_owned())),
                (ms(8000), Happening::Bounce("leaf-1".to_owned())),
            ];
            scenario
        };
        each(2, scenario, |scenario, report| {
            let partial = report.answered.iter().filter(|answered| !answered.coverage.complete()).count();
            assert!(partial < 150, "{partial}");
            for answered in &report.answered {
                assert!(answered.took <= scenario.latest(), "{answered:?}");
                if answered.at > ms(10_000) {
                    assert!(answered.coverage.complete(), "{answered:?}");
                }
            }
        });
    }
}
