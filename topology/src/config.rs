//! `[topology]` of the configuration: nodes and placements by hand, for set-ups without the topology service. It
//! makes one routing snapshot, epoch 1.

use serde::{Deserialize, Serialize};

/// The section.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopologyConfig {
    /// Processes of the tree.
    pub nodes: Vec<NodeConfig>,
    /// Which leaves hold which shards.
    pub placements: Vec<Placement>,
}

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Faces clients.
    Root,
    /// Fans out and merges.
    Aggregator,
    /// Searches shards.
    Leaf,
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Name, unique.
    pub id: String,
    /// What it is.
    pub role: Role,
    /// gRPC `host:port` that others reach it at.
    pub address: String,
    /// `host:port` of its admin pages, for `canopy status`; empty: none.
    #[serde(default)]
    pub admin: String,
    /// Zone; empty: none.
    #[serde(default)]
    pub zone: String,
}

/// A set of shards with the same replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Corpus.
    pub corpus: String,
    /// `["main/0", "main/1"]`.
    pub shards: Vec<String>,
    /// Leaves that hold them.
    pub replicas: Vec<String>,
    /// Version served; 0: the newest complete one in the store when the process starts.
    #[serde(default)]
    pub version: u64,
}
