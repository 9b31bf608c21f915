//! When to stop waiting. Numbers and `now` in, a verdict out; nothing here waits, counts replies or knows a socket.
//!
//! Waiting for all makes the slowest shard the latency of every query; stopping as soon as enough came makes *every*
//! answer incomplete. The adaptive rule takes the middle: once `enough` of the documents are covered, stragglers get a
//! share of the time that is left: `wait_max` of it when as many shards are pending as `enough` allows, down to
//! `wait_min` when one is, and each later answer may only shorten the wait. With failures that make `enough`
//! unreachable it waits like `all`, never under the request's `min_coverage`. Every rule ends at `finish_at`, the
//! deadline less the reserve.
//!
//! Coverage is counted in documents; only when the asked shards hold none, in shards. A shard that answered with a cut
//! counts with what it searched.

use std::time::Duration;

use canopy_proto::v1;
use tokio::time::Instant;

use super::Decision;
use crate::config::GatherConfig;

/// How far a search is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Shards asked for.
    pub shards: u32,
    /// Shards that are not settled.
    pub open: u32,
    /// Shards that answered.
    pub answered: u32,
    /// Shards that ended because nobody could be asked, or all who were failed.
    pub lost: u32,
    /// Documents of all shards asked for.
    pub documents: u64,
    /// Documents searched or proved irrelevant.
    pub covered: u64,
}

impl Progress {
    /// Whether `share` of the documents is covered.
    fn covers(&self, share: f64) -> bool {
        let (have, all) = match self.documents {
            0 => (f64::from(self.answered), f64::from(self.shards)),
            all => (self.covered as f64, all as f64),
        };
        // One part in 10^12: 0.95 of 100 is 95, whatever 0.95 is in binary.
        have >= share * all * (1.0 - 1e-12)
    }
}

/// Wait until then, or stop now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Ask again at this instant, or when something happened.
    Wait(Instant),
    /// Stop.
    Finish(Decision),
}

/// The rule a request asks for.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Rule {
    All,
    AllBut { missing: u32, min_coverage: f64 },
    Adaptive { enough: f64, wait_min: f64, wait_max: f64 },
}

/// The wait for stragglers, begun when enough was covered.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Grace {
    shortest: Duration,
    longest: Duration,
    open: u32,
    stop_at: Instant,
}

/// One query's completion: its rule, its two instants, and the wait for stragglers once that began.
#[derive(Debug, Clone)]
pub struct Completion {
    rule: Rule,
    deadline: Instant,
    finish_at: Instant,
    grace: Option<Grace>,
}

impl Completion {
    /// For a request that must be answered by `deadline`, and whose gathering ends at `finish_at`.
    pub fn new(
        asked: Option<&v1::Completion>,
        config: &GatherConfig,
        deadline: Instant,
        finish_at: Instant,
    ) -> Self {
        use v1::completion::Mode;
        let asked = asked.copied().unwrap_or_default();
        let min_coverage = if asked.min_coverage.is_nan() { 1.0 } else { asked.min_coverage.clamp(0.0, 1.0) };
        let rule = match asked.mode() {
            Mode::All => Rule::All,
            Mode::AllBut => Rule::AllBut { missing: asked.all_but, min_coverage },
            Mode::Adaptive => Rule::Adaptive {
                enough: config.enough_coverage.max(min_coverage),
                wait_min: config.wait_min,
                wait_max: config.wait_max,
            },
        };
        Self { rule, deadline, finish_at, grace: None }
    }

    /// The verdict at `now`.
    pub fn decide(&mut self, now: Instant, progress: &Progress) -> Verdict {
        if progress.open == 0 {
            return Verdict::Finish(Decision::All);
        }
        if now >= self.finish_at {
            return Verdict::Finish(Decision::Deadline);
        }
        match self.rule {
            Rule::All => Verdict::Wait(self.finish_at),
            Rule::AllBut { missing, min_coverage } => {
                let enough = progress.shards - progress.answered <= missing && progress.covers(min_coverage);
                if enough { Verdict::Finish(Decision::AllBut) } else { Verdict::Wait(self.finish_at) }
            }
            Rule::Adaptive { enough, wait_min, wait_max } => {
                self.adaptive(now, progress, enough, (wait_min, wait_max))
            }
        }
    }

    fn adaptive(&mut self, now: Instant, progress: &Progress, enough: f64, share: (f64, f64)) -> Verdict {
        if progress.answered == 0 || !progress.covers(enough) {
            return Verdict::Wait(self.finish_at);
        }
        let left = self.deadline.saturating_duration_since(now);
        let mut grace = self.grace.unwrap_or(Grace {
            shortest: left.mul_f64(share.0),
            longest: left.mul_f64(share.1),
            open: 0,
            stop_at: self.finish_at,
        });
        if grace.open != progress.open {
            grace.open = progress.open;
            grace.stop_at = grace.stop_at.min(now + grace.wait(f64::from(progress.shards) * (1.0 - enough)));
        }
        self.grace = Some(grace);
        if now >= grace.stop_at { Verdict::Finish(Decision::Adaptive) } else { Verdict::Wait(grace.stop_at) }
    }
}

impl Grace {
    /// From `shortest` with one shard pending to `longest` with `allowed` pending, in a straight line.
    fn wait(&self, allowed: f64) -> Duration {
        let width = allowed - 1.0;
        if self.open <= 1 || width <= 0.0 {
            return self.shortest;
        }
        let slope = (f64::from(self.open - 1) / width).min(1.0);
        self.shortest + self.longest.saturating_sub(self.shortest).mul_f64(slope)
    }
}

#[cfg(test)]
mod tests;
