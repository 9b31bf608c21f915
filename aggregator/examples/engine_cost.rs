//! What the gather engine itself costs: one search over S shards on nodes that answer at once, in this process, without
//! sockets, by hedge mode. Prints microseconds of CPU per leaf call.
//!
//! `cargo run --release -p canopy-aggregator --example engine_cost`

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use canopy_aggregator::{config::GatherConfig, endpoints::Endpoints, gather::Gatherer, hedge::HedgeMode};
use canopy_common::{
    clock,
    deadline::Deadline,
    deps::Deps,
    error::Failure,
    ids::{AttemptId, NodeId},
    net::NetIo,
    request::RequestContext,
    rng::Dice,
    telemetry::Telemetry,
};
use canopy_proto::{ReplyStream, SearchNode, v1};
use canopy_topology::{
    config::{NodeConfig, Placement, Role, TopologyConfig},
    routing::RoutingSnapshot,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};

/// Microseconds of CPU this process has used.
fn spent() -> f64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("a Linux process");
    let nanoseconds: f64 = text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number");
    nanoseconds / 1000.0
}

/// Answers at once: one hit a shard.
struct Instantly;

impl SearchNode for Instantly {
    fn search(&self, _context: RequestContext, request: v1::SearchRequest) -> ReplyStream {
        let shard = |(index, asked): (usize, &v1::ShardRequest)| v1::ShardReply {
            shard: index as u32,
            outcome: v1::Outcome::Answered as i32,
            version: request.version,
            documents_searched: asked.documents,
            ..Default::default()
        };
        let shards: Vec<_> = request.shards.iter().enumerate().map(shard).collect();
        let hits = vec![v1::Hit { score: 1.0, ..Default::default() }];
        let call = Some(v1::CallReport { node: "leaf".to_owned(), epoch: 1, ..Default::default() });
        stream::iter([Ok(v1::SearchReply { hits, shards, call, ..Default::default() })]).boxed()
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

struct Nodes(BTreeMap<NodeId, Arc<dyn SearchNode>>);

impl Endpoints for Nodes {
    fn get(&self, node: &NodeId) -> Option<Arc<dyn SearchNode>> {
        self.0.get(node).cloned()
    }
}

/// One shard on each of `shards` pairs of leaves.
fn topology(shards: usize) -> TopologyConfig {
    let node = |id: String, role| {
        let address = format!("{id}:7000");
        NodeConfig { id, role, address, admin: String::new(), zone: String::new() }
    };
    let leaf = |number: usize| format!("leaf-{}", number % (shards + 1));
    let mut nodes = vec![node("root".to_owned(), Role::Root)];
    nodes.extend((0..=shards).map(|number| node(leaf(number), Role::Leaf)));
    let placement = |number: usize| Placement {
        corpus: "web".into(),
        shards: vec![format!("main/{number}")],
        replicas: vec![leaf(number), leaf(number + 1)],
        version: 0,
    };
    TopologyConfig { nodes, placements: (0..shards).map(placement).collect(), ..TopologyConfig::default() }
}

async fn cost(shards: usize, hedge: HedgeMode, searches: u32) -> f64 {
    let routing = Arc::new(RoutingSnapshot::from_static(&topology(shards)).expect("a sound topology"));
    let leaf: Arc<dyn SearchNode> = Arc::new(Instantly);
    let nodes = routing.with_role(Role::Leaf).map(|(id, _)| (id.clone(), leaf.clone())).collect();
    let deps = Deps {
        net: NetIo::tcp(),
        clock: Arc::new(clock::Manual::default()),
        dice: Dice::seeded(1),
        telemetry: Telemetry::default(),
    };
    let config = GatherConfig { fanout_max: 4096, hedge, ..GatherConfig::default() };
    let engine = Arc::new(Gatherer::new("root".into(), Role::Root, Arc::new(Nodes(nodes)), config, &deps));
    let shard = |number| v1::ShardRequest {
        shard: format!("main/{number}"),
        k: 10,
        documents: 1000,
        ..Default::default()
    };
    let run = async |count: u32| {
        let start = spent();
        for _ in 0..count {
            let query = deps.dice.query_id();
            let context = RequestContext::new(query, AttemptId(0), Deadline::after(Duration::from_secs(1)));
            let request = v1::SearchRequest {
                query_id: query.0.to_vec().into(),
                corpus: "web".into(),
                version: 7,
                statistics: Some(v1::Statistics::default()),
                shards: (0..shards).map(shard).collect(),
                ..Default::default()
            };
            let gathered = engine.search(&context, &routing, Arc::new(request)).await;
            assert_eq!(gathered.shards.len(), shards);
        }
        (spent() - start) / f64::from(count) / shards as f64
    };
    run(searches / 10).await;
    run(searches).await
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    for shards in [1, 10, 100] {
        for mode in [HedgeMode::Off, HedgeMode::Auto, HedgeMode::Delay(Duration::from_millis(50))] {
            let us = cost(shards, mode, 200_000 / shards as u32).await;
            println!("{shards:>4} shards, hedge {mode}: {us:.2} us per leaf call");
        }
    }
}
