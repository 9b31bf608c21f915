//! How a rollout goes: its steps, and how long it waits for what. Read from a file (`--plan canary.toml`), kept with the
//! rollout, never changed under way: a judgement belongs to the rule it was begun with.
//!
//! A step is a share of the queries, a bake time and a least sample. Rows follow from the share: the share of the
//! replicas that has to hold the version before it gets that share of the queries, and never fewer than two above 1 %,
//! so that the loss of one leaf is not the loss of the version. Units: per cent of queries; time with unit.

use std::time::Duration;

use canopy_common::config::Time;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::gates::{judged::Judged, policy::FEWEST};

/// Share of queries, in per cent, up to which one replica of every shard is enough.
pub const LONE_ROW: u8 = 1;
/// Shortest time for which a version stays that queries were pinned to: those on their way have to arrive.
const SHORTEST: Time = Time(Duration::from_millis(100));
/// Most steps of a policy.
const MAX_STEPS: usize = 32;

/// One step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Of the queries, to the new version; 0: shadow (a sample is asked of it too, its answers are dropped).
    #[serde(deserialize_with = "percent")]
    pub percent: u8,
    /// For how long at least.
    pub bake: Time,
    /// Least queries of each arm that a pass needs, 100 or more; 0: it passes after its bake time unless a breach is judged.
    pub sample: u64,
}

impl Step {
    /// All queries at once, with nothing to wait for.
    pub const ALL: Self = Self { percent: 100, bake: Time(Duration::ZERO), sample: 0 };
}

/// A share that can't be one is told with its limit, not with that of the number that holds it.
fn percent<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u8, D::Error> {
    let percent = i64::deserialize(deserializer)?;
    let fits = u8::try_from(percent).ok().filter(|percent| *percent <= 100);
    fits.ok_or_else(|| {
        let reason = format!("{percent} is no share of queries; write 1 to 100, per cent, or 0 for shadow");
        de::Error::custom(reason)
    })
}

/// How a rollout goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Policy {
    /// Steps, by growing share; the last is 100 %.
    pub steps: Vec<Step>,
    /// Of a shard, most replicas on leaves that load at once. 1 to 64.
    pub max_unavailable: u32,
    /// Of the live queries, the part that is also asked of the new version in the shadow step, per cent.
    pub shadow_percent: u8,
    /// Longest time of a step in which no replica gets ready; then it halts.
    pub stage_limit: Time,
    /// Longest wait, after the bake time, for a judgement; then it halts.
    pub gate_limit: Time,
    /// Longest halt before it rolls back by itself. A pause has no limit: somebody wanted it.
    pub halt_limit: Time,
    /// How long the old version stays resident once the new one serves.
    pub retain: Time,
    /// How long a version that was turned away from stays resident for the queries that are pinned to it.
    pub grace: Time,
    /// Judged queries, asked of both versions in the first step. In a plan's file the name of theirs.
    #[serde(skip_serializing_if = "Judged::is_empty")]
    pub judged: Judged,
}

impl Default for Policy {
    fn default() -> Self {
        let step = |percent, minutes: u64, sample| Step { percent, bake: Time::ms(minutes * 60_000), sample };
        Self {
            steps: vec![
                step(0, 2, 200),
                step(1, 5, 4_600),
                step(10, 5, 4_600),
                step(50, 5, 4_600),
                step(100, 5, 0),
            ],
            max_unavailable: 1,
            shadow_percent: 1,
            stage_limit: Time::ms(3_600_000),
            gate_limit: Time::ms(1_800_000),
            halt_limit: Time::ms(3_600_000),
            retain: Time::ms(600_000),
            grace: Time::ms(60_000),
            judged: Judged::default(),
        }
    }
}

impl Policy {
    /// For the first version of a corpus: there is nothing to compare it with and nothing to go back to.
    pub fn first(&self) -> Self {
        Self { steps: vec![Step::ALL], judged: Judged::default(), ..self.clone() }
    }

    /// Whether all queries go to the version as soon as it is loaded.
    pub fn is_at_once(&self) -> bool {
        self.steps == [Step::ALL]
    }

    /// What is wrong with it: `(key, reason)`.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut problems = Vec::new();
        let mut wrong = |key: &str, reason: String| problems.push((key.to_owned(), reason));
        if self.steps.is_empty() || self.steps.len() > MAX_STEPS {
            wrong("steps", format!("{} steps; write 1 to {MAX_STEPS}", self.steps.len()));
        }
        for (at, pair) in self.steps.windows(2).enumerate() {
            if pair[0].percent >= pair[1].percent {
                let (before, after) = (pair[0].percent, pair[1].percent);
                wrong(
                    &format!("steps[{}].percent", at + 1),
                    format!("{after} follows {before}; shares have to grow"),
                );
            }
        }
        for (at, step) in self.steps.iter().enumerate().filter(|(_, step)| (1..FEWEST).contains(&step.sample))
        {
            let reason = format!("{} queries tell nothing; write {FEWEST} or more, or 0", step.sample);
            wrong(&format!("steps[{at}].sample"), reason);
        }
        if let Err(reason) = self.judged.queries() {
            wrong("judged", reason);
        } else if !self.judged.is_empty() && self.steps.first().is_some_and(|step| step.percent == 100) {
            wrong(
                "judged",
                "they are asked before all queries go to it; put a step of 0 or 1 % first".to_owned(),
            );
        }
        if let Some(last) = self.steps.last().filter(|last| last.percent == 100 && last.sample > 0) {
            let at = self.steps.len() - 1;
            let reason = format!(
                "{} is for a comparison, and at 100 % nothing is left to compare with; write 0",
                last.sample
            );
            wrong(&format!("steps[{at}].sample"), reason);
        }
        if let Some(last) = self.steps.last().filter(|last| last.percent != 100) {
            wrong("steps", format!("the last step is {} %; end with percent = 100", last.percent));
        }
        if !(1..=64).contains(&self.max_unavailable) {
            wrong("max_unavailable", format!("{} is not within 1 to 64", self.max_unavailable));
        }
        if !(1..=100).contains(&self.shadow_percent) {
            wrong("shadow_percent", format!("{} is not within 1 to 100", self.shadow_percent));
        }
        for (key, time) in [("retain", self.retain), ("grace", self.grace)] {
            if time < SHORTEST {
                let reason =
                    format!("{time} is below {SHORTEST}, so queries on their way at the swap would fail");
                wrong(key, reason);
            }
        }
        problems
    }

    /// Replicas of a shard with `replicas` that hold the version before it gets `percent` of the queries.
    pub fn rows(percent: u8, replicas: usize) -> usize {
        let share = (replicas * usize::from(percent)).div_ceil(100);
        share.max(if percent > LONE_ROW { 2 } else { 1 }).min(replicas)
    }

    /// The same, when some could not load it: a quarter of these rows may be missing, and one never stands for two.
    pub fn rows_at_least(percent: u8, replicas: usize) -> usize {
        let rows = Self::rows(percent, replicas);
        (3 * rows).div_ceil(4).max(rows.min(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_follow_the_share_and_are_two_above_one_per_cent() {
        let rows = |percent| [1, 2, 3, 6, 78].map(|replicas| Policy::rows(percent, replicas));
        assert_eq!(rows(0), [1; 5]);
        assert_eq!(rows(1), [1; 5]);
        assert_eq!(rows(10), [1, 2, 2, 2, 8]);
        assert_eq!(rows(50), [1, 2, 2, 3, 39]);
        assert_eq!(rows(100), [1, 2, 3, 6, 78]);
        let least = [1, 2, 3, 4, 6, 78].map(|replicas| Policy::rows_at_least(100, replicas));
        assert_eq!(least, [1, 2, 3, 3, 5, 59]);
    }

    #[test]
    fn nonsense_is_named() {
        assert_eq!(Policy::default().problems(), []);
        assert_eq!(Policy::default().first().problems(), []);
        let mut bad = Policy { max_unavailable: 0, shadow_percent: 101, ..Policy::default() };
        bad.steps.pop();
        bad.steps[1].percent = 0;
        bad.steps[2].sample = 99;
        bad.judged = "{}".into();
        let keys: Vec<String> = bad.problems().into_iter().map(|(key, _)| key).collect();
        assert_eq!(
            keys,
            ["steps[1].percent", "steps[2].sample", "judged", "steps", "max_unavailable", "shadow_percent"]
        );
        (bad.retain, bad.grace) = (Time(Duration::ZERO), Time(Duration::ZERO));
        let last: Vec<String> = bad.problems().into_iter().rev().take(2).map(|(key, _)| key).collect();
        assert_eq!(last, ["grace", "retain"]);
        bad.steps.clear();
        assert_eq!(bad.problems()[0].0, "steps");
    }
}
