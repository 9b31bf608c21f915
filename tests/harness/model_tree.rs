//! A tree in one process without sockets: model leaves, production aggregators, and the engine a root would run. Time is
//! the test's; with a paused clock thousands of queries take no time at all.

use std::{
    collections::BTreeMap,
    sync::{Arc, OnceLock},
    time::Duration,
};

use canopy_aggregator::{
    config::{AggregatorConfig, GatherConfig},
    endpoints::Endpoints,
    gather::{Gathered, Gatherer},
    search::AggregatorNode,
};
use canopy_common::{
    clock,
    config::Live,
    deadline::Deadline,
    deps::Deps,
    drain::Drain,
    ids::{AttemptId, NodeId, QueryId},
    limit::AdmissionMetrics,
    net::NetIo,
    request::RequestContext,
    rng::Dice,
    telemetry::Telemetry,
};
use canopy_proto::{SearchNode, v1};
use canopy_topology::{
    config::{NodeConfig, Placement, Role, TopologyConfig},
    routing::{Routing, RoutingSnapshot},
};

use crate::{model_corpus::ModelCorpus, model_leaf::ModelLeaf};

/// Nodes by name; filled once the nodes exist, because aggregators need it to be made.
#[derive(Default)]
pub struct Peers(OnceLock<BTreeMap<NodeId, Arc<dyn SearchNode>>>);

impl Endpoints for Peers {
    fn get(&self, node: &NodeId) -> Option<Arc<dyn SearchNode>> {
        self.0.get()?.get(node).cloned()
    }
}

/// The shape of a tree.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Leaves.
    pub leaves: usize,
    /// Replicas of each shard, on consecutive leaves.
    pub replicas: usize,
    /// Aggregators.
    pub aggregators: usize,
    /// Engine settings of all nodes.
    pub gather: GatherConfig,
    /// Seed of all dice.
    pub seed: u64,
}

impl Default for Shape {
    fn default() -> Self {
        Self { leaves: 4, replicas: 2, aggregators: 0, gather: GatherConfig::default(), seed: 1 }
    }
}

/// Dependencies without a network.
pub fn deps(seed: u64) -> Deps {
    Deps {
        net: NetIo::tcp(),
        clock: Arc::new(clock::Manual::default()),
        dice: Dice::seeded(seed),
        telemetry: Telemetry::default(),
    }
}

/// Topology of a shape: shard i is on leaves i, i+1, ... (modulo their number); node addresses are `name:7000`.
pub fn topology(corpus: &ModelCorpus, shape: &Shape) -> TopologyConfig {
    let node = |id: String, role| {
        let address = format!("{id}:7000");
        NodeConfig::at(id, role, address)
    };
    let leaf = |number: usize| format!("leaf-{}", number % shape.leaves);
    let mut nodes = vec![node("root".to_owned(), Role::Root)];
    nodes.extend((0..shape.leaves).map(|number| node(leaf(number), Role::Leaf)));
    nodes.extend((0..shape.aggregators).map(|number| node(format!("agg-{number}"), Role::Aggregator)));
    let mut by_home: BTreeMap<usize, Vec<String>> = BTreeMap::new();
    for (number, shard) in corpus.shards.iter().enumerate() {
        by_home.entry(number % shape.leaves).or_default().push(shard.name.clone());
    }
    let placement = |(home, shards): (usize, Vec<String>)| {
        let replicas = (0..shape.replicas.min(shape.leaves)).map(|n| leaf(home + n)).collect();
        Placement { corpus: "web".into(), shards, replicas, version: 0 }
    };
    TopologyConfig {
        nodes,
        placements: by_home.into_iter().map(placement).collect(),
        ..TopologyConfig::default()
    }
}

/// A tree.
pub struct ModelTree {
    /// What it serves.
    pub corpus: Arc<ModelCorpus>,
    /// Its leaves, by number.
    pub leaves: Vec<Arc<ModelLeaf>>,
    /// Its aggregators, by number.
    pub aggregators: Vec<Arc<AggregatorNode>>,
    /// Who serves what, as searches are planned.
    pub routing: Arc<RoutingSnapshot>,
    /// Where newer snapshots come from, for all engines.
    pub current: Routing,
    /// The engine of the root.
    pub gatherer: Arc<Gatherer>,
    /// Names queries.
    pub dice: Dice,
    /// Metrics of the root's engine.
    pub telemetry: Telemetry,
    /// Engine settings of the root, swapped while it runs.
    pub gather: Live<GatherConfig>,
    peers: Arc<Peers>,
}

impl ModelTree {
    /// Builds it.
    pub fn new(corpus: Arc<ModelCorpus>, shape: &Shape) -> Self {
        let routing = RoutingSnapshot::from_static(&topology(&corpus, shape)).expect("a sound topology");
        let routing = Arc::new(routing);
        let current = Routing::from(routing.clone());
        let peers: Arc<Peers> = Arc::default();
        let engine = |node: &str, role, seed| {
            let deps = deps(seed);
            let telemetry = deps.telemetry.clone();
            let engine = Gatherer::new(node.into(), role, peers.clone(), shape.gather.clone(), &deps);
            (Arc::new(engine.following(current.clone())), telemetry)
        };
        let leaf = |number| Arc::new(ModelLeaf::new(&format!("leaf-{number}"), corpus.clone()));
        let leaves: Vec<_> = (0..shape.leaves).map(leaf).collect();
        let aggregator = |number: usize| {
            let (engine, telemetry) =
                engine(&format!("agg-{number}"), Role::Aggregator, shape.seed ^ (number as u64 + 1));
            let config = AggregatorConfig::default();
            let metrics = AdmissionMetrics::new("aggregator", &telemetry.registry);
            let node =
                AggregatorNode::new(engine, current.clone(), config, telemetry.slow, metrics, Drain::new());
            Arc::new(node)
        };
        let aggregators: Vec<_> = (0..shape.aggregators).map(aggregator).collect();
        let mut nodes: BTreeMap<NodeId, Arc<dyn SearchNode>> = BTreeMap::new();
        for (number, leaf) in leaves.iter().enumerate() {
            nodes.insert(format!("leaf-{number}").as_str().into(), leaf.clone());
        }
        for (number, aggregator) in aggregators.iter().enumerate() {
            nodes.insert(format!("agg-{number}").as_str().into(), aggregator.clone());
        }
        assert!(peers.0.set(nodes).is_ok(), "nodes are known once");
        let gather = Live::from(shape.gather.clone());
        let of_root = deps(shape.seed);
        let telemetry = of_root.telemetry.clone();
        let gatherer = Gatherer::new("root".into(), Role::Root, peers.clone(), gather.clone(), &of_root);
        let gatherer = Arc::new(gatherer.following(current.clone()));
        let dice = Dice::seeded(shape.seed ^ 0x51);
        Self { corpus, leaves, aggregators, routing, current, gatherer, dice, telemetry, gather, peers }
    }

    /// The engine of one more root over the same nodes, with knowledge and dice of its own.
    pub fn caller(&self, number: u64) -> Arc<Gatherer> {
        let deps = deps(0xca11 + number);
        let peers = self.peers.clone();
        Arc::new(Gatherer::new("root".into(), Role::Root, peers, self.gather.clone(), &deps))
    }

    /// A fresh query's id.
    pub fn query(&self) -> QueryId {
        self.dice.query_id()
    }

    /// A context with that much time.
    pub fn context(&self, budget: Duration) -> RequestContext {
        RequestContext::new(self.query(), AttemptId(0), Deadline::after(budget))
    }

    /// Searches as a root would.
    pub async fn search(&self, request: v1::SearchRequest, budget: Duration) -> Gathered {
        let context = self.context(budget);
        self.gatherer.search(&context, &self.routing, Arc::new(request)).await
    }
}
