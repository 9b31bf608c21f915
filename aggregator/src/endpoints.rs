//! Nodes that can be asked: by id, each a [`SearchNode`].
//!
//! Production dials lazily and keeps one channel a node; the set is diffed from routing snapshots, so a node that
//! stays keeps its connection, one that moved gets a new one, and one that left is dropped once its last call ends.
//! Calls read a snapshot of the set and take no lock.

use std::{collections::BTreeMap, sync::Arc};

use arc_swap::ArcSwap;
use canopy_common::{
    ids::NodeId,
    net::NetIo,
    rpc::{self, RpcConfig},
};
use canopy_proto::{SearchNode, client::NodeClient};
use canopy_topology::{
    config::Role,
    routing::{Routing, RoutingSnapshot},
};

/// Finds the node to ask. Production dials; tests hand in model leaves.
pub trait Endpoints: Send + Sync + 'static {
    /// The node, or `None` when it is not known.
    fn get(&self, node: &NodeId) -> Option<Arc<dyn SearchNode>>;
}

/// A node and where its channel leads.
#[derive(Clone)]
struct Endpoint {
    address: String,
    node: Arc<dyn SearchNode>,
}

/// All nodes of a routing snapshot that serve `SearchNode`.
pub struct EndpointSet {
    rpc: RpcConfig,
    net: NetIo,
    known: ArcSwap<BTreeMap<NodeId, Endpoint>>,
}

impl EndpointSet {
    /// The nodes of `routing`, not dialled yet.
    pub fn new(rpc: RpcConfig, net: NetIo, routing: &RoutingSnapshot) -> Self {
        let set = Self { rpc, net, known: ArcSwap::default() };
        set.update(routing);
        set
    }

    /// Takes over a newer snapshot: keeps the channels of nodes whose address did not change.
    pub fn update(&self, routing: &RoutingSnapshot) {
        let old = self.known.load();
        let mut known = BTreeMap::new();
        for (id, node) in routing.nodes.iter().filter(|(_, node)| node.role != Role::Root) {
            let kept = old.get(id).filter(|endpoint| endpoint.address == node.address);
            match kept.cloned().map_or_else(|| self.dial(&node.address), Ok) {
                Ok(endpoint) => drop(known.insert(id.clone(), endpoint)),
                Err(error) => tracing::warn!(node = %id, address = node.address, %error, "not an address"),
            }
        }
        self.known.store(Arc::new(known));
    }

    /// Keeps in step with the routing snapshot; never ends.
    pub async fn follow(&self, routing: &Routing) {
        let mut following = routing.follow();
        loop {
            let routing = following.next().await;
            self.update(&routing);
        }
    }

    fn dial(&self, address: &str) -> std::io::Result<Endpoint> {
        let channel = rpc::channel(&self.rpc, &self.net, address)?;
        let node = Arc::new(NodeClient::new(channel, self.rpc.max_message.0 as usize));
        Ok(Endpoint { address: address.to_owned(), node })
    }
}

impl Endpoints for EndpointSet {
    fn get(&self, node: &NodeId) -> Option<Arc<dyn SearchNode>> {
        self.known.load().get(node).map(|endpoint| endpoint.node.clone())
    }
}

#[cfg(test)]
mod tests {
    use canopy_topology::routing::Node;

    use super::*;

    fn routing(nodes: &[(&str, Role, &str)]) -> RoutingSnapshot {
        let node = |(id, role, address): &(&str, Role, &str)| {
            let node =
                Node { role: *role, address: (*address).into(), admin: String::new(), zone: String::new() };
            (NodeId::from(*id), node)
        };
        RoutingSnapshot { nodes: nodes.iter().map(node).collect(), ..Default::default() }
    }

    #[tokio::test]
    async fn a_snapshot_keeps_what_stays_and_replaces_what_moved() {
        let first = routing(&[
            ("root", Role::Root, "h:1"),
            ("a", Role::Aggregator, "h:2"),
            ("b", Role::Leaf, "h:3"),
            ("c", Role::Leaf, "h:4"),
        ]);
        let set = EndpointSet::new(RpcConfig::default(), NetIo::tcp(), &first);
        let get = |id: &str| set.get(&id.into());
        let before = ["a", "b", "c"].map(|id| get(id).unwrap());
        assert!(get("root").is_none());
        set.update(&routing(&[("a", Role::Aggregator, "h:2"), ("b", Role::Leaf, "h:9")]));
        assert!(Arc::ptr_eq(&before[0], &get("a").unwrap()));
        assert!(!Arc::ptr_eq(&before[1], &get("b").unwrap()));
        assert!(get("c").is_none());
    }
}
