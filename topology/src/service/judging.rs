//! A trial under judgement: what all roots saw of it since the gate was opened, and the looks at it. Each look is stored with all
//! that the next one depends on, so that a service that starts again or follows another one goes on from there: else each failover
//! would give the whole chance of a false alarm anew, and tell a breach twice. What came after the last look is lost.
//!
//! Judged queries are asked by one root at a time: the first that is heard of takes the task, and loses it when it is not
//! heard of any more or leaves.

use canopy_common::ids::NodeId;
use serde::{Deserialize, Serialize};

use crate::{
    gates::{self, Arm, Gate, GatePolicy, Judgement, policy::FEWEST, wire::Seen},
    rollout::{Baseline, Event, Step, Verdict},
    routing::Trial,
};

/// What decides, beside its step, what a gate can judge.
#[derive(Debug, Clone, Copy, Default)]
pub struct With {
    /// Whether the judged queries are asked in it; `None`: it is not the first step.
    pub judged: Option<bool>,
    /// The control of the steps before, where none of the same time is left.
    pub baseline: Option<Baseline>,
    /// How many shards the control and the version have, where these are not the same.
    pub unlike: Option<[usize; 2]>,
}

/// What is stored of a judgement at each look.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Number of the gate, of all rollouts of the corpus.
    trial: u64,
    gate: gates::Kept,
    told: Option<Verdict>,
    passed: bool,
}

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
    /// Gate `number` is opened.
    pub fn begin(corpus: &str, number: u32, trial: &Trial, step: &Step, with: With) -> Self {
        let of = GatePolicy::of(step.percent, step.sample);
        let policy = GatePolicy {
            judged: with.judged == Some(true),
            latency: of.latency && with.unlike.is_none(),
            ..of
        };
        let (skipped, needed) = (skipped(step, &with), policy.judged || step.sample > 0);
        let gate = match with.baseline {
            Some(Baseline { queries, errors, partial, zero_results }) => {
                let control = Arm { queries, errors, partial, zero_results, ..Arm::default() };
                Gate::against(policy, skipped, control)
            }
            None => Gate::new(policy, skipped),
        };
        Self { number, of: Seen::of(corpus, trial), gate, told: None, passed: false, needed, judge: None }
    }

    /// Goes on from the last look that was stored, if it is of this gate; whether it was.
    pub fn resume(&mut self, kept: &Kept) -> bool {
        if kept.trial != self.of.gate {
            return false;
        }
        self.gate.resume(kept.gate.clone());
        (self.told, self.passed) = (kept.told, kept.passed);
        true
    }

    /// What is to be stored.
    pub fn kept(&self) -> Kept {
        let Self { told, passed, .. } = *self;
        Kept { trial: self.of.gate, gate: self.gate.kept().clone(), told, passed }
    }

    /// Looks taken.
    pub fn looks(&self) -> u32 {
        self.gate.kept().looks_taken()
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
fn skipped(step: &Step, with: &With) -> Vec<String> {
    let mut skipped = Vec::new();
    let mut skip = |what: String| skipped.push(what);
    match (step.percent, with.unlike) {
        (0, _) => skip("latencies (its queries are copies)".to_owned()),
        (100, _) if with.baseline.is_none() => {
            skip(format!("anything (no control is left, and no step before compared {FEWEST} queries)"));
        }
        (100, _) => {
            skip("latencies (no control is left; shares are compared with the step before)".to_owned());
        }
        (_, Some([before, after])) => skip(format!(
            "latencies (the versions have {before} and {after} shards: a query is another number of searches)"
        )),
        _ => {}
    }
    if step.percent > 0 && step.percent < 100 && with.judged.is_some() {
        skip("overlap (the plan has no step of 0 %, which asks both versions)".to_owned());
    }
    if with.judged == Some(false) {
        skip("nDCG@10 (the plan names no judged queries)".to_owned());
    }
    skipped
}
