//! A trial under judgement: what all roots saw of it since the gate was opened, and what the looks so far have spent. Kept in
//! memory only: a service that starts again opens the gate again, from nothing.

use canopy_common::ids::Version;

use crate::{
    gates::{GatePolicy, Judgement, Spent, judge, wire::Seen},
    rollout::{Event, Step, Verdict},
};

/// See the module.
#[derive(Clone)]
pub struct Judging {
    gate: u32,
    policy: GatePolicy,
    spent: Spent,
    seen: Seen,
    last: Option<Judgement>,
    told: Option<Verdict>,
    /// Whether a pass is asked for; without a planned sample only breaches count.
    passes: bool,
}

/// Queries of each arm that are planned where the step plans none.
const UNPLANNED: u64 = 4_600;

impl Judging {
    /// A gate is opened.
    pub fn begin(corpus: &str, gate: u32, version: Version, control: Version, step: &Step) -> Self {
        Self {
            gate,
            policy: GatePolicy::of(step.percent, if step.sample == 0 { UNPLANNED } else { step.sample }),
            spent: Spent::default(),
            seen: Seen::of(corpus, version, control),
            last: None,
            told: None,
            passes: step.sample > 0,
        }
    }

    /// What a root saw; of another trial: nothing.
    pub fn take(&mut self, seen: &Seen) {
        if self.seen.same(seen) {
            self.seen.add(&seen.comparison);
        }
    }

    /// Judges; the event when the verdict is another than before.
    pub fn judge(&mut self) -> Option<Event> {
        let (spent, judgement) = judge(&self.policy, self.spent, &self.seen.comparison);
        self.spent = spent;
        let (verdict, sample) = (judgement.verdict, judgement.sample);
        let reason = judgement.reason();
        self.last = Some(judgement);
        let counts = verdict > Verdict::Wait || (verdict == Verdict::Pass && self.passes);
        if !counts || self.told == Some(verdict) {
            return None;
        }
        self.told = Some(verdict);
        Some(Event::Judged { gate: self.gate, verdict, sample, reason })
    }

    /// The last judgement.
    pub fn last(&self) -> Option<&Judgement> {
        self.last.as_ref()
    }
}
