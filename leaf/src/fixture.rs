//! A leaf inside a test: its parts without ports, real small shards, and searches that a test stands in for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use canopy_common::{
    deadline::Deadline,
    ids::{AttemptId, Epoch, NodeId, QueryId, ShardId, Version},
    request::RequestContext,
};
use canopy_proto::v1::{Outcome, SearchReply, SearchRequest, ShardReply, ShardRequest};
use futures::StreamExt;

use crate::{
    calls::Calls,
    config::LeafConfig,
    executor::Executor,
    lease::Leases,
    metrics::Metrics,
    node::{LeafNode, Parts, SearchShard},
    search_shard::{self, ShardResult},
    shards::{Serving, Shards, files::ShardFiles},
    testing::{self, Row},
    view::ShardView,
};

/// Corpus of the fixtures.
pub const CORPUS: &str = "web";

/// Settings of a small leaf.
pub fn config(threads: u32, queue: u32) -> LeafConfig {
    LeafConfig { threads, queue, batch_queue: 4, ..LeafConfig::default() }
}

/// Parts of a leaf that holds nothing yet.
pub fn parts(config: LeafConfig, search: SearchShard) -> Arc<Parts> {
    let leases = Leases::new(77, config.lease_grace.0, config.leases as usize);
    Arc::new(Parts {
        max_message: 1 << 20,
        epoch: Epoch(1),
        shards: Arc::new(Shards::new(NodeId::from("leaf-1"), leases)),
        executor: Executor::start(
            config.search_threads(),
            config.queue as usize,
            config.batch_queue as usize,
        )
        .expect("threads"),
        calls: Calls::default(),
        metrics: Metrics::new(&prometheus::Registry::new()),
        slow: canopy_common::telemetry::SlowQueries::default(),
        search,
        config,
    })
}

/// The real search.
pub fn real() -> SearchShard {
    Box::new(search_shard::search)
}

/// A tiny view of shard `main/number`.
pub fn view(number: u32, version: u64) -> ShardView {
    let rows = [Row::of("https://a.example/", "text", "red fox"), Row::of("https://b.example/", "text", "red")];
    ShardView { shard: ShardId::new("main", number), version: Version(version), ..testing::shard(&rows, 1) }
}

/// Makes the leaf serve a view.
pub fn hold(parts: &Parts, view: ShardView) -> u64 {
    let lease = parts.shards.leases.number();
    parts.shards.board.want(CORPUS, &view.shard, Some(view.version));
    let probe = SearchRequest::default();
    parts.shards.publish(Serving::new(CORPUS.into(), view, ShardFiles::default(), probe, lease));
    lease
}

/// A leaf with shards `main/0..shards` at version 1.
pub fn leaf(config: LeafConfig, shards: u32, search: SearchShard) -> (Arc<Parts>, LeafNode) {
    let parts = parts(config, search);
    (0..shards).for_each(|number| {
        hold(&parts, view(number, 1));
    });
    (parts.clone(), LeafNode::new(parts))
}

/// A request for shards `main/0..shards` of version 1.
pub fn request(shards: u32) -> SearchRequest {
    let shard =
        |number| ShardRequest { shard: format!("main/{number}"), k: 10, documents: 2, ..Default::default() };
    SearchRequest {
        corpus: CORPUS.into(),
        version: 1,
        shards: (0..shards).map(shard).collect(),
        ..Default::default()
    }
}

/// A context that ends after `budget`.
pub fn context(query: u8, budget: Duration) -> RequestContext {
    RequestContext::new(QueryId([query; 16]), AttemptId(1), Deadline::after(budget))
}

/// An answer of a search that a test makes up.
pub fn answered(shard: u32) -> ShardResult {
    let reply = ShardReply {
        shard,
        outcome: Outcome::Answered as i32,
        documents_searched: 2,
        ..Default::default()
    };
    ShardResult { hits: Vec::new(), reply, failure: None }
}

/// All replies of a stream that does not fail.
pub async fn collect(mut stream: canopy_proto::ReplyStream) -> Vec<SearchReply> {
    let mut replies = Vec::new();
    while let Some(reply) = stream.next().await {
        replies.push(reply.expect("no failure"));
    }
    replies
}

/// The shard replies of a stream, by shard; every shard must be there once.
pub async fn outcomes(stream: canopy_proto::ReplyStream, shards: u32) -> Vec<ShardReply> {
    let replies = collect(stream).await;
    let mut found: Vec<_> = replies.into_iter().flat_map(|reply| reply.shards).collect();
    found.sort_by_key(|reply| reply.shard);
    assert_eq!(
        found.iter().map(|reply| reply.shard).collect::<Vec<_>>(),
        (0..shards).collect::<Vec<_>>(),
        "every asked shard settles exactly once"
    );
    found
}

/// A gate that searches of a test wait at. Waits on a channel, so no thread spins or sleeps.
#[derive(Clone)]
pub struct Gate {
    entered: crossbeam_channel::Sender<u32>,
    seen: crossbeam_channel::Receiver<u32>,
    release: crossbeam_channel::Sender<()>,
    released: crossbeam_channel::Receiver<()>,
}

impl Default for Gate {
    fn default() -> Self {
        let (entered, seen) = crossbeam_channel::unbounded();
        let (release, released) = crossbeam_channel::unbounded();
        Self { entered, seen, release, released }
    }
}

const PATIENCE: Duration = Duration::from_secs(20);

impl Gate {
    /// Waits until it is opened once more; for a search thread.
    pub fn pass(&self, shard: u32) {
        let _told = self.entered.send(shard);
        let _open_or_given_up = self.released.recv_timeout(PATIENCE);
    }

    /// A search that waits here, whatever its deadline.
    pub fn search(&self) -> SearchShard {
        let gate = self.clone();
        Box::new(move |_, _, shard, _| {
            gate.pass(shard);
            answered(shard)
        })
    }

    /// Lets `count` searches pass.
    pub fn open(&self, count: usize) {
        (0..count).for_each(|_| self.release.send(()).expect("open"));
    }

    /// The next shard whose search has come to the gate.
    pub async fn arrival(&self) -> u32 {
        let seen = self.seen.clone();
        let wait = tokio::task::spawn_blocking(move || seen.recv_timeout(PATIENCE));
        wait.await.expect("join").expect("a search came to the gate")
    }

    /// Searches that have come to the gate and were not asked about.
    pub fn arrived(&self) -> usize {
        self.seen.len()
    }
}

/// Counts, across threads.
#[derive(Clone, Default)]
pub struct Count(Arc<AtomicU8>);

impl Count {
    /// One more; the number before.
    pub fn add(&self) -> u8 {
        self.0.fetch_add(1, Ordering::SeqCst)
    }

    /// The number.
    pub fn get(&self) -> u8 {
        self.0.load(Ordering::SeqCst)
    }
}

/// Waits until `done`, by yielding to the runtime.
pub async fn until(what: &str, done: impl Fn() -> bool) {
    let start = tokio::time::Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what} did not happen");
        tokio::task::yield_now().await;
    }
}
