//! What has to be moved to get from one placement to the next: shown before it runs, and then run in this order. Load
//! first, drop after: at no moment has a shard fewer replicas than the smaller of what it had and what it shall have.

use std::collections::BTreeMap;

use canopy_common::ids::NodeId;
use serde::Serialize;

use super::{
    desired::{CorpusShard, Desired},
    place::Placed,
};

/// A replica that is made, one that goes, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Move {
    /// Of which shard.
    pub shard: CorpusShard,
    /// Fetched here first.
    pub load: Option<NodeId>,
    /// Dropped here when that answers; a leaf that is gone has nothing to drop.
    pub drop: Option<NodeId>,
    /// Bytes that are fetched.
    pub bytes: u64,
}

/// One thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanStep<'a> {
    /// Fetch, verify, open and warm.
    Load(&'a CorpusShard, &'a NodeId),
    /// Forget.
    Drop(&'a CorpusShard, &'a NodeId),
}

/// All moves.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Plan {
    /// In order.
    pub moves: Vec<Move>,
    /// Bytes that are fetched in all.
    pub bytes: u64,
    /// Bytes of all replicas of the next placement.
    pub total_bytes: u64,
    /// What to know before it runs.
    pub warnings: Vec<String>,
}

/// The moves from one placement to the next.
pub fn plan(desired: &Desired, last: &Placed, next: &Placed) -> Plan {
    let mut plan = Plan::default();
    let needs: BTreeMap<CorpusShard, u64> = desired
        .groups
        .iter()
        .flat_map(|group| {
            group.shards.iter().enumerate().map(|(number, needs)| (group.shard(number), needs.disk))
        })
        .collect();
    let none = Vec::new();
    let mut drops = Vec::new();
    for (shard, new) in next {
        let (old, disk) = (last.get(shard).unwrap_or(&none), needs.get(shard).copied().unwrap_or(0));
        let loads = new.iter().filter(|node| !old.contains(node)).cloned();
        let gone = |node: &&NodeId| !new.contains(node) && desired.leaves.contains_key(*node);
        let mut surplus = old.iter().filter(gone).cloned();
        for load in loads {
            plan.bytes = plan.bytes.saturating_add(disk);
            plan.moves.push(Move {
                shard: shard.clone(),
                load: Some(load),
                drop: surplus.next(),
                bytes: disk,
            });
        }
        drops.extend(surplus.map(|node| (shard.clone(), node)));
        plan.total_bytes = plan.total_bytes.saturating_add(disk.saturating_mul(new.len() as u64));
    }
    for (shard, old) in last.iter().filter(|(shard, _)| !next.contains_key(*shard)) {
        let here = old.iter().filter(|node| desired.leaves.contains_key(*node)).cloned();
        drops.extend(here.map(|node| (shard.clone(), node)));
    }
    let only = |(shard, node)| Move { shard, load: None, drop: Some(node), bytes: 0 };
    plan.moves.extend(drops.into_iter().map(only));
    plan.warnings = peaks(desired, last, &plan, &needs);
    plan
}

impl Plan {
    /// One after the other.
    pub fn steps(&self) -> impl Iterator<Item = PlanStep<'_>> {
        self.moves.iter().flat_map(|it| {
            let load = it.load.as_ref().map(|node| PlanStep::Load(&it.shard, node));
            load.into_iter().chain(it.drop.as_ref().map(|node| PlanStep::Drop(&it.shard, node)))
        })
    }

    /// The part of all bytes that is fetched.
    pub fn moved(&self) -> f64 {
        if self.total_bytes == 0 { 0.0 } else { self.bytes as f64 / self.total_bytes as f64 }
    }
}

/// Leaves that hold more on the way than they can.
fn peaks(desired: &Desired, last: &Placed, plan: &Plan, needs: &BTreeMap<CorpusShard, u64>) -> Vec<String> {
    let bytes = |shard: &CorpusShard| needs.get(shard).copied().unwrap_or(0);
    let (mut now, mut peak): (BTreeMap<&NodeId, u64>, BTreeMap<&NodeId, u64>) = Default::default();
    for (shard, nodes) in last {
        for node in nodes {
            *now.entry(node).or_default() += bytes(shard);
        }
    }
    for step in plan.steps() {
        match step {
            PlanStep::Load(shard, node) => {
                let held = now.entry(node).or_default();
                *held = held.saturating_add(bytes(shard));
                let most = peak.entry(node).or_default();
                *most = (*most).max(*held);
            }
            PlanStep::Drop(shard, node) => {
                let held = now.entry(node).or_default();
                *held = held.saturating_sub(bytes(shard));
            }
        }
    }
    let over = peak.into_iter().filter_map(|(node, most)| {
        let disk = desired.leaves.get(node)?.capacity.disk;
        (most > disk)
            .then(|| format!("{node} holds {most} bytes on the way and can hold {disk}; move in two plans"))
    });
    over.collect()
}
