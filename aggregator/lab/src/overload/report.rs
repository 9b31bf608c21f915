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

/// How long clients waited to be refused, ms; what waited in the gate's queue is in it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Refusals {
    /// Half of them took no longer.
    pub p50: f64,
    /// All but one of a hundred.
    pub p99: f64,
    /// The slowest.
    pub max: f64,
}

/// One arm with one seed. Seconds are those in which queries came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Seed.
    pub seed: u64,
    /// Goodput before the burst, over what was offered; `None`: there is no time before it.
    pub before: Option<f64>,
    /// Goodput in the burst (but for its first second), over what the leaves can do.
    pub burst: f64,
    /// Of the workers' time then, the share in which they worked.
    pub busy: f64,
    /// Of the times that clients asked then, the share that was refused.
    pub refused: f64,
    /// How long refusals took, over the whole run.
    pub refusals: Refusals,
    /// Times that clients asked in the burst, over what was offered.
    pub attempts_burst: f64,
    /// Goodput from a second after the burst to the end, over what was offered; `None`: there is no time after it.
    pub after: Option<f64>,
    /// Times that clients asked then, over what was offered.
    pub attempts_after: Option<f64>,
    /// Calls begun at leaves over the whole run, over what was offered.
    pub begun: f64,
    /// Seconds after the burst from which on nearly all (99 %) were answered to the end; `None`: never.
    pub well_after: Option<u32>,
}

/// One arm.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// What it does.
    pub protection: Protection,
    /// The first seed, second by second.
    pub seconds: Vec<Line>,
    /// All seeds.
    pub runs: Vec<Run>,
    /// Goodput in the burst, over what the leaves can do.
    pub burst: Spread,
}

/// A figure over all seeds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// The lower median.
    pub median: f64,
    /// The worst.
    pub worst: f64,
}

/// The smallest of sorted values that a share of them does not exceed.
fn at(sorted: &[f64], share: f64) -> f64 {
    let rank = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

impl Arm {
    pub(super) fn of(settings: &Settings, protection: Protection, runs: &[Vec<Second>]) -> Self {
        let seconds = runs.first().map_or_else(Vec::new, |run| run.iter().map(Line::from).collect());
        let seeds = settings.seed..;
        let runs: Vec<Run> = runs.iter().zip(seeds).map(|(run, seed)| Run::of(settings, seed, run)).collect();
        let mut bursts: Vec<f64> = runs.iter().map(|run| run.burst).collect();
        bursts.sort_by(f64::total_cmp);
        let burst = Spread { median: at(&bursts, 0.5), worst: at(&bursts, 0.0) };
        Self { protection, seconds, runs, burst }
    }
}

impl Run {
    fn of(settings: &Settings, seed: u64, seconds: &[Second]) -> Self {
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
        let length = burst.len().max(1) as f64;
        let busy: f64 = burst.iter().map(|second| second.busy.as_secs_f64()).sum();
        let some = |range: &[Second], what| (!range.is_empty()).then(|| over(range, what));
        Self {
            seed,
            before: some(&seconds[..from], good),
            burst: sum(burst, good) / (settings.capacity() * length),
            busy: busy / (f64::from(settings.all_workers()) * length),
            refused: sum(burst, |second| second.refusals.len() as u64)
                / sum(burst, |second| second.attempts).max(1.0),
            refusals: Refusals::of(seconds),
            attempts_burst: over(burst, |second| second.attempts),
            after: some(after, good),
            attempts_after: some(after, |second| second.attempts),
            begun: over(seconds, |second| second.begun) / f64::from(settings.shards),
            well_after,
        }
    }
}

impl Refusals {
    fn of(seconds: &[Second]) -> Self {
        let mut all: Vec<f64> = seconds.iter().flat_map(|second| second.refusals.iter().copied()).collect();
        all.sort_by(f64::total_cmp);
        Self { p50: at(&all, 0.5), p99: at(&all, 0.99), max: at(&all, 1.0) }
    }
}

impl From<&Second> for Line {
    fn from(second: &Second) -> Self {
        Self {
            offered: second.offered,
            good: second.good,
            partial: second.partial,
            attempts: second.attempts,
            refused: second.refusals.len() as u64,
            begun: second.begun,
        }
    }
}
