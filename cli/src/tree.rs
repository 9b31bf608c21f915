//! Starts roles in this process: all of a configuration file (`canopy up`), one of them (`canopy leaf`), or a tree on
//! free ports (`quickstart`, tests). Listeners are bound before the routing snapshot is made, so that port 0 works and
//! a taken port is an error before anything else happens.
//!
//! Leaving goes from the top down: roots first, so that what they still have to answer finds everybody below. An ingest goes
//! after the leaves: a query that waits for a write gets it, and the last checkpoint of a leaf needs no ingest.

use std::{collections::BTreeMap, io::ErrorKind, sync::Arc, time::Duration};

use anyhow::{Context, Result, anyhow};
use canopy_aggregator::{AggregatorServe, config::GatherConfig};
use canopy_common::{
    clock,
    config::Live,
    deps::Deps,
    drain::Drain,
    ids::NodeId,
    net::{Bound, NetIo},
    rng::Dice,
    telemetry::Telemetry,
};
use canopy_format::store::VersionStore;
use canopy_ingest::IngestServe;
use canopy_leaf::LeafServe;
use canopy_root::{RootServe, config::QueryLogConfig};
use canopy_topology::{
    config::{NodeConfig, Role, TopologyConfig},
    link::Link,
    membership::Membership,
    routing::RoutingSnapshot,
    service::{self, TopologyServe},
};
use tokio::task::JoinSet;

use crate::{config::Config, store};

/// Roles that run in this process.
pub struct Tree {
    /// Their topology, ports resolved.
    pub topology: TopologyConfig,
    policies: Policies<Live<GatherConfig>, Live<QueryLogConfig>>,
    levels: [Level; 5],
}

/// Settings that may change while roles run.
#[derive(Debug, Clone, PartialEq)]
pub struct Policies<G = GatherConfig, Q = QueryLogConfig> {
    /// `[gather]`.
    pub gather: G,
    /// `[root.query_log]`.
    pub query_log: Q,
}

impl Policies {
    /// Those of a configuration.
    pub fn of(config: &Config) -> Self {
        Self { gather: config.gather.clone(), query_log: config.root.query_log.clone() }
    }
}

/// The nodes of one role.
#[derive(Default)]
struct Level {
    drain: Drain,
    nodes: JoinSet<Result<()>>,
}

/// Where the nodes of a role stand, from the top.
fn level(role: Role) -> usize {
    match role {
        Role::Root => 0,
        Role::Aggregator => 1,
        Role::Leaf => 2,
        Role::Ingest => 3,
        Role::Topology => 4,
    }
}

/// What a node listens on.
struct Listeners {
    grpc: Bound,
    admin: Option<Bound>,
}

/// What outlives one node of the process.
pub struct Surroundings {
    /// The network.
    pub net: NetIo,
    /// Random numbers.
    pub dice: Dice,
}

impl Surroundings {
    /// Real sockets and real dice.
    pub fn real() -> Result<Self> {
        Ok(Self { net: NetIo::tcp(), dice: Dice::from_entropy()? })
    }

    /// Every node has metrics of its own, also when several share a process.
    fn deps(&self, node: &NodeId) -> Deps {
        Deps {
            net: self.net.clone(),
            clock: Arc::new(clock::System),
            dice: self.dice.stream(&node.0),
            telemetry: Telemetry::default(),
        }
    }
}

/// What to do where an address can't be listened on.
fn unheard(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::AddrInUse => "; hint: is another canopy running, or the port taken?",
        ErrorKind::AddrNotAvailable => {
            "; hint: no interface of this machine has the address: is it the node of another machine (--node names this one's), or \
             mistyped?"
        }
        ErrorKind::PermissionDenied => "; hint: ports below 1024 are for who may; take a higher one",
        _ => "",
    }
}

fn lacks_store(node: &str) -> anyhow::Error {
    anyhow!("{node} needs a store of versions, and none is open")
}

fn lacks_pages(root: &str) -> anyhow::Error {
    anyhow!("root {root} has no `admin` address; hint: its HTTP API listens there")
}

async fn bind(net: &NetIo, node: &mut NodeConfig) -> Result<Listeners> {
    let listen = |address: String| {
        let bound = net.bind(&address);
        let id = node.id.clone();
        async move {
            bound.await.map_err(|error| {
                let hint = unheard(error.kind());
                anyhow::Error::new(error).context(format!("{id} can't listen on {address}{hint}"))
            })
        }
    };
    let (grpc, admin) = (listen(node.address.clone()), node.admin.clone());
    let admin = if admin.is_empty() { None } else { Some(listen(admin)) };
    let grpc = grpc.await?;
    let admin = match admin {
        Some(admin) => Some(admin.await?),
        None => None,
    };
    node.address = grpc.address.to_string();
    if let Some(admin) = &admin {
        node.admin = admin.address.to_string();
    }
    Ok(Listeners { grpc, admin })
}

impl Tree {
    /// Starts the nodes of `config.topology` for which `here` is true; the others are expected elsewhere. Roots and leaves need
    /// the store.
    pub async fn start(
        config: &Config,
        store: Option<&VersionStore>,
        surroundings: &Surroundings,
        here: impl Fn(&NodeConfig) -> bool,
    ) -> Result<Self> {
        let mut topology = config.topology.clone();
        let mut listeners = BTreeMap::new();
        for node in topology.nodes.iter_mut().filter(|node| here(node)) {
            listeners.insert(node.id.clone(), bind(&surroundings.net, node).await?);
        }
        let routing = RoutingSnapshot::from_static(&topology)
            .map_err(|problems| anyhow!("the topology is not valid:\n  {}", problems.join("\n  ")))?;
        let fixed = Membership::from(routing);
        let Policies { gather, query_log } = Policies::of(config);
        let policies = Policies { gather: gather.into(), query_log: query_log.into() };
        let mut tree = Self { topology, policies, levels: Default::default() };
        for node in tree.topology.nodes.clone() {
            if let Some(listeners) = listeners.remove(&node.id) {
                let membership = tree.membership(config, surroundings, &fixed, &node)?;
                tree.serve(config, store, surroundings, membership, &node, listeners)?;
            }
        }
        Ok(tree)
    }

    /// How a node knows the topology: by the service that the configuration names, else by the configuration.
    fn membership(
        &self,
        config: &Config,
        surroundings: &Surroundings,
        fixed: &Membership,
        node: &NodeConfig,
    ) -> Result<Membership> {
        if !node.role.takes_queries() || self.topology.services().is_empty() {
            return Ok(fixed.clone());
        }
        Ok(Membership::Linked(Link::new(&self.topology, node.clone(), &config.rpc, &surroundings.net)?))
    }

    fn serve(
        &mut self,
        config: &Config,
        store: Option<&VersionStore>,
        surroundings: &Surroundings,
        membership: Membership,
        node: &NodeConfig,
        listeners: Listeners,
    ) -> Result<()> {
        let Listeners { grpc, admin } = listeners;
        let id = NodeId::from(node.id.as_str());
        let Level { drain, nodes } = &mut self.levels[level(node.role)];
        let (deps, drain) = (surroundings.deps(&id), drain.clone());
        let (rpc, name) = (config.rpc.clone(), node.id.clone());
        let opened = || store.cloned().ok_or_else(|| lacks_store(&name));
        match node.role {
            Role::Topology => {
                let (versions, config) = (config.store.clone(), self.topology.clone());
                let version_store = Arc::new(move || store::lacks(&versions));
                let service = TopologyServe { node: id, config, rpc, grpc, admin, version_store };
                nodes.spawn(async move {
                    service::serve(service, deps, drain).await.with_context(|| format!("topology {name}"))
                });
            }
            Role::Leaf => {
                let (config, store, ingest) = (config.leaf.clone(), opened()?, self.topology.ingests());
                let leaf = LeafServe { node: id, config, rpc, store, ingest, membership, grpc, admin };
                nodes.spawn(async move {
                    canopy_leaf::serve(leaf, deps, drain).await.with_context(|| format!("leaf {name}"))
                });
            }
            Role::Ingest => {
                let (config, store, http) = (config.ingest.clone(), opened()?, admin);
                let ingest = IngestServe { node: id, config, rpc, store, grpc, http };
                nodes.spawn(async move {
                    canopy_ingest::serve(ingest, deps, drain).await.with_context(|| format!("ingest {name}"))
                });
            }
            Role::Aggregator => {
                let (config, gather) = (config.aggregator.clone(), self.policies.gather.clone());
                let aggregator = AggregatorServe { node: id, config, gather, rpc, membership, grpc, admin };
                nodes.spawn(async move {
                    canopy_aggregator::serve(aggregator, deps, drain)
                        .await
                        .with_context(|| format!("aggregator {name}"))
                });
            }
            Role::Root => {
                let (config, store, grpc) = (config.root.clone(), opened()?, Some(grpc));
                let http = admin.ok_or_else(|| lacks_pages(&name))?;
                let Policies { gather, query_log } = self.policies.clone();
                let root =
                    RootServe { node: id, config, gather, query_log, rpc, store, membership, http, grpc };
                nodes.spawn(async move {
                    canopy_root::serve(root, deps, drain).await.with_context(|| format!("root {name}"))
                });
            }
        }
        Ok(())
    }

    /// New settings, for queries that begin from now on.
    pub fn reload(&self, policies: Policies) {
        self.policies.gather.set(policies.gather);
        self.policies.query_log.set(policies.query_log);
    }

    /// HTTP addresses of the roots.
    pub fn roots(&self) -> impl Iterator<Item = &str> {
        let roots = self.topology.nodes.iter().filter(|node| node.role == Role::Root);
        roots.map(|node| node.admin.as_str())
    }

    /// HTTP addresses of the ingests.
    pub fn ingests(&self) -> impl Iterator<Item = &str> {
        let ingests = self.topology.nodes.iter().filter(|node| node.role == Role::Ingest);
        ingests.map(|node| node.admin.as_str())
    }

    /// Resolves with the first role that ends; an error when it failed.
    pub async fn ended(&mut self) -> Result<()> {
        let running = self.levels.iter_mut().filter(|level| !level.nodes.is_empty());
        let ends: Vec<_> = running.map(|level| Box::pin(level.nodes.join_next())).collect();
        if ends.is_empty() {
            return Ok(());
        }
        let (ended, ..) = futures::future::select_all(ends).await;
        ended.map_or(Ok(()), |ended| ended?)
    }

    /// Nothing runs to its end any more.
    pub fn abort(&self) {
        for level in &self.levels {
            level.drain.abort();
        }
    }

    /// The level that others ask says that it leaves, answers on for `lame_duck`, and drains; then the next below, until all
    /// have. Those below do not say so before: whom they answer is still here.
    pub async fn stop(mut self, lame_duck: Duration) -> Result<()> {
        let mut lame_duck = Some(lame_duck);
        for level in &mut self.levels {
            if level.nodes.is_empty() {
                continue;
            }
            level.drain.start_after(lame_duck.take().unwrap_or_default()).await;
            while let Some(ended) = level.nodes.join_next().await {
                ended??;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_port_that_is_taken_and_an_address_of_another_machine_are_told_apart() {
        let net = NetIo::tcp();
        let taken = net.bind("127.0.0.1:0").await.unwrap();
        let said = async |address: &str| {
            let mut node = NodeConfig::at("leaf-1", Role::Leaf, address);
            crate::failure::line(&bind(&net, &mut node).await.err().unwrap())
        };
        let in_use = said(&taken.address.to_string()).await;
        assert!(in_use.contains("is another canopy running, or the port taken?"), "{in_use}");
        // Of a block that is for documentation: no machine has it.
        let elsewhere = said("192.0.2.1:7100").await;
        assert!(elsewhere.contains("leaf-1 can't listen on 192.0.2.1:7100"), "{elsewhere}");
        assert!(elsewhere.contains("no interface of this machine has the address"), "{elsewhere}");
        assert!(!elsewhere.contains("port taken"), "{elsewhere}");
    }
}
