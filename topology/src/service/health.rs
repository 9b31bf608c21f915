//! How well nodes are, from what they report: judged once a second, in memory; what it means for who is asked is stored when it
//! changes, which hysteresis makes rare ([`crate::health`]).
//!
//! Latency is compared with the median of the peers' (leaves that had enough to do), so that a tree that is slow as a whole
//! blames nobody.

use std::{collections::BTreeMap, time::Duration};

use canopy_common::ids::NodeId;
use tokio::time::Instant;

use super::{
    control::{Control, NAMED, some},
    desired::{NodeRecord, Standing},
    presence::Presence,
};
use crate::{
    config::Role,
    health::{Condition, Health, HealthPolicy},
    placement::CorpusShard,
    rollout::dry_run::Load,
};

/// What one more second weighs in the load of a shard.
const FRESH: f64 = 0.1;

/// What a condition means for who is asked.
fn standing(condition: Condition) -> Option<Standing> {
    match condition {
        Condition::Healthy => Some(Standing::Good),
        Condition::SubHealthy => Some(Standing::SubHealthy),
        Condition::Faulty => Some(Standing::Faulty),
        // It leaves, is away, or is not known well enough yet: other rules say whether it is asked.
        Condition::Joining | Condition::Warming | Condition::Draining | Condition::Gone => None,
    }
}

/// A node that was not heard of since this service started: it is as well as it was, so that one that was down has its whole way
/// up before it is asked again.
pub(super) fn expected(record: &NodeRecord, now: Instant) -> Presence {
    let health = match record.standing {
        // What it holds is to be seen.
        Standing::Good => Health::known(Condition::Joining, record.falls),
        Standing::SubHealthy => Health::known(Condition::SubHealthy, record.falls),
        Standing::Faulty => Health::known(Condition::Faulty, record.falls),
    };
    Presence { health, ..Presence::expected(now) }
}

/// Between two looks.
const WINDOW: Duration = Duration::from_secs(1);

impl Control {
    /// Judges every leaf by what it did since the last time, once in a window.
    pub(super) fn look_when_due(&mut self, now: Instant) {
        let since = now.saturating_duration_since(self.looked);
        if since >= WINDOW {
            self.looked = now;
            self.look(now, since.as_secs_f64());
        }
    }

    fn look(&mut self, now: Instant, seconds: f64) {
        let policy = HealthPolicy::default();
        self.measure_heat(seconds);
        self.look_for_lacking(now);
        let mut peers: Vec<f64> = self.presence.values().filter_map(|known| known.latency(&policy)).collect();
        let median = median(&mut peers);
        for (id, known) in &mut self.presence {
            let Some(record) = self.desired.nodes.get(id).filter(|record| record.role == Role::Leaf) else {
                continue;
            };
            let leaves = record.leaving || record.drained;
            known.judge(&policy, now, leaves, median);
        }
    }

    fn measure_heat(&mut self, seconds: f64) {
        let mut asked: BTreeMap<CorpusShard, u64> = BTreeMap::new();
        for known in self.presence.values() {
            for ((corpus, shard), queries) in known.asked() {
                let shard = CorpusShard { corpus: corpus.as_str().into(), shard: shard.clone() };
                *asked.entry(shard).or_default() += queries;
            }
        }
        for (shard, heat) in &mut self.heat {
            let now = asked.remove(shard).unwrap_or(0) as f64 / seconds.max(0.001);
            *heat += (now - *heat) * FRESH;
        }
        self.heat.retain(|_, heat| *heat > 0.01);
        let new = asked.into_iter().filter(|(_, queries)| *queries > 0);
        self.heat.extend(new.map(|(shard, queries)| (shard, queries as f64 / seconds.max(0.001))));
    }

    /// Whether what is stored of every node's health is what was judged last.
    pub(super) fn settled(&self) -> bool {
        self.presence.iter().all(|(id, known)| self.turn(id, known).is_none())
    }

    /// What is to be stored of a node's health, when it is another than before.
    fn turn(&self, id: &NodeId, known: &Presence) -> Option<Standing> {
        // One whose lease is out is left out for that, and comes back with its next word.
        let standing = standing(known.health.condition).filter(|_| known.here)?;
        let record = self.desired.nodes.get(id)?;
        (record.role == Role::Leaf && record.standing != standing).then_some(standing)
    }

    /// The shards that are asked most, queries a second.
    pub(super) fn hottest(&self, most: usize) -> Vec<(&CorpusShard, f64)> {
        let mut all: Vec<_> = self.heat.iter().map(|(shard, heat)| (shard, *heat)).collect();
        all.sort_by(|a, b| b.1.total_cmp(&a.1));
        all.truncate(most);
        all
    }

    /// The load of a corpus, as far as it is known. A query asks every shard once, so the one that is asked most tells how many
    /// there are; a shard of the next version is taken to be as large as it is now.
    pub(super) fn load_of(&self, corpus: &str) -> Load {
        let ours = |shard: &&CorpusShard| *shard.corpus == *corpus;
        let heat = self.heat.iter().filter(|(shard, _)| ours(shard)).map(|(_, heat)| *heat);
        let sizes = self.sizes.iter().filter(|(shard, _)| ours(shard));
        let bytes = sizes.map(|(shard, (disk, _))| (shard.shard.clone(), *disk)).collect();
        Load {
            corpus: corpus.to_owned(),
            queries_per_second: heat.fold(0.0, f64::max),
            bytes,
            ..Load::default()
        }
    }

    /// Leaves in each condition.
    pub(super) fn conditions(&self) -> BTreeMap<&'static str, i64> {
        let mut counts: BTreeMap<_, _> = Condition::ALL.map(|condition| (condition.as_str(), 0)).into();
        for (id, known) in &self.presence {
            if self.desired.nodes.get(id).is_some_and(|record| record.role == Role::Leaf) {
                *counts.entry(known.health.condition.as_str()).or_default() += 1;
            }
        }
        counts
    }

    /// Stores what was judged.
    pub(super) fn settle_health(&mut self) {
        let turns: Vec<_> = self
            .presence
            .iter()
            .filter_map(|(id, known)| Some((id.clone(), self.turn(id, known)?, known.health.reason.clone())))
            .collect();
        // By what became of them: when the network trembles, thousands turn at once.
        let mut alike: BTreeMap<Standing, Vec<(NodeId, String)>> = BTreeMap::new();
        for (id, standing, reason) in turns {
            if let Some(record) = self.desired.nodes.get_mut(&id) {
                record.standing = standing;
                record.falls = self.presence.get(&id).map_or(0, |known| known.health.falls);
            }
            alike.entry(standing).or_default().push((id, reason));
        }
        for (standing, turned) in alike {
            let what = match standing {
                Standing::Good => "healthy again",
                Standing::SubHealthy => "sub-healthy, named last",
                Standing::Faulty => "faulty, not asked where others answer",
            };
            if turned.len() > NAMED {
                let nodes: Vec<NodeId> = turned.into_iter().map(|(id, _)| id).collect();
                self.note_audit(format!("{} are {what}", some(&nodes)));
                continue;
            }
            for (id, reason) in turned {
                let because = if reason.is_empty() { String::new() } else { format!(": {reason}") };
                self.note_audit(format!("{id} is {what}{because}"));
            }
        }
    }
}

fn median(all: &mut [f64]) -> Option<f64> {
    // Of one there is nothing to compare with.
    if all.len() < 2 {
        return None;
    }
    all.sort_by(f64::total_cmp);
    Some(all[(all.len() - 1) / 2])
}
