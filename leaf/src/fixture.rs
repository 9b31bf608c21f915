//! A leaf inside a test: its parts without ports, real small shards, and searches that a test stands in for.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use canopy_common::{
    clock::{self, WallClock},
    deadline::Deadline,
    drain::Drain,
    ids::{AttemptId, NodeId, QueryId, ShardId, Version},
    limit::Admission,
    request::RequestContext,
};
use canopy_format::{
    manifest::Manifest,
    schema::Schema,
    store::{Corpus, VersionStore},
};
use canopy_indexer::build::BuildRequest;
use canopy_proto::v1::{
    FieldStatistics, Outcome, Query, SearchReply, SearchRequest, ShardReply, ShardRequest, Statistics,
    TermQuery, TermStatistics, query::Node,
};
use canopy_topology::{
    config::{NodeConfig, Placement, Role, TopologyConfig},
    routing::{Routing, RoutingSnapshot},
};
use futures::StreamExt;

use crate::{
    calls::Calls,
    config::LeafConfig,
    executor::Executor,
    lease::Leases,
    metrics::Metrics,
    node::{LeafNode, Parts, SearchShard},
    search_shard::{self, ShardResult},
    shards::{Place, Serving, Shards, files::ShardFiles, lifecycle::Lifecycle},
    testing::{self, Row},
    tie::peers::Tell,
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
    telling(config, search, "leaf-1", Box::new(|_, _| ()))
}

/// The same for a leaf of this name, which tells twins that way.
pub fn telling(config: LeafConfig, search: SearchShard, name: &str, tell: Tell) -> Arc<Parts> {
    let leases = Leases::new(77, config.lease_grace.0, config.leases as usize);
    Arc::new(Parts {
        max_message: 1 << 20,
        clock: Arc::new(clock::System),
        routing: RoutingSnapshot::default().into(),
        recent: Arc::default(),
        shards: Arc::new(Shards::new(NodeId::from(name), leases)),
        admission: Arc::new(Admission::new(config.bounds())),
        executor: Executor::start(config.search_threads(), config.room()).expect("threads"),
        tell,
        calls: Calls::default(),
        metrics: Metrics::new(&prometheus::Registry::new()),
        drain: Drain::new(),
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
    let rows =
        [Row::of("https://a.example/", "text", "red fox"), Row::of("https://b.example/", "text", "red")];
    ShardView { shard: ShardId::new("main", number), version: Version(version), ..testing::shard(&rows, 1) }
}

/// Makes the leaf serve a view.
pub fn hold(parts: &Parts, view: ShardView) -> u64 {
    let lease = parts.shards.leases.number();
    let place = Place { corpus: CORPUS.into(), shard: view.shard.clone(), version: Some(view.version) };
    parts.shards.board.want(place.clone());
    let probe = SearchRequest::default();
    let serving = Serving::new(CORPUS.into(), view, ShardFiles::default(), probe, lease);
    parts.shards.publish_at(&place, serving, Duration::ZERO);
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
    let reply =
        ShardReply { shard, outcome: Outcome::Answered as i32, documents_searched: 2, ..Default::default() };
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

const PATIENCE: Duration = Duration::from_mins(1);

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

/// Waits until `done`, by yielding to the runtime. Fails instead of hanging, by the machine's clock: the other one may be still.
pub async fn until(what: &str, done: impl Fn() -> bool) {
    let begun = clock::System.now_us();
    while !done() {
        assert!(clock::System.now_us() - begun < PATIENCE.as_micros() as i64, "{what} did not happen");
        tokio::task::yield_now().await;
    }
}

/// While this is held no time passes but by `advance`, however long the machine takes over what happens meanwhile. A clock that is
/// only paused jumps to the next timer while search threads work; one with a blocking task does not.
pub struct Still(Option<std::sync::mpsc::Sender<()>>);

impl Still {
    /// From now on. For a runtime of one thread.
    pub fn hold() -> Self {
        let (held, end) = std::sync::mpsc::channel();
        tokio::task::spawn_blocking(move || end.recv());
        tokio::time::pause();
        Self(Some(held))
    }
}

impl Drop for Still {
    fn drop(&mut self) {
        self.0 = None;
        tokio::time::resume();
    }
}

/// A version in a store of its own, built by the real pipeline.
pub struct Built {
    /// Holds the store's directory.
    pub directory: tempfile::TempDir,
    /// The store.
    pub store: VersionStore,
    /// The version's manifest.
    pub manifest: Manifest,
}

impl Built {
    /// Builds `documents` (objects of the `web` schema) into `shards` shards.
    pub async fn new(documents: &[serde_json::Value], shards: u32) -> Self {
        let directory = tempfile::tempdir().expect("temporary directory");
        let store =
            VersionStore::open(&directory.path().join("store").to_string_lossy(), true).expect("store");
        let corpus = Corpus {
            name: CORPUS.into(),
            schema: Schema::web(),
            partitions: 1,
            ordering: canopy_format::store::Ordering::Log,
        };
        store.create_corpus(&corpus).await.expect("corpus");
        let manifest = build(directory.path(), &store, documents, shards).await;
        Self { directory, store, manifest }
    }

    /// Builds the next version.
    pub async fn next(&mut self, documents: &[serde_json::Value]) {
        let shards = self.manifest.shards.len() as u32;
        self.manifest = build(self.directory.path(), &self.store, documents, shards).await;
    }

    /// The version's directory.
    pub fn version_dir(&self) -> std::path::PathBuf {
        self.store.version_dir(CORPUS, self.manifest.version).expect("local")
    }

    /// A routing snapshot that places every shard on leaf `leaf-1`.
    pub fn routing(&self) -> RoutingSnapshot {
        let node = NodeConfig {
            id: "leaf-1".into(),
            role: Role::Leaf,
            address: "127.0.0.1:1".into(),
            admin: String::new(),
            zone: String::new(),
        };
        let shards = self.manifest.shards.iter().map(|entry| entry.shard.to_string()).collect();
        let placement =
            Placement { corpus: CORPUS.into(), shards, replicas: vec!["leaf-1".into()], version: 0 };
        let config =
            TopologyConfig { nodes: vec![node], placements: vec![placement], ..TopologyConfig::default() };
        RoutingSnapshot::from_static(&config).expect("routing")
    }

    /// Opens every shard on a fresh leaf.
    pub async fn open(&self, config: LeafConfig) -> (Arc<Parts>, LeafNode) {
        let parts = parts(config, real());
        self.open_on(&parts).await;
        (parts.clone(), LeafNode::new(parts))
    }

    /// Opens every shard on this leaf.
    pub async fn open_on(&self, parts: &Parts) {
        follow(parts, self.store.clone(), self.routing().into()).await;
    }

    /// A search for one analysed word of the search field on all shards, with the numbers of the manifest.
    pub fn request(&self, token: &str) -> SearchRequest {
        let term = TermQuery { field: "text".into(), tokens: vec![token.into()], boost: 0.0 };
        let statistics = &self.manifest.statistics;
        SearchRequest {
            query: Some(Query { node: Some(Node::Term(term)) }),
            statistics: Some(Statistics {
                id: statistics.id.clone(),
                documents: statistics.documents,
                fields: vec![FieldStatistics {
                    field: "text".into(),
                    tokens: statistics.tokens.get("text").copied().unwrap_or(0),
                }],
                terms: vec![TermStatistics { field: "text".into(), token: token.into(), documents: 2 }],
            }),
            version: self.manifest.version.0,
            ..request(self.manifest.shards.len() as u32)
        }
    }
}

async fn build(
    directory: &std::path::Path,
    store: &VersionStore,
    documents: &[serde_json::Value],
    shards: u32,
) -> Manifest {
    let input = directory.join("documents.jsonl");
    let lines: Vec<String> = documents.iter().map(ToString::to_string).collect();
    std::fs::write(&input, lines.join("\n")).expect("input");
    let mut request = BuildRequest::new(store.clone(), CORPUS, vec![input]);
    request.shards = Some(shards);
    request.memory = 64 << 20;
    request.warmup = Some(vec!["red fox".into(), "***".into()]);
    let report = canopy_indexer::build::run(request).await.expect("build");
    store.manifest(CORPUS, report.version).await.expect("manifest")
}

/// Follows `routing` until every shard has come to an end; what is held stays.
pub async fn follow(parts: &Parts, store: VersionStore, routing: Routing) {
    let (config, recent) = (parts.config.clone(), parts.recent.clone());
    let lifecycle = Lifecycle::new(store, parts.shards.clone(), config, recent, parts.drain.clone());
    let settled = until("every shard settles", || parts.shards.board.settled());
    tokio::select! {
        biased;
        () = Arc::new(lifecycle).run(routing) => {}
        () = settled => {}
    }
}

/// `count` small pages; every third is about a red fox.
pub fn pages(count: usize) -> Vec<serde_json::Value> {
    let page = |n: usize| {
        let what = if n.is_multiple_of(3) { "A red fox & its <den>" } else { "A grey wolf" };
        serde_json::json!({
            "url": format!("https://{n}.example/"),
            "title": format!("Page <{n}>"),
            "body": format!("{what} were seen on day {n}. Nothing else happened."),
            "lang": "en",
            "host": format!("{n}.example"),
            "attributes": { "color": if n.is_multiple_of(2) { "red" } else { "grey" } },
        })
    };
    (0..count).map(page).collect()
}
