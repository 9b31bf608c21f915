//! A trial under judgement: what all roots saw of it since the gate was opened, and the looks at it. Kept in memory only: a
//! service that starts again opens the gate again, from nothing.
//!
//! Judged queries are asked by one root at a time: the first that is heard of takes the task, and loses it when it is not
//! heard of any more or leaves.

use canopy_common::ids::NodeId;

use crate::{
    gates::{Arm, Gate, GatePolicy, Judgement, wire::Seen},
    rollout::{Baseline, Event, Step, Verdict},
    routing::Trial,
};

/// See the module.
#[derive(Clone)]
pub struct Judging {
    number: u32,
    /// Nothing yet, of the very trial and gate.
    of: Seen,
    gate: Gate,
    told: Option<Verdict>,
    passed: bool,
    /// Whether a pass is waited for; else only breaches count.
    needed: bool,
    judge: Option<NodeId>,
}

impl Judging {
    /// Gate `number` is opened. `judged`: whether the judged queries are asked in it; `None`: it is not the first step.
    /// `baseline`: the control of the step before, where none of the same time is left.
    pub fn begin(
        corpus: &str,
        number: u32,
        trial: &Trial,
        step: &Step,
        judged: Option<bool>,
        baseline: Option<Baseline>,
    ) -> Self {
        let policy = GatePolicy { judged: judged == Some(true), ..GatePolicy::of(step.percent, step.sample) };
        let (skipped, needed) = (skipped(step, judged), policy.judged || step.sample > 0);
        let gate = match baseline {
            Some(Baseline { queries, errors, partial, zero_results }) => {
                let control = Arm { queries, errors, partial, zero_results, ..Arm::default() };
                Gate::against(policy, skipped, control)
            }
            None => Gate::new(policy, skipped),
        };
        Self { number, of: Seen::of(corpus, trial), gate, told: None, passed: false, needed, judge: None }
    }

    /// What a root saw; of another gate: nothing.
    pub fn take(&mut self, seen: &Seen) {
        if self.of.same(seen) {
            self.gate.take(&seen.comparison);
        }
    }

    /// Looks; the event when there is something new to say. `last`: the step is over.
    pub fn judge(&mut self, last: bool) -> Option<Event> {
        let judgement = self.gate.judge(last)?;
        let (verdict, sample) = (judgement.verdict, judgement.sample);
        let new = match verdict {
            Verdict::Wait => false,
            // What the last look says is noted, though nobody waited for it.
            Verdict::Pass => (self.needed || last) && !self.passed,
            breach => self.told.replace(breach) != Some(breach),
        };
        self.passed |= new && verdict == Verdict::Pass;
        let Arm { queries, errors, partial, zero_results, .. } = *self.gate.control();
        let baseline = Some(Baseline { queries, errors, partial, zero_results });
        let (gate, reason) = (self.number, judgement.reason());
        new.then_some(Event::Judged { gate, verdict, sample, reason, baseline })
    }

    /// The judgement so far, for people.
    pub fn now(&self) -> Judgement {
        self.gate.now()
    }

    /// Whether the root is to ask the judged queries; `here`: whether another one still has the task.
    pub fn asks(&mut self, root: &NodeId, here: impl Fn(&NodeId) -> bool) -> bool {
        if !self.gate.lacks_judged() {
            return false;
        }
        if !self.judge.as_ref().is_some_and(&here) {
            self.judge = Some(root.clone());
        }
        self.judge.as_ref() == Some(root)
    }

    /// The trial that is judged.
    pub fn of(&self) -> &Seen {
        &self.of
    }
}

/// What a gate of this step can't judge.
fn skipped(step: &Step, judged: Option<bool>) -> Vec<String> {
    let mut skipped = Vec::new();
    let mut skip = |what: &str| skipped.push(what.to_owned());
    match step.percent {
        0 => skip("latencies (its queries are copies)"),
        100 => skip("latencies (no control is left; shares are compared with the step before)"),
        _ if judged.is_some() => skip("overlap (the plan has no step of 0 %, which asks both versions)"),
        _ => {}
    }
    if judged == Some(false) {
        skip("nDCG@10 (the plan names no judged queries)");
    }
    skipped
}
