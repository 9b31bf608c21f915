//! How a rollout goes on by itself: loads, enough replicas, share of queries, bake time and judgement, next step; at the
//! end retention. What it waits for has a limit, and after the limit it halts and says for what it waited; a halt has a
//! limit too. So every rollout ends: as serving, superseded, failed, rolled back or aborted.

use std::collections::BTreeMap;

use canopy_common::ids::{NodeId, ShardId, Version};

use super::{
    event::Verdict,
    load::{self, Ready},
    seen::{Hold, Report},
    state::{Baseline, Ended, Failed, Outcome, Phase, REMEMBERED, Request, Rollout, Stop, key},
    step::Turn,
};
use crate::gates::policy::FEWEST;

/// What happens next.
enum Next {
    Nothing,
    Enter(Phase, &'static str),
    Halt(String),
    Back(Outcome, String),
    End(Outcome, String),
}

impl Turn {
    /// Goes on until nothing changes. Each turn of it enters a later phase or ends a rollout, so it ends.
    pub(super) fn advance(&mut self) {
        loop {
            if self.state.active.is_none() {
                let Some(request) = self.state.waiting.take() else { break };
                if self.state.live == Some(request.to) {
                    self.remember(
                        &request,
                        self.state.live,
                        Outcome::Serving,
                        "it is live already".to_owned(),
                    );
                    continue;
                }
                self.state.active = Some(Rollout::begin(request, self.state.live));
            }
            self.start_loads();
            match self.next() {
                Next::Nothing => break,
                Next::Enter(phase, why) => self.enter(phase, why),
                Next::Halt(reason) => self.halt(reason),
                Next::Back(outcome, reason) => self.turn_back(outcome, &reason),
                Next::End(outcome, reason) => self.end(outcome, &reason),
            }
        }
        let versions: Vec<Version> = self.state.pinned().into_iter().collect();
        self.state.seen.keep_only(&versions);
    }

    /// Also while a step is judged: a replica that was lost then is made good.
    fn start_loads(&mut self) {
        let Some(rollout) = &mut self.state.active else { return };
        let (Phase::Load { step } | Phase::Bake { step }) = rollout.phase else { return };
        let Some(percent) = rollout.step(step).map(|step| step.percent) else { return };
        if rollout.stop.is_none() {
            let next = load::next(&self.state.seen, rollout, percent);
            rollout.started.extend(next);
        }
    }

    fn next(&self) -> Next {
        let Some(rollout) = &self.state.active else { return Next::Nothing };
        let policy = &rollout.request.policy;
        let over = |limit: canopy_common::config::Time, spent_ms: u64| {
            spent_ms >= u64::try_from(limit.0.as_millis()).unwrap_or(u64::MAX)
        };
        if let Some(stop) = &rollout.stop {
            return match stop {
                Stop::Halted { reason } if over(policy.halt_limit, rollout.halted_ms) => {
                    let outcome = if rollout.has_served() { Outcome::RolledBack } else { Outcome::Failed };
                    Next::Back(outcome, format!("halted for {}: {reason}", policy.halt_limit))
                }
                _ => Next::Nothing,
            };
        }
        match &rollout.phase {
            Phase::Load { step } => {
                self.after_load(rollout, *step, over(policy.stage_limit, rollout.spent_ms))
            }
            Phase::Bake { step } => {
                let bake = rollout.step(*step).map_or(policy.grace, |step| step.bake);
                let baked = over(bake, rollout.spent_ms);
                let late =
                    over(policy.gate_limit, rollout.spent_ms.saturating_sub(bake.0.as_millis() as u64));
                self.after_bake(rollout, *step, baked, late)
            }
            Phase::Retain if over(policy.retain, rollout.spent_ms) || rollout.from.is_none() => {
                Next::End(Outcome::Serving, "every step passed".to_owned())
            }
            Phase::Back { outcome, reason } if over(policy.grace, rollout.spent_ms) => {
                Next::End(*outcome, reason.clone())
            }
            Phase::Retain | Phase::Back { .. } => Next::Nothing,
        }
    }

    fn after_load(&self, rollout: &Rollout, step: usize, late: bool) -> Next {
        let (seen, to) = (&self.state.seen, rollout.request.to);
        let percent = rollout.step(step).map_or(100, |step| step.percent);
        match load::ready(seen, rollout, percent) {
            Ready::Yes if seen.roots.contains(&to) => {
                Next::Enter(Phase::Bake { step }, "enough replicas hold it")
            }
            Ready::Never { reason } => Next::Halt(reason),
            Ready::Yes if late => Next::Halt(format!(
                "after {} a ready root lacks its statistics",
                rollout.request.policy.stage_limit
            )),
            Ready::NotYet if late => {
                let limit = rollout.request.policy.stage_limit;
                let waits = self.state.waits().unwrap_or_else(|| "nobody".to_owned());
                Next::Halt(format!(
                    "no replica got ready for {limit}, and too few replicas hold it; it waits for {waits}"
                ))
            }
            Ready::Yes | Ready::NotYet => Next::Nothing,
        }
    }

    fn after_bake(&self, rollout: &Rollout, step: usize, baked: bool, late: bool) -> Next {
        let to = rollout.request.to;
        let passed = rollout.passed || !rollout.needs_pass(step);
        let last = step + 1 >= rollout.request.policy.steps.len();
        if passed && baked && !last {
            return Next::Enter(Phase::Load { step: step + 1 }, "the step passed");
        }
        if passed && baked && self.state.seen.is_safe(to) && self.state.seen.roots.contains(&to) {
            return Next::Enter(Phase::Retain, "it is live");
        }
        if late {
            let limit = rollout.request.policy.gate_limit;
            let lacks = if passed { "enough replicas and roots hold it" } else { "its judgement had come" };
            return Next::Halt(format!(
                "the step was over for {limit} before {lacks}; resume, accept or abort"
            ));
        }
        Next::Nothing
    }

    fn enter(&mut self, phase: Phase, why: &str) {
        let Some(rollout) = &mut self.state.active else { return };
        if matches!(phase, Phase::Bake { .. }) {
            rollout.gate += 1;
        }
        if phase == Phase::Retain {
            self.state.live = Some(rollout.request.to);
        }
        rollout.enter(phase);
        let (id, label) = (rollout.request.id, rollout.label());
        self.audit(id, format!("{label}: {why}"));
    }

    pub(super) fn halt(&mut self, reason: String) {
        let Some(rollout) = &mut self.state.active else { return };
        rollout.halted_ms = 0;
        rollout.stop = None;
        // A label is cut; the audit log has every number.
        let (id, said) = (rollout.request.id, format!("halted in {}: {reason}", rollout.label()));
        rollout.stop = Some(Stop::Halted { reason });
        self.audit(id, said);
    }

    pub(super) fn judged(
        &mut self,
        gate: u32,
        verdict: Verdict,
        sample: u64,
        reason: &str,
        baseline: Option<Baseline>,
    ) {
        let Some(rollout) = &mut self.state.active else { return };
        if rollout.gate != gate || gate == 0 {
            return;
        }
        // A breach counts too while the replicas of the next step load.
        let needed = match rollout.phase {
            Phase::Bake { step } => rollout.step(step).map(|step| step.sample),
            Phase::Load { .. } => None,
            Phase::Retain | Phase::Back { .. } => return,
        };
        match verdict {
            Verdict::HardBreach => self.turn_back(Outcome::RolledBack, reason),
            _ if rollout.stop.is_some() => {}
            Verdict::SoftBreach => self.halt(reason.to_owned()),
            Verdict::Pass if !rollout.passed && needed.is_some_and(|needed| sample >= needed) => {
                rollout.passed = true;
                rollout.baseline = baseline.filter(|seen| seen.queries >= FEWEST).or(rollout.baseline);
                let (id, label) = (rollout.request.id, rollout.label());
                self.audit(id, format!("{label} passed over {sample} queries an arm: {reason}"));
            }
            Verdict::Pass | Verdict::Wait => {}
        }
    }

    pub(super) fn report(&mut self, report: &Report) {
        if !self.state.seen.is_placed(&report.replica) {
            return;
        }
        let held = self.state.seen.holds(report.version, &report.replica);
        self.state.seen.report(report);
        let Some(rollout) = &mut self.state.active else { return };
        let ours = report.version == rollout.request.to && rollout.started.contains(&report.replica);
        if ours && !held && report.hold.is_whole() && matches!(rollout.phase, Phase::Load { .. }) {
            rollout.spent_ms = 0;
        }
        let loading = matches!(rollout.phase, Phase::Load { .. } | Phase::Bake { .. });
        let Hold::Failed { reason, everywhere } = &report.hold else { return };
        if !ours || !loading || rollout.has_failed(&report.replica) {
            return;
        }
        let failed = Failed { replica: report.replica.clone(), reason: reason.clone() };
        let name = key(&report.replica);
        let (id, to) = (rollout.request.id, rollout.request.to);
        rollout.started.remove(&report.replica);
        rollout.failed.insert(name.clone(), failed);
        self.audit(id, format!("{name} can't load {to}: {reason}"));
        if *everywhere {
            self.turn_back(Outcome::Failed, &format!("{to} can't be loaded anywhere: {reason}"));
        }
    }

    pub(super) fn place(&mut self, placed: BTreeMap<ShardId, Vec<NodeId>>) {
        if placed.is_empty() || placed.values().any(Vec::is_empty) {
            return self.refuse("a placement names at least one shard, and a leaf for each");
        }
        self.state.seen.place(placed);
        self.state.seen.forget_strangers();
        let seen = &self.state.seen;
        if let Some(rollout) = &mut self.state.active {
            rollout.started.retain(|replica| seen.is_placed(replica));
            rollout.failed.retain(|_, failed| seen.is_placed(&failed.replica));
        }
    }

    pub(super) fn remember(
        &mut self,
        request: &Request,
        from: Option<Version>,
        outcome: Outcome,
        reason: String,
    ) {
        let Request { id, to, back, .. } = *request;
        // Whole: a version that answered nobody yet ends here, and its judgement stands nowhere else.
        self.audit(id, format!("{to}: {}: {reason}", outcome.as_str()));
        self.state.ended.push(Ended { id, from, to, outcome, reason, back });
        let surplus = self.state.ended.len().saturating_sub(REMEMBERED);
        self.state.ended.drain(..surplus);
    }
}
