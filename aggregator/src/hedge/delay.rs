//! After how long to hedge. Numbers in, a delay out; nothing here waits or counts.
//!
//! A hedge sent after `d` with probability `q` makes the time of a branch longer than `t` with probability
//! `G(t) (1 - q F(t - d))`, where `F = 1 - G` is how long one attempt takes, and costs `q G(d)` extra attempts. A query
//! of S branches meets its percentile p when each branch meets `p^(1/S)`. So for each `d` of a grid, `q` is what the
//! budget allows, the time is found by bisection, and the delay with the least time wins: the budget binds **by the
//! delay**. A delay that is too short with a bucket that is too small spends the tokens on calls that were about to
//! answer, and a delay "at the quantile 1 - budget" can lie inside the slow mode where it saves nothing.
//!
//! One hedge can't beat stalls on a wide fan-out (two copies that both stall are as common as `S h^2`), so with three
//! replicas two delays are tried as well: the first on the same grid, the second where the rest of the budget binds.
//! They are taken when they serve one query in ten times as many better, and the percentile itself no worse.

use std::time::Duration;

use super::{latency::Survival, mode::SHORTEST};

/// Points of the grid, at most.
const GRID: usize = 96;
/// Steps of a bisection: 67 s down to 0.2 us.
const STEPS: usize = 28;
/// Two delays may be this much worse at the percentile itself.
const TOLERANCE: f64 = 1.05;
/// A later delay whose time is within this of the best is preferred: it costs less.
const FLAT: f64 = 1.003;

/// What is wanted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Branches of the query.
    pub branches: u32,
    /// Percentile of the query, such as 0.99.
    pub percentile: f64,
    /// Extra attempts allowed per branch.
    pub budget: f64,
    /// Replicas of a branch.
    pub replicas: usize,
}

/// When to send the second and the third attempt, from the dispatch of the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Delays {
    /// The second.
    pub first: Duration,
    /// The third.
    pub second: Option<Duration>,
    /// Probability that a branch hedges at all.
    pub probability: f64,
    /// Extra attempts expected per branch.
    pub extra: f64,
    /// Expected percentile of the query; `None`: beyond what was ever seen.
    pub expected: Option<Duration>,
}

fn duration(us: f64) -> Duration {
    Duration::from_secs_f64(us.max(0.0) / 1e6)
}

/// The least `t` in `from..=to` for which `reached` holds, when it holds at `to`; it holds from there on.
fn least(from: f64, to: f64, reached: impl Fn(f64) -> bool) -> Option<f64> {
    if !reached(to) {
        return None;
    }
    let (mut low, mut high) = (from, to);
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if reached(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    Some(high)
}

/// Share of branches that may be late so that the query meets `percentile`.
fn late(branches: u32, percentile: f64) -> f64 {
    // 1 - p^(1/S), without losing the digits.
    -(percentile.ln() / f64::from(branches.max(1))).exp_m1()
}

/// A hedge policy and what it costs.
#[derive(Debug, Clone, Copy)]
enum Policy {
    One { delay: f64, probability: f64 },
    Two { first: f64, second: f64 },
}

impl Policy {
    fn longer_than(self, one: &Survival, t: f64) -> f64 {
        match self {
            Self::One { delay, probability } => {
                one.longer_than(t) * (1.0 - probability * (1.0 - one.longer_than(t - delay)))
            }
            Self::Two { first, second } => {
                one.longer_than(t) * one.longer_than(t - first) * one.longer_than(t - second)
            }
        }
    }

    fn extra(self, one: &Survival) -> f64 {
        match self {
            Self::One { delay, probability } => probability * one.longer_than(delay),
            Self::Two { first, second } => {
                one.longer_than(first) + one.longer_than(second) * one.longer_than(second - first)
            }
        }
    }

    /// Time that at most `late` of the branches exceed; the end of all that is known when more do.
    fn time(self, one: &Survival, late: f64) -> f64 {
        let end = 2.0 * one.end();
        least(0.0, end, |t| self.longer_than(one, t) <= late).unwrap_or(end)
    }
}

/// Thins out points to at most `GRID`.
fn grid(one: &Survival, from: f64, to: f64) -> Vec<f64> {
    let shortest = SHORTEST.as_secs_f64() * 1e6;
    let mut points: Vec<f64> = one.edges(from, to).map(|us| us.max(shortest)).collect();
    points.dedup();
    let step = points.len().div_ceil(GRID).max(1);
    points.into_iter().step_by(step).collect()
}

/// The policy with the least time; of those that are about as good, the cheapest.
fn cheapest_of_the_best(one: &Survival, policies: &[Policy], late: f64) -> Option<(Policy, f64)> {
    let timed: Vec<(Policy, f64)> = policies.iter().map(|policy| (*policy, policy.time(one, late))).collect();
    let best = timed.iter().map(|(_, time)| *time).min_by(f64::total_cmp)?;
    let near = timed.into_iter().filter(|(_, time)| *time <= best * FLAT);
    near.min_by(|(a, _), (b, _)| a.extra(one).total_cmp(&b.extra(one)))
}

fn one_hedge(one: &Survival, target: &Target) -> Vec<Policy> {
    // The budget's own delay, and everything around it.
    let binding = one.time(target.budget).into_iter();
    let points = grid(one, 0.7, (target.budget / 20.0).min(1e-4)).into_iter().chain(binding);
    let policy = |delay: f64| {
        let due = one.longer_than(delay);
        Policy::One { delay, probability: if due > target.budget { target.budget / due } else { 1.0 } }
    };
    points.map(|delay| policy(delay.max(SHORTEST.as_secs_f64() * 1e6))).collect()
}

fn two_hedges(one: &Survival, target: &Target) -> Vec<Policy> {
    let within = |first: f64| {
        let policy = |second: f64| Policy::Two { first, second };
        let second = least(first, one.end(), |second| policy(second).extra(one) <= target.budget)?;
        Some(policy(second))
    };
    let points = grid(one, target.budget, (target.budget / 20.0).min(1e-4));
    points.into_iter().filter_map(within).collect()
}

/// The delays for a target; `None` when nothing was seen or nothing may be sent.
pub fn best(one: &Survival, target: &Target) -> Option<Delays> {
    if target.budget <= 0.0 || target.replicas < 2 {
        return None;
    }
    let usual = late(target.branches, target.percentile);
    let rare = late(target.branches, 1.0 - (1.0 - target.percentile) / 10.0);
    let (single, time) = cheapest_of_the_best(one, &one_hedge(one, target), usual)?;
    let mut chosen = (single, time);
    if target.replicas > 2
        && let Some((double, _)) = cheapest_of_the_best(one, &two_hedges(one, target), rare)
    {
        let (at_percentile, better) =
            (double.time(one, usual), double.time(one, rare) < single.time(one, rare));
        if better && at_percentile <= time * TOLERANCE {
            chosen = (double, at_percentile);
        }
    }
    let (policy, time) = chosen;
    let (first, second, probability) = match policy {
        Policy::One { delay, probability } => (delay, None, probability),
        Policy::Two { first, second } => (first, Some(duration(second)), 1.0),
    };
    let expected = (time < one.end()).then(|| duration(time));
    Some(Delays { first: duration(first), second, probability, extra: policy.extra(one), expected })
}

#[cfg(test)]
mod tests;
