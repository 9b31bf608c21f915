//! The routing snapshot: immutable, numbered by epoch, taken once per request. Readers never hash and never ask anyone:
//! all they need to route a query is in it.
//!
//! Of each corpus it says which versions queries are sent to and in which shares (**pins**), which leaves should hold
//! which version (**wanted**), and which of these answer from it by now (**held**): a query is only routed to a leaf
//! that said it holds the very version it is pinned to. A static topology knows no versions: its leaves serve the pinned
//! or newest one, and its placement stands for all of these. Leaves that the service thinks ill of stay among those that hold, and
//! are marked to be asked **last**: the service is not in the way of a query that only they can answer.

mod both;
mod current;
pub mod delta;
mod document;

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::{
    config::Section,
    ids::{Epoch, NodeId, ShardId, Version},
};

use serde::{Deserialize, Serialize};

pub use current::{Following, Routing};
pub(crate) use document::LAST_EPOCH;

use crate::config::{Role, TopologyConfig};

/// Replicas of each shard. Shards with the same replicas share one list, so that a plan can tell so by the pointer alone.
pub type Replicas = BTreeMap<ShardId, Arc<[NodeId]>>;

/// All queries: pins of a corpus add up to it.
pub const ALL_QUERIES: u32 = 10_000;

/// Who serves what, at one epoch.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RoutingSnapshot {
    /// Number.
    pub epoch: Epoch,
    /// Nodes by id.
    pub nodes: BTreeMap<NodeId, Node>,
    /// Corpora by name.
    pub corpora: BTreeMap<String, CorpusRouting>,
    /// Leaves that are asked after the others that hold a shard.
    pub last: BTreeMap<NodeId, Last>,
}

/// Why a leaf is asked after the others: what the topology service thinks of it, which can be wrong and can be old. So it is asked
/// all the same where no other answers, and where none is thought better of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Last {
    /// It fails, or was not heard of. Never so that fewer than half of a shard's replicas are left: past that the trouble is not
    /// theirs, and the rest would be overloaded.
    Faulty,
    /// It is leaving, or drained.
    Leaving,
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
    /// Static topologies: version to serve; `None`: the newest complete one at start.
    pub version: Option<Version>,
    /// Static topologies: replicas by shard, in placement order.
    pub shards: Replicas,
    /// Versions that queries are sent to, with their shares; empty: static.
    pub pins: Vec<Pin>,
    /// How many shards are placed by the service; 0: static. A version with more can't be answered whole.
    pub placed_shards: u32,
    /// The version that is tried, when it is compared with the one that serves.
    pub trial: Option<Trial>,
    /// Versions that some leaf should hold.
    pub versions: BTreeMap<Version, VersionRouting>,
}

/// A version on trial: roots tell how its queries went beside an equal part of the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Which.
    pub version: Version,
    /// The one that it is compared with.
    pub control: Version,
    /// Queries that are asked of it too, their answers dropped; of [`ALL_QUERIES`].
    pub shadow: u32,
    /// Of those pinned to the other version, the part that is compared; of [`ALL_QUERIES`].
    pub compared: u32,
    /// Number of the gate that roots tell with their sums: of one trial's sums, none count in another.
    #[serde(default)]
    pub gate: u64,
}

/// What a query is in a trial.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Pinned to the version on trial.
    Treatment,
    /// Pinned to the other, and compared.
    Control,
    /// Pinned to the other, and asked of the version on trial too.
    Shadowed,
}

impl Trial {
    /// What a query is that is pinned to `version`, by its stable number.
    pub fn part(&self, version: Version, stable: u64) -> Option<Part> {
        // From the far end of the pins, so that none of these is ever a treatment.
        let place = ALL_QUERIES - 1 - (stable % u64::from(ALL_QUERIES)) as u32;
        match version {
            version if version == self.version => Some(Part::Treatment),
            version if version != self.control => None,
            _ if place < self.shadow => Some(Part::Shadowed),
            _ if place < self.compared => Some(Part::Control),
            _ => None,
        }
    }
}

/// A version that queries are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Which.
    pub version: Version,
    /// Of how many queries in [`ALL_QUERIES`].
    pub share: u32,
}

/// Where one version is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct VersionRouting {
    /// Leaves that should hold each shard.
    pub wanted: Replicas,
    /// Leaves that said they answer from it.
    pub held: Replicas,
}

impl CorpusRouting {
    /// Whom to ask for the shards of a version; `None`: nobody should hold it.
    pub fn holders(&self, version: Version) -> Option<&Replicas> {
        match self.versions.get(&version) {
            Some(routing) => Some(&routing.held),
            None if self.versions.is_empty() => Some(&self.shards),
            None => None,
        }
    }

    /// The version of a query, by a number that is stable for whoever should stay on one. `None`: static.
    pub fn pinned(&self, stable: u64) -> Option<Version> {
        let mut place = (stable % u64::from(ALL_QUERIES)) as u32;
        for pin in &self.pins {
            if place < pin.share {
                return Some(pin.version);
            }
            place -= pin.share;
        }
        self.main()
    }

    /// The version that most queries are sent to; `None`: static.
    pub fn main(&self) -> Option<Version> {
        self.pins.iter().max_by_key(|pin| pin.share).map(|pin| pin.version)
    }

    /// What leaves should hold: by version, `None` in a static topology that names none.
    fn wanted(&self) -> impl Iterator<Item = (Option<Version>, &Replicas)> {
        let placed = self.versions.is_empty().then_some((self.version, &self.shards));
        let versions = self.versions.iter().map(|(version, routing)| (Some(*version), &routing.wanted));
        placed.into_iter().chain(versions)
    }
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
        let known = config.nodes.iter().filter(|node| node.role.takes_queries());
        let nodes = known.map(|node| {
            let known = Node {
                role: node.role,
                address: node.address.clone(),
                admin: node.admin.clone(),
                zone: node.zone.clone(),
            };
            (NodeId::from(node.id.as_str()), known)
        });
        let mut snapshot = Self { epoch: Epoch(1), nodes: nodes.collect(), ..Self::default() };
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

    /// Whether it says anything: a node that has not heard of the topology yet goes by epoch 0, which is empty.
    pub fn known(&self) -> bool {
        self.epoch > Epoch(0)
    }

    /// Leaves that can be asked for a shard of a version; empty when none is known.
    pub fn holders(&self, corpus: &str, version: Version, shard: &ShardId) -> &[NodeId] {
        let holders = self.corpora.get(corpus).and_then(|routing| routing.holders(version));
        holders.and_then(|shards| shards.get(shard)).map_or(&[], |replicas| replicas)
    }

    /// Nodes of a role.
    pub fn with_role(&self, role: Role) -> impl Iterator<Item = (&NodeId, &Node)> {
        self.nodes.iter().filter(move |(_, node)| node.role == role)
    }

    /// What a leaf should hold: corpus, version (`None`: the newest), shard.
    pub fn wanted<'a>(
        &'a self,
        leaf: &'a NodeId,
    ) -> impl Iterator<Item = (&'a str, Option<Version>, &'a ShardId)> {
        self.corpora.iter().flat_map(move |(name, corpus)| {
            corpus.wanted().flat_map(move |(version, shards)| {
                let held = shards.iter().filter(move |(_, replicas)| replicas.contains(leaf));
                held.map(move |(shard, _)| (name.as_str(), version, shard))
            })
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
            ..TopologyConfig::default()
        }
    }

    #[test]
    fn a_snapshot_knows_replicas_in_placement_order_and_what_each_leaf_holds() {
        let snapshot = RoutingSnapshot::from_static(&topology()).unwrap();
        let shard = |number| ShardId::new("main", number);
        assert_eq!(snapshot.epoch, Epoch(1));
        assert_eq!(snapshot.corpora["web"].version, None);
        let holders = |corpus, number| snapshot.holders(corpus, Version(7), &shard(number));
        assert_eq!(holders("web", 1), [NodeId::from("leaf-2"), NodeId::from("leaf-1")]);
        assert!(holders("web", 3).is_empty() && holders("x", 0).is_empty());
        let wanted = |leaf: &str| {
            let leaf = NodeId::from(leaf);
            snapshot.wanted(&leaf).map(|(_, version, shard)| (version, shard.number)).collect::<Vec<_>>()
        };
        assert_eq!(wanted("leaf-1"), [(None, 0), (None, 1)]);
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
    fn a_query_is_routed_to_leaves_that_hold_its_version() {
        let shard = ShardId::new("main", 0);
        let on = |leaves: &[&str]| -> Replicas {
            let leaves = leaves.iter().map(|leaf| NodeId::from(*leaf)).collect();
            [(shard.clone(), leaves)].into()
        };
        let version = |wanted: &[&str], held: &[&str]| VersionRouting { wanted: on(wanted), held: on(held) };
        let pin = |version, share| Pin { version: Version(version), share };
        let corpus = CorpusRouting {
            pins: vec![pin(1, 9_900), pin(2, 100)],
            versions: [
                (Version(1), version(&["a", "b"], &["a", "b"])),
                (Version(2), version(&["a", "b"], &["b"])),
            ]
            .into(),
            ..CorpusRouting::default()
        };
        let share =
            |wanted| (0..10_000).filter(|stable| corpus.pinned(*stable) == Some(Version(wanted))).count();
        assert_eq!([share(1), share(2)], [9_900, 100]);
        assert_eq!(CorpusRouting::default().pinned(3), None);
        let snapshot = RoutingSnapshot { corpora: [("web".to_owned(), corpus)].into(), ..Default::default() };
        let holders = |version| snapshot.holders("web", Version(version), &shard);
        assert_eq!(holders(1).len(), 2);
        assert_eq!(holders(2), [NodeId::from("b")]);
        assert!(holders(3).is_empty(), "a version nobody should hold is nowhere");
        let a = NodeId::from("a");
        let wanted: Vec<_> = snapshot.wanted(&a).map(|(_, version, _)| version).collect();
        assert_eq!(wanted, [Some(Version(1)), Some(Version(2))]);
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
