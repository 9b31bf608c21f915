//! Which queries go to which version, and which replica should hold which. Both are functions of the state alone: there
//! is no second account of them that could differ.
//!
//! The share of the new version is the step's, cut to nothing while a ready root lacks its statistics or a shard has no
//! replica of it here, and to 1 % while a shard that has two replicas here has one of it: a lost leaf takes the version
//! back to where its loss is small, and the share returns with the replica.

use canopy_common::ids::Version;
use serde::{Deserialize, Serialize};

use super::{
    policy::LONE_ROW,
    seen::Replica,
    state::{Phase, Rollout, State},
};
use crate::routing::{ALL_QUERIES, Pin};

/// Where queries go.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Route {
    /// What all queries are pinned to that no candidate takes; `None`: there is nothing to ask.
    pub live: Option<Version>,
    /// The version under trial.
    pub candidate: Option<Candidate>,
}

/// A version under trial.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Candidate {
    /// Which.
    pub version: Version,
    /// Of all queries, pinned to it, per cent.
    pub percent: u8,
    /// Of the live queries, asked of it too with the answer dropped, per cent.
    pub shadow_percent: u8,
    /// Of all queries, pinned to the live version on the same leaves, per cent: the control arm.
    pub control_percent: u8,
    /// Number of the gate.
    pub gate: u64,
}

impl Route {
    /// The pins, live version last.
    pub fn pins(&self) -> Vec<Pin> {
        let taken = self.candidate.as_ref().filter(|candidate| candidate.percent > 0);
        let mut pins: Vec<Pin> = Vec::new();
        let mut left = ALL_QUERIES;
        if let Some(candidate) = taken {
            let share = (u32::from(candidate.percent) * ALL_QUERIES / 100).min(left);
            left -= share;
            pins.push(Pin { version: candidate.version, share });
        }
        pins.extend(self.live.filter(|_| left > 0).map(|version| Pin { version, share: left }));
        pins
    }
}

impl State {
    /// Where queries go.
    pub fn route(&self) -> Route {
        let candidate = self.active.as_ref().and_then(|rollout| self.candidate(rollout));
        Route { live: self.live, candidate }
    }

    fn candidate(&self, rollout: &Rollout) -> Option<Candidate> {
        let (step, version) = (rollout.traffic()?, rollout.request.to);
        if !self.seen.roots.contains(&version) || !self.seen.answers(version) {
            return None;
        }
        let safe = step.percent <= LONE_ROW || self.seen.is_safe(version);
        let percent = if safe { step.percent } else { step.percent.min(LONE_ROW) };
        let shadow_percent = if step.percent == 0 { rollout.request.policy.shadow_percent } else { 0 };
        let control_percent = percent.min(100_u8.saturating_sub(percent));
        Some(Candidate { version, percent, shadow_percent, control_percent, gate: rollout.trial() })
    }

    /// Versions that a replica should hold: the live one; while it is retained the one before; the new one where it was
    /// started and did not fail.
    pub fn wanted(&self, replica: &Replica) -> [Option<Version>; 2] {
        let active = self.active.as_ref();
        let other = active.and_then(|rollout| match rollout.phase {
            Phase::Retain => rollout.from,
            _ if rollout.started.contains(replica) && !rollout.has_failed(replica) => {
                Some(rollout.request.to)
            }
            _ => None,
        });
        [self.live, other.filter(|other| Some(*other) != self.live)]
    }
}
