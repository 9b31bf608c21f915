//! Which replicas load next.
//!
//! A leaf that fetches and warms serves all its shards more slowly, so it is leaves that are counted, not copies: of no
//! shard are more than `max_unavailable` replicas on leaves that load, and, where a shard has two, never all that are
//! here. Replicas are taken in the order of the placement, row by row; one that failed or is away is passed over for the
//! next. A shard with a single replica loads on it while it serves: the plan says so.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::{NodeId, ShardId};

use super::{
    policy::Policy,
    seen::{Replica, Seen},
    state::{Rollout, grouped},
};

/// Whether enough replicas hold the version for a share of the queries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ready {
    /// They do.
    Yes,
    /// Not yet.
    NotYet,
    /// There will never be enough: too many failed.
    Never {
        /// Why.
        reason: String,
    },
}

/// Whether enough replicas of every shard hold the version for `percent` of the queries.
pub fn ready(seen: &Seen, rollout: &Rollout, percent: u8) -> Ready {
    let mut ready = if seen.placed.is_empty() { Ready::NotYet } else { Ready::Yes };
    for (shard, nodes) in &seen.placed {
        let least = Policy::rows_at_least(percent, nodes.len()).max(1);
        let failed = failed(rollout, shard, nodes);
        let away = nodes.iter().filter(|node| seen.away.contains(node)).count();
        let resident = seen.resident(rollout.request.to, shard);
        if nodes.len() - failed < least && !nodes.is_empty() {
            let of_shard = rollout.failed.values().filter(|failed| failed.replica.shard == *shard);
            let reasons = grouped(of_shard.map(|failed| failed.reason.as_str()));
            let held = format!("{failed} of {} replicas of {shard} can't load it", nodes.len());
            return Ready::Never { reason: format!("{held}: {reasons}; mend them and resume, or abort") };
        }
        let can = nodes.len().saturating_sub(failed + away);
        if resident < needed(percent, nodes.len(), can) {
            ready = Ready::NotYet;
        }
    }
    ready
}

/// Replicas of a shard of so many that have to hold the version, when so many can.
pub fn needed(percent: u8, nodes: usize, can: usize) -> usize {
    Policy::rows(percent, nodes).min(can).max(Policy::rows_at_least(percent, nodes).max(1))
}

/// Replicas of a shard that could not load it.
pub fn failed(rollout: &Rollout, shard: &ShardId, nodes: &[NodeId]) -> usize {
    nodes
        .iter()
        .filter(|node| rollout.has_failed(&Replica { shard: shard.clone(), node: (*node).clone() }))
        .count()
}

/// Leaves that load.
pub fn busy(seen: &Seen, rollout: &Rollout) -> BTreeSet<NodeId> {
    let loading = rollout.started.iter().filter(|replica| {
        !seen.holds(rollout.request.to, replica)
            && !rollout.has_failed(replica)
            && seen.is_placed(replica)
            && !seen.away.contains(&replica.node)
    });
    loading.map(|replica| replica.node.clone()).collect()
}

/// Replicas to start now, for `percent` of the queries.
pub fn next(seen: &Seen, rollout: &Rollout, percent: u8) -> Vec<Replica> {
    let mut of: BTreeMap<&NodeId, Vec<&[NodeId]>> = BTreeMap::new();
    for nodes in seen.placed.values() {
        for node in nodes {
            of.entry(node).or_default().push(nodes);
        }
    }
    let mut next = Next { seen, rollout, of, busy: busy(seen, rollout), found: Vec::new() };
    for (shard, nodes) in &seen.placed {
        next.take(shard, nodes, Policy::rows(percent, nodes.len()));
    }
    next.found
}

struct Next<'a> {
    seen: &'a Seen,
    rollout: &'a Rollout,
    /// Replicas of each shard that a leaf holds.
    of: BTreeMap<&'a NodeId, Vec<&'a [NodeId]>>,
    busy: BTreeSet<NodeId>,
    found: Vec<Replica>,
}

impl Next<'_> {
    /// Starts what is missing of the rows of a shard, as far as it may.
    fn take(&mut self, shard: &ShardId, nodes: &[NodeId], rows: usize) {
        let (seen, rollout) = (self.seen, self.rollout);
        let replica = |node: &NodeId| Replica { shard: shard.clone(), node: node.clone() };
        let can: Vec<Replica> = nodes
            .iter()
            .map(replica)
            .filter(|it| !seen.away.contains(&it.node) && !rollout.has_failed(it))
            .collect();
        let begun = can.iter().filter(|it| rollout.started.contains(it)).count();
        let mut missing = rows.saturating_sub(begun);
        for it in can.iter().filter(|it| !rollout.started.contains(it)) {
            if missing == 0 {
                return;
            }
            // One that holds it already is only told to keep it.
            let holds = seen.holds(rollout.request.to, it);
            if !holds && !self.may_load(&it.node) {
                continue;
            }
            if !holds {
                self.busy.insert(it.node.clone());
            }
            self.found.push(it.clone());
            missing -= 1;
        }
    }

    /// Whether the leaf may load without slowing too many replicas of any of its shards.
    fn may_load(&self, node: &NodeId) -> bool {
        if self.busy.contains(node) {
            return true;
        }
        let most = self.rollout.request.policy.max_unavailable as usize;
        self.of.get(node).into_iter().flatten().all(|nodes| {
            let here = nodes.iter().filter(|other| !self.seen.away.contains(other)).count();
            let loading = nodes.iter().filter(|other| self.busy.contains(*other)).count() + 1;
            loading <= most && (nodes.len() < 2 || loading < here)
        })
    }
}
