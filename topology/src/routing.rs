//! The routing snapshot: immutable, numbered by epoch, taken once per request. Readers never hash and never ask anyone:
//! all they need to route a query is in it.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{Epoch, NodeId, ShardId, Version};

use crate::config::{Role, TopologyConfig};

/// Who serves what, at one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutingSnapshot {
    /// Number.
    pub epoch: Epoch,
    /// Nodes by id.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Corpora by name.
    pub corpora: BTreeMap<String, CorpusRouting>,
}

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub role: Role,
    /// gRPC `host:port`.
    pub address: String,
    /// Admin `host:port`; empty: none.
    pub admin: String,
    /// Zone; empty: none.
    pub zone: String,
}

/// One corpus.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CorpusRouting {
    /// Version to serve; `None`: the newest complete one at start.
    pub version: Option<Version>,
    /// Replicas by shard, in placement order.
    pub shards: BTreeMap<ShardId, Arc<[NodeId]>>,
}

impl RoutingSnapshot {
    /// From a static topology, epoch 1. Errors: every problem (unknown leaf, shard placed twice, bad name, no replica).
    pub fn from_static(_config: &TopologyConfig) -> Result<Self, Vec<String>> {
        todo!()
    }

    /// Replicas of a shard; empty when none is known.
    pub fn replicas(&self, corpus: &str, shard: &ShardId) -> &[NodeId] {
        self.corpora
            .get(corpus)
            .and_then(|routing| routing.shards.get(shard))
            .map_or(&[], |replicas| replicas)
    }

    /// Nodes of a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter().filter(move |(_, node)| node.role == role)
    }

    /// Shards that a leaf should hold, by corpus.
    pub fn shards_of<'a>(&'a self, leaf: &'a NodeId) -> impl Iterator<Item = (&'a str, &'a ShardId)> {
        self.corpora.iter().flat_map(move |(name, corpus)| {
            let held = corpus.shards.iter().filter(move |(_, replicas)| replicas.contains(leaf));
            held.map(move |(shard, _)| (name.as_str(), shard))
        })
    }
}
