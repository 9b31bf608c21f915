//! The production root over a simulated network: its `serve` on one host, model leaves behind production gRPC, a
//! browser-like client that speaks HTTP/1.1 and leaves when told to. The root opens a version from a real directory; a
//! simulated host's clock stands still while a blocking call runs, so that repeats too.

use std::{cell::RefCell, collections::BTreeMap, fs, path::Path, rc::Rc, sync::Arc, time::Duration};

use canopy_common::{
    drain::Drain,
    ids::{NodeId, ShardId, Version},
    rpc::RpcConfig,
};
use canopy_format::{
    analysis::Analyzer,
    layout::Layout,
    manifest::{BuildCounts, FORMAT, FileEntry, Manifest, ShardEntry},
    schema::{SEARCH_FIELD, Schema},
    statistics,
    store::{Corpus, Ordering, VersionStore},
};
use canopy_root::{RootConfig, RootServe};
use canopy_topology::routing::{ALL_QUERIES, CorpusRouting, Pin, RoutingSnapshot, Trial, VersionRouting};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
    time::{Instant, sleep, sleep_until, timeout},
};

use crate::{
    model_corpus::ModelCorpus,
    model_leaf::{ModelLeaf, Script},
    model_tree::{Shape, topology},
    sim_net::SimNet,
    sim_tree::{Happening, Switches, deps, run, serve_leaf},
};

/// What to simulate.
#[derive(Clone)]
pub struct Front {
    /// Of everything random.
    pub seed: u64,
    /// The tree below the root.
    pub shape: Shape,
    /// What it serves.
    pub corpus: Arc<ModelCorpus>,
    /// A version on trial, which the last leaf holds alone: its pins, of all queries. The others hold the corpus, two of them each
    /// shard.
    pub on_trial: Option<u32>,
    /// The root goes by a snapshot that pins the version, and hears of no other one; the next version is in the store.
    pub cut_off: bool,
    /// How each leaf behaves.
    pub scripts: Vec<Script>,
    /// Queries sent.
    pub queries: usize,
    /// Time between two.
    pub every: Duration,
    /// `/v1/web/search?...` of each.
    pub path: String,
    /// The client leaves after that long.
    pub leaves_after: Option<Duration>,
    /// What happens when, in order.
    pub happenings: Vec<(Duration, Happening)>,
}

/// One answer.
#[derive(Debug, Clone)]
pub struct Page {
    /// Number of the query.
    pub number: usize,
    /// How long it took, as the client saw it.
    pub took: Duration,
    /// HTTP status; 0: the client left.
    pub status: u16,
    /// The body.
    pub body: serde_json::Value,
}

/// What a simulation gave.
pub struct Seen {
    /// Answers, in the order sent.
    pub pages: Vec<Page>,
    /// Line by line, in the order they came.
    pub history: Vec<String>,
    /// The leaves.
    pub leaves: Vec<Arc<ModelLeaf>>,
}

/// A manifest and statistics for a model corpus, in `dir`: all that a root reads of a version.
fn publish(corpus: &ModelCorpus, dir: &Path) -> VersionStore {
    let store = VersionStore::open(&dir.to_string_lossy(), true).expect("a store");
    let schema = Schema::web();
    let version = Version(corpus.version);
    let home = store.version_dir("web", version).expect("a local store");
    fs::create_dir_all(home.join("statistics")).expect("a directory");
    let documents = corpus.documents();
    let terms = ["canopy", "rust", "search"].map(|term| (statistics::key(SEARCH_FIELD, term), documents));
    let tokens = BTreeMap::from([(SEARCH_FIELD.to_owned(), documents * 100)]);
    let terms = vec![Box::new(terms.into_iter().map(Ok)) as _];
    let path = home.join("statistics/terms.fst");
    let mut entry = statistics::write(&path, documents, tokens, terms, vec![]).expect("statistics");
    "statistics/terms.fst".clone_into(&mut entry.file.path);
    let shard = |(number, shard): (usize, &crate::model_corpus::ModelShard)| {
        let id = ShardId::new("main", number as u32);
        let each = shard.documents.len() as u64;
        let path = format!("{}/data", Manifest::shard_dir(&id));
        ShardEntry {
            documents: each,
            files: vec![FileEntry { path, bytes: 0, blake3: "0".repeat(64) }],
            bytes: 0,
            tokens: BTreeMap::from([(SEARCH_FIELD.to_owned(), each * 100)]),
            resident_bytes: 0,
            shard: id,
        }
    };
    let manifest = Manifest {
        format: FORMAT,
        corpus: "web".to_owned(),
        version,
        parent: None,
        created: "2024-01-01T00:00:00Z".to_owned(),
        builder: "test".to_owned(),
        schema_id: schema.id(),
        schema: schema.clone(),
        analysis_id: Analyzer::id().to_owned(),
        layouts: vec![Layout::first("main", corpus.shards.len() as u32).expect("a layout")],
        cut: BTreeMap::new(),
        log: String::new(),
        whole: false,
        statistics: entry,
        shards: corpus.shards.iter().enumerate().map(shard).collect(),
        languages: BTreeMap::from([("en".to_owned(), documents)]),
        counts: BuildCounts::default(),
        warmup: vec!["rust search".to_owned()],
    };
    fs::write(home.join("manifest.json"), manifest.to_json()).expect("a manifest");
    let corpus = Corpus { name: "web".to_owned(), schema, partitions: 1, ordering: Ordering::default() };
    let file = serde_json::to_vec(&corpus).expect("a corpus file");
    fs::write(dir.join("corpora/web/corpus.json"), file).expect("a corpus file");
    store
}

/// The version of the corpus on all leaves but the last, and the next one on that.
fn two_versions(front: &Front, share: u32) -> CorpusRouting {
    let (last, version) = (front.shape.leaves - 1, front.corpus.version);
    let leaf = |number: usize| NodeId::from(format!("leaf-{number}").as_str());
    let shards = || front.corpus.shards.iter().map(|shard| shard.name.parse::<ShardId>().expect("a shard"));
    let pair = |at: usize| [leaf(at % last), leaf((at + 1) % last)].into();
    let old = shards().enumerate().map(|(at, shard)| (shard, pair(at))).collect();
    let new = shards().map(|shard| (shard, [leaf(last)].into())).collect();
    let held = |held| VersionRouting { held, ..VersionRouting::default() };
    let (old, new) = ((Version(version), held(old)), (Version(version + 1), held(new)));
    let (version, control) = (new.0, old.0);
    CorpusRouting {
        pins: vec![Pin { version, share }, Pin { version: control, share: ALL_QUERIES - share }],
        trial: Some(Trial { version, control, shadow: 0, compared: 0, gate: 1 }),
        versions: [old, new].into(),
        ..CorpusRouting::default()
    }
}

/// All queries to one version, on the leaves that a static topology names.
fn pin(corpus: &mut CorpusRouting, version: u64) {
    let (version, held) = (Version(version), std::mem::take(&mut corpus.shards));
    corpus.pins = vec![Pin { version, share: ALL_QUERIES }];
    corpus.versions = [(version, VersionRouting { wanted: held.clone(), held })].into();
}

type Book = Rc<RefCell<(Vec<Page>, Vec<String>)>>;

/// Runs it.
pub fn simulate(front: &Front) -> Seen {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let store = publish(&front.corpus, dir.path());
    let mut sim = turmoil::Builder::new()
        .rng_seed(front.seed)
        .simulation_duration(Duration::from_mins(10))
        .tick_duration(Duration::from_millis(1))
        .min_message_latency(Duration::from_micros(200))
        .max_message_latency(Duration::from_millis(1))
        .tcp_capacity(1 << 16)
        .build();
    let routing = RoutingSnapshot::from_static(&topology(&front.corpus, &front.shape));
    let mut routing = routing.expect("a sound topology");
    let next = Arc::new(ModelCorpus { version: front.corpus.version + 1, ..(*front.corpus).clone() });
    if let Some(share) = front.on_trial {
        publish(&next, dir.path());
        routing.corpora = [("web".to_owned(), two_versions(front, share))].into();
    } else if front.cut_off {
        publish(&next, dir.path());
        routing.corpora.values_mut().for_each(|corpus| pin(corpus, front.corpus.version));
    }
    let routing = Arc::new(routing);
    let mut switches = Switches::new();
    let mut leaves = Vec::new();
    for number in 0..front.shape.leaves {
        let name = format!("leaf-{number}");
        let tries = front.on_trial.is_some() && number + 1 == front.shape.leaves;
        let leaf = Arc::new(ModelLeaf::new(&name, if tries { next.clone() } else { front.corpus.clone() }));
        leaf.script(|script| *script = front.scripts[number % front.scripts.len()]);
        leaves.push(leaf.clone());
        let on = switches.entry(name.clone()).or_insert_with(|| watch::channel(true).0).subscribe();
        sim.host(name, move || serve_leaf(leaf.clone(), RpcConfig::default(), on.clone()));
    }
    let (seed, gather) = (front.seed, front.shape.gather.clone());
    sim.host("root", move || {
        let (store, routing, gather) = (store.clone(), routing.clone(), gather.clone());
        async move {
            let serve = RootServe {
                node: "root".into(),
                config: RootConfig::default(),
                gather: gather.into(),
                query_log: RootConfig::default().query_log.into(),
                rpc: RpcConfig::default(),
                store,
                membership: routing.into(),
                http: SimNet::io().bind("0.0.0.0:8080").await?,
                grpc: None,
            };
            Ok(canopy_root::serve(serve, deps(seed, "root"), Drain::new()).await?)
        }
    });
    let book: Book = Rc::default();
    sim.client("browser", browse(front.clone(), book.clone()));
    let happened = run(&mut sim, front.seed, &front.happenings, &leaves, &[], &switches);
    drop(sim);
    let (mut pages, mut history) = book.take();
    history.extend(happened);
    pages.sort_by_key(|page| page.number);
    Seen { pages, history, leaves }
}

/// Sends the queries, open loop.
async fn browse(front: Front, book: Book) -> turmoil::Result {
    // The version is open and connections are made by then.
    sleep(Duration::from_secs(1)).await;
    let start = Instant::now();
    let tasks = tokio::task::LocalSet::new();
    for number in 0..front.queries {
        let (front, book) = (front.clone(), book.clone());
        tasks.spawn_local(async move {
            sleep_until(start + front.every * number as u32).await;
            let sent = Instant::now();
            let patience = front.leaves_after.unwrap_or(Duration::from_mins(1));
            let answer = timeout(patience, get(&front.path)).await;
            let (status, body) = match answer {
                Ok(Ok(answer)) => answer,
                Ok(Err(error)) => panic!("SIM_SEED={}: query {number}: {error}", front.seed),
                Err(_) => (0, serde_json::Value::Null),
            };
            let page = Page { number, took: sent.elapsed(), status, body };
            let line =
                format!("{:?} query {number} took {:?} {status} {}", start.elapsed(), page.took, page.body);
            let mut book = book.borrow_mut();
            book.0.push(page);
            book.1.push(line);
        });
    }
    tasks.await;
    // Time for what was cancelled to arrive where it runs.
    sleep(Duration::from_millis(100)).await;
    Ok(())
}

/// Status and JSON body of a GET to the root.
async fn get(path: &str) -> std::io::Result<(u16, serde_json::Value)> {
    let mut io = SimNet::io().connect("root:8080").await?;
    let request = format!("GET {path} HTTP/1.1\r\nhost: root\r\nconnection: close\r\n\r\n");
    io.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    io.read_to_end(&mut answer).await?;
    let answer = String::from_utf8_lossy(&answer);
    let bad = || std::io::Error::new(std::io::ErrorKind::InvalidData, format!("not an answer: {answer}"));
    let (head, body) = answer.split_once("\r\n\r\n").ok_or_else(bad)?;
    let status = head.get(9..12).and_then(|status| status.parse().ok()).ok_or_else(bad)?;
    Ok((status, serde_json::from_str(body).map_err(|_| bad())?))
}
