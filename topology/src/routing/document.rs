//! The JSON form of a routing snapshot: what the service sends, a node keeps on disk, and `canopy topology show` prints. One
//! form for all, so that what a person reads is what a node went by. Shards with the same replicas share a line.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{Epoch, NodeId, ShardId, Version};
use serde::{Deserialize, Serialize};

use super::{CorpusRouting, Last, Node, Pin, Replicas, RoutingSnapshot, Trial, VersionRouting};
use crate::config::Role;

/// Epochs begin at milliseconds since 1970 and go on by one: what is above is damage.
pub(crate) const LAST_EPOCH: Epoch = Epoch(1 << 62);

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    epoch: Epoch,
    nodes: BTreeMap<NodeId, NodeLine>,
    corpora: BTreeMap<String, CorpusLine>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    last: BTreeMap<NodeId, Last>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeLine {
    role: Role,
    address: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    admin: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    zone: String,
}

impl From<Node> for NodeLine {
    fn from(node: Node) -> Self {
        let Node { role, address, admin, zone } = node;
        Self { role, address, admin, zone }
    }
}

impl From<NodeLine> for Node {
    fn from(line: NodeLine) -> Self {
        let NodeLine { role, address, admin, zone } = line;
        Self { role, address, admin, zone }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CorpusLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<Version>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    placed: Vec<Group>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pins: Vec<Pin>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    trial: Option<Trial>,
    #[serde(default)]
    placed_shards: u32,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    versions: BTreeMap<Version, VersionLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionLine {
    wanted: Vec<Group>,
    held: Vec<Group>,
}

/// Shards with the same replicas.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    replicas: Arc<[NodeId]>,
    shards: Vec<ShardId>,
}

fn groups(replicas: &Replicas) -> Vec<Group> {
    let mut groups: BTreeMap<&[NodeId], Group> = BTreeMap::new();
    for (shard, nodes) in replicas {
        let empty = || Group { replicas: nodes.clone(), shards: Vec::new() };
        groups.entry(nodes).or_insert_with(empty).shards.push(shard.clone());
    }
    groups.into_values().collect()
}

fn replicas(groups: Vec<Group>) -> Replicas {
    let each = groups.into_iter().flat_map(|Group { replicas, shards }| {
        shards.into_iter().map(move |shard| (shard, replicas.clone()))
    });
    each.collect()
}

impl RoutingSnapshot {
    /// Its document.
    pub fn to_json(&self) -> Vec<u8> {
        let nodes = self.nodes.iter().map(|(id, node)| (id.clone(), node.clone().into()));
        let corpora = self.corpora.iter().map(|(name, corpus)| {
            let versions = corpus.versions.iter().map(|(version, routing)| {
                (*version, VersionLine { wanted: groups(&routing.wanted), held: groups(&routing.held) })
            });
            let line = CorpusLine {
                version: corpus.version,
                placed: groups(&corpus.shards),
                pins: corpus.pins.clone(),
                trial: corpus.trial,
                placed_shards: corpus.placed_shards,
                versions: versions.collect(),
            };
            (name.clone(), line)
        });
        let document = Document {
            epoch: self.epoch,
            nodes: nodes.collect(),
            corpora: corpora.collect(),
            last: self.last.clone(),
        };
        serde_json::to_vec(&document).unwrap_or_default()
    }

    /// From its document. Errors: what is wrong with it; an epoch that no service gives among them, above which nothing would ever
    /// be newer.
    pub fn from_json(bytes: &[u8]) -> Result<Self, String> {
        let document: Document = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
        if document.epoch > LAST_EPOCH {
            return Err(format!(
                "its epoch {} is above {}, the last one there is",
                document.epoch.0, LAST_EPOCH.0
            ));
        }
        let nodes = document.nodes.into_iter().map(|(id, line)| (id, line.into()));
        let corpora = document.corpora.into_iter().map(|(name, line)| {
            let versions = line.versions.into_iter().map(|(version, line)| {
                let routing = VersionRouting { wanted: replicas(line.wanted), held: replicas(line.held) };
                (version, routing)
            });
            let corpus = CorpusRouting {
                version: line.version,
                shards: replicas(line.placed),
                pins: line.pins,
                trial: line.trial,
                placed_shards: line.placed_shards,
                versions: versions.collect(),
            };
            (name, corpus)
        });
        let (nodes, corpora) = (nodes.collect(), corpora.collect());
        Ok(Self { epoch: document.epoch, nodes, corpora, last: document.last })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_says_the_whole_snapshot_and_keeps_lists_shared() {
        let on =
            |leaves: &[&str]| -> Arc<[NodeId]> { leaves.iter().map(|leaf| NodeId::from(*leaf)).collect() };
        let shards: Replicas = (0..6)
            .map(|number| (ShardId::new("main", number), on(&["a", if number < 4 { "b" } else { "c" }])))
            .collect();
        let node = Node { role: Role::Leaf, address: "h:1".into(), admin: String::new(), zone: "z".into() };
        let corpus = CorpusRouting {
            version: None,
            shards: Replicas::new(),
            pins: vec![Pin { version: Version(3), share: 10_000 }],
            placed_shards: 6,
            trial: Some(Trial {
                version: Version(4),
                control: Version(3),
                shadow: 100,
                compared: 0,
                gate: 7,
            }),
            versions: [(Version(3), VersionRouting { wanted: shards.clone(), held: shards })].into(),
        };
        let snapshot = RoutingSnapshot {
            epoch: Epoch(9),
            nodes: [("a".into(), node)].into(),
            corpora: [("web".to_owned(), corpus)].into(),
            last: [("a".into(), Last::Leaving)].into(),
        };
        let read = RoutingSnapshot::from_json(&snapshot.to_json()).unwrap();
        assert_eq!(read, snapshot);
        let held = &read.corpora["web"].versions[&Version(3)].held;
        assert!(Arc::ptr_eq(&held[&ShardId::new("main", 0)], &held[&ShardId::new("main", 3)]));
        for bad in ["", "{}", r#"{"epoch":1,"nodes":{},"corpora":{},"extra":1}"#] {
            assert!(RoutingSnapshot::from_json(bad.as_bytes()).is_err(), "{bad}");
        }
    }
}
