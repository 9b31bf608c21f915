//! One step: `(state, event) -> (state, effects)`. First the event is noted, then the state goes on as far as it can by
//! itself, then the effects are read off the difference. No clock, no dice, no other memory: the same state and event
//! give the same answer, whoever asks and however often.

use std::collections::BTreeMap;

use canopy_common::ids::Version;

use super::{
    command::Asked,
    event::{Effect, Event},
    route::Route,
    seen::Replica,
    state::{Phase, Rollout, State},
};

/// Most time that one tick counts for.
const LONGEST_TICK_MS: u64 = 10_000;

/// The next state, and what has to be done.
pub fn step(state: &State, event: Event) -> (State, Vec<Effect>) {
    let again = event == Event::Restarted;
    let mut turn = Turn { state: state.clone(), notes: Vec::new() };
    turn.note(event);
    turn.advance();
    let Turn { state: next, notes } = turn;
    let before = if again { State::default() } else { state.clone() };
    let mut effects = holdings(&before, &next);
    let route = next.route();
    if again || route != before.route() {
        effects.push(Effect::Route(route));
    }
    effects.extend(judge(&before, &next));
    effects.extend(notes);
    (next, effects)
}

/// A state on its way to the next.
pub(super) struct Turn {
    pub(super) state: State,
    pub(super) notes: Vec<Effect>,
}

impl Turn {
    pub(super) fn audit(&mut self, request: u64, what: impl Into<String>) {
        self.notes.push(Effect::Audit { request, what: what.into() });
    }

    pub(super) fn refuse(&mut self, reason: impl Into<String>) {
        self.notes.push(Effect::Refused { reason: reason.into() });
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Start { to, by, policy, supersede } => self.start(to, by, policy, supersede),
            Event::Pause { by } => self.pause(by),
            Event::Resume { by, at_once: true, .. } => self.hurry(&by),
            Event::Resume { by, accept, .. } => self.resume(&by, accept),
            Event::Abort { by } => self.abort(&by),
            Event::Withdraw { by } => self.withdraw(&by),
            Event::Rollback { to, from, by, reason, policy } => {
                self.rollback(Asked { to, from }, by, &reason, policy);
            }
            Event::Release { version, by } => self.release(version, &by),
            Event::Released { version } => drop(self.state.removing.remove(&version)),
            Event::Placed(placed) => self.place(placed),
            Event::Held(reports) => reports.iter().for_each(|report| self.report(report)),
            Event::Node { node, away } => {
                if away {
                    self.state.seen.away.insert(node);
                } else {
                    self.state.seen.away.remove(&node);
                }
            }
            Event::Roots(roots) => {
                let state = &self.state;
                let active = state.active.as_ref();
                let ours = |version: &Version| {
                    state.live == Some(*version)
                        || active.is_some_and(|it| it.request.to == *version || it.from == Some(*version))
                        || state.waiting.as_ref().is_some_and(|it| it.to == *version)
                };
                self.state.seen.roots = roots.into_iter().filter(ours).collect();
            }
            Event::Judged { gate, verdict, sample, reason, baseline } => {
                self.judged(gate, verdict, sample, &reason, baseline);
            }
            Event::Tick { elapsed_ms } => self.tick(elapsed_ms.min(LONGEST_TICK_MS)),
            Event::Restarted => {}
        }
    }

    fn tick(&mut self, elapsed_ms: u64) {
        let Some(rollout) = &mut self.state.active else { return };
        match rollout.stop {
            None => rollout.spent_ms = rollout.spent_ms.saturating_add(elapsed_ms),
            Some(super::state::Stop::Halted { .. }) => {
                rollout.halted_ms = rollout.halted_ms.saturating_add(elapsed_ms);
            }
            Some(super::state::Stop::Paused { .. }) => {}
        }
    }
}

/// Whether two states want the same: most events change no wish, and a large tree has many replicas to ask.
fn wants_the_same(before: &State, after: &State) -> bool {
    let parts = |state: &State| {
        let active = state.active.as_ref();
        active.map(|it| (it.request.to, it.from, it.phase == Phase::Retain))
    };
    let lists = |state: &State| state.active.as_ref().map(|it| it.started.len() + it.failed.len());
    let same = |old: &Rollout, new: &Rollout| old.started == new.started && old.failed == new.failed;
    before.live == after.live
        && parts(before) == parts(after)
        && lists(before) == lists(after)
        && before.active.as_ref().zip(after.active.as_ref()).is_none_or(|(old, new)| same(old, new))
        && before.seen.placed == after.seen.placed
}

/// Loads and drops between two states, by version.
fn holdings(before: &State, after: &State) -> Vec<Effect> {
    if wants_the_same(before, after) {
        return Vec::new();
    }
    let mut loads: BTreeMap<Version, Vec<Replica>> = BTreeMap::new();
    let mut drops: BTreeMap<Version, Vec<Replica>> = BTreeMap::new();
    let was = |replica: &Replica| {
        if before.seen.is_placed(replica) { before.wanted(replica) } else { [None; 2] }
    };
    let new = after.seen.replicas();
    let gone = before.seen.replicas().filter(|replica| !after.seen.is_placed(replica));
    for replica in new.chain(gone) {
        let old = was(&replica);
        let now = if after.seen.is_placed(&replica) { after.wanted(&replica) } else { [None; 2] };
        for version in now.into_iter().flatten().filter(|version| !old.contains(&Some(*version))) {
            loads.entry(version).or_default().push(replica.clone());
        }
        for version in old.into_iter().flatten().filter(|version| !now.contains(&Some(*version))) {
            drops.entry(version).or_default().push(replica.clone());
        }
    }
    let loads = loads.into_iter().map(|(version, replicas)| Effect::Load { version, replicas });
    let drops = drops.into_iter().map(|(version, replicas)| Effect::Drop { version, replicas });
    loads.chain(drops).collect()
}

/// The judgement that is waited for, when it is a new one.
fn judge(before: &State, after: &State) -> Option<Effect> {
    let (gate, effect) = asked(after)?;
    let old = asked(before).map(|(gate, _)| gate);
    (old != Some(gate)).then_some(effect)
}

/// What tells one judgement from another.
type Judged = (u64, u32, Option<[usize; 2]>);

/// What is judged as long as queries go to the new version: also after the pass, while the next replicas load, and while it is
/// stopped.
fn asked(state: &State) -> Option<(Judged, Effect)> {
    let rollout = state.active.as_ref()?;
    let (at, control) = (rollout.under_trial()?, rollout.from?);
    let step = rollout.step(at)?.clone();
    let baseline = match step.percent {
        100 => rollout.baseline,
        _ => None,
    };
    let unlike = state.seen.unlike(control, rollout.request.to);
    let effect = Effect::Judge {
        gate: rollout.gate,
        trial: rollout.trial(),
        version: rollout.request.to,
        control,
        step,
        judged: (at == 0).then(|| !rollout.request.policy.judged.is_empty()),
        baseline,
        unlike,
    };
    Some(((rollout.request.id, rollout.gate, unlike), effect))
}

impl Route {
    /// Of a version alone.
    pub fn only(version: Version) -> Self {
        Self { live: Some(version), candidate: None }
    }
}
