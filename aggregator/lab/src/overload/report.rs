//! What `lab overload` reports.

use serde::{Deserialize, Serialize};

use super::{Protection, Settings, client::Second};

/// The whole report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// `overload`.
    pub lab: String,
    /// What was run.
    pub settings: Settings,
    /// Queries per second that the leaves can do.
    pub capacity: f64,
    /// Arms.
    pub arms: Vec<Arm>,
}

/// One second of an arm; queries count for the second in which they came.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Line {
    /// Queries that came.
    pub offered: u64,
    /// Of them, answered by all shards within the client's patience.
    pub good: u64,
    /// Answered by some shards.
    pub partial: u64,
    /// Times they were asked.
    pub attempts: u64,
    /// Times the root refused.
    pub refused: u64,
    /// Calls begun at leaves.
    pub begun: u64,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// What it does.
    pub protection: Protection,
    /// Second by second.
    pub seconds: Vec<Line>,
    /// Goodput before the burst, over what was offered.
    pub before: f64,
    /// Goodput in the burst (but for its first second), over what the leaves can do.
    pub burst: f64,
    /// Goodput from a second after the burst to the end, over what was offered.
    pub after: f64,
    /// Times that clients asked then, over what was offered.
    pub attempts_after: f64,
    /// Calls begun at leaves over the whole run, over what was offered.
    pub begun: f64,
    /// Seconds after the burst from which on nearly all (99 %) were answered to the end; `None`: never.
    pub well_after: Option<u32>,
    /// Slowest refusal, ms; what waited in the gate's queue is in it.
    pub slowest_refusal: f64,
}

impl Arm {
    pub(super) fn of(settings: &Settings, protection: Protection, seconds: Vec<Second>) -> Self {
        let (from, to, _) = settings.times;
        let (from, to) = (from as usize, to as usize);
        let sum = |range: &[Second], what: fn(&Second) -> u64| range.iter().map(what).sum::<u64>() as f64;
        let over = |range: &[Second], what: fn(&Second) -> u64| {
            sum(range, what) / sum(range, |second| second.offered).max(1.0)
        };
        let good = |second: &Second| second.good;
        let burst = &seconds[(from + 1).min(to)..to];
        let after = &seconds[(to + 1).min(seconds.len())..];
        let well = |second: &Second| second.good as f64 >= 0.99 * second.offered as f64;
        let unwell = seconds.iter().rposition(|second| !well(second));
        let well_after = match unwell {
            Some(last) if last + 1 >= seconds.len() => None,
            Some(last) => Some((last + 1).saturating_sub(to) as u32),
            None => Some(0),
        };
        let shards = f64::from(settings.shards);
        Self {
            protection,
            before: over(&seconds[..from], good),
            burst: sum(burst, good) / (settings.capacity() * burst.len().max(1) as f64),
            after: over(after, good),
            attempts_after: over(after, |second| second.attempts),
            begun: over(&seconds, |second| second.begun) / shards,
            well_after,
            slowest_refusal: seconds.iter().map(|second| second.refusal).fold(0.0, f64::max),
            seconds: seconds.iter().map(Line::from).collect(),
        }
    }
}

impl From<&Second> for Line {
    fn from(second: &Second) -> Self {
        Self {
            offered: second.offered,
            good: second.good,
            partial: second.partial,
            attempts: second.attempts,
            refused: second.refused,
            begun: second.begun,
        }
    }
}
