//! When the caller leaves, a branch is done with, or a part is withdrawn, the work below stops.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use canopy_aggregator::{
    config::GatherConfig,
    endpoints::Endpoints,
    gather::{Decision, Gatherer},
};
use canopy_common::{
    deadline::Deadline,
    error::Failure,
    ids::{AttemptId, NodeId},
    request::RequestContext,
};
use canopy_proto::{ReplyStream, SearchNode, v1};
use canopy_tests::{
    invariants::{check, running},
    model_corpus::ModelCorpus,
    model_leaf::Fault,
    model_tree::{ModelTree, Shape, deps, topology},
};
use canopy_topology::{config::Role, routing::RoutingSnapshot};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use tokio::time::Instant;

fn tree(gather: GatherConfig, aggregators: usize) -> ModelTree {
    let corpus = Arc::new(ModelCorpus::generate(21, 16, 40));
    ModelTree::new(corpus, &Shape { gather, aggregators, ..Default::default() })
}

fn deep() -> GatherConfig {
    GatherConfig { fanout_max: 2, ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_stops_every_leaf_through_all_levels() {
    for (gather, aggregators) in [(GatherConfig::default(), 0), (deep(), 3)] {
        let tree = tree(gather, aggregators);
        for leaf in &tree.leaves {
            leaf.script(|script| script.fault = Fault::Hang(0));
        }
        let context = tree.context(Duration::from_secs(5));
        let request = Arc::new(tree.corpus.request(context.query, 10));
        let search = tree.gatherer.search(&context, &tree.routing, request.clone());
        tokio::pin!(search);
        let waited = tokio::time::timeout(Duration::from_millis(50), &mut search).await;
        assert!(waited.is_err() && running(&tree) > 0);
        context.cancel.cancel();
        let start = Instant::now();
        let gathered = search.await;
        assert_eq!(start.elapsed(), Duration::ZERO);
        assert_eq!(gathered.decision, Some(Decision::Cancelled));
        assert_eq!(running(&tree), 0);
        assert_eq!(check(&tree.corpus, &request, &gathered).timed_out, 16);
    }
}

#[tokio::test(start_paused = true)]
async fn dropping_the_search_stops_every_leaf() {
    let tree = tree(deep(), 3);
    for leaf in &tree.leaves {
        leaf.script(|script| script.fault = Fault::Hang(1));
    }
    let request = tree.corpus.request(tree.query(), 10);
    let search = tree.search(request, Duration::from_secs(5));
    assert!(tokio::time::timeout(Duration::from_millis(50), search).await.is_err());
    assert_eq!(running(&tree), 0);
}

#[tokio::test(start_paused = true)]
async fn a_search_that_stops_early_leaves_nothing_running() {
    let tree = tree(GatherConfig::default(), 0);
    tree.leaves[1].script(|script| script.fault = Fault::Hang(0));
    let mut request = tree.corpus.request(tree.query(), 10);
    request.completion =
        Some(v1::Completion { mode: v1::completion::Mode::AllBut as i32, all_but: 12, min_coverage: 0.0 });
    let gathered = tree.search(request.clone(), Duration::from_secs(5)).await;
    check(&tree.corpus, &request, &gathered);
    assert_eq!(running(&tree), 0);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_cancels_at_any_moment_end_each_search_once() {
    let tree = Arc::new(tree(deep(), 3));
    let moments = tree.dice.stream("moments");
    let mut searches = tokio::task::JoinSet::new();
    for _ in 0..1000 {
        let (tree, after) = (tree.clone(), Duration::from_micros(moments.below(12_000)));
        searches.spawn(async move {
            let context = tree.context(Duration::from_millis(100));
            let request = Arc::new(tree.corpus.request(context.query, 10));
            let cancel = context.cancel.clone();
            let search = tree.gatherer.search(&context, &tree.routing, request.clone());
            let leave = async {
                tokio::time::sleep(after).await;
                cancel.cancel();
            };
            let (gathered, ()) = tokio::join!(search, leave);
            check(&tree.corpus, &request, &gathered);
            gathered.decision
        });
    }
    let mut ended = Vec::new();
    while let Some(result) = searches.join_next().await {
        ended.push(result.expect("no search panics"));
    }
    assert_eq!(ended.len(), 1000);
    assert!(ended.contains(&Some(Decision::Cancelled)) && ended.contains(&Some(Decision::All)));
    assert_eq!(running(&tree), 0);
}

#[tokio::test(start_paused = true)]
async fn a_part_that_is_withdrawn_stops_below_and_the_rest_goes_on() {
    let tree = tree(GatherConfig::default(), 1);
    for leaf in &tree.leaves {
        leaf.script(|script| {
            script.batch = 1;
            script.shard = Duration::from_millis(10);
        });
    }
    let context = tree.context(Duration::from_secs(1));
    let context = context.child(AttemptId(77), context.deadline);
    let request = v1::SearchRequest { level: 1, attempt_id: 77, ..tree.corpus.request(context.query, 10) };
    let query_id = context.query.0.to_vec();
    let aggregator = tree.aggregators[0].clone();
    let mut replies = aggregator.search(context, request);
    let first = replies.next().await.unwrap().unwrap();
    let settled: Vec<u32> = first.shards.iter().map(|shard| shard.shard).collect();
    assert!(!settled.is_empty() && settled.len() < 8);
    // One shard of each leaf's set, and all shards of leaf 3's set.
    let part: Vec<u32> = (8..16).filter(|shard| !settled.contains(shard)).chain([3, 7]).collect();
    let withdraw = v1::CancelRequest {
        query_id: query_id.clone(),
        attempt_id: 77,
        shards: part.clone(),
        ..Default::default()
    };
    let (stopped, rest) = tokio::join!(aggregator.cancel(withdraw), replies.collect::<Vec<_>>());
    let stopped = stopped.unwrap();
    assert!(stopped as usize <= part.len() && stopped >= 8, "{stopped}");
    let mut outcomes: Vec<(u32, i32)> = first
        .shards
        .into_iter()
        .chain(rest.into_iter().flat_map(|reply| reply.unwrap().shards))
        .map(|shard| (shard.shard, shard.outcome))
        .collect();
    outcomes.sort_unstable();
    assert_eq!(outcomes.iter().map(|entry| entry.0).collect::<Vec<_>>(), (0..16).collect::<Vec<_>>());
    let answered = outcomes.iter().filter(|entry| entry.1 == v1::Outcome::Answered as i32).count();
    assert_eq!(answered, 16 - stopped as usize);
    let told: u64 = tree.leaves.iter().map(|leaf| leaf.seen.cancelled.load(Ordering::SeqCst)).sum();
    assert!(told > 0, "leaves are told of a part");
    assert_eq!(running(&tree), 0);
    // It is over: nothing is left to withdraw.
    let again = v1::CancelRequest { query_id, attempt_id: 77, ..Default::default() };
    assert_eq!(aggregator.cancel(again).await.unwrap(), 0);
}

/// A leaf whose every reply is there at once: a thousand shards with ten thousand hits each.
struct Flood {
    sent: Arc<AtomicUsize>,
}

impl SearchNode for Flood {
    fn search(&self, _: RequestContext, request: v1::SearchRequest) -> ReplyStream {
        let sent = self.sent.clone();
        let replies = (0..request.shards.len() as u32).map(move |shard| {
            sent.fetch_add(1, Ordering::SeqCst);
            let hit = |n: u32| v1::Hit {
                shard,
                key_high: u64::from(shard),
                key_low: u64::from(n),
                score: ((n ^ shard) % 1000) as f32,
                ..Default::default()
            };
            let outcome = v1::Outcome::Answered as i32;
            let settled = v1::ShardReply { shard, outcome, version: request.version, ..Default::default() };
            let hits = (0..10_000).map(hit).collect();
            Ok(v1::SearchReply { hits, shards: vec![settled], ..Default::default() })
        });
        stream::iter(replies).boxed()
    }

    fn fetch(
        &self,
        _: RequestContext,
        _: v1::FetchRequest,
    ) -> BoxFuture<'static, Result<v1::FetchReply, Failure>> {
        futures::future::ready(Ok(v1::FetchReply::default())).boxed()
    }

    fn cancel(&self, _: v1::CancelRequest) -> BoxFuture<'static, Result<u32, Failure>> {
        futures::future::ready(Ok(0)).boxed()
    }
}

struct One(Arc<Flood>);

impl Endpoints for One {
    fn get(&self, _: &NodeId) -> Option<Arc<dyn SearchNode>> {
        Some(self.0.clone())
    }
}

/// Replies that are all there at once must not keep a cancel, or the deadline, from being seen.
#[tokio::test(start_paused = true)]
async fn a_cancel_during_a_large_merge_is_seen_within_a_message_or_two() {
    let corpus = ModelCorpus::even(1, 1000, 0);
    let shape = Shape { leaves: 1, replicas: 1, ..Default::default() };
    let routing = Arc::new(RoutingSnapshot::from_static(&topology(&corpus, &shape)).unwrap());
    let flood = Arc::new(Flood { sent: Arc::default() });
    let config = GatherConfig { branch_shards: 1024, ..Default::default() };
    let engine = Gatherer::new("root".into(), Role::Root, Arc::new(One(flood.clone())), config, &deps(1));
    let query = deps(2).dice.query_id();
    let context = RequestContext::new(query, AttemptId(0), Deadline::after(Duration::from_mins(1)));
    let (request, cancel) = (Arc::new(corpus.request(query, 10_000)), context.cancel.clone());
    let searching =
        tokio::spawn(async move { Arc::new(engine).search(&context, &routing, request).await.decision });
    while flood.sent.load(Ordering::SeqCst) < 20 {
        tokio::task::yield_now().await;
    }
    let merged = flood.sent.load(Ordering::SeqCst);
    cancel.cancel();
    assert_eq!(searching.await.unwrap(), Some(Decision::Cancelled));
    let more = flood.sent.load(Ordering::SeqCst) - merged;
    assert!(more <= 2, "{more} messages of 10,000 hits were merged for nobody");
}
