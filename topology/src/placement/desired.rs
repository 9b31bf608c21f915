//! What is asked of a placement: groups of shards with so many replicas, and the leaves that can hold them.

use std::{collections::BTreeMap, fmt, sync::Arc};

use canopy_common::ids::{NodeId, ShardId, valid_name};
use serde::{Deserialize, Serialize};

/// Most shards of one group; part of the layout's contract.
const MAX_SHARDS: usize = 1024;
/// Most leaves.
const MAX_LEAVES: usize = 100_000;
/// Most replicas of all shards.
const MAX_REPLICAS: u64 = 1_000_000;

/// A shard of a corpus.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct CorpusShard {
    /// Which corpus.
    pub corpus: Arc<str>,
    /// Which shard of it.
    pub shard: ShardId,
}

impl fmt::Display for CorpusShard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.corpus, self.shard)
    }
}

/// What a leaf can hold, of one version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Capacity {
    /// Resident bytes.
    pub memory: u64,
    /// Bytes on disk.
    pub disk: u64,
    /// Processors.
    pub cores: u32,
}

/// A leaf.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leaf {
    /// Where it stands; empty: a zone of its own kind, shared by all that say nothing.
    pub zone: String,
    /// What hardware it is; groups can ask for one.
    pub class: String,
    /// What it can hold.
    pub capacity: Capacity,
    /// It is to be emptied.
    pub draining: bool,
}

/// What a replica of a shard takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardNeeds {
    /// Resident bytes: what is balanced.
    pub memory: u64,
    /// Bytes on disk: what is fetched.
    pub disk: u64,
    /// Replicas of this shard, when it needs more than its group: a hot one.
    pub replicas: Option<u32>,
}

/// Shards with the same number of replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Whose.
    pub corpus: Arc<str>,
    /// Its name.
    pub name: String,
    /// Hardware it needs; `None`: any.
    pub class: Option<String>,
    /// Replicas of each shard.
    pub replicas: u32,
    /// Its shards, by number.
    pub shards: Vec<ShardNeeds>,
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Desired {
    /// Leaves by name.
    pub leaves: BTreeMap<NodeId, Leaf>,
    /// Groups.
    pub groups: Vec<Group>,
}

impl Group {
    /// A shard of it.
    pub fn shard(&self, number: usize) -> CorpusShard {
        CorpusShard { corpus: self.corpus.clone(), shard: ShardId::new(&self.name, number as u32) }
    }

    /// Replicas wanted of a shard.
    pub fn replicas_of(&self, needs: &ShardNeeds) -> usize {
        needs.replicas.unwrap_or(self.replicas) as usize
    }
}

impl Desired {
    /// What is wrong with it: `(key, reason)`.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut wrong = |key: String, reason: String| problems.push((key, reason));
        if self.leaves.len() > MAX_LEAVES {
            wrong("leaves".to_owned(), format!("{} leaves; at most {MAX_LEAVES}", self.leaves.len()));
        }
        let mut replicas = 0_u64;
        for (at, group) in self.groups.iter().enumerate() {
            let key = |field: &str| format!("groups[{at}].{field}");
            if !valid_name(&group.corpus) || !valid_name(&group.name) {
                wrong(
                    key("name"),
                    format!("{:?} of {:?} is not a name; use a-z, 0-9, - and _", group.name, group.corpus),
                );
            }
            if self.groups[..at].iter().any(|other| other.corpus == group.corpus && other.name == group.name)
            {
                wrong(
                    key("name"),
                    format!("{} of {} is named twice; merge the two", group.name, group.corpus),
                );
            }
            if group.shards.is_empty() || group.shards.len() > MAX_SHARDS {
                wrong(key("shards"), format!("{} shards; write 1 to {MAX_SHARDS}", group.shards.len()));
            }
            for (number, needs) in group.shards.iter().enumerate() {
                let wanted = group.replicas_of(needs);
                replicas = replicas.saturating_add(wanted as u64);
                if wanted == 0 {
                    wrong(key("replicas"), format!("shard {number} has none; a shard needs at least one"));
                }
            }
        }
        if replicas > MAX_REPLICAS {
            wrong("groups".to_owned(), format!("{replicas} replicas; at most {MAX_REPLICAS}"));
        }
        problems
    }
}
