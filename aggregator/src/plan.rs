//! From shards to branches: whom to ask for what.
//!
//! A **branch** is a set of shards with the same replicas, asked on one leaf per attempt, so that 64 shards on 4 leaves
//! cost 4 calls and not 64. Sets larger than `branch_shards` are split evenly and each part picks its own replica: the
//! replicas of the set share the work. With more branches than `fanout_max` and aggregators known, the branches are
//! grouped into as few even **subtrees** as keep each below `fanout_max` (but never more than `fanout_max` of them);
//! an aggregator receives the subtree's shards and plans again. There is no static tree.
//!
//! Loops cannot happen: a subtree is always smaller than the whole, a node never asks itself, and a request that came
//! down seven levels is answered flat. A shard without replicas is not dropped: it is settled as unavailable, in words.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{NodeId, ShardId, Version};
use canopy_proto::{v1, validate::MAX_LEVEL};
use canopy_topology::{
    config::Role,
    routing::{Replicas, RoutingSnapshot},
};
pub use holders::{Holders, Together};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::config::GatherConfig;

mod holders;

/// Aggregators that may serve one subtree, best first.
const SUBTREE_CANDIDATES: usize = 4;

/// What kind of node a branch asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Through {
    /// Leaves that hold the shards.
    Leaf,
    /// Aggregators that ask on.
    Aggregator,
}

/// Shards asked together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Branch {
    /// Indexes in the request's shards, ascending.
    pub shards: Vec<u32>,
    /// Whom one may ask: leaves in placement order, or aggregators in rendezvous order.
    pub candidates: Arc<[NodeId]>,
    /// What they are.
    pub through: Through,
}

/// Whom to ask for what.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// Branches; every shard is in exactly one, or in `unplaced`.
    pub branches: Vec<Branch>,
    /// Shards that nobody can be asked for, and why.
    pub unplaced: Vec<(u32, String)>,
}

/// Plans the shards of `request` over who holds them, as seen by node `this`.
pub fn plan(
    routing: &RoutingSnapshot,
    holders: Option<&Replicas>,
    request: &v1::SearchRequest,
    config: &GatherConfig,
    this: &NodeId,
) -> Plan {
    let mut plan = Plan::default();
    let Some(holders) = holders else {
        let all = 0..request.shards.len() as u32;
        let reason = if routing.corpora.contains_key(&request.corpus) {
            format!("no leaf serves v{} of corpus {:?}", request.version, request.corpus)
        } else {
            format!("no leaf serves corpus {:?}", request.corpus)
        };
        plan.unplaced = all.map(|shard| (shard, reason.clone())).collect();
        return plan;
    };
    let sets = by_replicas(holders, &request.shards, &mut plan.unplaced);
    plan.branches = sets.into_iter().flat_map(|set| split(set, config.branch_shards)).collect();
    let fanout = config.fanout_max.max(2) as usize;
    if plan.branches.len() > fanout && request.level + 1 < MAX_LEVEL {
        let aggregators: Vec<&NodeId> =
            routing.with_role(Role::Aggregator).map(|(id, _)| id).filter(|id| *id != this).collect();
        if !aggregators.is_empty() {
            plan.branches = subtrees(&plan.branches, fanout, &aggregators, request);
        }
    }
    plan
}

/// Branches for some of the shards, straight to their leaves.
pub fn around(
    holders: Option<&Replicas>,
    request: &v1::SearchRequest,
    shards: &[u32],
    config: &GatherConfig,
) -> Vec<Branch> {
    let Some(holders) = holders else { return Vec::new() };
    let some: Vec<v1::ShardRequest> =
        shards.iter().map(|shard| request.shards[*shard as usize].clone()).collect();
    let sets = by_replicas(holders, &some, &mut Vec::new());
    let mut branches: Vec<Branch> =
        sets.into_iter().flat_map(|set| split(set, config.branch_shards)).collect();
    for shard in branches.iter_mut().flat_map(|branch| &mut branch.shards) {
        *shard = shards[*shard as usize];
    }
    branches
}

/// Branches for shards over leaves that should hold them in the version that is asked for and are not known to.
pub fn coming(
    routing: &RoutingSnapshot,
    request: &v1::SearchRequest,
    shards: &[u32],
    config: &GatherConfig,
) -> Vec<Branch> {
    let versions = routing.corpora.get(&request.corpus).map(|corpus| &corpus.versions);
    let Some(known) = versions.and_then(|versions| versions.get(&Version(request.version))) else {
        return Vec::new();
    };
    let of = |shard: &u32| {
        let shard: ShardId = request.shards[*shard as usize].shard.parse().ok()?;
        let held = known.held.get(&shard);
        let said = |leaf: &&NodeId| held.is_some_and(|held| held.contains(leaf));
        let coming: Arc<[NodeId]> =
            known.wanted.get(&shard)?.iter().filter(|leaf| !said(leaf)).cloned().collect();
        (!coming.is_empty()).then_some((shard, coming))
    };
    let coming: Replicas = shards.iter().filter_map(of).collect();
    around(Some(&coming), request, shards, config)
}

/// One branch per set of replicas, in the order of the first shard of each.
fn by_replicas(
    holders: &Replicas,
    shards: &[v1::ShardRequest],
    unplaced: &mut Vec<(u32, String)>,
) -> Vec<Branch> {
    let mut sets: Vec<Branch> = Vec::new();
    let mut by_pointer: BTreeMap<*const NodeId, usize> = BTreeMap::new();
    let mut by_members: BTreeMap<Vec<NodeId>, usize> = BTreeMap::new();
    let mut names = Names::default();
    for (index, shard) in shards.iter().enumerate() {
        let index = index as u32;
        let replicas = names.parse(&shard.shard).map(|id| holders.get(&id));
        let replicas = match replicas {
            Some(Some(replicas)) if !replicas.is_empty() => replicas,
            Some(_) => {
                unplaced.push((index, format!("no leaf holds {}", shard.shard)));
                continue;
            }
            None => {
                unplaced.push((index, format!("{:?} is not a shard name", shard.shard)));
                continue;
            }
        };
        let set = *by_pointer.entry(replicas.as_ptr()).or_insert_with(|| {
            let mut members = replicas.to_vec();
            members.sort();
            *by_members.entry(members).or_insert_with(|| {
                let candidates = replicas.clone();
                sets.push(Branch { shards: Vec::new(), candidates, through: Through::Leaf });
                sets.len() - 1
            })
        });
        sets[set].shards.push(index);
    }
    sets
}

/// Reads shard names; consecutive names of one group share the group's allocation.
#[derive(Default)]
struct Names(Option<ShardId>);

impl Names {
    fn parse(&mut self, name: &str) -> Option<ShardId> {
        if let (Some(last), Some((group, number))) = (&self.0, name.rsplit_once('/'))
            && *last.group == *group
        {
            return Some(ShardId { group: last.group.clone(), number: number.parse().ok()? });
        }
        let id: ShardId = name.parse().ok()?;
        self.0 = Some(id.clone());
        Some(id)
    }
}

/// Even parts of at most `most` shards.
fn split(set: Branch, most: u32) -> Vec<Branch> {
    let most = most.max(1) as usize;
    if set.shards.len() <= most {
        return vec![set];
    }
    even(&set.shards, set.shards.len().div_ceil(most))
        .map(|part| Branch { shards: part.to_vec(), ..set.clone() })
        .collect()
}

/// Cuts `items` into `parts` runs whose lengths differ by at most one.
fn even<T>(items: &[T], parts: usize) -> impl Iterator<Item = &[T]> {
    (0..parts).map(move |part| &items[part * items.len() / parts..(part + 1) * items.len() / parts])
}

/// Groups branches into subtrees, each with the aggregators that may serve it.
fn subtrees(
    branches: &[Branch],
    fanout: usize,
    aggregators: &[&NodeId],
    request: &v1::SearchRequest,
) -> Vec<Branch> {
    let parts = branches.len().div_ceil(fanout).min(fanout);
    even(branches, parts)
        .map(|part| {
            let mut shards: Vec<u32> = part.iter().flat_map(|branch| branch.shards.iter().copied()).collect();
            shards.sort_unstable();
            let name = shards.first().map_or("", |first| &request.shards[*first as usize].shard);
            let candidates = rendezvous(&request.corpus, name, aggregators);
            Branch { shards, candidates, through: Through::Aggregator }
        })
        .collect()
}

/// Aggregators for a subtree, in the order of a hash of (corpus, first shard, aggregator): the same subtree goes to the
/// same aggregators from every caller, and losing one moves only its own subtrees.
fn rendezvous(corpus: &str, shard: &str, aggregators: &[&NodeId]) -> Arc<[NodeId]> {
    let seed = xxh3_64_with_seed(shard.as_bytes(), xxh3_64_with_seed(corpus.as_bytes(), 0));
    let mut ranked: Vec<(u64, &NodeId)> =
        aggregators.iter().map(|id| (xxh3_64_with_seed(id.0.as_bytes(), seed), *id)).collect();
    ranked.sort_unstable_by(|a, b| b.cmp(a));
    ranked.into_iter().take(SUBTREE_CANDIDATES).map(|(_, id)| id.clone()).collect()
}

#[cfg(test)]
mod tests;
