//! Where the rollouts of a corpus stand: the version that serves, the rollout under way, the one that waits behind it,
//! and how the last ones ended. Plain data that is stored after each step; nothing else has to be remembered, so that a
//! service that is killed and started again goes on from what it reads. Units: milliseconds of the service's own
//! running time, told by ticks: a wall clock that jumps neither ends a bake time nor stretches it.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::Version;
use serde::{Deserialize, Serialize};

use super::{
    policy::{Policy, Step},
    seen::{Replica, Seen},
};

/// Ended rollouts that are remembered.
pub const REMEMBERED: usize = 32;

/// Of one corpus.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct State {
    /// What queries are pinned to unless a rollout says otherwise; `None`: the corpus has no version yet.
    pub live: Option<Version>,
    /// The tree, as told.
    pub seen: Seen,
    /// The rollout under way.
    pub active: Option<Rollout>,
    /// The one that begins when that has ended.
    pub waiting: Option<Request>,
    /// How the last ones ended, newest last.
    pub ended: Vec<Ended>,
    /// Number of the last request.
    pub requests: u64,
    /// Versions that are being taken out of the store: nothing goes to them.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub removing: BTreeSet<Version>,
}

/// What was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// Number, growing.
    pub id: u64,
    /// The new version.
    pub to: Version,
    /// Who asked.
    pub by: String,
    /// How it goes.
    pub policy: Policy,
    /// Whether it was a rollback to a version that was not held any more.
    #[serde(default)]
    pub back: bool,
}

/// What the control arm had, in counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Baseline {
    /// Queries.
    pub queries: u64,
    /// That ended in an error.
    pub errors: u64,
    /// That were answered in part.
    pub partial: u64,
    /// That had no hit.
    pub zero_results: u64,
}

/// A rollout under way.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rollout {
    /// What was asked for.
    pub request: Request,
    /// What served when it began; `None`: nothing.
    pub from: Option<Version>,
    /// Where it is.
    pub phase: Phase,
    /// Why it does not go on.
    pub stop: Option<Stop>,
    /// Time in this phase, stops left out.
    pub spent_ms: u64,
    /// Time of this halt.
    pub halted_ms: u64,
    /// Number of the judgement that is waited for; a verdict with another number is old.
    pub gate: u32,
    /// Whether that judgement was a pass.
    pub passed: bool,
    /// Of the last step that had a control arm.
    #[serde(default)]
    pub baseline: Option<Baseline>,
    /// Replicas that were told to load the new version.
    pub started: BTreeSet<Replica>,
    /// Replicas that could not, with reasons; they are left out until somebody says resume.
    pub failed: BTreeMap<String, Failed>,
}

/// A replica that could not load.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failed {
    /// Which.
    pub replica: Replica,
    /// Why.
    pub reason: String,
}

/// Where a rollout is. Steps are numbered as in its policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Replicas load, until there are enough for the step; queries go as in the step before.
    Load {
        /// Next step.
        step: usize,
    },
    /// The step's share of queries goes to the new version and is judged.
    Bake {
        /// This step.
        step: usize,
    },
    /// The new version is live; the old one stays resident, for a rollback.
    Retain,
    /// No new query goes to the new version; it stays resident for those that are pinned to it.
    Back {
        /// How it will have ended.
        outcome: Outcome,
        /// Why.
        reason: String,
    },
}

/// Why a rollout does not go on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// Somebody wanted it.
    Paused {
        /// Who.
        by: String,
    },
    /// A judgement or a failure.
    Halted {
        /// Which.
        reason: String,
    },
}

/// How a rollout ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The new version serves.
    Serving,
    /// A later request took its place.
    Superseded,
    /// The version could not be loaded.
    Failed,
    /// A judgement, or somebody, turned back.
    RolledBack,
    /// Somebody stopped it.
    Aborted,
}

/// A rollout that has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// Number of the request.
    pub id: u64,
    /// What served when it began.
    pub from: Option<Version>,
    /// The new version.
    pub to: Version,
    /// How.
    pub outcome: Outcome,
    /// Why.
    pub reason: String,
    /// Whether it was a rollback.
    #[serde(default)]
    pub back: bool,
}

impl State {
    /// Nothing serves yet.
    pub fn empty() -> Self {
        Self::default()
    }

    /// A version serves already: a static set-up taken over.
    pub fn serving(live: Version) -> Self {
        Self { live: Some(live), ..Self::default() }
    }

    /// Versions that must not be taken out of the store: what serves, what comes, and what can be gone back to, also when no
    /// leaf holds it any more.
    pub fn needed(&self) -> BTreeSet<Version> {
        let back = self.ended.last().and_then(|ended| ended.from);
        let before = [None, self.live].map(|from| self.before(from).ok());
        self.pinned().into_iter().chain(back).chain(before.into_iter().flatten()).collect()
    }

    /// Versions that leaves hold or should hold: what serves, what comes, and what can be gone back to in a second.
    pub fn pinned(&self) -> BTreeSet<Version> {
        let active = self.active.iter().flat_map(|rollout| [Some(rollout.request.to), rollout.from]);
        let waiting = self.waiting.iter().map(|request| Some(request.to));
        active.chain(waiting).chain([self.live]).flatten().collect()
    }
}

impl Rollout {
    /// Of a request, at its beginning.
    pub fn begin(mut request: Request, from: Option<Version>) -> Self {
        if from.is_none() {
            request.policy = request.policy.first();
        }
        Self {
            request,
            from,
            phase: Phase::Load { step: 0 },
            stop: None,
            spent_ms: 0,
            halted_ms: 0,
            gate: 0,
            passed: false,
            baseline: None,
            started: BTreeSet::new(),
            failed: BTreeMap::new(),
        }
    }

    /// A step of the policy.
    pub fn step(&self, step: usize) -> Option<&Step> {
        self.request.policy.steps.get(step)
    }

    /// The number of the step whose share of queries goes now.
    pub fn under_trial(&self) -> Option<usize> {
        match self.phase {
            Phase::Load { step } => step.checked_sub(1),
            Phase::Bake { step } => Some(step),
            Phase::Retain | Phase::Back { .. } => None,
        }
    }

    /// The step whose share of queries goes now.
    pub fn traffic(&self) -> Option<&Step> {
        self.step(self.under_trial()?)
    }

    /// The number by which roots tell what they saw at this gate: of no other gate, also of another rollout of the same
    /// versions.
    pub fn trial(&self) -> u64 {
        self.request.id << 32 | u64::from(self.gate)
    }

    /// Whether a step waits for a pass: one with a sample, and the first when there are judged queries. A first version has
    /// nothing to be compared with.
    pub fn needs_pass(&self, step: usize) -> bool {
        let judged = step == 0 && !self.request.policy.judged.is_empty();
        self.from.is_some() && (judged || self.step(step).is_some_and(|step| step.sample > 0))
    }

    /// Whether the step under way is over once `elapsed_ms` more have gone by: its last look is due.
    pub fn step_ends(&self, elapsed_ms: u64) -> bool {
        let Phase::Bake { step } = self.phase else { return false };
        let bake_ms = self.step(step).map_or(0, |step| step.bake.0.as_millis());
        let spent_ms = u128::from(self.spent_ms) + u128::from(elapsed_ms);
        self.stop.is_none() && spent_ms >= bake_ms && (self.passed || !self.needs_pass(step))
    }

    /// Whether queries may have been answered from the new version.
    pub fn has_served(&self) -> bool {
        let some = self.traffic().is_some_and(|step| step.percent > 0);
        some || matches!(self.phase, Phase::Retain | Phase::Back { .. })
    }

    /// Whether it is being turned back.
    pub fn goes_back(&self) -> bool {
        matches!(self.phase, Phase::Back { .. })
    }

    /// Whether the replica could not load it.
    pub fn has_failed(&self, replica: &Replica) -> bool {
        self.failed.contains_key(&key(replica))
    }

    /// Goes to another phase.
    pub(super) fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        (self.spent_ms, self.halted_ms, self.passed) = (0, 0, false);
    }

    /// In a few words: what a screen shows.
    pub fn label(&self) -> String {
        let share = |step: Option<&Step>| match step.map(|step| step.percent) {
            None => "stage".to_owned(),
            Some(0) => "shadow".to_owned(),
            Some(100) => "full".to_owned(),
            Some(percent) => format!("canary {percent} %"),
        };
        let at = match &self.phase {
            Phase::Load { step: 0 } => "stage".to_owned(),
            Phase::Load { step } => {
                format!("{}, loading for {}", share(self.traffic()), share(self.step(*step)))
            }
            Phase::Bake { step } => share(self.step(*step)),
            Phase::Retain => "retain".to_owned(),
            Phase::Back { outcome, .. } => return format!("rolling back ({})", outcome.as_str()),
        };
        match &self.stop {
            None => at,
            Some(Stop::Paused { by }) => format!("paused by {by} in {at}"),
            Some(Stop::Halted { reason }) => format!("halted in {at}: {}", cut(reason, SHORT)),
        }
    }
}

/// Longest reason in a label, characters; the whole is in the audit log.
pub(super) const SHORT: usize = 240;

/// A text of at most `most` characters.
pub(super) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// Reasons that many have, each once with how many have it.
pub(super) fn grouped<'a>(reasons: impl IntoIterator<Item = &'a str>) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    reasons.into_iter().for_each(|reason| *counts.entry(reason).or_default() += 1);
    let mut order: Vec<(&str, usize)> = counts.into_iter().collect();
    order.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let some = order.iter().take(3).map(|(reason, count)| match count {
        1 => cut(reason, SHORT),
        count => format!("{} ({count} times)", cut(reason, SHORT)),
    });
    let mut words: Vec<String> = some.collect();
    if order.len() > words.len() {
        words.push(format!("and {} other reasons", order.len() - words.len()));
    }
    words.join("; ")
}

/// A replica as text, the key of maps that are stored as JSON.
pub(super) fn key(replica: &Replica) -> String {
    format!("{} on {}", replica.shard, replica.node)
}

impl Outcome {
    /// In words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Serving => "serving",
            Self::Superseded => "superseded",
            Self::Failed => "failed",
            Self::RolledBack => "rolled back",
            Self::Aborted => "aborted",
        }
    }
}
