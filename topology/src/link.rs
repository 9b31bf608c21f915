//! A node's link to the topology service: it follows the routing snapshots, and says how the node is. Both go on for ever and
//! begin again by themselves; nothing that answers queries waits for either.
//!
//! The failure this prevents: a tree that stops when its control plane does. Rules: the last snapshot lies on this node's
//! disk, and a node that starts while the service is away goes by it; a node whose service is away goes on with what it
//! has; only a newer epoch is taken over, so that a late message changes nothing. Of several services the one that leads
//! is asked: one that does not says who does, and after one that fails the next is asked.

mod contact;
pub(crate) mod kept;
mod last_good;
mod report;
mod watch;

use std::{path::Path, sync::Arc, time::Duration};

use canopy_common::{
    clock::{System, WallClock},
    drain::Drain,
    ids::{ShardId, Version},
    net::NetIo,
    rpc::{self, ClientChannel, RpcConfig},
};
use canopy_proto::{
    topology::{self as wire, JudgedRequest},
    topology_peer::TopologyPeer,
};
use contact::Contact;
pub use last_good::LastGood;
use parking_lot::Mutex;
use tonic::Status;

use crate::{
    config::{NodeConfig, Role, TopologyConfig},
    error::{Error, Result},
    gates::{judged::JudgedQuery, wire::Seen},
    placement::Capacity,
    redirect,
    routing::{Routing, RoutingSnapshot, Trial},
    service::{lead::Leader, node_token},
};

/// Pause after a call that failed; the next service is asked then.
const PAUSE: Duration = Duration::from_millis(500);

/// How far this node is with something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// At work.
    Loading,
    /// It would answer.
    Resident,
    /// It answers, not for long.
    Retiring,
    /// The version has no such shard: nothing is to be held.
    Void,
    /// It can't be had.
    Failed {
        /// Why.
        reason: String,
        /// Whether no other node could have it either.
        everywhere: bool,
    },
}

/// Something that this node holds or should hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Holding {
    /// Of which corpus.
    pub corpus: String,
    /// Which version.
    pub version: Version,
    /// Which shard; `None`: the statistics, at a root.
    pub shard: Option<ShardId>,
    /// How far.
    pub progress: Progress,
    /// Of its files; 0: not known yet.
    pub bytes: u64,
    /// That it is said to need.
    pub memory: u64,
}

/// What a leaf did since its process started.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Work {
    /// Shards asked that came to an end, refusals by load left out.
    pub queries: u64,
    /// Of them failed.
    pub errors: u64,
    /// 90th percentile of the search of one shard over the last seconds, microseconds; 0: none.
    pub latency_p90_us: f64,
    /// How far its overlay is behind, milliseconds.
    pub lag_ms: Option<u64>,
    /// Queries of each shard: corpus, shard, how many.
    pub shards: Vec<(String, ShardId, u64)>,
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Condition {
    /// All that it holds or should hold.
    pub holdings: Vec<Holding>,
    /// What it saw of trials since it was last asked.
    pub trials: Vec<Seen>,
    /// What a leaf can hold: bytes of memory and disk, cores; 0: it does not say.
    pub capacity: Capacity,
    /// What a leaf did.
    pub work: Option<Work>,
}

/// The link of one node. Cloning shares it.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    node: NodeConfig,
    cluster: String,
    /// Of this process; later ones of the node have larger ones.
    incarnation: u64,
    services: Vec<(String, TopologyPeer<ClientChannel>)>,
    /// Names of the services.
    names: Vec<String>,
    routing: Routing,
    last_good: LastGood,
    contact: Contact,
    /// Judged queries that this root was told to ask.
    tasks: Mutex<Vec<(String, Trial)>>,
}

impl Link {
    /// Of `node`, to the services of `config`. It goes by the last good snapshot until it hears of a newer one. Errors: an
    /// address, or the state directory.
    pub fn new(config: &TopologyConfig, node: NodeConfig, rpc: &RpcConfig, net: &NetIo) -> Result<Self> {
        let token = node_token(config)?;
        let bearer = token.and_then(|token| format!("Bearer {}", token.reveal()).parse().ok());
        let dial = |address: String| {
            let channel = rpc::channel(rpc, net, &address)
                .map_err(|source| Error::Io { what: format!("topology service {address}"), source })?;
            Ok((address, TopologyPeer::new(channel).bearing(bearer.clone())))
        };
        let services = config.services().into_iter().map(dial).collect::<Result<Vec<_>>>()?;
        let last_good = LastGood::at(Path::new(&config.state_dir), &node.id)?;
        let first = last_good.read().unwrap_or_else(RoutingSnapshot::default);
        if first.known() {
            tracing::info!(node = node.id, epoch = first.epoch.0, "goes by the last good routing snapshot");
        }
        let named = config.nodes.iter().filter(|node| node.role == Role::Topology);
        let names = named.map(|node| node.id.clone()).collect();
        let cluster = config.cluster.clone();
        let incarnation = u64::try_from(System.now_us()).unwrap_or(0);
        let (routing, tasks, contact) = (first.into(), Mutex::default(), Contact::new());
        Ok(Self(Arc::new(Inner {
            node,
            cluster,
            incarnation,
            services,
            names,
            routing,
            last_good,
            contact,
            tasks,
        })))
    }

    /// The snapshot that this node goes by.
    pub fn routing(&self) -> Routing {
        self.0.routing.clone()
    }

    /// How long no snapshot stream is alive; since the process started, when none ever was.
    pub fn unheard(&self) -> Duration {
        self.0.contact.cut()
    }

    /// How long no service took a report; since the process started, when none ever did.
    pub fn unreported(&self) -> Duration {
        self.0.contact.unreported()
    }

    /// Trials whose judged queries this root is to ask of both versions: of each corpus, with the gate. The result goes into
    /// [`Condition::trials`], whole; until it has come the task is told again, and after it may come again for another gate.
    pub fn judge_tasks(&self) -> Vec<(String, Trial)> {
        self.0.tasks.lock().clone()
    }

    /// The judged queries of a task. Errors: no service answers, or the gate is over.
    pub async fn judged(&self, corpus: &str, gate: u64) -> std::result::Result<Vec<JudgedQuery>, Status> {
        let mut last = Status::unavailable("no topology service is named");
        for (_, service) in &self.0.services {
            match service.judged(JudgedRequest { corpus: corpus.to_owned(), gate }).await {
                Ok(reply) => {
                    let read = |query: wire::JudgedQuery| JudgedQuery { q: query.q, gains: query.gains };
                    return Ok(reply.queries.into_iter().map(read).collect());
                }
                Err(status) => last = status,
            }
        }
        Err(last)
    }

    /// Follows and reports until the process has drained; `condition` says how the node is.
    pub async fn run(self, drain: Drain, condition: impl Fn() -> Condition + Send + Sync) {
        tokio::join!(watch::watch(&self.0, &drain), report::report(&self.0, &drain, &condition));
    }
}

impl Inner {
    /// Whom to ask after the service of this turn has failed: the leader that it named, else the next one.
    fn next(&self, turn: usize, failed: Option<&Status>) -> usize {
        let place = |leader: Leader| {
            let by_name = self.names.iter().position(|name| *name == leader.node);
            by_name.or_else(|| self.services.iter().position(|(address, _)| *address == leader.address))
        };
        failed.and_then(redirect::leader).and_then(place).unwrap_or(turn + 1)
    }
}

/// Waits, or until the process drains; whether it goes on.
async fn pause(drain: &Drain, time: Duration) -> bool {
    tokio::select! {
        biased;
        () = drain.wait_started() => false,
        () = tokio::time::sleep(time) => true,
    }
}

#[cfg(test)]
mod tests;
