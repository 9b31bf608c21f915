//! A node's link to the topology service: it follows the routing snapshots, and says how the node is. Both go on for ever and
//! begin again by themselves; nothing that answers queries waits for either.
//!
//! The failure this prevents: a tree that stops when its control plane does. Rules: the last snapshot lies on this node's
//! disk, and a node that starts while the service is away goes by it; a node whose service is away goes on with what it
//! has; only a newer epoch is taken over, so that a late message changes nothing.

mod last_good;
mod report;
mod watch;

use std::{path::Path, sync::Arc, time::Duration};

use canopy_common::{
    drain::Drain,
    ids::{ShardId, Version},
    net::NetIo,
    rpc::{self, ClientChannel, RpcConfig},
};
use canopy_proto::topology_peer::TopologyPeer;
pub use last_good::LastGood;

use crate::{
    config::{NodeConfig, TopologyConfig},
    error::{Error, Result},
    gates::wire::Seen,
    routing::{Routing, RoutingSnapshot},
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
}

/// How a node is.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Condition {
    /// All that it holds or should hold.
    pub holdings: Vec<Holding>,
    /// What it saw of trials since it was last asked.
    pub trials: Vec<Seen>,
}

/// The link of one node. Cloning shares it.
#[derive(Clone)]
pub struct Link(Arc<Inner>);

struct Inner {
    node: NodeConfig,
    services: Vec<(String, TopologyPeer<ClientChannel>)>,
    routing: Routing,
    last_good: LastGood,
}

impl Link {
    /// Of `node`, to the services of `config`. It goes by the last good snapshot until it hears of a newer one. Errors: an
    /// address, or the state directory.
    pub fn new(config: &TopologyConfig, node: NodeConfig, rpc: &RpcConfig, net: &NetIo) -> Result<Self> {
        let dial = |address: String| {
            let channel = rpc::channel(rpc, net, &address)
                .map_err(|source| Error::Io { what: format!("topology service {address}"), source })?;
            Ok((address, TopologyPeer::new(channel)))
        };
        let services = config.services().into_iter().map(dial).collect::<Result<Vec<_>>>()?;
        let last_good = LastGood::at(Path::new(&config.state_dir), &node.id)?;
        let first = last_good.read().unwrap_or_else(RoutingSnapshot::default);
        if first.known() {
            tracing::info!(node = node.id, epoch = first.epoch.0, "goes by the last good routing snapshot");
        }
        Ok(Self(Arc::new(Inner { node, services, routing: first.into(), last_good })))
    }

    /// The snapshot that this node goes by.
    pub fn routing(&self) -> Routing {
        self.0.routing.clone()
    }

    /// Follows and reports until the process has drained; `condition` says how the node is.
    pub async fn run(self, drain: Drain, condition: impl Fn() -> Condition + Send + Sync) {
        tokio::join!(watch::watch(&self.0, &drain), report::report(&self.0, &drain, &condition));
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
