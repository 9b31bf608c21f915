//! What people ask for: start, pause, resume, abort, rollback. A command that can't be done is refused with what to do
//! instead; one that is done already changes nothing. A kill switch is a rollback of every corpus.

use canopy_common::ids::Version;

use super::{
    policy::Policy,
    state::{Outcome, Phase, Request, Rollout, Stop},
    step::Turn,
};

impl Turn {
    pub(super) fn start(&mut self, to: Version, by: String, policy: Policy, supersede: bool) {
        let problems = policy.problems();
        if !problems.is_empty() {
            let list: Vec<String> = problems.iter().map(|(key, reason)| format!("{key}: {reason}")).collect();
            return self.refuse(format!("the policy is not valid: {}", list.join("; ")));
        }
        if to.0 == 0 {
            return self.refuse("v0 is no version; versions are numbered from 1");
        }
        let active = self.state.active.as_ref();
        let back = active.is_some_and(|active| matches!(active.phase, Phase::Back { .. }));
        if let Some(active) = active.filter(|active| active.request.to == to && !back) {
            let (id, label) = (active.request.id, active.label());
            return self.audit(id, format!("{to} is rolled out already ({label}); nothing was changed"));
        }
        if let Some(waiting) = self.state.waiting.as_ref().filter(|waiting| waiting.to == to && !supersede) {
            let id = waiting.id;
            return self.audit(id, format!("{to} waits already; nothing was changed"));
        }
        if self.state.live == Some(to) {
            let hint = if active.is_some() { "; roll back to go on with it alone" } else { "" };
            return self.refuse(format!("{to} is live already{hint}"));
        }
        let retained = active.filter(|active| active.phase == Phase::Retain && active.from == Some(to));
        if retained.is_some() {
            return self.refuse(format!("{to} is still held; use rollback, which takes a second"));
        }
        self.queue(to, by, policy, supersede);
    }

    /// Puts a request behind the rollout under way, in its place, or at once.
    fn queue(&mut self, to: Version, by: String, policy: Policy, supersede: bool) {
        self.state.requests += 1;
        let request = Request { id: self.state.requests, to, by, policy };
        let (id, by) = (request.id, request.by.clone());
        if let Some(old) = self.state.waiting.replace(request) {
            self.remember(&old, None, Outcome::Superseded, format!("{to} was asked for by {by}"));
        }
        let Some(active) = &self.state.active else {
            return self.audit(id, format!("{by} starts a rollout to {to}"));
        };
        let (before, label) = (active.request.to, active.label());
        let reason = format!("{to} was asked for by {by}");
        match active.phase {
            Phase::Back { .. } => {
                self.audit(id, format!("{to} waits until {before} is gone ({label})"));
            }
            Phase::Retain if supersede => {
                self.audit(id, format!("{to} ends the retention of the version before {before}"));
                self.end(Outcome::Serving, &reason);
            }
            _ if !active.has_served() => {
                self.audit(id, format!("{to} supersedes {before}, which answered no query yet"));
                self.end(Outcome::Superseded, &reason);
            }
            _ if supersede => {
                self.audit(id, format!("{to} supersedes {before} ({label})"));
                self.turn_back(Outcome::Superseded, &reason);
            }
            _ => self.audit(id, format!("{to} waits behind {before} ({label})")),
        }
    }

    pub(super) fn pause(&mut self, by: String) {
        let Some(rollout) = &mut self.state.active else {
            return self.refuse("no rollout is under way");
        };
        if let Phase::Back { .. } = rollout.phase {
            return self.refuse("it is being rolled back, which can't be paused");
        }
        if matches!(rollout.stop, Some(Stop::Paused { .. })) {
            return;
        }
        let id = rollout.request.id;
        rollout.stop = Some(Stop::Paused { by: by.clone() });
        self.audit(id, format!("{by} pauses it"));
    }

    pub(super) fn resume(&mut self, by: &str, accept: bool) {
        let Some(rollout) = &mut self.state.active else {
            return self.refuse("no rollout is under way");
        };
        let baking = matches!(rollout.phase, Phase::Bake { .. });
        if rollout.stop.is_none() && !(accept && baking) {
            let label = rollout.label();
            return self.refuse(format!("it is not stopped: {label}"));
        }
        let (id, label) = (rollout.request.id, rollout.label());
        rollout.stop = None;
        rollout.halted_ms = 0;
        rollout.failed.clear();
        if baking {
            rollout.gate += 1;
            rollout.spent_ms = 0;
            rollout.passed = accept;
        } else if matches!(rollout.phase, Phase::Load { .. }) {
            rollout.spent_ms = 0;
        }
        let how = if accept && baking { " and takes the step as passed" } else { "" };
        self.audit(id, format!("{by} resumes it{how} ({label})"));
    }

    pub(super) fn abort(&mut self, by: &str) {
        let Some(rollout) = &self.state.active else {
            return self.refuse("no rollout is under way");
        };
        match rollout.phase {
            Phase::Back { .. } => {}
            Phase::Retain => {
                let to = rollout.request.to;
                self.refuse(format!("{to} is live already; use rollback"));
            }
            _ => self.turn_back(Outcome::Aborted, &format!("aborted by {by}")),
        }
    }

    pub(super) fn rollback(&mut self, to: Option<Version>, by: String, reason: &str, policy: Policy) {
        let active = self.state.active.as_ref();
        if active.is_some_and(|rollout| to.is_none() || to == rollout.from) {
            return self.flip_back(&by, reason);
        }
        let before = || self.state.ended.iter().rev().find(|ended| ended.outcome == Outcome::Serving);
        match to.or_else(|| before().and_then(|ended| ended.from)) {
            Some(to) if self.state.live == Some(to) => {
                self.refuse(format!("{to} is live already"));
            }
            // It was dropped: an ordinary rollout brings it back.
            Some(to) => self.start(to, by, policy, true),
            None => self.refuse("no version before this one is known; name one with --to"),
        }
    }

    /// Back to what served before, which is resident still.
    fn flip_back(&mut self, by: &str, reason: &str) {
        let Some(rollout) = &self.state.active else { return };
        let why = format!("rolled back by {by}: {reason}");
        match (&rollout.phase, rollout.from) {
            (Phase::Back { .. }, _) => {}
            (Phase::Retain, Some(from)) if !self.state.seen.answers(from) => {
                self.refuse(format!(
                    "{from} is not resident for every shard; wait until it is loaded again, or roll out another version"
                ));
            }
            (_, None) if matches!(rollout.phase, Phase::Retain) => {
                self.refuse("nothing served before; roll out another version");
            }
            _ => {
                if let Some(waiting) = self.state.waiting.take() {
                    self.remember(&waiting, None, Outcome::Aborted, why.clone());
                }
                self.turn_back(Outcome::RolledBack, &why);
            }
        }
    }

    /// No new query to the new version from now on.
    pub(super) fn turn_back(&mut self, outcome: Outcome, reason: &str) {
        let Some(rollout) = &mut self.state.active else { return };
        let (id, label) = (rollout.request.id, rollout.label());
        if !rollout.has_served() {
            return self.end(outcome, reason);
        }
        if matches!(rollout.phase, Phase::Retain) {
            self.state.live = rollout.from;
        }
        rollout.stop = None;
        rollout.enter(Phase::Back { outcome, reason: reason.to_owned() });
        self.audit(id, format!("turns back ({label}): {reason}"));
    }

    /// Ends the rollout under way.
    pub(super) fn end(&mut self, outcome: Outcome, reason: &str) {
        let Some(Rollout { request, from, .. }) = self.state.active.take() else { return };
        self.remember(&request, from, outcome, reason.to_owned());
    }
}
