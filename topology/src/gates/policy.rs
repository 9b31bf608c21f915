//! What a gate allows, and how much chance of a false alarm it may spend on what.
//!
//! The budget of a whole rollout is 2 % of false alarms. Most of it is spent at 1 % of the queries, where a bad version is to
//! be found while few see it. Of what a sample can tell, the chance to find a fault and that of a false alarm are two sides: a
//! plan of 4,600 queries an arm finds 1 -> 2 % of hanging queries with 0.4 % of false alarms; a shorter plan (3,000) has to
//! take 1.2 %. Later steps spend a tenth, and what goes on after the planned sample a quarter more. Limits beside the tests say
//! what is too small to matter: with a million queries everything is significant.

use serde::{Deserialize, Serialize};

use super::spending::Spending;

/// Queries of an arm from which on the tail can be judged with few false alarms.
const LONG_SAMPLE: u64 = 4_600;
/// Fewest queries of which a share or a mean says anything.
pub const FEWEST: u64 = 100;

/// What one gate allows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GatePolicy {
    /// Queries of each arm that a pass needs; 0: it passes unless there is a breach.
    pub needs: u64,
    /// Queries of each arm of a round of looks.
    pub sample: u64,
    /// Whether the judged queries have to be there for a pass.
    pub judged: bool,
    /// Whether latencies are judged; not in the shadow step, whose copies are extra work, nor at 100 %, where nothing of the
    /// same time is left to compare with.
    pub latency: bool,
    /// For the rank test.
    pub body: Spending,
    /// For the exceedance test.
    pub tail: Spending,
    /// For each share: errors, partial answers, answers without a hit.
    pub share: Spending,
    /// For each floor: overlap, rank-biased overlap.
    pub floor: Spending,
    /// What is allowed.
    pub limits: Limits,
}

/// Differences that are allowed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Quantile that stands for the tail.
    pub tail_quantile: f64,
    /// Ratio of the tails; proved to be above: a hard breach.
    pub tail_ratio: f64,
    /// Queries above the control's tail quantile, as a multiple of the control's, below which nothing is said.
    pub exceedance_ratio: f64,
    /// Ratio of the medians below which the rank test says nothing.
    pub median_ratio: f64,
    /// And above which its breach is a hard one.
    pub median_ratio_hard: f64,
    /// Growth of the shares of errors and of partial answers that makes their breach a hard one.
    pub share_hard: f64,
    /// Growth of the share of answers without a hit that is allowed; above: a hard breach.
    pub zero_results: f64,
    /// Mean overlap@10 of the two versions' answers: a soft breach below, a hard one below the second.
    pub overlap: [f64; 2],
    /// Mean rank-biased overlap, the same.
    pub rank_biased_overlap: [f64; 2],
    /// Loss of nDCG@10 over the judged queries: a soft breach above, a hard one above the second.
    pub ndcg_loss: [f64; 2],
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tail_quantile: 0.99,
            tail_ratio: 1.2,
            exceedance_ratio: 1.25,
            median_ratio: 1.05,
            median_ratio_hard: 1.5,
            share_hard: 0.005,
            zero_results: 0.005,
            overlap: [0.5, 0.25],
            rank_biased_overlap: [0.4, 0.2],
            ndcg_loss: [0.005, 0.03],
        }
    }
}

impl GatePolicy {
    /// Of a step that gives `percent` of the queries to the new version (0: shadow) and plans `sample` queries an arm; 0: none
    /// are planned, and breaches are looked for as if the longest sample were.
    pub fn of(percent: u8, sample: u64) -> Self {
        let spending = |alpha, rho, from| Spending { alpha, rho, from };
        let needs = sample;
        let sample = if sample == 0 { LONG_SAMPLE } else { sample.max(FEWEST) };
        let (first, short) = (percent == 1, sample < LONG_SAMPLE);
        let tail = if !first {
            0.001
        } else if short {
            0.012
        } else {
            0.004
        };
        Self {
            needs,
            sample,
            judged: false,
            latency: percent > 0 && percent < 100,
            body: spending(if first { 0.001_5 } else { 0.000_5 }, 0.3, 1_000),
            tail: spending(tail, 3.0, 1_000),
            share: spending(0.000_1, 0.5, FEWEST),
            floor: spending(0.000_1, 0.5, FEWEST),
            limits: Limits::default(),
        }
    }
}
