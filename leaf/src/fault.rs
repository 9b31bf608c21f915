//! Faults on purpose, for labs and chaos tests only: a leaf that now and then hiccups, is slow, or fails.
//!
//! The settings of `[leaf.fault]` are refused unless `leaf.allow_faults` is set, so that no copied file makes a
//! production leaf slow. Rules: a fault waits on the search thread, as a real stall does, without burning the processor;
//! it is drawn per search of a shard; a search that is stopped ends its wait within one millisecond.

use std::time::Duration;

use canopy_common::{
    config::Time,
    error::{ErrorClass, Failure},
    rng::Dice,
};
use parking_lot::{Condvar, Mutex};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{node::SearchShard, search_shard::ShardResult, stop::Stop};

/// How often a wait looks whether it is still wanted.
const LOOK: Duration = Duration::from_millis(1);
/// Longest wait that may be configured.
const LONGEST: Time = Time(Duration::from_mins(1));

/// `[leaf.fault]`: for tests only.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FaultConfig {
    /// Share of searches that hiccup. Default: 0.
    pub hiccup_probability: f64,
    /// Shortest hiccup. Default: 0s.
    pub hiccup_min: Time,
    /// Longest hiccup; evenly between the two. Default: 0s.
    pub hiccup_max: Time,
    /// Added to every search. Default: 0s.
    pub delay: Time,
    /// Share of searches that fail instead. Default: 0.
    pub error_probability: f64,
    /// Where in the exchange of one version of a shard for another the process is killed; one of [`KILL_POINTS`]; empty:
    /// nowhere. Default: "".
    pub kill_at: String,
}

/// Where a process can be killed on purpose while it exchanges a version.
pub const KILL_POINTS: [&str; 10] = [
    "fetch.begun",
    "fetch.half",
    "fetch.whole",
    "verify.half",
    "open.mapped",
    "warm.half",
    "swap.before",
    "swap.after",
    "retire.before",
    "retire.after",
];

impl Default for FaultConfig {
    fn default() -> Self {
        let none = Time::ms(0);
        Self {
            hiccup_probability: 0.0,
            hiccup_min: none,
            hiccup_max: none,
            delay: none,
            error_probability: 0.0,
            kill_at: String::new(),
        }
    }
}

impl FaultConfig {
    /// A point is reached: the process ends here, as by a lost machine, when that is asked for.
    pub fn point(&self, name: &str) {
        if self.kill_at != name {
            return;
        }
        tracing::warn!(name, "killed on purpose; see [leaf.fault]");
        end_at_once();
    }

    /// What is wrong, by key within `[leaf.fault]`.
    pub fn problems(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        for (key, value) in
            [("hiccup_probability", self.hiccup_probability), ("error_probability", self.error_probability)]
        {
            if !(0.0..=1.0).contains(&value) {
                found.push((key, format!("{value} is outside 0..1")));
            }
        }
        for (key, value) in [("hiccup_max", self.hiccup_max), ("delay", self.delay)] {
            if value > LONGEST {
                found.push((key, format!("{value} is above {LONGEST}")));
            }
        }
        if !self.kill_at.is_empty() && !KILL_POINTS.contains(&self.kill_at.as_str()) {
            found.push(("kill_at", format!("{:?} is none of {}", self.kill_at, KILL_POINTS.join(", "))));
        }
        if self.hiccup_min > self.hiccup_max {
            found.push(("hiccup_min", format!("{} is above hiccup_max", self.hiccup_min)));
        }
        found
    }

    /// Whether anything is to go wrong.
    pub fn any(&self) -> bool {
        *self != Self::default()
    }

    /// How long this search is held up.
    fn wait(&self, dice: &Dice) -> Duration {
        let hiccup = if dice.unit() < self.hiccup_probability {
            let range = self.hiccup_max.0.saturating_sub(self.hiccup_min.0);
            self.hiccup_min.0 + range.mul_f64(dice.unit())
        } else {
            Duration::ZERO
        };
        self.delay.0 + hiccup
    }
}

/// Ends this process without a word, as SIGKILL from elsewhere does.
fn end_at_once() {
    // SAFETY: plain calls; nothing of this process runs after the second.
    unsafe {
        libc::kill(libc::getpid(), libc::SIGKILL);
    }
}

/// Waits without burning the processor, until `stop` at most.
fn pass(wait: Duration, stop: &Stop) {
    let until = Instant::now() + wait;
    let (never, lock) = (Condvar::new(), Mutex::new(()));
    let mut held = lock.lock();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() || stop.now() {
            return;
        }
        never.wait_for(&mut held, left.min(LOOK));
    }
}

/// A search with these faults.
pub fn injected(config: FaultConfig, dice: Dice, search: SearchShard) -> SearchShard {
    Box::new(move |view, request, shard, stop| {
        pass(config.wait(&dice), stop);
        if dice.unit() < config.error_probability {
            let failure = Failure::new(ErrorClass::Internal, "a fault was injected; see [leaf.fault]");
            return ShardResult::failed(shard, failure);
        }
        search(view, request, shard, stop)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    };

    use super::*;
    use crate::{
        call::Settled,
        fixture::{answered, request, view},
        reply::outcome_word,
    };

    #[test]
    fn each_share_and_range_is_kept() {
        let config = FaultConfig {
            hiccup_probability: 0.1,
            hiccup_min: Time::ms(180),
            hiccup_max: Time::ms(220),
            delay: Time::ms(3),
            error_probability: 0.25,
            kill_at: "swap.before".to_owned(),
        };
        assert!(config.problems().is_empty() && config.any() && !FaultConfig::default().any());
        let dice = Dice::seeded(5);
        let waits: Vec<_> = (0..10_000).map(|_| config.wait(&dice)).collect();
        let hiccups: Vec<_> = waits.into_iter().filter(|wait| *wait > Duration::from_millis(3)).collect();
        assert!((900..1100).contains(&hiccups.len()), "{}", hiccups.len());
        let range = Duration::from_millis(183)..=Duration::from_millis(223);
        assert!(hiccups.iter().all(|wait| range.contains(wait)));

        let config = FaultConfig { error_probability: 0.25, ..FaultConfig::default() };
        let search = injected(config, dice, Box::new(|_, _, shard, _| answered(shard)));
        let (view, request) = (view(0, 1), request(1));
        let failed = (0..400).filter(|_| search(&view, &request, 0, &Stop::never()).failure.is_some());
        let failed = failed.count();
        assert!((60..140).contains(&failed), "{failed}");
        let wrong = FaultConfig {
            hiccup_probability: 2.0,
            hiccup_min: Time::ms(5),
            delay: Time::ms(60_001),
            error_probability: f64::NAN,
            kill_at: "lunch".to_owned(),
            ..FaultConfig::default()
        };
        let keys: Vec<_> = wrong.problems().into_iter().map(|problem| problem.0).collect();
        assert_eq!(keys, ["hiccup_probability", "error_probability", "delay", "kill_at", "hiccup_min"]);
    }

    #[tokio::test]
    async fn a_stalled_search_can_be_stopped() {
        let config = FaultConfig { delay: Time::ms(60_000), ..FaultConfig::default() };
        let search = injected(config, Dice::seeded(1), Box::new(|_, _, shard, _| answered(shard)));
        let cancelled = Arc::new(AtomicBool::new(false));
        let deadline = canopy_common::deadline::Deadline::after(Duration::from_mins(1));
        let stop = Stop::new(deadline, cancelled.clone());
        let searching = tokio::task::spawn_blocking(move || search(&view(0, 1), &request(1), 0, &stop));
        cancelled.store(true, Ordering::Relaxed);
        let result = tokio::time::timeout(Duration::from_secs(20), searching).await.unwrap().unwrap();
        let settled = Settled { reply: result.reply, ..Settled::default() };
        assert_eq!(outcome_word(&settled.reply), "answered");
    }
}
