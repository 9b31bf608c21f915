//! A failure is asked again elsewhere, once per kind, only where it can help, and never changes the result.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_common::error::ErrorClass;
use canopy_proto::v1;
use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::Fault,
    model_tree::{ModelTree, Shape},
};
use tokio::time::Instant;

use canopy_tests::invariants::{check, places};

const BUDGET: Duration = Duration::from_millis(300);

fn tree(replicas: usize) -> ModelTree {
    let corpus = Arc::new(ModelCorpus::generate(11, 12, 60));
    ModelTree::new(corpus, &Shape { replicas, ..Default::default() })
}

/// Two leaves that hold the same four shards.
fn pair() -> ModelTree {
    let corpus = Arc::new(ModelCorpus::generate(11, 4, 60));
    ModelTree::new(corpus, &Shape { leaves: 2, replicas: 2, ..Default::default() })
}

fn searches(tree: &ModelTree) -> Vec<u64> {
    tree.leaves.iter().map(|leaf| leaf.seen.searches.load(Ordering::SeqCst)).collect()
}

#[tokio::test(start_paused = true)]
async fn whatever_fails_on_one_replica_is_had_from_the_other_with_the_same_result() {
    let healthy = tree(2);
    let request = healthy.corpus.request(healthy.query(), 20);
    let wanted = places(&healthy.search(request.clone(), BUDGET).await.hits);
    let faults = [
        Fault::Refuse(ErrorClass::Unavailable),
        Fault::Refuse(ErrorClass::Overloaded),
        Fault::Refuse(ErrorClass::Internal),
        Fault::Refuse(ErrorClass::Cancelled),
        Fault::Fail(ErrorClass::Unavailable, 1),
        Fault::Fail(ErrorClass::DataLoss, 2),
        Fault::End(0),
        Fault::End(1),
        Fault::ShardFails(ErrorClass::DataLoss, 0),
        Fault::ShardFails(ErrorClass::NotFound, 2),
        Fault::ShardSheds(1),
    ];
    for fault in faults {
        for bad in 0..4 {
            for batch in [1, 2, 16] {
                let tree = tree(2);
                tree.leaves[bad].script(|script| script.fault = fault);
                for leaf in &tree.leaves {
                    leaf.script(|script| script.batch = batch);
                }
                let gathered = tree.search(request.clone(), BUDGET).await;
                assert!(check(&tree.corpus, &request, &gathered).complete(), "{fault:?} on leaf {bad}");
                assert_eq!(places(&gathered.hits), wanted, "{fault:?} on leaf {bad}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_both_replicas_is_the_shards_outcome_and_symmetric() {
    for (first, second) in [(0, 1), (1, 0)] {
        let tree = pair();
        tree.leaves[first].script(|script| script.fault = Fault::Refuse(ErrorClass::DataLoss));
        tree.leaves[second].script(|script| script.fault = Fault::Refuse(ErrorClass::Unavailable));
        let request = tree.corpus.request(tree.query(), 10);
        let start = Instant::now();
        let gathered = tree.search(request.clone(), BUDGET).await;
        assert!(start.elapsed() < Duration::from_millis(20), "errors do not wait for the deadline");
        let coverage = check(&tree.corpus, &request, &gathered);
        assert_eq!((coverage.failed, coverage.timed_out), (4, 0));
        let reason = &gathered.shards[0].reason;
        assert!(reason.contains("DATA_LOSS") && reason.contains("UNAVAILABLE"), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn what_nobody_can_reach_is_unavailable_and_what_all_refuse_is_shed() {
    for (class, expected) in
        [(ErrorClass::Unavailable, v1::Outcome::Unavailable), (ErrorClass::Overloaded, v1::Outcome::Shed)]
    {
        let tree = pair();
        for leaf in &tree.leaves {
            leaf.script(|script| script.fault = Fault::Refuse(class));
        }
        let request = tree.corpus.request(tree.query(), 10);
        let gathered = tree.search(request.clone(), BUDGET).await;
        check(&tree.corpus, &request, &gathered);
        assert!(gathered.shards.iter().all(|shard| shard.outcome == expected as i32));
        assert_eq!(searches(&tree), [1, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_failed_and_asked_of_nobody_else() {
    let tree = pair();
    for leaf in &tree.leaves {
        leaf.script(|script| script.fault = Fault::Refuse(ErrorClass::InvalidArgument));
    }
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), BUDGET).await;
    assert_eq!(check(&tree.corpus, &request, &gathered).failed, 4);
    assert_eq!(gathered.shards[0].error_class, ErrorClass::InvalidArgument as u32);
    assert_eq!(searches(&tree).iter().sum::<u64>(), 1);
}

#[tokio::test(start_paused = true)]
async fn retries_are_bounded_however_many_replicas_fail() {
    let corpus = Arc::new(ModelCorpus::generate(3, 1, 60));
    let tree = ModelTree::new(corpus, &Shape { leaves: 8, replicas: 8, ..Default::default() });
    for leaf in &tree.leaves {
        leaf.script(|script| script.fault = Fault::Refuse(ErrorClass::Overloaded));
    }
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), BUDGET).await;
    check(&tree.corpus, &request, &gathered);
    // The first try, one transparent retry, one counted.
    assert_eq!(searches(&tree).iter().sum::<u64>(), 3);
    assert_eq!((gathered.tail.attempts, gathered.tail.retries), (3, 2));
}

#[tokio::test(start_paused = true)]
async fn no_retry_outlives_the_deadline() {
    let tree = pair();
    for leaf in &tree.leaves {
        leaf.script(|script| {
            script.start = Duration::from_millis(200);
            script.fault = Fault::Refuse(ErrorClass::Internal);
        });
    }
    let request = tree.corpus.request(tree.query(), 10);
    let start = Instant::now();
    let gathered = tree.search(request.clone(), BUDGET).await;
    assert!(start.elapsed() <= Duration::from_millis(260), "{:?}", start.elapsed());
    check(&tree.corpus, &request, &gathered);
    let dropped: u64 = tree.leaves.iter().map(|leaf| leaf.seen.running.load(Ordering::SeqCst)).sum();
    assert_eq!(dropped, 0);
    assert_eq!(searches(&tree).iter().sum::<u64>(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_rolling_restart_with_two_replicas_loses_nothing() {
    let tree = tree(2);
    for down in 0..4 {
        for (number, leaf) in tree.leaves.iter().enumerate() {
            let gone = Fault::Refuse(ErrorClass::Unavailable);
            leaf.script(|script| script.fault = if number == down { gone } else { Fault::None });
        }
        for _ in 0..50 {
            let request = tree.corpus.request(tree.query(), 10);
            let gathered = tree.search(request.clone(), BUDGET).await;
            assert!(check(&tree.corpus, &request, &gathered).complete());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_fails_at_once_does_not_draw_the_queries() {
    let tree = pair();
    tree.leaves[0].script(|script| script.fault = Fault::Refuse(ErrorClass::Unavailable));
    tree.leaves[1].script(|script| script.start = Duration::from_millis(20));
    for _ in 0..200 {
        let request = tree.corpus.request(tree.query(), 10);
        let gathered = tree.search(request.clone(), BUDGET).await;
        assert!(check(&tree.corpus, &request, &gathered).complete());
    }
    let seen = searches(&tree);
    assert!(seen[0] * 20 < seen[1], "{seen:?}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_node_is_passed_over() {
    let corpus = Arc::new(ModelCorpus::generate(11, 4, 60));
    let mut tree = ModelTree::new(corpus, &Shape { leaves: 2, replicas: 2, ..Default::default() });
    let mut routing = (*tree.routing).clone();
    let web = routing.corpora.get_mut("web").unwrap();
    for replicas in web.shards.values_mut() {
        *replicas = [replicas.to_vec(), vec!["ghost".into()]].concat().into();
    }
    tree.routing = Arc::new(routing);
    for _ in 0..20 {
        let request = tree.corpus.request(tree.query(), 10);
        let gathered = tree.search(request.clone(), BUDGET).await;
        assert!(check(&tree.corpus, &request, &gathered).complete());
        assert_eq!(gathered.tail.retries, 0);
    }
}
