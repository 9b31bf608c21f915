//! What `lab tail` reports: one row for each number of shards and arm. All times are model milliseconds.

use serde::{Deserialize, Serialize};

use super::{deviation::Deviation, reference::Exact};
use crate::{arm::Outcome, draw, policy::Policy, statistics::Ratio, workload::Workload};

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `tail`.
    pub lab: String,
    /// What was asked of the tree; its number of shards is that of each row.
    pub workload: Workload,
    /// Seeds of each row.
    pub seeds: u32,
    /// Rows, by number of shards and then arm.
    pub rows: Vec<Row>,
    /// What the unhedged arms measured wrongly: then the lab is broken and no figure of this run counts.
    pub faults: Vec<String>,
    /// CPU microseconds that the lab took per call at a leaf, the engine included. Of this machine, the one value that
    /// does not repeat; 0 where it is not known.
    #[serde(skip)]
    pub cpu_us_per_call: f64,
}

/// Latencies.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Median.
    pub p50: f64,
    /// 90 %.
    pub p90: f64,
    /// 95 %.
    pub p95: f64,
    /// 99 %.
    pub p99: f64,
    /// 99.9 %.
    pub p999: f64,
    /// Longest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

/// Share of queries with at least one slow shard.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct AnySlow {
    /// Measured at the root.
    pub measured: f64,
    /// By the distribution.
    pub exact: f64,
    /// `1 - (1 - q)^S`, q the share of hiccups.
    pub formula: f64,
}

/// Latencies over those of the first arm, same seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Versus {
    /// Median.
    pub p50: Option<Ratio>,
    /// 99 %.
    pub p99: Option<Ratio>,
    /// 99.9 %.
    pub p999: Option<Ratio>,
}

/// One arm at one number of shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the arm.
    pub arm: String,
    /// Its policy.
    pub policy: Policy,
    /// Shards.
    pub shards: u32,
    /// Queries measured, all seeds.
    pub queries: u64,
    /// Latencies of all seeds together.
    pub times: Times,
    /// What is exactly right, where that is known.
    pub exact: Option<Exact>,
    /// How far the times are off it, where it is of the same policy.
    pub deviation: Option<Deviation>,
    /// Copies that came to the leaves per first call, counted there.
    pub extra: f64,
    /// Calls whose work had begun elsewhere before, per first call, counted at the leaves.
    pub twice: f64,
    /// Share of the workers' time that was taken; 0 without queues.
    pub executed: f64,
    /// Share of queries with at least one slow shard.
    pub any_slow: Option<AnySlow>,
    /// Mean share of the documents that were searched.
    pub coverage: f64,
    /// Share of the queries that all shards answered.
    pub complete: f64,
    /// Queries whose account is not what the leaves did.
    pub false_flags: u64,
    /// Hedges that the engine says it sent.
    pub hedges: u64,
    /// Of them, those that won.
    pub hedges_won: u64,
    /// Hedges that its budget refused.
    pub budget_denied: u64,
    /// Over the first arm.
    pub versus_first: Option<Versus>,
    /// Calls by place of the replica, as shares.
    pub share_of_replicas: Vec<f64>,
    /// All that happened, mixed into one number: the same seeds have the same one.
    pub history: String,
}

/// Share of the calls that came to the first replica of each shard, to the second, and so on.
pub(super) fn shares(arm: &[Outcome]) -> Vec<f64> {
    let replicas = arm.first().map_or(0, |outcome| outcome.by_replica.len());
    let arrived = |at: usize| arm.iter().map(|outcome| outcome.by_replica[at].arrived).sum::<u64>() as f64;
    let all: f64 = (0..replicas).map(arrived).sum();
    (0..replicas).map(|at| arrived(at) / all.max(1.0)).collect()
}

/// The histories of all seeds, as one.
pub(crate) fn history(arm: &[Outcome]) -> String {
    let histories: Vec<u64> = arm.iter().map(|outcome| outcome.history).collect();
    format!("{:016x}", draw::bits(&histories))
}
