//! The settings of hedging, as one value: a query reads it once, a reload swaps it.

use std::time::Duration;

use super::{
    budget::Limits,
    mode::{HedgeMode, MAX_ATTEMPTS},
};
use crate::config::GatherConfig;

/// How hedges are sent and what they may cost.
#[derive(Debug, Clone, PartialEq)]
pub struct HedgeConfig {
    /// What a request that asks for nothing gets.
    pub mode: HedgeMode,
    /// The delay until enough was seen.
    pub default_delay: Duration,
    /// Percentile of the query that `auto` works for.
    pub percentile: f64,
    /// Attempts of one branch, in all.
    pub max_attempts: u32,
    /// Extra shards asked, per shard dispatched.
    pub ratio: f64,
    /// What the bucket adds with time, and keeps.
    pub limits: Limits,
}

impl From<&GatherConfig> for HedgeConfig {
    fn from(config: &GatherConfig) -> Self {
        Self {
            mode: config.hedge,
            default_delay: config.hedge_default_delay.0,
            percentile: config.hedge_percentile,
            max_attempts: config.max_attempts.clamp(1, MAX_ATTEMPTS),
            ratio: config.extra_work,
            limits: Limits {
                per_second: f64::from(config.extra_work_floor),
                burst: f64::from(config.extra_work_burst),
            },
        }
    }
}

impl HedgeConfig {
    /// The ratio of a request: its own where it carries one (0: none), else what is configured.
    pub fn ratio(&self, carried: f32) -> f64 {
        let carried = f64::from(carried);
        if carried > 0.0 { carried.min(1.0) } else { self.ratio }
    }
}
