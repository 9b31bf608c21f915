//! Nothing goes wrong: every answer is whole, at every shape, and soon.

use std::{sync::atomic::Ordering, time::Duration};

use canopy_tests::sim_tree::Scenario;

use crate::seeds::each;

#[test]
fn every_answer_is_whole_flat_and_through_aggregators() {
    for levels in [1, 2] {
        let scenario = |seed| {
            let calm = Scenario::calm(seed);
            if levels == 2 { calm.two_levels() } else { calm }
        };
        each(3, scenario, |scenario, report| {
            assert_eq!(report.answered.len(), scenario.queries);
            for answered in &report.answered {
                assert!(answered.coverage.complete(), "{answered:?}");
                assert!(answered.took < Duration::from_millis(100), "{answered:?}");
                assert_eq!(answered.tail.retries, 0);
            }
            let asked: Vec<u64> =
                report.leaves.iter().map(|leaf| leaf.seen.shards.load(Ordering::SeqCst)).collect();
            // Each shard once, and a few copies for whoever was passed over for long.
            let (sum, once) = (asked.iter().sum(), (scenario.queries * scenario.corpus.shards.len()) as u64);
            assert!((once..=once + once / 20).contains(&sum), "{sum} of {once}");
            let (least, most) = (asked.iter().min().unwrap(), asked.iter().max().unwrap());
            assert!(most < &(least * 2), "the replicas share the load: {asked:?}");
        });
    }
}

#[test]
fn leaves_of_a_caller_that_left_are_idle_soon() {
    let scenario = |seed| {
        let mut scenario = Scenario::calm(seed).two_levels();
        scenario.leaves_after = Some(Duration::from_millis(50));
        let script = canopy_tests::model_leaf::Script { shard: Duration::from_secs(1), ..Default::default() };
        let slow = |leaf| (Duration::ZERO, canopy_tests::sim_tree::Happening::Script(leaf, script));
        scenario.happenings = (0..4).map(slow).collect();
        scenario
    };
    each(2, scenario, |scenario, report| {
        assert_eq!(report.answered.len(), scenario.queries);
        for answered in &report.answered {
            assert!(answered.took <= Duration::from_millis(52), "{answered:?}");
        }
        // The client host ended 100 ms after its last query.
        for leaf in &report.leaves {
            assert_eq!(leaf.seen.running.load(Ordering::SeqCst), 0);
        }
        let asked: u64 = report.leaves.iter().map(|leaf| leaf.seen.searches.load(Ordering::SeqCst)).sum();
        let dropped: u64 = report.leaves.iter().map(|leaf| leaf.seen.dropped.load(Ordering::SeqCst)).sum();
        assert!(asked > 0);
        assert_eq!(asked, dropped);
    });
}
