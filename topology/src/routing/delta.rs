//! What changed between two routing snapshots.
//!
//! A tree of 20,000 leaves has a snapshot of megabytes, and something changes each second: a leaf comes, a replica gets
//! warm, the pins move. Sent whole, that would be gigabytes a second over all nodes; so nodes are sent what changed.
//!
//! Measured (200 shards of 100 replicas on 20,000 leaves with names of 10 and addresses of 22 letters, one version wanted
//! and held, as JSON; a test prints it): the whole snapshot has 2.0 MB; a leaf that is lost 0.15 kB, pins that move
//! 0.2 kB, a row of 200 replicas that gets warm 14 kB, and a second version wanted on all leaves at once 270 kB.
//!
//! Rules: a delta goes from one epoch to the next one that was sent, and is applied to nothing else: one that comes late,
//! twice or after a gap is refused, and so is one that does not fit (a leaf to be taken out that is not in). Then the
//! node asks for the whole. Applying gives the very next snapshot, with lists of replicas shared as in one read whole.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use canopy_common::ids::{Epoch, NodeId, ShardId, Version};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{CorpusRouting, Last, Pin, Replicas, RoutingSnapshot, Trial, VersionRouting, document::NodeLine};

/// Why a delta was not applied. In each case the whole snapshot is to be asked for, except after [`DeltaError::Old`].
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum DeltaError {
    /// It was applied already, or something newer was.
    #[error("the delta to epoch {to} is old: this node is at {at}")]
    Old {
        /// Of the snapshot.
        at: u64,
        /// Of the delta.
        to: u64,
    },
    /// Something between is missing.
    #[error("the delta starts at epoch {from}, this node is at {at}; ask for the whole snapshot")]
    Gap {
        /// Of the snapshot.
        at: u64,
        /// Of the delta.
        from: u64,
    },
    /// It was made of another snapshot.
    #[error("the delta does not fit: {what}; ask for the whole snapshot")]
    Unfit {
        /// What of it.
        what: String,
    },
}

/// What changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoutingDelta {
    /// Of the snapshot it is applied to.
    pub from: Epoch,
    /// Of the one that comes out.
    pub to: Epoch,
    /// Nodes that are new or other; `None`: gone.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nodes: BTreeMap<NodeId, Option<NodeLine>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    corpora: BTreeMap<String, Option<CorpusDelta>>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    last: BTreeMap<NodeId, Option<Last>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct CorpusDelta {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    head: Option<Head>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    placed: Vec<Change>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    versions: BTreeMap<Version, Option<VersionDelta>>,
}

/// What is small enough to be sent whole when any of it changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    version: Option<Version>,
    pins: Vec<Pin>,
    trial: Option<Trial>,
    placed_shards: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct VersionDelta {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wanted: Vec<Change>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    held: Vec<Change>,
}

/// Shards whose replicas changed alike.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    shards: Vec<ShardId>,
    edit: Edit,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Edit {
    /// The shard is no more.
    Gone,
    /// All of its replicas.
    List(Vec<NodeId>),
    /// Some go, then some come, each at its place in the new list.
    Some {
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        out: Vec<NodeId>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        into: Vec<(usize, NodeId)>,
    },
}

impl RoutingDelta {
    /// What leads from one snapshot to another.
    pub fn between(old: &RoutingSnapshot, new: &RoutingSnapshot) -> Self {
        let nodes = changed(&old.nodes, &new.nodes, |_, node| NodeLine::from(node.clone()));
        let corpora = changed(&old.corpora, &new.corpora, |old, new| {
            let nothing = CorpusRouting::default();
            CorpusDelta::between(old.unwrap_or(&nothing), new)
        });
        let last = changed(&old.last, &new.last, |_, why| *why);
        Self { from: old.epoch, to: new.epoch, nodes, corpora, last }
    }

    /// The snapshot after it.
    pub fn apply(&self, old: &RoutingSnapshot) -> Result<RoutingSnapshot, DeltaError> {
        let (at, from, to) = (old.epoch.0, self.from.0, self.to.0);
        if to <= at {
            return Err(DeltaError::Old { at, to });
        }
        if from != at {
            return Err(DeltaError::Gap { at, from });
        }
        let mut next = RoutingSnapshot { epoch: self.to, ..old.clone() };
        for (id, line) in &self.nodes {
            match line {
                Some(line) => {
                    next.nodes.insert(id.clone(), line.clone().into());
                }
                None => {
                    next.nodes.remove(id).ok_or_else(|| unfit(format!("there is no node {id}")))?;
                }
            }
        }
        for (id, why) in &self.last {
            match why {
                Some(why) => drop(next.last.insert(id.clone(), *why)),
                None => {
                    next.last.remove(id).ok_or_else(|| unfit(format!("{id} is not asked last")))?;
                }
            }
        }
        for (name, delta) in &self.corpora {
            match delta {
                Some(delta) => delta.apply(next.corpora.entry(name.clone()).or_default())?,
                None => {
                    next.corpora.remove(name).ok_or_else(|| unfit(format!("there is no corpus {name}")))?;
                }
            }
        }
        Ok(next)
    }

    /// Its document.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// From its document. Errors: what is wrong with it.
    pub fn from_json(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

/// Entries that are new or other, made by `make` of old and new; `None`: gone.
fn changed<K: Ord + Clone, V: PartialEq, D>(
    old: &BTreeMap<K, V>,
    new: &BTreeMap<K, V>,
    make: impl Fn(Option<&V>, &V) -> D,
) -> BTreeMap<K, Option<D>> {
    let other = new.iter().filter(|(key, value)| old.get(*key) != Some(value));
    let other = other.map(|(key, value)| (key.clone(), Some(make(old.get(key), value))));
    let gone = old.keys().filter(|key| !new.contains_key(key)).map(|key| (key.clone(), None));
    other.chain(gone).collect()
}

fn unfit(what: String) -> DeltaError {
    DeltaError::Unfit { what }
}

impl CorpusDelta {
    fn between(old: &CorpusRouting, new: &CorpusRouting) -> Self {
        let head = |corpus: &CorpusRouting| {
            let CorpusRouting { version, pins, trial, placed_shards, .. } = corpus.clone();
            Head { version, pins, trial, placed_shards }
        };
        let nothing = VersionRouting::default();
        let version = |old: Option<&VersionRouting>, new: &VersionRouting| {
            let old = old.unwrap_or(&nothing);
            VersionDelta { wanted: changes(&old.wanted, &new.wanted), held: changes(&old.held, &new.held) }
        };
        Self {
            head: Some(head(new)).filter(|new| *new != head(old)),
            placed: changes(&old.shards, &new.shards),
            versions: changed(&old.versions, &new.versions, version),
        }
    }

    fn apply(&self, corpus: &mut CorpusRouting) -> Result<(), DeltaError> {
        if let Some(Head { version, pins, trial, placed_shards }) = self.head.clone() {
            (corpus.version, corpus.pins, corpus.trial) = (version, pins, trial);
            corpus.placed_shards = placed_shards;
        }
        apply(&self.placed, &mut corpus.shards)?;
        for (version, delta) in &self.versions {
            if let Some(delta) = delta {
                let routing = corpus.versions.entry(*version).or_default();
                apply(&delta.wanted, &mut routing.wanted)?;
                apply(&delta.held, &mut routing.held)?;
            } else {
                let gone = corpus.versions.remove(version);
                gone.ok_or_else(|| unfit(format!("there is no version {version}")))?;
            }
        }
        Ok(())
    }
}

fn changes(old: &Replicas, new: &Replicas) -> Vec<Change> {
    let mut alike: BTreeMap<Edit, Vec<ShardId>> = BTreeMap::new();
    for (shard, nodes) in new {
        match old.get(shard) {
            Some(before) if Arc::ptr_eq(before, nodes) || before == nodes => {}
            Some(before) => alike.entry(Edit::between(before, nodes)).or_default().push(shard.clone()),
            None => alike.entry(Edit::List(nodes.to_vec())).or_default().push(shard.clone()),
        }
    }
    let gone: Vec<ShardId> = old.keys().filter(|shard| !new.contains_key(shard)).cloned().collect();
    if !gone.is_empty() {
        alike.insert(Edit::Gone, gone);
    }
    alike.into_iter().map(|(edit, shards)| Change { shards, edit }).collect()
}

fn apply(changes: &[Change], replicas: &mut Replicas) -> Result<(), DeltaError> {
    if changes.is_empty() {
        return Ok(());
    }
    for Change { shards, edit } in changes {
        for shard in shards {
            let old = replicas.get(shard).map(|nodes| &**nodes);
            match edit.apply(old).map_err(|what| unfit(format!("{shard}: {what}")))? {
                Some(nodes) => replicas.insert(shard.clone(), nodes.into()),
                None => replicas.remove(shard),
            };
        }
    }
    // Lists that are equal now are one.
    let mut lists: BTreeSet<Arc<[NodeId]>> = BTreeSet::new();
    for nodes in replicas.values_mut() {
        match lists.get(nodes) {
            Some(list) => *nodes = list.clone(),
            None => {
                lists.insert(nodes.clone());
            }
        }
    }
    Ok(())
}

impl Edit {
    fn between(old: &[NodeId], new: &[NodeId]) -> Self {
        let (had, has): (BTreeSet<&NodeId>, BTreeSet<&NodeId>) = (old.iter().collect(), new.iter().collect());
        let kept = |list: &[NodeId], other: &BTreeSet<&NodeId>| -> Vec<NodeId> {
            list.iter().filter(|node| other.contains(node)).cloned().collect()
        };
        let out: Vec<NodeId> = old.iter().filter(|node| !has.contains(node)).cloned().collect();
        let into: Vec<(usize, NodeId)> = new
            .iter()
            .enumerate()
            .filter(|(_, node)| !had.contains(node))
            .map(|(at, node)| (at, node.clone()))
            .collect();
        let ordered = kept(old, &has) == kept(new, &had);
        if ordered && out.len() + into.len() < new.len() {
            Self::Some { out, into }
        } else {
            Self::List(new.to_vec())
        }
    }

    /// The list after it; `None`: there is none. Errors: what does not fit.
    fn apply(&self, old: Option<&[NodeId]>) -> Result<Option<Vec<NodeId>>, String> {
        match (self, old) {
            (Self::List(nodes), _) => Ok(Some(nodes.clone())),
            (Self::Gone, Some(_)) => Ok(None),
            (Self::Gone | Self::Some { .. }, None) => Err("there is no such shard".to_owned()),
            (Self::Some { out, into }, Some(old)) => {
                let mut nodes = old.to_vec();
                for node in out {
                    let at = nodes.iter().position(|it| it == node).ok_or(format!("{node} is not in"))?;
                    nodes.remove(at);
                }
                for (at, node) in into {
                    if *at > nodes.len() || nodes.contains(node) {
                        return Err(format!("{node} can't be put in at {at}"));
                    }
                    nodes.insert(*at, node.clone());
                }
                Ok(Some(nodes))
            }
        }
    }
}

#[cfg(test)]
mod tests;
