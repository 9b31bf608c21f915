//! The routing snapshot: immutable, numbered by epoch, taken once per request. Readers never hash and never ask anyone:
//! all they need to route a query is in it.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::{
    config::Section,
    ids::{Epoch, NodeId, ShardId, Version},
};

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
    /// Replicas by shard, in placement order. Shards of one placement share one list, so that a plan can tell by the
    /// pointer alone that two shards have the same replicas.
    pub shards: BTreeMap<ShardId, Arc<[NodeId]>>,
}

impl RoutingSnapshot {
    /// From a static topology, epoch 1. Errors: every problem (unknown leaf, shard placed twice, bad name, no replica).
    pub fn from_static(config: &TopologyConfig) -> Result<Self, Vec<String>> {
        let problems = config.problems();
        if !problems.is_empty() {
            return Err(problems
                .into_iter()
                .map(|(key, reason)| format!("topology.{key}: {reason}"))
                .collect());
        }
        let nodes = config.nodes.iter().map(|node| {
            let known = Node {
                role: node.role,
                address: node.address.clone(),
                admin: node.admin.clone(),
                zone: node.zone.clone(),
            };
            (NodeId::from(node.id.as_str()), known)
        });
        let mut snapshot = Self { epoch: Epoch(1), nodes: nodes.collect(), corpora: BTreeMap::new() };
        for placement in &config.placements {
            let replicas: Arc<[NodeId]> =
                placement.replicas.iter().map(|leaf| NodeId::from(leaf.as_str())).collect();
            let corpus = snapshot.corpora.entry(placement.corpus.clone()).or_default();
            corpus.version = (placement.version > 0).then_some(Version(placement.version));
            let shards = placement.shards.iter().filter_map(|shard| shard.parse::<ShardId>().ok());
            corpus.shards.extend(shards.map(|shard| (shard, replicas.clone())));
        }
        Ok(snapshot)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::{node, placement};

    fn topology() -> TopologyConfig {
        TopologyConfig {
            nodes: vec![
                node("root", Role::Root, 7000),
                node("leaf-1", Role::Leaf, 7002),
                node("leaf-2", Role::Leaf, 7003),
            ],
            placements: vec![
                placement(&["main/0", "main/1"], &["leaf-2", "leaf-1"]),
                placement(&["main/2"], &["leaf-2"]),
            ],
        }
    }

    #[test]
    fn a_snapshot_knows_replicas_in_placement_order_and_what_each_leaf_holds() {
        let snapshot = RoutingSnapshot::from_static(&topology()).unwrap();
        let shard = |number| ShardId::new("main", number);
        assert_eq!(snapshot.epoch, Epoch(1));
        assert_eq!(snapshot.corpora["web"].version, None);
        assert_eq!(snapshot.replicas("web", &shard(1)), [NodeId::from("leaf-2"), NodeId::from("leaf-1")]);
        assert!(
            snapshot.replicas("web", &shard(3)).is_empty() && snapshot.replicas("x", &shard(0)).is_empty()
        );
        let held: Vec<_> = snapshot.shards_of(&"leaf-1".into()).map(|(_, shard)| shard.number).collect();
        assert_eq!(held, [0, 1]);
        assert_eq!(snapshot.with_role(Role::Leaf).count(), 2);
        let shards = &snapshot.corpora["web"].shards;
        assert!(Arc::ptr_eq(&shards[&shard(0)], &shards[&shard(1)]));
    }

    #[test]
    fn a_pinned_version_is_kept() {
        let mut pinned = topology();
        pinned.placements.iter_mut().for_each(|placement| placement.version = 12);
        let snapshot = RoutingSnapshot::from_static(&pinned).unwrap();
        assert_eq!(snapshot.corpora["web"].version, Some(Version(12)));
    }

    #[test]
    fn every_problem_is_in_the_error() {
        let mut bad = topology();
        bad.placements[0].replicas[0] = "nobody".into();
        bad.placements[1].shards.clear();
        let problems = RoutingSnapshot::from_static(&bad).unwrap_err();
        assert_eq!(problems.len(), 2, "{problems:?}");
        assert!(problems[0].starts_with("topology.placements[0].replicas[0]: "), "{problems:?}");
    }
}
