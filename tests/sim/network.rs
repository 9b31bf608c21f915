//! Packets are lost or wait. Answers keep their deadline, the account adds up, the tree works around the silent host
//! and takes it back when it is heard again.

use std::{sync::atomic::Ordering, time::Duration};

use canopy_tests::sim_tree::{Answered, Happening, Scenario};

use crate::seeds::each;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn in_time(scenario: &Scenario, answered: &Answered) {
    assert!(answered.took <= scenario.latest(), "{answered:?}");
}

#[test]
fn a_partitioned_leaf_is_worked_around_and_taken_back() {
    for levels in [1, 2] {
        let scenario = |seed| {
            let calm = Scenario { queries: 2500, ..Scenario::calm(seed) };
            let mut scenario = if levels == 2 { calm.two_levels() } else { calm };
            let askers = if levels == 2 { vec!["agg-0", "agg-1", "agg-2"] } else { vec!["root"] };
            for asker in askers {
                let pair = || (asker.to_owned(), "leaf-1".to_owned());
                scenario.happenings.push((ms(500), Happening::Partition(pair().0, pair().1)));
                scenario.happenings.push((ms(8000), Happening::Repair(pair().0, pair().1)));
            }
            scenario.happenings.sort_by_key(|happening| happening.0);
            scenario
        };
        each(2, scenario, |scenario, report| {
            assert_eq!(report.answered.len(), scenario.queries);
            let late = report.answered.iter().filter(|answered| !answered.coverage.complete()).count();
            for answered in &report.answered {
                in_time(scenario, answered);
                // A dead peer is noticed within ping interval and timeout; from then on the other replica answers.
                if answered.at > ms(6000) || answered.at + scenario.budget < ms(500) {
                    assert!(answered.coverage.complete(), "{answered:?}");
                }
            }
            // Even before that, a replica that did not answer is avoided: few queries pay for it.
            assert!(late < 120, "{late} of {} were partial", report.answered.len());
            let searches = report.leaves[1].seen.searches.load(Ordering::SeqCst);
            assert!(searches > 100, "taken back: {searches} searches");
        });
    }
}

#[test]
fn held_packets_cost_the_shards_they_carry_and_nothing_more() {
    let scenario = |seed| {
        let mut scenario = Scenario { queries: 300, ..Scenario::calm(seed) };
        scenario.shape.replicas = 1;
        let pair = || ("root".to_owned(), "leaf-3".to_owned());
        scenario.happenings = vec![
            (ms(500), Happening::Hold(pair().0, pair().1)),
            (ms(1500), Happening::Release(pair().0, pair().1)),
        ];
        scenario
    };
    each(3, scenario, |scenario, report| {
        for answered in &report.answered {
            in_time(scenario, answered);
            assert!(answered.coverage.answered >= 9, "{answered:?}");
            if answered.at > ms(1600) {
                assert!(answered.coverage.complete(), "{answered:?}");
            }
        }
        let stalled = report.answered.iter().filter(|answered| (ms(550)..ms(1200)).contains(&answered.at));
        for answered in stalled {
            assert_eq!((answered.coverage.answered, answered.coverage.timed_out), (9, 3), "{answered:?}");
        }
    });
}

#[test]
fn a_root_cut_off_from_everyone_still_answers_in_time_with_nothing() {
    let scenario = |seed| {
        let mut scenario = Scenario { queries: 60, ..Scenario::calm(seed) };
        let cut = |leaf| (ms(300), Happening::Partition("root".to_owned(), format!("leaf-{leaf}")));
        scenario.happenings = (0..4).map(cut).collect();
        scenario
    };
    each(2, scenario, |scenario, report| {
        for answered in &report.answered {
            in_time(scenario, answered);
            if answered.at > ms(310) {
                assert_eq!(answered.coverage.documents_searched, 0);
                assert!(!answered.coverage.complete());
            }
        }
    });
}
