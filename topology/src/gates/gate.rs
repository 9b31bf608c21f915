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

use super::{
    judge::{Arm, Comparison, Judgement, Look, Looks},
    policy::GatePolicy,
    spending::Spent,
};
use crate::rollout::Verdict;

/// See the module.
#[derive(Debug, Clone)]
pub struct Gate {
    policy: GatePolicy,
    /// Stands for the control arm where nothing of the same time is left to compare with.
    baseline: Option<Arm>,
    /// What it can't judge, and why.
    skipped: Vec<String>,
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
    last: Judgement,
}

impl Gate {
    /// Opens one; `skipped`: what it can't judge, and why.
    pub fn new(policy: GatePolicy, skipped: Vec<String>) -> Self {
        Self {
            sampled: policy.needs == 0,
            policy,
            baseline: None,
            skipped,
            looks: Looks::default(),
            taken: 0,
            before: 0,
            seen: Comparison::default(),
            control: Arm::default(),
            judged: false,
            ended: false,
            last: Judgement::default(),
        }
    }

    /// Opens one that compares the shares of the new version with those that the control had before.
    pub fn against(policy: GatePolicy, skipped: Vec<String>, baseline: Arm) -> Self {
        let seen = Comparison { control: baseline.clone(), ..Comparison::default() };
        Self { baseline: Some(baseline), seen, ..Self::new(policy, skipped) }
    }

    /// What a root saw.
    pub fn take(&mut self, seen: &Comparison) {
        self.seen.add(seen);
        self.control.count(&seen.control);
        if let Some(baseline) = &self.baseline {
            self.seen.control.clone_from(baseline);
        }
    }

    /// Counts of the control since the gate was opened.
    pub fn control(&self) -> &Arm {
        &self.control
    }

    /// Whether the judged queries are still to be asked.
    pub fn lacks_judged(&self) -> bool {
        self.policy.judged && self.seen.judged.is_none()
    }

    /// Queries of the smaller arm in this round.
    fn since(&self) -> u64 {
        let Comparison { control, treatment, .. } = &self.seen;
        if self.baseline.is_some() { treatment.queries } else { control.queries.min(treatment.queries) }
    }

    fn look(&self, arms: Option<u64>, floors: Option<u64>, last: bool) -> Look<'_> {
        Look { policy: &self.policy, looks: self.looks, arms, floors, last, seen: &self.seen }
    }

    /// Looks, if a look is due; `last`: at all that is there, because the step is over. `None`: nothing is new.
    pub fn judge(&mut self, last: bool) -> Option<Judgement> {
        let last = last && !self.ended;
        self.ended |= last;
        let (since, both) = (self.since(), self.seen.overlap.queries);
        let due = |spent: Spent, sample: u64, last: bool| {
            let rest = (last && sample > spent.at).then_some(sample);
            rest.or_else(|| spent.due(sample, self.policy.sample))
        };
        let arms = due(self.looks.arms, since, last);
        // The round ends with the arms' sample: what was asked of both is fewer, and would not be looked at any more.
        let closes = last || arms.is_some_and(|sample| sample >= self.policy.sample);
        let floors = due(self.looks.floors, both, closes);
        let judged = self.seen.judged.is_some() && !self.judged;
        if arms.is_none() && floors.is_none() && !judged {
            return None;
        }
        let findings = self.look(arms, floors, closes).findings();
        self.judged |= judged;
        self.taken += 1;
        self.looks.arms = arms.map_or(self.looks.arms, |sample| self.looks.arms.looked(sample));
        self.looks.floors = floors.map_or(self.looks.floors, |sample| self.looks.floors.looked(sample));
        let worst = findings.iter().map(|finding| finding.verdict).max().unwrap_or_default();
        let timed = !self.policy.latency
            || !(self.seen.control.latencies.is_empty() || self.seen.treatment.latencies.is_empty());
        let sample = self.before + since;
        self.sampled |= worst == Verdict::Pass && sample >= self.policy.needs && timed;
        let passes = self.sampled && !self.lacks_judged();
        let verdict = if worst == Verdict::Pass && !passes { Verdict::Wait } else { worst };
        self.last =
            Judgement { verdict, sample, since, look: self.taken, findings, skipped: self.skipped.clone() };
        // What the last look has spent is not spent again, should queries go on.
        if closes {
            self.next_round(since);
        }
        Some(self.last.clone())
    }

    fn next_round(&mut self, since: u64) {
        self.before += since;
        self.looks = Looks { round: self.looks.round + 1, ..Looks::default() };
        let control = self.baseline.clone().unwrap_or_default();
        self.seen = Comparison { control, judged: self.seen.judged, ..Comparison::default() };
    }

    /// The last look, with the sample of now: for people, and nothing is spent for it.
    pub fn now(&self) -> Judgement {
        let (sample, since) = (self.before + self.since(), self.since());
        if self.taken > 0 {
            return Judgement { sample, since, ..self.last.clone() };
        }
        let findings = self.look(None, None, false).findings();
        Judgement { sample, since, findings, skipped: self.skipped.clone(), ..Judgement::default() }
    }
}
