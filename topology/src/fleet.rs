//! How large a tree has to be: from documents, queries and what one replica can do, to shards, replicas, leaves and levels.
//!
//! The two numbers that are got wrong by hand: replicas follow from queries (each query visits every shard once), shards
//! from documents, and they do not trade against each other; and the tail of the root is not the tail of a leaf: with S
//! shards the root's p99 is the leaf's 0.99^(1/S) quantile, which for 200 shards is p99.995.
//!
//! Rules: S = documents / documents of a shard, rounded up. R = queries / queries of a replica, times one plus headroom,
//! rounded up, and at least two. Leaves = S * R. Levels of aggregators: as few as keep every fan-out at or below the limit;
//! children of the root: as few as can hold the shards. Units: documents, queries/s, milliseconds.

use serde::{Deserialize, Serialize};

pub mod tail;

pub use tail::{Body, Tail};

/// Most shards a plan may have; more is a typing error.
const MAX_SHARDS: u64 = 1_000_000;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Demand {
    /// Documents in all.
    pub documents: u64,
    /// Documents of one shard.
    pub documents_per_shard: u64,
    /// Queries per second in all.
    pub queries_per_second: f64,
    /// Queries per second that one replica answers within its latency.
    pub queries_per_replica: f64,
    /// Part of the replicas that may be lost or busy with the tail: 0.3 is 30 % more than the queries need.
    pub headroom: f64,
    /// Most children of a root or aggregator.
    pub fan_out: u64,
    /// How long a leaf takes.
    pub leaf: LeafLatency,
    /// Quantile of the root that is aimed at.
    pub quantile: f64,
}

/// How long a leaf takes for its documents.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeafLatency {
    /// Mean that does not depend on documents.
    pub base_ms: f64,
    /// Mean for each million documents.
    pub ms_per_million: f64,
    /// Spread of the body: sigma of its logarithm.
    pub sigma: f64,
    /// Share of queries that hang.
    pub hiccups: f64,
    /// How long these take.
    pub hiccup_ms: f64,
}

/// What it takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Fleet {
    /// Shards.
    pub shards: u64,
    /// Replicas of each.
    pub replicas: u64,
    /// Leaves, one replica each.
    pub leaves: u64,
    /// Levels of aggregators between root and leaves.
    pub levels: u32,
    /// Children of the root.
    pub subtrees: u64,
    /// Most shards below one of them.
    pub shards_per_subtree: u64,
    /// The quantile of a leaf that decides the root's.
    pub leaf_quantile: f64,
    /// Mean of a leaf, milliseconds.
    pub leaf_mean_ms: f64,
    /// The root's quantile when each shard is asked once.
    pub unhedged_ms: f64,
    /// And with one hedge at the leaf's p95.
    pub hedged_ms: f64,
    /// What growth costs.
    pub growth: Growth,
}

/// Leaves that growth by a tenth takes.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Growth {
    /// More documents: shards.
    pub more_documents_shards: u64,
    /// Leaves for them.
    pub more_documents_leaves: u64,
    /// Part of all slots that moves.
    pub more_documents_moved: f64,
    /// More queries: replicas of each shard.
    pub more_queries_replicas: u64,
    /// Leaves for them; nothing moves.
    pub more_queries_leaves: u64,
}

/// Plans. Errors: every field that makes no sense, as `(field, reason)`.
pub fn plan(demand: &Demand) -> Result<Fleet, Vec<(String, String)>> {
    let problems = problems(demand);
    if !problems.is_empty() {
        return Err(problems);
    }
    let (shards, replicas) = (shards(demand, 1.0), replicas(demand, 1.0));
    let (levels, subtrees) = tree(shards, demand.fan_out);
    let leaf = demand.leaf;
    let millions = demand.documents.div_ceil(shards) as f64 / 1e6;
    let leaf_mean_ms = leaf.base_ms + leaf.ms_per_million * millions;
    let body = Body { mean_ms: leaf_mean_ms, sigma: leaf.sigma };
    let tail = Tail { body, hiccups: leaf.hiccups, hiccup_ms: leaf.hiccup_ms };
    let (more_shards, more_replicas) = (self::shards(demand, 1.1), self::replicas(demand, 1.1));
    Ok(Fleet {
        shards,
        replicas,
        leaves: shards * replicas,
        levels,
        subtrees,
        shards_per_subtree: shards.div_ceil(subtrees),
        leaf_quantile: leaf_quantile(demand.quantile, shards),
        leaf_mean_ms,
        unhedged_ms: tail.root_ms(demand.quantile, shards, None),
        hedged_ms: tail.root_ms(demand.quantile, shards, Some(tail.quantile_ms(0.95))),
        growth: Growth {
            more_documents_shards: more_shards - shards,
            more_documents_leaves: (more_shards - shards) * replicas,
            more_documents_moved: (more_shards - shards) as f64 / more_shards as f64,
            more_queries_replicas: more_replicas - replicas,
            more_queries_leaves: (more_replicas - replicas) * shards,
        },
    })
}

/// Rounded up, but not for an error in the last digit.
fn ceil(value: f64) -> u64 {
    (value - 1e-9 * value.abs().max(1.0)).ceil().max(0.0) as u64
}

fn shards(demand: &Demand, growth: f64) -> u64 {
    ceil(demand.documents as f64 * growth / demand.documents_per_shard as f64).max(1)
}

fn replicas(demand: &Demand, growth: f64) -> u64 {
    let needed = demand.queries_per_second * growth / demand.queries_per_replica;
    ceil(needed * (1.0 + demand.headroom)).max(2)
}

/// Levels of aggregators, and children of the root.
pub fn tree(shards: u64, fan_out: u64) -> (u32, u64) {
    let (mut levels, mut below) = (0, 1_u64);
    while below.saturating_mul(fan_out) < shards {
        below = below.saturating_mul(fan_out);
        levels += 1;
    }
    (levels, shards.div_ceil(below))
}

/// The quantile that each of `shards` leaves has to keep so that all of them keep `quantile`.
pub fn leaf_quantile(quantile: f64, shards: u64) -> f64 {
    quantile.powf(1.0 / shards.max(1) as f64)
}

fn problems(demand: &Demand) -> Vec<(String, String)> {
    let mut problems = Vec::new();
    let mut check = |field: &str, fine: bool, reason: &str| {
        if !fine {
            problems.push((field.to_owned(), reason.to_owned()));
        }
    };
    let positive = |value: f64| value.is_finite() && value > 0.0;
    check("documents", demand.documents > 0, "is 0; write how many documents there are");
    check("documents_per_shard", demand.documents_per_shard > 0, "is 0; a shard has at least one document");
    let many = demand.documents / demand.documents_per_shard.max(1) > MAX_SHARDS;
    check("documents_per_shard", !many, "makes more than 1000000 shards; write a larger number");
    check("queries_per_second", positive(demand.queries_per_second), "must be above 0");
    check("queries_per_replica", positive(demand.queries_per_replica), "must be above 0");
    let many = demand.queries_per_second / demand.queries_per_replica > 1e6;
    check("queries_per_replica", !many, "makes more than 1000000 replicas; write a larger number");
    check("headroom", (0.0..=10.0).contains(&demand.headroom), "must be within 0 to 10; 0.3 is 30 %");
    check("fan_out", (2..=10_000).contains(&demand.fan_out), "must be within 2 to 10000");
    check("quantile", (0.5..1.0).contains(&demand.quantile), "must be within 0.5 to 1, such as 0.99");
    let leaf = &demand.leaf;
    check("leaf.base_ms", leaf.base_ms.is_finite() && leaf.base_ms >= 0.0, "must not be negative");
    let slope = leaf.ms_per_million;
    check("leaf.ms_per_million", slope.is_finite() && slope >= 0.0, "must not be negative");
    let some = leaf.base_ms + slope > 0.0;
    check("leaf.base_ms", some, "and leaf.ms_per_million are both 0; a leaf takes some time");
    check("leaf.sigma", (0.01..=3.0).contains(&leaf.sigma), "must be within 0.01 to 3");
    check("leaf.hiccups", (0.0..=0.5).contains(&leaf.hiccups), "must be within 0 to 0.5");
    let hangs = leaf.hiccups == 0.0 || positive(leaf.hiccup_ms);
    check("leaf.hiccup_ms", hangs, "must be above 0 when there are hiccups");
    problems
}

#[cfg(test)]
mod tests;
