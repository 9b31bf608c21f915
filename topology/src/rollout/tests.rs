//! Rollouts by hand, event for event, and over every state.

mod by_hand;
mod commands;
mod model;
mod pace;

use std::collections::BTreeMap;

use canopy_common::{
    config::Time,
    ids::{NodeId, ShardId, Version},
};

use super::{
    Effect, Event, Hold, Policy, Replica, Report, State, Step, Verdict,
    state::{Outcome, Phase},
    step,
};

/// A tick of this is every time limit of [`quick`].
pub(super) const TICK_MS: u64 = 10_000;

/// Shadow, 1 %, 50 %, 100 %; every time is one tick.
pub(super) fn quick() -> Policy {
    let tick = Time::ms(TICK_MS);
    let step = |percent, sample| Step { percent, bake: tick, sample };
    Policy {
        steps: vec![step(0, 100), step(1, 100), step(50, 100), step(100, 0)],
        stage_limit: tick,
        gate_limit: tick,
        halt_limit: tick,
        retain: tick,
        grace: tick,
        ..Policy::default()
    }
}

pub(super) fn placed(shards: u32, replicas: u32) -> BTreeMap<ShardId, Vec<NodeId>> {
    // Shards are on the same leaves, in turn.
    let node = |at: u32| NodeId::from(format!("leaf-{}", at % replicas).as_str());
    let nodes = |shard: u32| (0..replicas).map(|row| node(row + shard)).collect();
    (0..shards).map(|shard| (ShardId::new("main", shard), nodes(shard))).collect()
}

/// A tree that serves version 1.
pub(super) fn tree(shards: u32, replicas: u32) -> State {
    let (mut state, _) = step(&State::serving(Version(1)), Event::Placed(placed(shards, replicas)));
    let all: Vec<Replica> = state.seen.replicas().collect();
    (state, _) = step(&state, held(all, 1, Hold::Resident));
    step(&state, roots(&[1])).0
}

pub(super) fn held(replicas: Vec<Replica>, version: u64, hold: Hold) -> Event {
    let report = |replica| Report { replica, version: Version(version), hold: hold.clone() };
    Event::Held(replicas.into_iter().map(report).collect())
}

pub(super) fn roots(versions: &[u64]) -> Event {
    Event::Roots(versions.iter().copied().map(Version).collect())
}

pub(super) fn start(to: u64) -> Event {
    Event::Start { to: Version(to), by: "ann".to_owned(), policy: quick(), supersede: false }
}

pub(super) fn judged(state: &State, verdict: Verdict) -> Event {
    let gate = state.active.as_ref().map_or(0, |rollout| rollout.gate);
    Event::Judged { gate, verdict, sample: 100, reason: "numbers".to_owned(), baseline: None }
}

pub(super) fn tick() -> Event {
    Event::Tick { elapsed_ms: TICK_MS }
}

pub(super) fn rollback(to: Option<u64>) -> Event {
    let (by, reason) = ("ann".to_owned(), "wrong answers".to_owned());
    Event::Rollback { to: to.map(Version), from: None, by, reason, policy: quick() }
}

/// A tree and those who do as they are told.
pub(super) struct World {
    pub state: State,
    pub effects: Vec<Effect>,
}

impl World {
    pub fn new(shards: u32, replicas: u32) -> Self {
        Self { state: tree(shards, replicas), effects: Vec::new() }
    }

    pub fn tell(&mut self, event: Event) -> &mut Self {
        (self.state, self.effects) = step(&self.state, event);
        self
    }

    /// Tells it one after the other.
    pub fn all(&mut self, events: impl IntoIterator<Item = Event>) -> &mut Self {
        events.into_iter().for_each(|event| {
            self.tell(event);
        });
        self
    }

    pub fn label(&self) -> String {
        self.state.active.as_ref().map_or("none".to_owned(), super::state::Rollout::label)
    }

    /// Replicas that were told, by the last event, to load a version.
    pub fn loads(&self, of: u64) -> Vec<Replica> {
        let loads = self.effects.iter().filter_map(|effect| match effect {
            Effect::Load { version, replicas } if version.0 == of => Some(replicas.clone()),
            _ => None,
        });
        loads.flatten().collect()
    }

    /// Every replica that should hold the version does, until no more is told to.
    pub fn load_all(&mut self, version: u64) -> &mut Self {
        for _ in 0..100 {
            let wanted = |replica: &Replica| self.state.wanted(replica).contains(&Some(Version(version)));
            let missing = |replica: &Replica| !self.state.seen.holds(Version(version), replica);
            let all = self.state.seen.replicas();
            let told: Vec<Replica> = all.filter(|it| wanted(it) && missing(it)).collect();
            if told.is_empty() {
                break;
            }
            self.tell(held(told, version, Hold::Resident));
        }
        self
    }

    /// Judges the step under way as passed, and lets its time go by.
    pub fn pass(&mut self) -> &mut Self {
        let event = judged(&self.state, Verdict::Pass);
        self.tell(event).tell(tick())
    }

    /// To a step of a rollout to `to`, baking.
    pub fn until(&mut self, to: u64, percent: u8) -> &mut Self {
        self.tell(start(to)).tell(roots(&[1, 2, 3, to])).load_all(to);
        for _ in 0..10 {
            let at = self.state.active.as_ref().and_then(|it| it.traffic()).map(|it| it.percent);
            let baking = matches!(self.state.active.as_ref().map(|it| &it.phase), Some(Phase::Bake { .. }));
            if baking && at == Some(percent) {
                return self;
            }
            self.pass().load_all(to);
        }
        panic!("{percent} % is not reached: {}", self.label());
    }

    pub fn outcome(&self) -> Option<(u64, Outcome)> {
        self.state.ended.last().map(|ended| (ended.to.0, ended.outcome))
    }

    pub fn refused(&self) -> Option<&str> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::Refused { reason } => Some(reason.as_str()),
            _ => None,
        })
    }

    /// Versions and shares of queries, in 10,000.
    pub fn pins(&self) -> Vec<(u64, u32)> {
        self.state.route().pins().into_iter().map(|pin| (pin.version.0, pin.share)).collect()
    }
}
