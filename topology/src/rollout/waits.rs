//! For whom and for what a rollout waits, in words, and for how long where that is known.
//!
//! The failure this prevents: a rollout that stands because a leaf is away, and a screen that says all is well. Rule: what
//! [`super::advance`] waits for is named here by the same conditions.

use std::collections::BTreeMap;

use canopy_common::ids::{NodeId, ShardId, Version};

use super::{
    load,
    policy::Policy,
    seen::Replica,
    state::{Phase, Rollout, State},
};

/// Leaves that are named at most.
const NAMED: usize = 5;

impl State {
    /// What the rollout under way waits for; `None`: for its time only, or it is stopped.
    pub fn waits(&self) -> Option<String> {
        let rollout = self.active.as_ref().filter(|rollout| rollout.stop.is_none())?;
        let to = rollout.request.to;
        let roots =
            || (!self.seen.roots.contains(&to)).then(|| format!("a root that lacks the statistics of {to}"));
        match rollout.phase {
            Phase::Load { step } => {
                let percent = rollout.step(step).map_or(100, |step| step.percent);
                self.leaves(rollout, |nodes, can| load::needed(percent, nodes, can)).or_else(roots)
            }
            Phase::Bake { step } if rollout.left_ms().is_none() => {
                if rollout.needs_pass(step) && !rollout.passed {
                    let sample = rollout.step(step).map_or(0, |step| step.sample);
                    return Some(format!("a judgement over {sample} queries of each arm"));
                }
                let safe = |_: usize, can: usize| can.clamp(1, 2);
                self.leaves(rollout, safe).or_else(roots)
            }
            Phase::Bake { .. } | Phase::Retain | Phase::Back { .. } => None,
        }
    }

    /// The leaves of shards of which fewer replicas hold the version than `needed(replicas, replicas that can)`.
    fn leaves(&self, rollout: &Rollout, needed: impl Fn(usize, usize) -> usize) -> Option<String> {
        let (seen, to) = (&self.seen, rollout.request.to);
        let mut waited: BTreeMap<&NodeId, (&'static str, usize)> = BTreeMap::new();
        for (shard, nodes) in &seen.placed {
            let failed = load::failed(rollout, shard, nodes);
            let away = nodes.iter().filter(|node| seen.away.contains(node)).count();
            if seen.resident(to, shard) >= needed(nodes.len(), nodes.len().saturating_sub(failed + away)) {
                continue;
            }
            for node in nodes {
                if let Some(why) = self.lacks(rollout, to, shard, node) {
                    waited.entry(node).or_insert((why, 0)).1 += 1;
                }
            }
        }
        let all = waited.len();
        let word = |(node, (why, shards)): (&NodeId, (&str, usize))| {
            format!("{node} ({why}, {shards} {})", if shards == 1 { "shard" } else { "shards" })
        };
        // Who is away first: nobody else can do anything about it.
        let mut order: Vec<_> = waited.into_iter().collect();
        order.sort_by_key(|(_, (why, _))| *why != "away");
        let mut words: Vec<String> = order.into_iter().take(NAMED).map(word).collect();
        if all > NAMED {
            words.push(format!("{} more leaves", all - NAMED));
        }
        (all > 0).then(|| words.join(", "))
    }

    fn lacks(&self, rollout: &Rollout, to: Version, shard: &ShardId, node: &NodeId) -> Option<&'static str> {
        let replica = Replica { shard: shard.clone(), node: node.clone() };
        if self.seen.away.contains(node) {
            return Some("away");
        }
        if self.seen.holds(to, &replica) || rollout.has_failed(&replica) {
            return None;
        }
        Some(if rollout.started.contains(&replica) { "loads" } else { "its turn comes" })
    }
}

impl Rollout {
    /// Time that is left of what it spends by the clock: the bake time, the retention, the grace; `None`: none.
    pub fn left_ms(&self) -> Option<u64> {
        let Policy { retain, grace, .. } = self.request.policy;
        let all = match self.phase {
            Phase::Load { .. } => return None,
            Phase::Bake { step } => self.step(step)?.bake,
            Phase::Retain => retain,
            Phase::Back { .. } => grace,
        };
        let all = u64::try_from(all.0.as_millis()).unwrap_or(u64::MAX);
        all.checked_sub(self.spent_ms).filter(|left| *left > 0)
    }
}
