//! What can happen to the rollouts of a corpus, and what has to be done about it.
//!
//! Reports say how things are, not what changed: told twice, or told again after a restart, they change nothing. Effects
//! are the difference between what was wanted before and after; [`Event::Restarted`] gives them all again, so one that
//! was lost between storing and doing is made good.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::{NodeId, ShardId, Version};
use serde::{Deserialize, Serialize};

use super::{
    policy::{Policy, Step},
    route::Route,
    seen::{Replica, Report},
    state::Baseline,
};

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// Somebody wants a version to serve. Before the version under way answers queries it is superseded; after that the
    /// new one waits, unless `supersede` turns back from it. Of several that wait only the last is kept.
    Start {
        /// Which version.
        to: Version,
        /// Who.
        by: String,
        /// How.
        policy: Policy,
        /// Do not wait.
        supersede: bool,
    },
    /// Stop where it is; a hard breach still turns back.
    Pause {
        /// Who.
        by: String,
    },
    /// Go on: replicas that failed are tried again, the step is judged anew.
    Resume {
        /// Who.
        by: String,
        /// Take the step as passed, whatever its judgement.
        accept: bool,
        /// No more steps: all queries as soon as enough replicas hold it. Also of one that is not stopped.
        at_once: bool,
    },
    /// Turn back and give up, before the new version is live.
    Abort {
        /// Who.
        by: String,
    },
    /// The one that waits is not wanted any more.
    Withdraw {
        /// Who.
        by: String,
    },
    /// Turn back to the version that served before, which is still held; or, when it is another one, roll that out.
    Rollback {
        /// Where to; `None`: what served before.
        to: Option<Version>,
        /// What whoever asks saw come or serve; `None`: he did not say.
        from: Option<Version>,
        /// Who.
        by: String,
        /// Why.
        reason: String,
        /// How it goes when the version has to be loaded again.
        policy: Policy,
    },
    /// A version is about to be taken out of the store, unless something needs it: nothing goes to it from now on.
    Release {
        /// Which.
        version: Version,
        /// Who.
        by: String,
    },
    /// It is gone, or stays after all.
    Released {
        /// Which.
        version: Version,
    },
    /// Who should hold each shard, in rows.
    Placed(BTreeMap<ShardId, Vec<NodeId>>),
    /// What leaves said: all they hold, with each lease; what was not wanted at the time was not noted.
    Held(Vec<Report>),
    /// A leaf's lease ran out, or it is back.
    Node {
        /// Which leaf.
        node: NodeId,
        /// Whether it is gone.
        away: bool,
    },
    /// Versions whose statistics every ready root holds: all of them, whenever that or a rollout changes.
    Roots(BTreeSet<Version>),
    /// A judgement.
    Judged {
        /// Which one was asked for.
        gate: u32,
        /// What it says.
        verdict: Verdict,
        /// Queries of the smaller arm.
        sample: u64,
        /// With the numbers.
        reason: String,
        /// What the control arm had, for the step at 100 %.
        baseline: Option<Baseline>,
    },
    /// Time went by; more than ten seconds count as ten, so that a machine that slept ends no bake time.
    Tick {
        /// How much.
        elapsed_ms: u64,
    },
    /// The service was started, or became leader: every effect is given again.
    Restarted,
}

/// What a judgement says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// As good as before.
    Pass,
    /// Too little was seen.
    #[default]
    Wait,
    /// Worse: halt and let somebody look.
    SoftBreach,
    /// Bad: turn back at once.
    HardBreach,
}

/// What has to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// These replicas should hold the version.
    Load {
        /// Which version.
        version: Version,
        /// Where.
        replicas: Vec<Replica>,
    },
    /// These should not hold it any more.
    Drop {
        /// Which version.
        version: Version,
        /// Where.
        replicas: Vec<Replica>,
    },
    /// Pin queries so.
    Route(Route),
    /// Begin to compare, from nothing, and answer with [`Event::Judged`] of this number.
    Judge {
        /// Its number in this rollout.
        gate: u32,
        /// And the number that roots tell with what they saw: of all rollouts, see [`super::state::Rollout::trial`].
        trial: u64,
        /// The version in doubt.
        version: Version,
        /// The one it is compared with.
        control: Version,
        /// The step.
        step: Step,
        /// Whether the judged queries are asked in it: in the first, if there are any. `None`: it is not the first.
        judged: Option<bool>,
        /// At 100 %, where no control arm is left: what it had before; `None`: too little for a comparison.
        baseline: Option<Baseline>,
        /// How many shards the control and the version have, where these are not the same.
        unlike: Option<[usize; 2]>,
    },
    /// For the audit log.
    Audit {
        /// Number of the request; 0: none.
        request: u64,
        /// What was done, and why.
        what: String,
    },
    /// The command was not done.
    Refused {
        /// Why, and what to do.
        reason: String,
    },
}
