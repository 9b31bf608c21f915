//! Every replica that is placed, always all of them, idle or busy: what it should hold, what it answers from, how far it is, and
//! what went wrong last. And those that are not what they should be for too long: a swap that silently did not happen is the
//! failure this prevents.
//!
//! Rule: versions that are only kept for a while beside what is wanted are no shortfall. Units: monotonic time of this process.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use canopy_common::ids::{NodeId, ShardId, Version};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{control::Control, presence::Presence};
use crate::rollout::{Hold, Replica, State};

/// How long a replica may lack what it should hold before it is an alarm.
pub const BEHIND: Duration = Duration::from_mins(2);
/// How long a leaf that should hold shards may be away before it is one: a leaf that was only started again is back by then.
pub const AWAY: Duration = Duration::from_secs(30);
/// Alarms that are listed at most.
const MOST_ALARMS: usize = 100;

/// Since when replicas lack a version that they should hold, by corpus.
pub type Lacking = BTreeMap<String, BTreeMap<Replica, Instant>>;

/// One replica.
struct Line {
    wanted: Vec<Version>,
    serving: Vec<Version>,
    retiring: Vec<Version>,
    state: &'static str,
    lag_ms: Option<u64>,
    last_error: String,
}

impl Control {
    /// Notes who lacks what, as of now.
    pub(super) fn look_for_lacking(&mut self, now: Instant) {
        let mut lacking = Lacking::new();
        for (corpus, state) in &self.desired.corpora {
            let before = self.lacking.get(corpus);
            let lacks = |replica: &Replica| {
                // What is on a leaf that is away is not there.
                let away = state.seen.away.contains(&replica.node);
                let mut wanted = state.wanted(replica).into_iter().flatten();
                wanted.any(|version| away || !state.seen.holds(version, replica))
            };
            let since = |replica: Replica| {
                let since = before.and_then(|before| before.get(&replica)).copied().unwrap_or(now);
                (replica, since)
            };
            let found: BTreeMap<_, _> = state.seen.replicas().filter(lacks).map(since).collect();
            if !found.is_empty() {
                lacking.insert(corpus.clone(), found);
            }
        }
        self.lacking = lacking;
    }

    /// How many replicas lack a version for too long.
    pub fn alarms(&self, now: Instant) -> usize {
        self.late_replicas(now).count()
    }

    fn late_replicas(&self, now: Instant) -> impl Iterator<Item = (&str, &Replica, Duration)> {
        let late = move |since: Instant| now.saturating_duration_since(since);
        let each = self.lacking.iter().flat_map(move |(corpus, replicas)| {
            replicas.iter().map(move |(replica, since)| (corpus.as_str(), replica, late(*since)))
        });
        each.filter(|(_, replica, late)| *late > if self.is_here(&replica.node) { BEHIND } else { AWAY })
    }

    /// Those, for people.
    pub fn alarms_status(&self, now: Instant) -> Value {
        let (here, away): (Vec<_>, Vec<_>) =
            self.late_replicas(now).partition(|(_, replica, _)| self.is_here(&replica.node));
        let each = here.into_iter().take(MOST_ALARMS).filter_map(|(corpus, replica, late)| {
            let line = self.line(corpus, self.desired.corpora.get(corpus)?, replica);
            Some(json!({
                "corpus": corpus, "shard": replica.shard.to_string(), "node": replica.node.to_string(),
                "wanted": line.wanted, "serving": line.serving, "state": line.state,
                "for_ms": u64::try_from(late.as_millis()).unwrap_or(u64::MAX), "last_error": line.last_error,
            }))
        });
        let away = self.away_alarms(away);
        away.into_iter().chain(each).collect()
    }

    /// Of leaves that are away, one alarm each and corpus.
    fn away_alarms(&self, late: Vec<(&str, &Replica, Duration)>) -> Vec<Value> {
        let mut leaves: BTreeMap<(&str, &NodeId), (&Replica, usize, Duration)> = BTreeMap::new();
        for (corpus, replica, late) in late {
            let of_leaf = leaves.entry((corpus, &replica.node)).or_insert((replica, 0, late));
            (of_leaf.1, of_leaf.2) = (of_leaf.1 + 1, of_leaf.2.max(late));
        }
        let each = leaves.into_iter().take(MOST_ALARMS).filter_map(|((corpus, node), (first, shards, late))| {
            let line = self.line(corpus, self.desired.corpora.get(corpus)?, first);
            let named = match shards {
                1 => first.shard.to_string(),
                _ => format!("{} and {} more", first.shard, shards - 1),
            };
            Some(json!({
                "corpus": corpus, "shard": named, "shards": shards, "node": node.to_string(),
                "wanted": line.wanted, "serving": line.serving, "state": line.state,
                "for_ms": u64::try_from(late.as_millis()).unwrap_or(u64::MAX),
                "last_error": format!(
                    "{node} is away: start it again, or place its shards on others (canopy topology place --corpus {corpus} \
                     --remove {node})"
                ),
            }))
        });
        each.collect()
    }

    /// Every replica.
    pub fn replicas_status(&self, now: Instant) -> Value {
        let mut lines = Vec::new();
        for (corpus, state) in &self.desired.corpora {
            let lacking = self.lacking.get(corpus);
            for replica in state.seen.replicas() {
                let line = self.line(corpus, state, &replica);
                let behind = lacking.and_then(|lacking| lacking.get(&replica));
                let behind = behind.map(|since| now.saturating_duration_since(*since).as_millis() as u64);
                lines.push(json!({
                    "corpus": corpus, "shard": replica.shard.to_string(), "node": replica.node.to_string(),
                    "wanted": line.wanted, "serving": line.serving, "retiring": line.retiring,
                    "state": line.state, "behind_ms": behind, "lag_ms": line.lag_ms,
                    "last_error": line.last_error,
                }));
            }
        }
        lines.into()
    }

    fn line(&self, corpus: &str, state: &State, replica: &Replica) -> Line {
        let wanted: Vec<Version> = state.wanted(replica).into_iter().flatten().collect();
        let presence = self.presence.get(&replica.node);
        let said = presence
            .filter(|presence| presence.here)
            .map_or_else(BTreeMap::new, |presence| said(presence, corpus, &replica.shard));
        let resident = said.iter().filter(|(_, hold)| ***hold == Hold::Resident).map(|(version, _)| *version);
        let (serving, retiring): (BTreeSet<Version>, BTreeSet<Version>) =
            resident.partition(|version| wanted.contains(version));
        let of = |version: &Version| said.get(version).copied();
        let failed = said.iter().find_map(|(version, hold)| match hold {
            Hold::Failed { reason, .. } if wanted.contains(version) => Some(reason.clone()),
            _ => None,
        });
        let state = if presence.is_none_or(|presence| !presence.here) {
            "away"
        } else if failed.is_some() {
            "failed"
        } else if wanted.iter().all(|version| of(version).is_some_and(Hold::is_whole)) {
            match (wanted.is_empty(), serving.is_empty()) {
                (true, _) => "idle",
                // No version that is wanted has the shard.
                (false, true) => "void",
                (false, false) => "serving",
            }
        } else if wanted.iter().any(|version| of(version) == Some(&Hold::Loading)) {
            "loading"
        } else {
            "wanted"
        };
        Line {
            serving: serving.into_iter().collect(),
            retiring: retiring.into_iter().collect(),
            state,
            lag_ms: presence.and_then(|presence| presence.load.lag_ms),
            last_error: failed.unwrap_or_default(),
            wanted,
        }
    }
}

/// What a node said of a shard, by version.
fn said<'a>(presence: &'a Presence, corpus: &str, shard: &ShardId) -> BTreeMap<Version, &'a Hold> {
    let of_shard =
        presence.held.iter().filter(|held| held.corpus == corpus && held.shard.as_ref() == Some(shard));
    of_shard.map(|held| (held.version, &held.hold)).collect()
}
