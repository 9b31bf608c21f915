//! What the tree looks like, as far as the rollout was told: who should hold each shard, who said what of which version,
//! who is away, and which versions' statistics every ready root has. It is kept with the state, so that a restarted service
//! does not take "not heard of yet" for "nobody holds it" and turn queries away from a version that serves.
//!
//! Versions may differ in how many shards they have. What is placed are the shards of all of them, and a replica of a shard that
//! a version does not have holds it by holding nothing.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::{NodeId, ShardId, Version};
use serde::{Deserialize, Serialize};

/// A copy of a shard on a leaf.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Replica {
    /// Of which shard.
    pub shard: ShardId,
    /// On which leaf.
    pub node: NodeId,
}

/// What a leaf said of one version of one shard.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// Nothing of it is there.
    Absent,
    /// It is fetched, verified, opened or warmed.
    Loading,
    /// It would answer.
    Resident,
    /// The version has no such shard, so nothing is to be held.
    Void,
    /// It could not be loaded, and the leaf has given up.
    Failed {
        /// Why.
        reason: String,
        /// Whether no leaf can ever load it: wrong checksum, signature, format or schema.
        everywhere: bool,
    },
}

impl Hold {
    /// Whether nothing is missing for queries of the version.
    pub fn is_whole(&self) -> bool {
        matches!(self, Self::Resident | Self::Void)
    }
}

/// One leaf's word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Of what.
    pub replica: Replica,
    /// Which version.
    pub version: Version,
    /// How far it is.
    pub hold: Hold,
}

/// The tree, as told.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Seen {
    /// Who should hold each shard, in rows: the first of each list are the first row.
    pub placed: BTreeMap<ShardId, Vec<NodeId>>,
    /// Leaves whose lease is out.
    pub away: BTreeSet<NodeId>,
    /// Versions whose statistics every ready root holds.
    pub roots: BTreeSet<Version>,
    pub(super) resident: BTreeMap<Version, BTreeSet<Replica>>,
    /// Of the shards that are placed, those that a version does not have.
    #[serde(default)]
    pub(super) void: BTreeMap<Version, BTreeSet<ShardId>>,
}

impl Seen {
    /// Every replica.
    pub fn replicas(&self) -> impl Iterator<Item = Replica> + '_ {
        let of = |(shard, nodes): (&ShardId, &Vec<NodeId>)| {
            let shard = shard.clone();
            nodes.clone().into_iter().map(move |node| Replica { shard: shard.clone(), node })
        };
        self.placed.iter().flat_map(of)
    }

    /// Whether it is placed.
    pub fn is_placed(&self, replica: &Replica) -> bool {
        self.placed.get(&replica.shard).is_some_and(|nodes| nodes.contains(&replica.node))
    }

    /// Notes a leaf's word.
    pub fn report(&mut self, report: &Report) {
        let held = self.resident.entry(report.version).or_default();
        if report.hold.is_whole() {
            held.insert(report.replica.clone());
        } else {
            held.remove(&report.replica);
        }
        if held.is_empty() {
            self.resident.remove(&report.version);
        }
        let void = self.void.entry(report.version).or_default();
        match report.hold {
            Hold::Void => drop(void.insert(report.replica.shard.clone())),
            Hold::Resident => drop(void.remove(&report.replica.shard)),
            Hold::Absent | Hold::Loading | Hold::Failed { .. } => {}
        }
        if void.is_empty() {
            self.void.remove(&report.version);
        }
    }

    /// Whether a version is known not to have a shard.
    pub fn lacks(&self, version: Version, shard: &ShardId) -> bool {
        self.void.get(&version).is_some_and(|void| void.contains(shard))
    }

    /// How many shards two versions have, where these are not the same.
    pub fn unlike(&self, one: Version, other: Version) -> Option<[usize; 2]> {
        let lacking = |version| self.void.get(&version).map_or(0, BTreeSet::len);
        let shards = |version| self.placed.len().saturating_sub(lacking(version));
        (self.void.get(&one) != self.void.get(&other)).then(|| [shards(one), shards(other)])
    }

    /// Takes a new placement; what was said of replicas that are no more is forgotten.
    pub fn place(&mut self, placed: BTreeMap<ShardId, Vec<NodeId>>) {
        let old = std::mem::replace(&mut self.placed, placed);
        let gone = old.into_iter().flat_map(|(shard, nodes)| {
            nodes.into_iter().map(move |node| Replica { shard: shard.clone(), node })
        });
        let gone: Vec<Replica> = gone.filter(|replica| !self.is_placed(replica)).collect();
        for held in self.resident.values_mut() {
            for replica in &gone {
                held.remove(replica);
            }
        }
        self.resident.retain(|_, held| !held.is_empty());
        let placed = &self.placed;
        self.void.values_mut().for_each(|void| void.retain(|shard| placed.contains_key(shard)));
        self.void.retain(|_, void| !void.is_empty());
    }

    /// Forgets that leaves without a shard are away.
    pub fn forget_strangers(&mut self) {
        let known: BTreeSet<&NodeId> = self.placed.values().flatten().collect();
        self.away.retain(|node| known.contains(node));
    }

    /// What a leaf said that it answers from.
    pub fn held_by(&self, node: &NodeId) -> Vec<(Replica, Version)> {
        let of_node = |(version, held): (&Version, &BTreeSet<Replica>)| {
            let version = *version;
            let held: Vec<_> = held.iter().filter(|replica| replica.node == *node).cloned().collect();
            held.into_iter().map(move |replica| (replica, version))
        };
        self.resident.iter().flat_map(of_node).collect()
    }

    /// Forgets what was said of other versions.
    pub fn keep_only(&mut self, versions: &[Version]) {
        self.resident.retain(|version, _| versions.contains(version));
        self.void.retain(|version, _| versions.contains(version));
    }

    /// Whether the replica answers from the version (its leaf may be away).
    pub fn holds(&self, version: Version, replica: &Replica) -> bool {
        self.resident.get(&version).is_some_and(|held| held.contains(replica))
    }

    /// Replicas of a shard on leaves that are here.
    pub fn present(&self, shard: &ShardId) -> usize {
        self.placed
            .get(shard)
            .map_or(0, |nodes| nodes.iter().filter(|node| !self.away.contains(node)).count())
    }

    /// Replicas of a shard, on leaves that are here, that answer from a version.
    pub fn resident(&self, version: Version, shard: &ShardId) -> usize {
        let Some(nodes) = self.placed.get(shard) else { return 0 };
        let here = nodes.iter().filter(|node| !self.away.contains(node));
        here.filter(|node| self.holds(version, &Replica { shard: shard.clone(), node: (*node).clone() }))
            .count()
    }

    /// Over all shards, the least of `resident` and what is required of it: whether `enough(resident, present, placed)`.
    pub fn every_shard(&self, version: Version, enough: impl Fn(usize, usize, usize) -> bool) -> bool {
        !self.placed.is_empty()
            && self
                .placed
                .iter()
                .all(|(shard, nodes)| enough(self.resident(version, shard), self.present(shard), nodes.len()))
    }

    /// Whether every shard has a replica that answers from the version.
    pub fn answers(&self, version: Version) -> bool {
        self.every_shard(version, |resident, _, _| resident > 0)
    }

    /// Whether the version stands as safe as the leaves that are here allow: two replicas of every shard, or the only one.
    pub fn is_safe(&self, version: Version) -> bool {
        self.every_shard(version, |resident, present, _| resident >= present.clamp(1, 2))
    }
}
