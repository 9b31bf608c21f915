//! What a hop costs: one leaf called directly over gRPC, against a root with that one leaf. Real processes, one query in
//! flight, the same queries, arms alternating by batches of 25.
//!
//! Arm `leaf`: the two messages that the root would send (search, then fetch of the page), made beforehand, sent by this
//! process. Arms `root grpc` and `root http`: the query as a client sends it; the root reads it, asks the leaf the same two
//! things, and makes the answer. The figure is the difference of the medians; beside it stands the CPU time of the root's
//! process per query. Arm `ping` is an empty call (gRPC health) to the root: what one message there and back costs on this
//! machine at this hour, of which the root makes two per query and answers one.
//!
//! `cargo build --release -p canopy-cli -p canopy-bench && target/release/hop`

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use canopy_bench::{asked::Asked, processes::Processes, served, spent::median};
use canopy_cli::http::encode;
use canopy_common::{
    deadline::Deadline,
    ids::{AttemptId, QueryId},
    net::NetIo,
    request::RequestContext,
    rpc::{self, RpcConfig},
};
use canopy_format::{analysis::Analyzer, statistics::Statistics, store::VersionStore};
use canopy_proto::{
    SearchNode,
    client::NodeClient,
    v1::{self, search_client::SearchClient},
};
use canopy_root::{
    config::RootConfig, language::Reader, pin::Pinned, plan, request::Wanted, versions::CorpusState,
};
use canopy_topology::{config::Role, routing::RoutingSnapshot};
use clap::Parser;
use futures::StreamExt;
use http_body_util::{BodyExt, Empty};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use tokio::time::Instant;
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

/// Arguments.
#[derive(Parser)]
struct Options {
    #[command(flatten)]
    asked: Asked,
    /// Passes over the queries
    #[arg(long, default_value_t = 9)]
    rounds: usize,
    /// Keys only: no fields, no snippets
    #[arg(long)]
    bare: bool,
}

const BATCH: usize = 25;
const TIMEOUT: Duration = Duration::from_secs(10);

/// One query in the forms in which it is sent.
struct Case {
    search: v1::SearchRequest,
    wanted: Wanted,
    public: v1::QueryRequest,
    path: String,
}

/// What the direct arm makes its messages from.
struct Maker {
    pinned: Pinned,
    reader: Reader,
    config: RootConfig,
    bare: bool,
}

impl Maker {
    async fn open(store: &VersionStore, tree: &Processes, bare: bool) -> Result<Self> {
        let manifest = store.latest("web").await?;
        let dir = store.version_dir("web", manifest.version).context("a local store")?;
        let statistics = Statistics::open(&dir.join(&manifest.statistics.file.path), &manifest.statistics)?;
        let routing = RoutingSnapshot::from_static(&tree.topology)
            .map_err(|problems| anyhow::anyhow!(problems.join("; ")))?;
        let config = RootConfig::default();
        let reader = Reader { analyzer: Analyzer::new(), max_expansions: config.max_expansions as usize };
        let pinned = Pinned::to(Arc::new(routing), Arc::new(CorpusState::new(manifest, statistics)));
        Ok(Self { pinned, reader, config, bare })
    }

    async fn case(&self, text: &str) -> Result<Case> {
        let mut public = v1::QueryRequest {
            corpus: "web".into(),
            q: text.to_owned(),
            completion: "all".into(),
            timeout_ms: TIMEOUT.as_millis() as u32,
            ..Default::default()
        };
        let mut path =
            format!("/v1/web/search?q={}&completion=all&timeout_ms={}", encode(text), TIMEOUT.as_millis());
        if self.bare {
            public.fields = "url".into();
            public.snippet = Some(false);
            path.push_str("&fields=url&snippet=false");
        }
        let wanted = Wanted::check(&public, &self.pinned.corpus, &self.config)?;
        let parsed = self.reader.read(&public, &self.pinned.corpus, Deadline::after(TIMEOUT), 0).await?;
        let search = plan::search(QueryId([1; 16]), &wanted, parsed, &self.pinned);
        Ok(Case { search, wanted, public, path })
    }

    /// The page straight from the leaf; the number of hits with contents.
    async fn direct<N: SearchNode>(&self, leaf: &N, case: &Case, number: u128) -> Result<usize> {
        let query = QueryId(number.to_be_bytes());
        let context = RequestContext::new(query, AttemptId(1), Deadline::after(TIMEOUT));
        let mut message = case.search.clone();
        message.query_id = query.0.to_vec().into();
        message.attempt_id = 1;
        message.level = 1;
        let shards = message.shards.len();
        let mut replies = vec![v1::ShardReply::default(); shards];
        let mut hits = Vec::new();
        let mut stream = leaf.search(context.clone(), message);
        while let Some(reply) = stream.next().await {
            let reply = reply?;
            hits.extend(reply.hits);
            for shard in reply.shards {
                let at = shard.shard as usize;
                if let Some(place) = replies.get_mut(at) {
                    *place = shard;
                }
            }
        }
        hits.truncate(case.wanted.k as usize);
        if hits.is_empty() {
            return Ok(0);
        }
        let key = &self.pinned.corpus.manifest.schema.key;
        let mut fetch = plan::fetch(&case.search, &case.wanted, &self.config, &hits, &replies, key);
        fetch.query_id = query.0.to_vec();
        let reply = leaf.fetch(context, fetch).await?;
        Ok(reply.documents.iter().filter(|document| document.filled).count())
    }
}

async fn http(connection: &mut SendRequest<Empty<Bytes>>, path: &str, host: &str) -> Result<usize> {
    let request = http::Request::get(path).header("host", host).body(Empty::new())?;
    let answer = connection.send_request(request).await?;
    ensure!(answer.status() == 200, "{path}: {}", answer.status());
    let body = answer.into_body().collect().await?.to_bytes();
    connection.ready().await?;
    Ok(body.len())
}

/// Wall times of one arm in one round, and the CPU time of root and leaf.
#[derive(Default)]
struct Arm {
    wall_us: Vec<f64>,
    root: Duration,
    leaf: Duration,
}

#[tokio::main]
async fn main() -> Result<()> {
    let options = Options::parse();
    let dir = tempfile::tempdir()?;
    let store = served::build(dir.path(), &[options.asked.corpus(dir.path())?], 1).await?;
    let tree = Processes::start(dir.path(), "tree", served::flat(1, 1)).await?;
    let maker = Maker::open(&store, &tree, options.bare).await?;
    let mut cases = Vec::new();
    for text in options.asked.texts()? {
        cases.push(maker.case(&text).await?);
    }
    let rpc = RpcConfig::default();
    let leaf = rpc::channel(&rpc, &NetIo::tcp(), tree.address(Role::Leaf)?.0)?;
    let leaf = NodeClient::new(leaf, rpc.max_message.0 as usize);
    let (grpc_at, http_at) = tree.address(Role::Root)?;
    let channel = rpc::channel(&rpc, &NetIo::tcp(), grpc_at)?;
    let mut root = SearchClient::new(channel.clone());
    let mut health = HealthClient::new(channel);
    let (mut web, connection) =
        hyper::client::conn::http1::handshake(TokioIo::new(NetIo::tcp().connect(http_at).await?)).await?;
    tokio::spawn(connection);

    let mut number = 0_u128;
    let mut rounds: Vec<[Arm; 4]> = Vec::new();
    // The first round warms up and is not counted.
    for round in 0..=options.rounds {
        let mut arms = <[Arm; 4]>::default();
        for (at, batch) in cases.chunks(BATCH).enumerate() {
            for turn in 0..4 {
                let which = (turn + at + round) % 4;
                let arm = &mut arms[which];
                let before = (tree.cpu(Role::Root), tree.cpu(Role::Leaf));
                for case in batch {
                    number += 1;
                    let since = Instant::now();
                    let found = match which {
                        0 => maker.direct(&leaf, case, number).await?,
                        1 => root.search(case.public.clone()).await?.into_inner().hits.len(),
                        2 => http(&mut web, &case.path, http_at).await?,
                        _ => health.check(HealthCheckRequest::default()).await?.into_inner().status as usize,
                    };
                    arm.wall_us.push(since.elapsed().as_secs_f64() * 1e6);
                    std::hint::black_box(found);
                }
                arm.root += tree.cpu(Role::Root).saturating_sub(before.0);
                arm.leaf += tree.cpu(Role::Leaf).saturating_sub(before.1);
            }
        }
        if round > 0 {
            rounds.push(arms);
        }
    }
    report(&cases, &mut rounds);
    Ok(())
}

fn report(cases: &[Case], rounds: &mut [[Arm; 4]]) {
    println!("{} queries, {} rounds; us a query, medians over rounds", cases.len(), rounds.len());
    println!("{:10} {:>9} {:>9} {:>10} {:>10}", "arm", "wall p50", "added", "root CPU", "leaf CPU");
    let each = cases.len() as f64;
    for (at, name) in ["leaf", "root grpc", "root http", "ping"].into_iter().enumerate() {
        let mut middle = Vec::new();
        let mut added = Vec::new();
        let (mut root, mut leaf) = (Vec::new(), Vec::new());
        for arms in rounds.iter_mut() {
            let direct = median(&mut arms[0].wall_us);
            let own = median(&mut arms[at].wall_us);
            middle.push(own);
            added.push(own - direct);
            root.push(arms[at].root.as_secs_f64() * 1e6 / each);
            leaf.push(arms[at].leaf.as_secs_f64() * 1e6 / each);
        }
        println!(
            "{name:10} {:>9.0} {:>9.0} {:>10.0} {:>10.0}",
            median(&mut middle),
            median(&mut added),
            median(&mut root),
            median(&mut leaf)
        );
    }
}
