//! One gate: what was seen since it was opened, and the looks at it.
//!
//! ```text
//! round 0, to the planned sample | round 1 | round 2 | ...   until the step is over
//!   100 200 400 1,000 4,600        100 200 ...                then one last look at what is there
//! ```
//!
//! The failure this prevents: a version that was good for its sample and broke a minute later, with nobody looking any more.
//! Rules: a look is taken when the sample has reached its size, however often somebody asks; after the planned sample each
//! round begins from nothing; the last look of a step spends what its round has left, so that nothing that was seen stays
//! unjudged; a pass needs the planned sample and, where the plan names judged queries, their answer.

use serde::{Deserialize, Serialize};

use super::{
    judge::{Arm, Comparison, Judgement, Look, Looks},
    policy::GatePolicy,
    spending::Spent,
};
use crate::rollout::Verdict;

/// What a gate has seen and spent: all that its next look depends on, beside its policy. Stored at each look, so that a service
/// that starts again or follows another one goes on from the last look and spends nothing twice; what was seen since then is
/// lost, which only means that the next look comes later.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Kept {
    looks: Looks,
    taken: u32,
    /// Queries of the smaller arm in the rounds before.
    before: u64,
    /// Of this round; the judged queries of the whole gate.
    seen: Comparison,
    /// The control's counts of the whole gate, without its latencies.
    control: Arm,
    /// Whether the judged queries were looked at.
    judged: bool,
    /// Whether the planned sample was there and good.
    sampled: bool,
    ended: bool,
}

impl Kept {
    /// Looks that were taken.
    pub fn looks_taken(&self) -> u32 {
        self.taken
    }
}

/// See the module.
#[derive(Debug, Clone)]
pub struct Gate {
    policy: GatePolicy,
    /// Stands for the control arm where nothing of the same time is left to compare with.
    baseline: Option<Arm>,
    /// What it can't judge, and why.
    skipped: Vec<String>,
    kept: Kept,
    /// The last look; none since this service goes on with the gate: the default.
    last: Judgement,
}

impl Gate {
    /// Opens one; `skipped`: what it can't judge, and why.
    pub fn new(policy: GatePolicy, skipped: Vec<String>) -> Self {
        let kept = Kept { sampled: policy.needs == 0, ..Kept::default() };
        Self { policy, baseline: None, skipped, kept, last: Judgement::default() }
    }

    /// Opens one that compares the shares of the new version with those that the control had before.
    pub fn against(policy: GatePolicy, skipped: Vec<String>, baseline: Arm) -> Self {
        let mut gate = Self::new(policy, skipped);
        gate.kept.seen.control.clone_from(&baseline);
        Self { baseline: Some(baseline), ..gate }
    }

    /// Goes on with one that was opened the same way, from its last look.
    pub fn resume(&mut self, kept: Kept) {
        self.kept = kept;
    }

    /// What has to be kept of it since the last look.
    pub fn kept(&self) -> &Kept {
        &self.kept
    }

    /// What a root saw.
    pub fn take(&mut self, seen: &Comparison) {
        self.kept.seen.add(seen);
        self.kept.control.count(&seen.control);
        if let Some(baseline) = &self.baseline {
            self.kept.seen.control.clone_from(baseline);
        }
    }

    /// Counts of the control since the gate was opened.
    pub fn control(&self) -> &Arm {
        &self.kept.control
    }

    /// Whether the judged queries are still to be asked.
    pub fn lacks_judged(&self) -> bool {
        self.policy.judged && self.kept.seen.judged.is_none()
    }

    /// Queries of the smaller arm in this round.
    fn since(&self) -> u64 {
        let Comparison { control, treatment, .. } = &self.kept.seen;
        if self.baseline.is_some() { treatment.queries } else { control.queries.min(treatment.queries) }
    }

    fn look(&self, arms: Option<u64>, floors: Option<u64>, last: bool) -> Look<'_> {
        Look { policy: &self.policy, looks: self.kept.looks, arms, floors, last, seen: &self.kept.seen }
    }

    /// Looks, if a look is due; `last`: at all that is there, because the step is over. `None`: nothing is new.
    pub fn judge(&mut self, last: bool) -> Option<Judgement> {
        let last = last && !self.kept.ended;
        self.kept.ended |= last;
        let (since, both) = (self.since(), self.kept.seen.overlap.queries);
        let due = |spent: Spent, sample: u64, last: bool| {
            let rest = (last && sample > spent.at).then_some(sample);
            rest.or_else(|| spent.due(sample, self.policy.sample))
        };
        let arms = due(self.kept.looks.arms, since, last);
        // The round ends with the arms' sample: what was asked of both is fewer, and would not be looked at any more.
        let closes = last || arms.is_some_and(|sample| sample >= self.policy.sample);
        let floors = due(self.kept.looks.floors, both, closes);
        let judged = self.kept.seen.judged.is_some() && !self.kept.judged;
        if arms.is_none() && floors.is_none() && !judged {
            return None;
        }
        let findings = self.look(arms, floors, closes).findings();
        self.kept.judged |= judged;
        self.kept.taken += 1;
        self.kept.looks.arms =
            arms.map_or(self.kept.looks.arms, |sample| self.kept.looks.arms.looked(sample));
        self.kept.looks.floors =
            floors.map_or(self.kept.looks.floors, |sample| self.kept.looks.floors.looked(sample));
        let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or_default();
        let timed = !self.policy.latency
            || !(self.kept.seen.control.latencies.is_empty()
                || self.kept.seen.treatment.latencies.is_empty());
        let sample = self.kept.before + since;
        self.kept.sampled |= worst == Verdict::Pass && sample >= self.policy.needs && timed;
        let passes = self.kept.sampled && !self.lacks_judged();
        let verdict = if worst == Verdict::Pass && !passes { Verdict::Wait } else { worst };
        self.last = Judgement {
            verdict,
            sample,
            since,
            look: self.kept.taken,
            findings,
            skipped: self.skipped.clone(),
        };
        // What the last look has spent is not spent again, should queries go on.
        if closes {
            self.next_round(since);
        }
        Some(self.last.clone())
    }

    fn next_round(&mut self, since: u64) {
        self.kept.before += since;
        self.kept.looks = Looks { round: self.kept.looks.round + 1, ..Looks::default() };
        let control = self.baseline.clone().unwrap_or_default();
        self.kept.seen = Comparison { control, judged: self.kept.seen.judged, ..Comparison::default() };
    }

    /// The last look, with the sample of now: for people, and nothing is spent for it.
    pub fn now(&self) -> Judgement {
        let (sample, since) = (self.kept.before + self.since(), self.since());
        if self.last.look > 0 {
            return Judgement { sample, since, ..self.last.clone() };
        }
        let findings = self.look(None, None, false).findings();
        Judgement { sample, since, findings, skipped: self.skipped.clone(), ..Judgement::default() }
    }
}
