//! `canopy quickstart`: from nothing to an answer. Builds the bundled sample corpus, starts a whole tree (1 root, 2
//! aggregators, 4 leaves, 4 shards x 2 replicas) in this process, runs a query and prints where the pages are.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use canopy_common::{net::NetIo, telemetry::TelemetryConfig};
use canopy_format::{
    error::Error as StoreError,
    schema::Schema,
    store::{Corpus, Ordering, VersionStore},
};
use canopy_indexer::build::{self, BuildRequest};
use canopy_topology::config::{NodeConfig, Placement, Role, TopologyConfig};

use super::{feed::DEFAULT_INGEST, roles::Signals};
use crate::{
    config::{Config, Loaded},
    http::{Client, encode},
    say::{self, aside, say},
    show,
    tree::{Surroundings, Tree},
};

/// The sample corpus; see `cli/sample/NOTICE`.
const SAMPLE: &[u8] = include_bytes!("../../sample/web.jsonl.gz");
/// Its corpus name.
const CORPUS: &str = "web";
const SHARDS: u32 = 4;
/// The root that `canopy search` asks unless told otherwise.
const DEFAULT_ROOT: &str = "127.0.0.1:8080";
/// Queries that a new version is warmed with; the search page offers them as examples.
const EXAMPLES: [&str; 6] =
    ["replication slots", "asyncio queue", "Datenbank", "base de données", "データベース", "базы данных"];

/// `canopy quickstart`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:  canopy quickstart\n          canopy quickstart --once --json \"logical replication\""
)]
pub struct Args {
    /// The query to run
    #[arg(default_value = "replication slots")]
    query: String,
    /// Print the answer and exit
    #[arg(long)]
    once: bool,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
    /// Where the index goes; what is there already is used again
    #[arg(long, default_value = "canopy-sample")]
    dir: PathBuf,
    /// Port of the search page and API, the one above it takes changes; 0 takes free ones
    #[arg(long, default_value_t = 8080)]
    port: u16,
}

/// Runs it.
pub async fn run(args: Args) -> Result<()> {
    let store = VersionStore::open(&args.dir.to_string_lossy(), true)?;
    build_sample(&store, &args.dir, args.json).await?;
    let mut config = Loaded::read(None, &[]).checked()?;
    config.topology = topology(args.port, args.once);
    config.ingest.directory = args.dir.join("ingest").to_string_lossy().into_owned();
    config.leaf.cache_dir = args.dir.join("cache").to_string_lossy().into_owned();
    // A small tree with the shape of a large one: four branches, two aggregators between root and leaves.
    config.gather.fanout_max = 2;
    config.gather.branch_shards = 1;
    // What it does is said in plain words below; the log is for what goes wrong.
    if config.telemetry == TelemetryConfig::default() {
        "warn".clone_into(&mut config.telemetry.log);
    }
    let _traces = canopy_common::telemetry::init(&config.telemetry, "canopy").map_err(anyhow::Error::msg)?;
    let mut signals = Signals::listen()?;
    let mut tree = start(&config, &store).await?;
    let root = tree.roots().next().unwrap_or_default().to_owned();
    ask(&root, &args).await?;
    if !args.once {
        say!("\nsearch page  http://{root}/");
        say!("API          http://{root}/v1/{CORPUS}/search?q={}", encode(&args.query));
        say!("metrics      http://{root}/metrics");
        if let Some(ingest) = tree.ingests().next() {
            let at = if ingest == DEFAULT_INGEST { String::new() } else { format!(" --ingest {ingest}") };
            say!("\nchange a page, then search for it:");
            say!("  canopy feed put --key https://example.com/ --document '{{\"title\":\"Quokka\"}}'{at}");
        }
        say!("Stop with Ctrl-C.");
        tokio::select! {
            biased;
            ended = tree.ended() => return ended,
            _ = signals.next() => {}
        }
    }
    if args.once {
        // Nobody else uses this tree: nothing to wait for.
        tree.abort();
        return Ok(());
    }
    // A person waits for it, and no balancer stands before it.
    tree.stop(Duration::ZERO).await
}

async fn build_sample(store: &VersionStore, dir: &Path, quiet: bool) -> Result<()> {
    if store.corpora().await?.iter().all(|corpus| corpus.name != CORPUS) {
        let corpus = Corpus {
            name: CORPUS.to_owned(),
            schema: Schema::web(),
            partitions: 16,
            ordering: Ordering::default(),
        };
        store.create_corpus(&corpus).await?;
    }
    match store.to_serve(CORPUS, None).await {
        Ok(found) => {
            if !quiet {
                say!("using {} of corpus {CORPUS:?} in {}", found.manifest.version, dir.display());
            }
            return Ok(());
        }
        Err(StoreError::NoVersionYet(_)) => {}
        Err(error) if error.of_the_version() => aside!("{error}; building the sample again"),
        Err(error) => return Err(error.into()),
    }
    let input = dir.join("sample.jsonl.gz");
    std::fs::write(&input, SAMPLE).with_context(|| format!("{} can't be written", input.display()))?;
    let request = BuildRequest {
        shards: Some(SHARDS),
        warmup: Some(EXAMPLES.map(str::to_owned).into()),
        ..BuildRequest::new(store.clone(), CORPUS, vec![input])
    };
    let report = build::run(request).await?;
    if !quiet {
        say!(
            "built {} of corpus {CORPUS:?}: {} documents in {} shards, {}, {:.1} s",
            report.version,
            show::count(report.documents),
            report.shards.len(),
            show::bytes(report.bytes),
            report.total_seconds
        );
    }
    Ok(())
}

/// The tree: two rows, each holds every shard once.
fn topology(port: u16, free_ports: bool) -> TopologyConfig {
    let mut root = NodeConfig::local("root-1", Role::Root);
    if !free_ports {
        root.admin = format!("127.0.0.1:{port}");
    }
    let mut nodes = vec![root];
    nodes.extend((1..=2).map(|n| NodeConfig::local(format!("aggregator-{n}"), Role::Aggregator)));
    nodes.extend((1..=4).map(|n| NodeConfig::local(format!("leaf-{n}"), Role::Leaf)));
    if !free_ports {
        // One answer needs nobody who takes changes.
        let mut ingest = NodeConfig::local("ingest-1", Role::Ingest);
        if let Some(above) = port.checked_add(1).filter(|_| port > 0) {
            ingest.admin = format!("127.0.0.1:{above}");
        }
        nodes.push(ingest);
    }
    let placement = |shards: [u32; 2], replicas: [&str; 2]| Placement {
        corpus: CORPUS.to_owned(),
        shards: shards.iter().map(|number| format!("main/{number}")).collect(),
        replicas: replicas.iter().map(|&leaf| leaf.to_owned()).collect(),
        version: 0,
    };
    let placements = vec![placement([0, 1], ["leaf-1", "leaf-3"]), placement([2, 3], ["leaf-2", "leaf-4"])];
    TopologyConfig { nodes, placements, ..TopologyConfig::default() }
}

/// Starts the tree and waits until every node would answer.
async fn start(config: &Config, store: &VersionStore) -> Result<Tree> {
    let mut tree = Tree::start(config, Some(store), &Surroundings::real()?, |_| true).await?;
    let nodes: Vec<String> = tree.topology.nodes.iter().map(|node| node.admin.clone()).collect();
    let ready = async {
        for admin in nodes {
            Client::new(NetIo::tcp(), &admin, Duration::from_secs(5))
                .wait_ready(Duration::from_mins(1))
                .await?;
        }
        anyhow::Ok(())
    };
    tokio::select! {
        biased;
        ended = tree.ended() => { ended?; anyhow::bail!("the tree ended before it was ready"); }
        ready = ready => ready?,
    }
    Ok(tree)
}

async fn ask(root: &str, args: &Args) -> Result<()> {
    let client = Client::new(NetIo::tcp(), root, Duration::from_secs(10));
    let path = format!("/v1/{CORPUS}/search?q={}&k=3&timeout_ms=5000", encode(&args.query));
    let answered = client.get(&path).await?;
    let answer: serde_json::Value = serde_json::from_slice(answered.body())?;
    if !answered.status().is_success() {
        anyhow::bail!("the tree answered {}: {}", answered.status(), answer["error"]["message"]);
    }
    if args.json {
        say!("{answer:#}");
    } else {
        if args.once {
            say!();
        } else {
            let at = if root == DEFAULT_ROOT { String::new() } else { format!(" --root {root}") };
            say!("\n$ canopy search '{}' -k 3{at}", args.query.replace('\'', "'\\''"));
        }
        let colour = std::io::IsTerminal::is_terminal(&std::io::stdout());
        say::write(format_args!("{}", show::answer(&answer, colour)));
    }
    Ok(())
}
