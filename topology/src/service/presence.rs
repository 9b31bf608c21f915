//! What is known of each node while the service runs: when it was heard of, which process it is, what it said, and how well it
//! is. None of it is stored; a service that starts again learns it with the next report of each node.
//!
//! The failure this prevents: two processes with one name (a copied configuration, a machine that came back) that take turns
//! in being the node, so that its address and what it holds flip with every report. Rule: of two that are alive the first is the
//! node, and the other is told so. A later process takes over when it stands at the same address (a port has one listener), when
//! the first has said that it leaves, or when its lease is out; an earlier one only then.
//!
//! Units: monotonic time of this process; microseconds where named so.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{ShardId, Version};
use tokio::time::Instant;

use crate::{
    error::{Error, Result},
    health::{Condition, Health, HealthPolicy, Signals},
    rollout::Hold,
};

/// Something that a node holds, is to hold, or could not.
#[derive(Debug, Clone, PartialEq)]
pub struct Held {
    /// Of which corpus.
    pub corpus: String,
    /// Which shard; `None`: the statistics, at a root.
    pub shard: Option<ShardId>,
    /// Which version.
    pub version: Version,
    /// How far it is.
    pub hold: Hold,
    /// It answers, not for long.
    pub retiring: bool,
    /// Of its files; 0: not known yet.
    pub bytes: u64,
    /// That it is said to need.
    pub memory: u64,
}

/// What a leaf did since its process started.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Load {
    /// Shards asked that came to an end.
    pub queries: u64,
    /// Of them failed.
    pub errors: u64,
    /// Time of the search of one shard, over the last seconds; 0: none.
    pub latency_p90_us: f64,
    /// How far its overlay is behind.
    pub lag_ms: Option<u64>,
    /// Queries of each shard.
    pub shards: Arc<BTreeMap<(String, ShardId), u64>>,
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Presence {
    /// When it was heard of last.
    pub at: Instant,
    /// Whether its lease runs.
    pub here: bool,
    /// Which process it is; `None`: not heard of since this service started.
    pub incarnation: Option<u64>,
    /// Digest of what it said it holds, when all of that was taken over.
    pub said: Option<u64>,
    /// What it said it holds.
    pub held: Arc<[Held]>,
    /// What it does.
    pub load: Load,
    /// The same when it was judged last.
    pub judged: Load,
    /// How well it is.
    pub health: Health,
}

impl Presence {
    /// A node that was not heard of since this service started, and has a whole lease for it.
    pub fn expected(now: Instant) -> Self {
        Self {
            at: now,
            here: true,
            incarnation: None,
            said: None,
            held: Arc::default(),
            load: Load::default(),
            judged: Load::default(),
            health: Health::joining(),
        }
    }

    /// Whether a process may speak for the node. `stays`: it stands where the node stood; `left`: the node said that it leaves.
    pub fn admits(&self, incarnation: u64, stays: bool, left: bool) -> Result<()> {
        let Some(known) = self.incarnation.filter(|_| self.here) else { return Ok(()) };
        if incarnation == known || left || (stays && incarnation > known) {
            return Ok(());
        }
        let reason = if stays || incarnation < known { "a later process" } else { "another process" };
        Err(Error::Refused(format!(
            "{reason} is this node by now; stop one of the two, or give this one another id"
        )))
    }

    /// Judges the time since it was judged last. `median_us`: of the 90th percentiles of its peers.
    pub fn judge(&mut self, policy: &HealthPolicy, now: Instant, leaves: bool, median_us: Option<f64>) {
        let queries = self.load.queries.saturating_sub(self.judged.queries);
        let errors = self.load.errors.saturating_sub(self.judged.errors);
        let age = now.saturating_duration_since(self.at);
        let (mut none, mut some) = (true, false);
        for held in self.held.iter() {
            none &= !held.hold.is_whole();
            some |= held.hold == Hold::Loading;
        }
        let seen = Signals {
            lease_age_ms: u64::try_from(age.as_millis()).unwrap_or(u64::MAX),
            // One that answers from another version meanwhile is warm.
            warm: !none || (!some && self.health.condition != Condition::Joining),
            draining: leaves,
            queries,
            error_share: errors as f64 / queries.max(1) as f64,
            latency_ratio: median_us.map_or(1.0, |median| self.load.latency_p90_us / median),
            lag_ms: self.load.lag_ms,
        };
        self.judged = self.load.clone();
        self.health = self.health.after(policy, &seen);
    }

    /// Its 90th percentile, when it did enough since it was judged last for it to say something.
    pub fn latency(&self, policy: &HealthPolicy) -> Option<f64> {
        let queries = self.load.queries.saturating_sub(self.judged.queries);
        let says = self.here && queries >= policy.least_queries && self.load.latency_p90_us > 0.0;
        says.then_some(self.load.latency_p90_us)
    }

    /// Queries of each shard since it was judged last.
    pub fn asked(&self) -> impl Iterator<Item = (&(String, ShardId), u64)> {
        self.load.shards.iter().map(|(shard, queries)| {
            let before = self.judged.shards.get(shard).copied().unwrap_or(0);
            (shard, queries.saturating_sub(before))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_processes_with_one_name_the_first_is_the_node() {
        let mut node = Presence::expected(Instant::now());
        assert!(node.admits(5, false, false).is_ok(), "not heard of yet: whoever comes");
        node.incarnation = Some(5);
        assert!(node.admits(5, false, false).is_ok());
        assert!(node.admits(6, true, false).is_ok(), "it was started again where it stood");
        let error = node.admits(6, false, false).unwrap_err().to_string();
        assert!(error.contains("another process") && error.contains("another id"), "{error}");
        assert!(node.admits(4, true, false).unwrap_err().to_string().contains("later process"));
        assert!(node.admits(6, false, true).is_ok(), "it leaves");
        node.here = false;
        assert!(node.admits(4, false, false).is_ok(), "its lease is out");
    }
}
