//! What each leaf holds while a placement is made, and what its share is.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::NodeId;

use super::desired::{Capacity, CorpusShard, Desired, Group, Leaf, ShardNeeds};

/// A leaf at work.
pub struct Load<'a> {
    pub id: &'a NodeId,
    pub leaf: &'a Leaf,
    /// Its share of all bytes.
    pub target: f64,
    pub memory: u64,
    pub disk: u64,
    /// Shards it holds.
    pub held: BTreeSet<usize>,
}

impl Load<'_> {
    /// Whether it can hold one more.
    pub fn fits(&self, needs: &ShardNeeds) -> bool {
        let Capacity { memory, disk, .. } = self.leaf.capacity;
        self.memory.saturating_add(needs.memory) <= memory && self.disk.saturating_add(needs.disk) <= disk
    }

    /// Whether it may: it is not emptied and of the right hardware.
    pub fn allowed(&self, group: &Group) -> bool {
        !self.leaf.draining && group.class.as_ref().is_none_or(|class| *class == self.leaf.class)
    }

    /// How full it is; 1: its share.
    pub fn fullness(&self) -> f64 {
        if self.target > 0.0 { self.memory as f64 / self.target } else { f64::INFINITY }
    }

    /// How full it would be with so many bytes more.
    pub fn fullness_with(&self, bytes: u64) -> f64 {
        if self.target > 0.0 { self.memory.saturating_add(bytes) as f64 / self.target } else { f64::INFINITY }
    }
}

/// A shard to place.
pub struct Item<'a> {
    pub shard: CorpusShard,
    pub group: &'a Group,
    pub needs: ShardNeeds,
    pub replicas: usize,
    /// Leaves by number, in rows.
    pub on: Vec<usize>,
    /// Most replicas in one zone that an even spread needs.
    pub zone_limit: usize,
}

/// All leaves and all shards.
pub struct Loads<'a> {
    pub leaves: Vec<Load<'a>>,
    pub numbers: BTreeMap<&'a NodeId, usize>,
    pub items: Vec<Item<'a>>,
}

impl<'a> Loads<'a> {
    pub fn new(desired: &'a Desired) -> Self {
        let leaves: Vec<Load<'a>> = desired
            .leaves
            .iter()
            .map(|(id, leaf)| Load { id, leaf, target: 0.0, memory: 0, disk: 0, held: BTreeSet::new() })
            .collect();
        let numbers = leaves.iter().enumerate().map(|(at, load)| (load.id, at)).collect();
        let mut loads = Self { leaves, numbers, items: Vec::new() };
        for group in &desired.groups {
            let usable = loads.leaves.iter().filter(|load| load.allowed(group));
            let zones: BTreeSet<&str> = usable.map(|load| load.leaf.zone.as_str()).collect();
            for (number, needs) in group.shards.iter().enumerate() {
                let replicas = group.replicas_of(needs);
                let zone_limit = replicas.div_ceil(zones.len().max(1));
                let (shard, needs, on) = (group.shard(number), *needs, Vec::new());
                loads.items.push(Item { shard, group, needs, replicas, on, zone_limit });
            }
        }
        loads.set_targets();
        loads
    }

    /// Shares by the scarcest of a leaf's capacities. Of a class that groups ask for, its leaves share what is asked of it;
    /// what any may hold is shared by all that are left room for it.
    fn set_targets(&mut self) {
        let parts = parts(&self.leaves);
        let mut bytes: BTreeMap<Option<&str>, f64> = BTreeMap::new();
        for item in &self.items {
            let asked = item.needs.memory as f64 * item.replicas as f64;
            *bytes.entry(item.group.class.as_deref()).or_default() += asked;
        }
        let usable = |load: &Load<'_>, class: Option<&str>| {
            !load.leaf.draining && class.is_none_or(|class| class == load.leaf.class)
        };
        // The choosy first; those without a wish fill up what is left, to one level.
        for (class, asked) in bytes.iter().rev() {
            let mut among: Vec<usize> = (0..self.leaves.len())
                .filter(|at| usable(&self.leaves[*at], *class) && parts[*at] > 0.0)
                .collect();
            let filled = |load: &Load<'_>, part: f64| load.target / part;
            loop {
                let sum: f64 = among.iter().map(|at| parts[*at]).sum();
                let has: f64 = among.iter().map(|at| self.leaves[*at].target).sum();
                let level = (has + asked) / sum;
                let before = among.len();
                if sum <= 0.0 {
                    break;
                }
                among.retain(|at| filled(&self.leaves[*at], parts[*at]) <= level);
                if among.len() == before {
                    for at in among {
                        self.leaves[at].target = level * parts[at];
                    }
                    break;
                }
            }
        }
    }

    /// Replicas of a shard in a zone.
    pub fn in_zone(&self, item: usize, zone: &str) -> usize {
        self.items[item].on.iter().filter(|at| self.leaves[**at].leaf.zone == zone).count()
    }

    pub fn add(&mut self, item: usize, leaf: usize) {
        let (it, load) = (&mut self.items[item], &mut self.leaves[leaf]);
        it.on.push(leaf);
        load.memory = load.memory.saturating_add(it.needs.memory);
        load.disk = load.disk.saturating_add(it.needs.disk);
        load.held.insert(item);
    }

    pub fn remove(&mut self, item: usize, leaf: usize) {
        let (it, load) = (&mut self.items[item], &mut self.leaves[leaf]);
        it.on.retain(|at| *at != leaf);
        load.memory = load.memory.saturating_sub(it.needs.memory);
        load.disk = load.disk.saturating_sub(it.needs.disk);
        load.held.remove(&item);
    }

    /// In the row where the old one stood.
    pub fn replace(&mut self, item: usize, old: usize, new: usize) {
        let row = self.items[item].on.iter().position(|at| *at == old);
        self.remove(item, old);
        self.add(item, new);
        if let (Some(row), Some(added)) = (row, self.items[item].on.pop()) {
            self.items[item].on.insert(row, added);
        }
    }
}

/// Of each leaf, its smallest part of all memory, disk and cores; what no leaf states is left out.
fn parts(leaves: &[Load<'_>]) -> Vec<f64> {
    let sum = |of: &dyn Fn(&Capacity) -> f64| {
        leaves.iter().filter(|load| !load.leaf.draining).map(|load| of(&load.leaf.capacity)).sum::<f64>()
    };
    let dimensions: [&dyn Fn(&Capacity) -> f64; 3] =
        [&|it| it.memory as f64, &|it| it.disk as f64, &|it| f64::from(it.cores)];
    let sums = dimensions.map(sum);
    let part = |load: &Load<'_>| {
        let parts = dimensions.iter().zip(sums).filter(|(_, sum)| *sum > 0.0);
        parts.map(|(of, sum)| of(&load.leaf.capacity) / sum).fold(1.0, f64::min)
    };
    leaves.iter().map(|load| if load.leaf.draining { 0.0 } else { part(load) }).collect()
}
