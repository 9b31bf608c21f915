//! The stage of one arm: leaves, who serves what, and the production engine of each caller. Built inside the arm's
//! runtime, because its clock begins there.

use std::{collections::BTreeMap, sync::Arc};

use canopy_aggregator::{endpoints::Endpoints, gather::Gatherer, pace::Pace};
use canopy_common::{
    clock,
    deps::Deps,
    ids::{Epoch, NodeId, QueryId, ShardId, Version},
    net::NetIo,
    rng::Dice,
    telemetry::Telemetry,
};
use canopy_proto::{SearchNode, v1};
use canopy_topology::{
    config::Role,
    rollout::Replica,
    routing::{CorpusRouting, Node, RoutingSnapshot},
};
use tokio::time::Instant;

use crate::{
    draw,
    error::Result,
    leaf::{Asked, Counts, DOCUMENTS, Ground, ModelLeaf, Protected, Siblings},
    policy::Policy,
    scale::Scale,
    workload::Workload,
};

/// The corpus and its one group.
pub(crate) const CORPUS: &str = "lab";
const GROUP: &str = "main";
/// Its version, where there is one.
pub(crate) const VERSION: u64 = 1;
/// Hits a query asks for; model leaves have none.
const HITS: u32 = 10;

struct Peers(BTreeMap<NodeId, Arc<dyn SearchNode>>);

impl Endpoints for Peers {
    fn get(&self, node: &NodeId) -> Option<Arc<dyn SearchNode>> {
        self.0.get(node).cloned()
    }
}

/// The stage.
pub struct World {
    /// Model and virtual time.
    pub scale: Scale,
    /// When it began.
    pub start: Instant,
    /// Who serves what.
    pub routing: Arc<RoutingSnapshot>,
    /// The engines that ask.
    pub callers: Vec<Arc<Gatherer>>,
    /// By shard.
    pub siblings: Vec<Arc<Siblings>>,
    leaves: Vec<Arc<ModelLeaf>>,
    request: v1::SearchRequest,
    seed: u64,
}

impl World {
    /// Builds it. Must be called in the runtime whose clock it uses.
    pub fn new(workload: &Workload, policy: &Policy) -> Result<Self> {
        let scale = Scale::new(workload.scale)?;
        let start = Instant::now();
        let ground = Arc::new(ground(workload, scale, start));
        let mut routing = RoutingSnapshot { epoch: Epoch(1), ..RoutingSnapshot::default() };
        let mut corpus = CorpusRouting { version: Some(Version(VERSION)), ..CorpusRouting::default() };
        let (mut leaves, mut siblings, mut peers) = (Vec::new(), Vec::new(), BTreeMap::new());
        for shard in 0..workload.shards {
            let same: Arc<Siblings> = Arc::default();
            let names: Arc<[NodeId]> = (0..workload.replicas)
                .map(|replica| format!("leaf-{shard}-{replica}").as_str().into())
                .collect();
            for (replica, name) in names.iter().enumerate() {
                let factor = if replica == 0 { workload.slow } else { 1.0 };
                let leaf = Arc::new(ModelLeaf::new(ground.clone(), same.clone(), shard, factor));
                same.join(name.clone(), &leaf);
                let node: Arc<dyn SearchNode> = Arc::new(Asked(leaf.clone()));
                peers.insert(name.clone(), node);
                leaves.push(leaf);
                let node = Node {
                    role: Role::Leaf,
                    address: String::new(),
                    admin: String::new(),
                    zone: String::new(),
                };
                routing.nodes.insert(name.clone(), node);
            }
            corpus.shards.insert(ShardId::new(GROUP, shard), names);
            siblings.push(same);
        }
        routing.corpora.insert(CORPUS.to_owned(), corpus);
        let peers: Arc<dyn Endpoints> = Arc::new(Peers(peers));
        let config = policy.settings(scale)?;
        let caller = |number: u32| {
            let deps = deps(draw::bits(&[workload.seed, u64::from(number)]));
            let name = format!("root-{number}");
            let (name, pace) = (name.as_str().into(), Pace::slower(scale.times()));
            Arc::new(Gatherer::paced(name, Role::Root, peers.clone(), config.clone(), &deps, pace))
        };
        let callers = (0..workload.callers).map(caller).collect();
        let request = request(workload, policy, scale);
        Ok(Self {
            scale,
            start,
            routing: Arc::new(routing),
            callers,
            siblings,
            leaves,
            request,
            seed: workload.seed,
        })
    }

    /// Id and message of query number `query`.
    pub fn query(&self, query: u64) -> (QueryId, Arc<v1::SearchRequest>) {
        self.query_of(query, VERSION, 0)
    }

    /// The same, pinned to a version, of leaves that hold the version `beside` too; 0: of any that hold it.
    pub fn query_of(&self, query: u64, version: u64, beside: u64) -> (QueryId, Arc<v1::SearchRequest>) {
        let mut id = [0; 16];
        id[..8].copy_from_slice(&draw::bits(&[self.seed, query]).to_be_bytes());
        id[8..].copy_from_slice(&query.to_be_bytes());
        let query_id = id.to_vec().into();
        let request = v1::SearchRequest { query_id, version, beside, ..self.request.clone() };
        (QueryId(id), Arc::new(request))
    }

    /// The leaf that stands for a replica.
    pub fn leaf(&self, replica: &Replica) -> Option<Arc<ModelLeaf>> {
        self.siblings.get(replica.shard.number as usize)?.named(&replica.node)
    }

    /// What happened at all leaves.
    pub fn counts(&self) -> Counts {
        let mut sum = Counts::default();
        self.leaves.iter().for_each(|leaf| sum += leaf.counts());
        sum
    }

    /// Calls that came to all leaves, warm-up included.
    pub fn calls(&self) -> u64 {
        self.leaves.iter().map(|leaf| leaf.calls()).sum()
    }

    /// What happened at each replica of the shards: the first ones, the second ones, and so on.
    pub fn counts_by_replica(&self, replicas: usize) -> Vec<Counts> {
        let mut sums = vec![Counts::default(); replicas];
        for (number, leaf) in self.leaves.iter().enumerate() {
            sums[number % replicas] += leaf.counts();
        }
        sums
    }
}

/// What all leaves share.
fn ground(workload: &Workload, scale: Scale, start: Instant) -> Ground {
    Ground {
        scale,
        latency: workload.latency,
        versions: workload.versions.clone(),
        seed: workload.seed,
        workers: workload.workers,
        cancel: workload.cancel,
        slowness: workload.slowness.clone(),
        warmup: workload.warmup,
        protected: workload.protected.map(|protect| Protected {
            room: protect.room as usize,
            shed_after: scale.span(protect.shed_after),
        }),
        travel: scale.span(workload.travel),
        start,
    }
}

fn deps(seed: u64) -> Deps {
    Deps {
        net: NetIo::tcp(),
        clock: Arc::new(clock::Manual::default()),
        dice: Dice::seeded(seed),
        telemetry: Telemetry::default(),
    }
}

fn request(workload: &Workload, policy: &Policy, scale: Scale) -> v1::SearchRequest {
    let shard = |number| v1::ShardRequest {
        shard: ShardId::new(GROUP, number).to_string(),
        k: HITS,
        documents: DOCUMENTS,
        after: None,
    };
    v1::SearchRequest {
        corpus: CORPUS.to_owned(),
        version: VERSION,
        epoch: 1,
        statistics: Some(v1::Statistics::default()),
        shards: (0..workload.shards).map(shard).collect(),
        query: Some(v1::Query { node: Some(v1::query::Node::All(v1::MatchAll {})) }),
        total: v1::TotalMode::TotalNone as i32,
        completion: Some(policy.completion()),
        hedge: Some(policy.hedge_mode(scale)),
        extra_work_ratio: policy.budget as f32,
        ..Default::default()
    }
}
