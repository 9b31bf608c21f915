//! How fast it goes, as people ask for it: pause, resume, and at once.
//!
//! An operator who knows that a version is good (or that the one which serves is worse) must not have to wait for steps that
//! were planned for another day; one who does not know wants it to stand still. Rule: what is resumed is judged anew.

use super::{
    policy::Step,
    state::{Phase, Stop},
    step::Turn,
};
use crate::gates::judged::Judged;

/// Why a command on the rollout under way is refused when there is none.
pub(super) const NOTHING: &str = "no rollout is under way; `canopy rollout start` begins one";

impl Turn {
    pub(super) fn pause(&mut self, by: String) {
        let Some(rollout) = &mut self.state.active else {
            return self.refuse(NOTHING);
        };
        let (id, to, label) = (rollout.request.id, rollout.request.to, rollout.label());
        match rollout.phase {
            Phase::Back { .. } => return self.refuse("it is being rolled back, which can't be paused"),
            Phase::Retain => {
                return self.refuse(format!(
                    "{to} is live, nothing is left to pause; the version before is only held for a rollback"
                ));
            }
            Phase::Load { .. } | Phase::Bake { .. } => {}
        }
        if matches!(rollout.stop, Some(Stop::Paused { .. })) {
            return self.audit(id, format!("{by}: {label} already; nothing was changed"));
        }
        rollout.stop = Some(Stop::Paused { by: by.clone() });
        self.audit(id, format!("{by} pauses it ({label}); `canopy rollout resume` goes on"));
    }

    pub(super) fn resume(&mut self, by: &str, accept: bool) {
        let Some(rollout) = &mut self.state.active else {
            return self.refuse(NOTHING);
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
        // Only steps are stopped. What was found while it stood still was told, and would not be told again.
        rollout.spent_ms = 0;
        rollout.gate += u32::from(rollout.under_trial().is_some());
        if baking {
            rollout.passed = accept;
        }
        let how = if accept && baking { " and takes the step as passed" } else { "" };
        self.audit(id, format!("{by} resumes it{how} ({label})"));
    }

    /// No more steps: all queries as soon as enough replicas hold it. Until then queries go as they do; breaches still count.
    pub(super) fn hurry(&mut self, by: &str) {
        let Some(rollout) = &mut self.state.active else {
            return self.refuse(NOTHING);
        };
        let (id, to, label) = (rollout.request.id, rollout.request.to, rollout.label());
        match rollout.phase {
            Phase::Back { .. } => {
                return self.refuse("it is being rolled back; start it again when that is over");
            }
            Phase::Retain => {
                return self.audit(id, format!("{by}: {to} is live already; nothing was changed"));
            }
            Phase::Load { .. } | Phase::Bake { .. } => {}
        }
        let now = rollout.traffic().filter(|step| step.percent > 0).cloned();
        let hurries = rollout.request.policy.steps.last() == Some(&Step::ALL)
            && rollout.under_trial().is_none_or(|at| at + 2 >= rollout.request.policy.steps.len())
            && !matches!(rollout.phase, Phase::Bake { step } if step + 1 < rollout.request.policy.steps.len());
        if rollout.stop.is_none() && hurries && rollout.request.policy.steps.len() <= 2 {
            return self.audit(
                id,
                format!("{by}: {to} takes all queries as soon as it can already; nothing was changed"),
            );
        }
        let phase = match &now {
            Some(step) if step.percent == 100 => Phase::Bake { step: 0 },
            Some(_) => Phase::Load { step: 1 },
            None => Phase::Load { step: 0 },
        };
        let before = now.filter(|step| step.percent < 100);
        rollout.request.policy.steps = before.into_iter().chain([Step::ALL]).collect();
        rollout.request.policy.judged = Judged::default();
        rollout.stop = None;
        rollout.failed.clear();
        rollout.enter(phase);
        self.audit(
            id,
            format!(
                "{by} leaves the other steps out: {to} takes all queries as soon as it is loaded ({label})"
            ),
        );
    }
}
