//! A small corpus, model leaves and a root over them, for the tests of this crate. The engine is the real one; the
//! leaves answer, fail or fall silent as they are told.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use axum::Router;
use canopy_aggregator::{config::GatherConfig, endpoints::Endpoints, gather::Gatherer};
use canopy_common::{
    admin::AdminPages,
    clock::{self, WallClock},
    deps::Deps,
    drain::Drain,
    error::{ErrorClass, Failure},
    ids::{Epoch, KeyHash, NodeId, ShardId, Version},
    net::NetIo,
    request::RequestContext,
    rng::Dice,
    telemetry::Telemetry,
};
use canopy_format::{
    analysis::Analyzer,
    layout::Layout,
    manifest::{BuildCounts, FORMAT, FileEntry, Manifest, ShardEntry},
    schema::{SEARCH_FIELD, Schema},
    statistics::{self, Statistics},
};
use canopy_proto::{ReplyStream, SearchNode, v1};
use canopy_topology::{
    config::Role,
    routing::{CorpusRouting, Node, RoutingSnapshot},
};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use parking_lot::Mutex;

use crate::{config::RootConfig, health::RootHealth, http::App, search::Root, serve, versions::CorpusState};

/// The version of the fixture.
pub const VERSION: u64 = 7;

/// What a model leaf does with a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    /// Answers at once.
    Answers,
    /// Answers, having stopped before the first document.
    CutAtNothing,
    /// Never answers.
    Hangs,
    /// Fails.
    Fails(ErrorClass),
}

/// A leaf that holds one shard.
pub struct ModelLeaf {
    shard: ShardId,
    /// (key, score), any order.
    documents: Vec<(String, f32)>,
    /// What it does with searches.
    pub search: Mutex<Mood>,
    /// What it does with fetches.
    pub fetch: Mutex<Mood>,
    /// A version of which it fails every search, and one of which it has no document any more; 0: none.
    pub lost: Mutex<(u64, u64)>,
    /// The one version that it has, and the epoch of the snapshot by which it has it; `None`: all.
    pub holds: Mutex<Option<(u64, u64)>>,
    /// Calls that run.
    pub running: Arc<AtomicU32>,
    /// What it says of its overlay: documents, how far it is behind in milliseconds, and whether it lacks some.
    pub overlay: Mutex<(u64, u64, bool)>,
    /// Searches it saw.
    pub seen: Mutex<Vec<v1::SearchRequest>>,
}

struct Call(Arc<AtomicU32>);

impl Call {
    fn begin(running: &Arc<AtomicU32>) -> Self {
        running.fetch_add(1, Ordering::SeqCst);
        Self(running.clone())
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl ModelLeaf {
    fn reply(&self, request: &v1::SearchRequest, cut: bool) -> v1::SearchReply {
        let asked = &request.shards[0];
        let (documents_overlay, lag_ms, stale) = *self.overlay.lock();
        let place = |score: f32, hash: KeyHash| (std::cmp::Reverse(ordered(score)), hash);
        let after = asked
            .after
            .as_ref()
            .map(|after| place(after.score, KeyHash::from_parts(after.key_high, after.key_low)));
        let mut found: Vec<_> =
            self.documents.iter().map(|(key, score)| (place(*score, KeyHash::of(key)), *score)).collect();
        found.sort_by_key(|(place, _)| *place);
        found.retain(|(place, _)| after.is_none_or(|after| *place > after));
        found.truncate(asked.k as usize);
        let hits = found.iter().map(|((_, hash), score)| {
            let (key_high, key_low) = hash.parts();
            let overlay = documents_overlay > 0;
            v1::Hit { key_high, key_low, score: *score, overlay, ..Default::default() }
        });
        let count = self.documents.len() as u64;
        let searched = if cut { 0 } else { count };
        let facets = request.facets.iter().enumerate().map(|(i, _)| v1::FacetCounts {
            facet: i as u32,
            values: vec!["en".to_owned()],
            counts: vec![count],
            omitted_max: 0,
        });
        let reply = v1::ShardReply {
            documents_overlay,
            lag_ms,
            stale,
            offsets: request.wanted_offsets.clone(),
            outcome: v1::Outcome::Answered as i32,
            cut: if cut { v1::Cut::Deadline } else { v1::Cut::None } as i32,
            version: request.version,
            documents_searched: searched,
            total: searched,
            facets: facets.collect(),
            node: self.shard.to_string().replace('/', "-"),
            lease: 1,
            search_us: 1000,
            ..Default::default()
        };
        let hits = if cut { Vec::new() } else { hits.collect() };
        v1::SearchReply { hits, shards: vec![reply], ..Default::default() }
    }

    /// What it says of a version that it does not have.
    fn refusal(&self, request: &v1::SearchRequest) -> Option<v1::SearchReply> {
        let (version, epoch) = (*self.holds.lock()).filter(|(version, _)| *version != request.version)?;
        let shard = v1::ShardReply {
            outcome: v1::Outcome::Failed as i32,
            error_class: ErrorClass::FailedPrecondition as u32,
            reason: format!("it serves v{version}, not v{}", request.version),
            wrong_epoch: epoch,
            instead: Some(v1::Instead { version, epoch }),
            ..Default::default()
        };
        Some(v1::SearchReply { shards: vec![shard], ..Default::default() })
    }

    fn document(&self, item: &v1::FetchItem) -> v1::FetchedDocument {
        let wanted = KeyHash::from_parts(item.key_high, item.key_low);
        let Some((key, _)) = self.documents.iter().find(|(key, _)| KeyHash::of(key) == wanted) else {
            return v1::FetchedDocument { reason: "no such document".to_owned(), ..Default::default() };
        };
        v1::FetchedDocument {
            filled: true,
            key: key.clone(),
            title: format!("Title of <{key}>"),
            snippet: "a <b>word</b> &amp; more".to_owned(),
            snippet_text: "a word & more".to_owned(),
            ranges: vec![v1::SnippetRange { start: 2, end: 6 }],
            fields_json: r#"{"lang":"en","host":"example.org","published":1700000000000000}"#.to_owned(),
            explain_json: r#"{"score":1.5,"parts":[{"kind":"term","token":"rust","score":1.5}]}"#.to_owned(),
            ..Default::default()
        }
    }
}

/// Positive floats order as their bits do.
fn ordered(score: f32) -> u32 {
    score.to_bits()
}

impl SearchNode for ModelLeaf {
    fn search(&self, _: RequestContext, request: v1::SearchRequest) -> ReplyStream {
        let call = Call::begin(&self.running);
        let reply = match *self.search.lock() {
            _ if self.lost.lock().0 == request.version => {
                Err(Failure::new(ErrorClass::Internal, "the connection broke"))
            }
            Mood::Answers => Ok(self.refusal(&request).unwrap_or_else(|| self.reply(&request, false))),
            Mood::CutAtNothing => Ok(self.reply(&request, true)),
            Mood::Fails(class) => Err(Failure::new(class, "the model was told to fail")),
            Mood::Hangs => {
                let silent = async move {
                    let _call = call;
                    futures::future::pending().await
                };
                return futures::stream::once(silent).boxed();
            }
        };
        self.seen.lock().push(request);
        futures::stream::once(async move {
            let _call = call;
            reply
        })
        .boxed()
    }

    fn fetch(
        &self,
        _: RequestContext,
        request: v1::FetchRequest,
    ) -> BoxFuture<'static, Result<v1::FetchReply, Failure>> {
        let reply = match *self.fetch.lock() {
            _ if self.lost.lock().1 == request.version => {
                Err(Failure::new(ErrorClass::Unavailable, "nobody is there"))
            }
            Mood::Fails(class) => Err(Failure::new(class, "the model was told to fail")),
            Mood::Hangs => return futures::future::pending().boxed(),
            _ => Ok(v1::FetchReply {
                documents: request.items.iter().map(|item| self.document(item)).collect(),
                call: None,
            }),
        };
        futures::future::ready(reply).boxed()
    }

    fn cancel(&self, _: v1::CancelRequest) -> BoxFuture<'static, Result<u32, Failure>> {
        futures::future::ready(Ok(0)).boxed()
    }
}

/// The leaves, found by name.
pub struct Leaves(pub BTreeMap<NodeId, Arc<ModelLeaf>>);

impl Endpoints for Leaves {
    fn get(&self, node: &NodeId) -> Option<Arc<dyn SearchNode>> {
        self.0.get(node).map(|leaf| leaf.clone() as Arc<dyn SearchNode>)
    }
}

/// A version of `shards` shards with `each` documents.
pub fn corpus(shards: u32, each: u64) -> CorpusState {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("terms.fst");
    let manifest = manifest(&path, shards, each);
    // The map stays readable after its directory is gone.
    let opened = Statistics::open(&path, &manifest.statistics).unwrap();
    CorpusState::new(manifest, opened)
}

/// A valid manifest whose statistics lie at `path`.
pub fn manifest(path: &std::path::Path, shards: u32, each: u64) -> Manifest {
    let schema = Schema::web();
    let documents = u64::from(shards) * each;
    let words = ["canopy", "rust", "search", "tree"];
    let terms = words.map(|term| (statistics::key(SEARCH_FIELD, term), documents.max(1)));
    let spellings = words.map(|term| Ok((statistics::key(term, term), 1)));
    let spellings: Vec<statistics::Counts> = vec![Box::new(spellings.into_iter())];
    let tokens = BTreeMap::from([(SEARCH_FIELD.to_owned(), documents * 100)]);
    let terms: Vec<statistics::Counts> = vec![Box::new(terms.into_iter().map(Ok))];
    let entry = statistics::write(path, documents.max(1), tokens, terms, spellings).unwrap();
    let shard = |number| ShardEntry {
        shard: ShardId::new("main", number),
        documents: each,
        files: vec![FileEntry {
            path: format!("{}/data", Manifest::shard_dir(&ShardId::new("main", number))),
            bytes: 0,
            blake3: "0".repeat(64),
        }],
        bytes: 0,
        tokens: BTreeMap::from([(SEARCH_FIELD.to_owned(), each * 100)]),
        resident_bytes: 0,
    };
    Manifest {
        format: FORMAT,
        corpus: "web".to_owned(),
        version: Version(VERSION),
        parent: None,
        created: "2024-01-01T00:00:00Z".to_owned(),
        builder: "test".to_owned(),
        schema_id: schema.id(),
        schema,
        analysis_id: Analyzer::id().to_owned(),
        layouts: vec![Layout::first("main", shards).unwrap()],
        cut: BTreeMap::new(),
        log: String::new(),
        whole: false,
        statistics: entry,
        shards: (0..shards).map(shard).collect(),
        languages: BTreeMap::from([("en".to_owned(), documents)]),
        counts: BuildCounts::default(),
        warmup: vec!["rust search".to_owned()],
    }
}

/// Waits without moving the clock. Fails instead of hanging, by the machine's clock: a paused one stands still meanwhile.
pub async fn until(what: &str, done: impl Fn() -> bool) {
    let begun = clock::System.now_us();
    while !done() {
        assert!(clock::System.now_us() - begun < 60_000_000, "it never comes that {what}");
        tokio::task::yield_now().await;
    }
}

/// A root over model leaves of one shard each.
pub struct Tree {
    /// The root.
    pub root: Arc<Root>,
    /// The leaves of the first row, by shard number.
    pub leaves: Vec<Arc<ModelLeaf>>,
    /// The leaves of all rows.
    pub rows: Vec<Vec<Arc<ModelLeaf>>>,
    /// Its pages.
    pub router: Router,
    /// Its drain.
    pub drain: Drain,
    /// Its metrics.
    pub telemetry: Telemetry,
}

/// Builds a tree of one row; see [`rows`].
pub fn tree(shards: u32, each: u64, config: RootConfig) -> Tree {
    rows(1, shards, each, config)
}

/// The leaf of a shard in a row.
pub fn leaf_of(row: u32, shard: u32) -> NodeId {
    let name = if row == 0 { format!("leaf-{shard}") } else { format!("leaf-{row}-{shard}") };
    name.as_str().into()
}

/// Builds a tree; document `n` of shard `s` has the key `https://example.org/s/n` and the score `10 - n % 5`.
pub fn rows(rows: u32, shards: u32, each: u64, config: RootConfig) -> Tree {
    let mut leaves = vec![Vec::new(); rows as usize];
    let mut known = BTreeMap::new();
    let mut placed = BTreeMap::new();
    let mut nodes = BTreeMap::new();
    for (number, row) in (0..shards).flat_map(|number| (0..rows).map(move |row| (number, row))) {
        let shard = ShardId::new("main", number);
        let node = leaf_of(row, number);
        let leaf = Arc::new(ModelLeaf {
            shard: shard.clone(),
            documents: (0..each)
                .map(|n| (format!("https://example.org/{number}/{n}"), 10.0 - (n % 5) as f32))
                .collect(),
            search: Mutex::new(Mood::Answers),
            fetch: Mutex::new(Mood::Answers),
            lost: Mutex::default(),
            holds: Mutex::default(),
            overlay: Mutex::default(),
            running: Arc::default(),
            seen: Mutex::default(),
        });
        leaves[row as usize].push(leaf.clone());
        known.insert(node.clone(), leaf);
        placed.insert(shard, (0..rows).map(|row| leaf_of(row, number)).collect());
        let (address, admin, zone) = (format!("{node}:1"), String::new(), String::new());
        nodes.insert(node, Node { role: Role::Leaf, address, admin, zone });
    }
    let routed =
        CorpusRouting { version: Some(Version(VERSION)), shards: placed, ..CorpusRouting::default() };
    let routing = Arc::new(RoutingSnapshot {
        epoch: Epoch(1),
        nodes,
        corpora: BTreeMap::from([("web".to_owned(), routed)]),
        ..RoutingSnapshot::default()
    });
    let telemetry = Telemetry::default();
    let deps = Deps {
        net: NetIo::tcp(),
        clock: Arc::new(clock::Manual::default()),
        dice: Dice::seeded(1),
        telemetry: telemetry.clone(),
    };
    let drain = Drain::new();
    let node = NodeId::from("root-0");
    let leaves_by_name = Arc::new(Leaves(known));
    let gatherer = Gatherer::new(node.clone(), Role::Root, leaves_by_name, GatherConfig::default(), &deps);
    let routing = canopy_topology::routing::Routing::from(routing);
    let gatherer = Arc::new(gatherer.following(routing.clone()));
    let query_log = config.query_log.clone().into();
    let root = Arc::new(serve::root(node, config, gatherer, routing, query_log, &deps, &drain));
    root.versions.publish(corpus(shards, each));
    let health = Arc::new(RootHealth::new(root.clone()));
    let admin = AdminPages { health, telemetry: telemetry.clone(), drain: drain.clone() };
    let router = crate::http::router(App { root: root.clone(), admin });
    Tree { root, leaves: leaves[0].clone(), rows: leaves, router, drain, telemetry }
}
