//! Tied requests as the engine sends them: two copies that name each other, the second a little later, and what a leaf
//! that dropped its copy means. The claim between leaves is the leaves' business and tested there.

use std::{sync::Arc, time::Duration};

use canopy_aggregator::{config::GatherConfig, gather::Gathered, hedge::HedgeMode};
use canopy_common::error::ErrorClass;
use canopy_proto::v1;
use canopy_tests::{
    invariants::{check, running},
    model_corpus::ModelCorpus,
    model_leaf::{Fault, Script},
    model_tree::{ModelTree, Shape},
};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn all(tree: &ModelTree, script: Script) {
    for leaf in &tree.leaves {
        leaf.script(|now| *now = Script { shard: Duration::ZERO, ..script });
    }
}

async fn ask(tree: &ModelTree, mode: HedgeMode) -> Gathered {
    let request = v1::SearchRequest {
        hedge: Some(mode.to_wire()),
        trace: true,
        ..tree.corpus.request(tree.query(), 10)
    };
    let gathered = tree.search(request.clone(), ms(400)).await;
    check(&tree.corpus, &request, &gathered);
    assert_eq!(running(tree), 0);
    gathered
}

/// A tree of one shard whose service time is known to be `service`.
async fn tree(replicas: usize, service: Duration) -> ModelTree {
    let corpus = Arc::new(ModelCorpus::even(11, 1, 60));
    let gather = GatherConfig { extra_work_burst: 10_000, ..Default::default() };
    let tree = ModelTree::new(corpus, &Shape { leaves: replicas, replicas, gather, ..Default::default() });
    all(&tree, Script { start: service, ..Default::default() });
    for _ in 0..120 {
        assert_eq!(ask(&tree, HedgeMode::Off).await.tail.attempts, 1);
    }
    tree
}

fn ties(tree: &ModelTree) -> Vec<(String, u64, v1::Tie)> {
    let of_leaf = |(number, leaf): (usize, &Arc<canopy_tests::model_leaf::ModelLeaf>)| {
        let node = format!("leaf-{number}");
        let ties = leaf.seen.ties.lock().clone();
        ties.into_iter().map(move |(attempt, tie)| (node.clone(), attempt, tie)).collect::<Vec<_>>()
    };
    tree.leaves.iter().enumerate().flat_map(of_leaf).collect()
}

fn fates(gathered: &Gathered) -> Vec<(String, &str)> {
    let kind = |span: &v1::Span| span.name.rsplit(", ").next().unwrap_or_default().to_owned();
    gathered.spans.iter().map(|span| (kind(span), span.fate.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn both_copies_name_each_other_and_the_second_comes_after_the_tie_delay() {
    let tree = tree(2, ms(80)).await;
    let gathered = ask(&tree, HedgeMode::Tied).await;
    let expected = [("first".to_owned(), "won"), ("tied".to_owned(), "lost")];
    assert_eq!((fates(&gathered), gathered.tail.hedges), (expected.to_vec(), 1));
    let mut ties = ties(&tree);
    ties.sort_by_key(|tie| tie.1);
    let [(first, one, to_second), (second, two, to_first)] = &ties[..] else { panic!("{ties:?}") };
    assert!(first != second && one != two);
    assert_eq!((&to_second.peer, to_second.attempt_id, to_second.start_us), (second, *two, 0));
    assert_eq!((&to_first.peer, to_first.attempt_id), (first, *one));
    assert!((1000..=2000).contains(&to_first.start_us), "{to_first:?}");
}

#[tokio::test(start_paused = true)]
async fn what_answers_within_the_tie_delay_is_not_asked_twice() {
    let tree = tree(2, ms(80)).await;
    all(&tree, Script { start: Duration::ZERO, ..Default::default() });
    let gathered = ask(&tree, HedgeMode::Tied).await;
    assert_eq!((gathered.tail.attempts, gathered.tail.hedges), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_its_leaf_dropped_lost_and_nobody_is_blamed() {
    let tree = tree(2, ms(80)).await;
    let dropped = Fault::ShardFails(ErrorClass::Unavailable, 0);
    let search = ask(&tree, HedgeMode::Tied);
    let drop_the_second = async {
        tokio::task::yield_now().await;
        all(&tree, Script { start: ms(5), fault: dropped, ..Default::default() });
    };
    let (gathered, ()) = tokio::join!(search, drop_the_second);
    let expected = [("first".to_owned(), "won"), ("tied".to_owned(), "lost")];
    assert_eq!((fates(&gathered), gathered.tail.retries), (expected.to_vec(), 0));
    let metrics = &tree.gatherer.hedging().metrics;
    assert_eq!((metrics.sent.get(), metrics.lost.get(), metrics.failed.get()), (1, 1, 0));
}

#[tokio::test(start_paused = true)]
async fn when_the_one_that_went_on_fails_another_is_asked() {
    let tree = tree(3, ms(80)).await;
    let search = ask(&tree, HedgeMode::Tied);
    let change = async {
        all(
            &tree,
            Script { start: ms(50), fault: Fault::Refuse(ErrorClass::Internal), ..Default::default() },
        );
        tokio::task::yield_now().await;
        let dropped = Fault::ShardFails(ErrorClass::Unavailable, 0);
        all(&tree, Script { start: ms(5), fault: dropped, ..Default::default() });
        tokio::time::sleep(ms(40)).await;
        all(&tree, Script { start: ms(5), ..Default::default() });
    };
    let ((), gathered) = tokio::join!(biased; change, search);
    let fates = fates(&gathered);
    assert_eq!(fates.last(), Some(&("retry".to_owned(), "won")), "{fates:?}");
    assert_eq!((fates.len(), gathered.shards[0].outcome), (3, v1::Outcome::Answered as i32));
}

#[tokio::test(start_paused = true)]
async fn below_what_the_timers_can_do_it_hedges_like_auto() {
    let tree = tree(2, ms(20)).await;
    let gathered = ask(&tree, HedgeMode::Tied).await;
    assert_eq!((gathered.tail.attempts, ties(&tree).len()), (1, 0));
    all(&tree, Script { start: ms(200), ..Default::default() });
    let gathered = ask(&tree, HedgeMode::Tied).await;
    assert_eq!(fates(&gathered), [("first".to_owned(), "won"), ("hedge".to_owned(), "lost")]);
}
