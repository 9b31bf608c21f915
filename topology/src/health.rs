//! How well a node is: joining, warming, healthy, sub-healthy, faulty, draining, gone.
//!
//! A node that flaps between in and out costs more than a slow one: each turn moves its queries twice. So the way down and
//! the way up differ. Down: three bad windows in a row, above the limits. Up: ten good ones in a row, below limits that are
//! clearly lower. Between the two nothing changes. A node that is not asked looks well, so each time it goes down again before
//! it was well for long, its next way up is twice as long, up to 32 times. Only the lease decides at once, because a node
//! that does not renew it cannot be asked; and its age is read on the service's own clock.
//!
//! Latency is judged against the node's peers, not against a number: when all are slow nobody is at fault. And however
//! bad things look, never fewer than half of the replicas of a shard are asked: past that the trouble is not theirs, and
//! leaving them out overloads the rest. Whoever routes sees to that.
//!
//! A value: one window's signals in, the next state out. Units: milliseconds; shares and ratios of 1.

use serde::{Deserialize, Serialize};

use crate::span;

/// Where a node is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// Registered, holds nothing yet.
    Joining,
    /// Loads what it should hold.
    Warming,
    /// Is asked.
    Healthy,
    /// Is asked last: too slow, too many errors, or too far behind.
    SubHealthy,
    /// Is not asked: its lease is out, or nearly all it does fails.
    Faulty,
    /// Leaves: finishes what runs.
    Draining,
    /// Has left, or was not heard of for long.
    Gone,
}

impl Condition {
    /// Every one.
    pub const ALL: [Self; 7] = [
        Self::Joining,
        Self::Warming,
        Self::Healthy,
        Self::SubHealthy,
        Self::Faulty,
        Self::Draining,
        Self::Gone,
    ];

    /// The word in status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Warming => "warming",
            Self::Healthy => "healthy",
            Self::SubHealthy => "sub_healthy",
            Self::Faulty => "faulty",
            Self::Draining => "draining",
            Self::Gone => "gone",
        }
    }
}

/// What was seen of a node in one window.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Signals {
    /// Since its last renewal.
    pub lease_age_ms: u64,
    /// Whether it holds all that it should.
    pub warm: bool,
    /// Whether it said that it leaves.
    pub draining: bool,
    /// Queries in the window.
    pub queries: u64,
    /// Share of them that failed, refusals by load left out.
    pub error_share: f64,
    /// Its 90th percentile over the median of its peers' 90th percentiles.
    pub latency_ratio: f64,
    /// How far its overlay is behind; none while it is replaying at start.
    pub lag_ms: Option<u64>,
}

/// When a node is what.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HealthPolicy {
    /// Lease: older, and it is faulty.
    pub lease_ms: u64,
    /// Older, and it is gone.
    pub gone_ms: u64,
    /// Bad windows in a row on the way down.
    pub down: u32,
    /// Good windows in a row on the way up.
    pub up: u32,
    /// Queries below which errors and latency say nothing.
    pub least_queries: u64,
    /// Error shares: above the first a window is bad, below the second good.
    pub errors: [f64; 2],
    /// Error share above which a node is faulty, not only sub-healthy.
    pub errors_faulty: f64,
    /// Latency ratios, the same.
    pub latency: [f64; 2],
    /// Lags, the same.
    pub lag_ms: [u64; 2],
}

impl Default for HealthPolicy {
    fn default() -> Self {
        Self {
            lease_ms: 3_000,
            gone_ms: 30_000,
            down: 3,
            up: 10,
            least_queries: 20,
            errors: [0.05, 0.01],
            errors_faulty: 0.5,
            latency: [3.0, 1.5],
            lag_ms: [10_000, 2_000],
        }
    }
}

/// A node's health.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Health {
    /// Where it is.
    pub condition: Condition,
    /// Why, in words, when it is not as it should be.
    pub reason: String,
    bad: u32,
    good: u32,
    /// How often it went down without having been well for long in between.
    pub falls: u32,
}

/// How often the way up doubles.
const DOUBLINGS: u32 = 5;
/// Ways up, of good windows in a row, after which earlier falls are forgotten.
const FORGIVEN: u32 = 60;

/// What a window was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Window {
    Good,
    Between,
    Bad,
    Faulty,
}

impl Health {
    /// A node that has just registered.
    pub fn joining() -> Self {
        Self { condition: Condition::Joining, reason: String::new(), bad: 0, good: 0, falls: 0 }
    }

    /// A node that was judged before this process: down, with its whole way up before it; or to be seen.
    pub fn known(condition: Condition, falls: u32) -> Self {
        let down = matches!(condition, Condition::SubHealthy | Condition::Faulty);
        let reason = if down { "it was so when the service started".to_owned() } else { String::new() };
        Self { condition, reason, falls: falls.max(u32::from(down)), ..Self::joining() }
    }

    /// After one more window.
    pub fn after(&self, policy: &HealthPolicy, seen: &Signals) -> Self {
        let to = |condition, reason: String| Self { condition, reason, bad: 0, good: 0, falls: self.falls };
        let age = seen.lease_age_ms;
        if age > policy.gone_ms {
            return to(Condition::Gone, format!("not heard of for {}", span::words(age)));
        }
        if self.condition == Condition::Gone {
            // It is back: what it holds is to be seen.
            return to(if seen.warm { Condition::Warming } else { Condition::Joining }, String::new());
        }
        if seen.draining {
            return to(
                Condition::Draining,
                "it leaves, or is drained: only what nobody else holds is asked of it".to_owned(),
            );
        }
        if age > policy.lease_ms {
            let (age, lease) = (span::words(age), span::words(policy.lease_ms));
            return to(Condition::Faulty, format!("not heard of for {age}; its lease is {lease}"));
        }
        match self.condition {
            Condition::Joining | Condition::Warming | Condition::Draining | Condition::Gone => {
                to(if seen.warm { Condition::Healthy } else { Condition::Warming }, String::new())
            }
            _ if !seen.warm => self.counted(policy, Window::Between, String::new()),
            _ => {
                let (window, reason) = window(policy, seen);
                self.counted(policy, window, reason)
            }
        }
    }

    /// Counts windows in a row; between good and bad both counts begin anew.
    fn counted(&self, policy: &HealthPolicy, window: Window, reason: String) -> Self {
        let mut next = self.clone();
        next.bad = if window >= Window::Bad { self.bad.saturating_add(1) } else { 0 };
        next.good = if window == Window::Good { self.good.saturating_add(1) } else { 0 };
        if next.bad >= policy.down {
            next.falls = self.falls.saturating_add(u32::from(self.is_healthy()));
            let worse = if window == Window::Faulty { Condition::Faulty } else { Condition::SubHealthy };
            // From faulty a merely bad window is no improvement.
            (next.condition, next.reason) = (self.condition.max(worse), reason);
        } else if next.good >= self.way_up(policy) {
            (next.condition, next.reason) = (Condition::Healthy, String::new());
        }
        if next.is_healthy() && next.good >= policy.up.saturating_mul(FORGIVEN) {
            next.falls = 0;
        }
        next
    }

    /// Good windows in a row on its next way up.
    fn way_up(&self, policy: &HealthPolicy) -> u32 {
        policy.up.saturating_mul(1 << self.falls.saturating_sub(1).min(DOUBLINGS))
    }

    /// Whether the node may be asked like any other.
    pub fn is_healthy(&self) -> bool {
        self.condition == Condition::Healthy
    }
}

fn window(policy: &HealthPolicy, seen: &Signals) -> (Window, String) {
    let between = |value: f64, limits: [f64; 2]| match value {
        value if value > limits[0] => Window::Bad,
        value if value < limits[1] => Window::Good,
        _ => Window::Between,
    };
    let mut found = vec![(Window::Good, String::new())];
    if seen.queries >= policy.least_queries {
        let errors = if seen.error_share > policy.errors_faulty {
            Window::Faulty
        } else {
            between(seen.error_share, policy.errors)
        };
        found.push((errors, format!("{:.1} % of its queries fail", seen.error_share * 100.0)));
        let slow = between(seen.latency_ratio, policy.latency);
        found.push((slow, format!("{:.1} times as slow as its peers", seen.latency_ratio)));
    }
    if let Some(lag) = seen.lag_ms {
        let late = between(lag as f64, policy.lag_ms.map(|ms| ms as f64));
        found.push((late, format!("{} behind", span::words(lag))));
    }
    found.into_iter().max_by_key(|(window, _)| *window).unwrap_or((Window::Good, String::new()))
}

#[cfg(test)]
mod tests;
