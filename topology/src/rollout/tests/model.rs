//! Every state that can be reached, and in each of them every event.
//!
//! Numbers that only grow (requests, gates) and words are made equal, and versions are named by their part (live, new,
//! waiting), so that the states are finitely many. In each: what must always hold; that a report told twice and a
//! restart change nothing; and that the rollout ends, both when all goes well and when nobody says anything any more.

use std::collections::{BTreeSet, VecDeque};

use super::*;
use crate::rollout::{Stop, load};

/// Makes states equal that differ in names and counts only.
fn canonical(mut state: State) -> State {
    state.ended.clear();
    state.requests = 0;
    let names = |state: &State| {
        let active = state.active.as_ref();
        let parts = [
            state.live,
            active.map(|it| it.request.to),
            active.and_then(|it| it.from),
            state.waiting.as_ref().map(|it| it.to),
        ];
        let mut names: Vec<Version> = Vec::new();
        for version in parts.into_iter().flatten() {
            if !names.contains(&version) {
                names.push(version);
            }
        }
        names
    };
    let names = names(&state);
    let rename = |version: Version| {
        Version(names.iter().position(|name| *name == version).map_or(9, |at| at as u64 + 1))
    };
    state.live = state.live.map(rename);
    state.seen.roots = state.seen.roots.into_iter().map(rename).collect();
    state.seen.resident = state.seen.resident.into_iter().map(|(it, held)| (rename(it), held)).collect();
    for request in state.waiting.iter_mut().chain(state.active.iter_mut().map(|it| &mut it.request)) {
        (request.id, request.to) = (2, rename(request.to));
        request.by.clear();
    }
    if let Some(active) = &mut state.active {
        active.request.id = 1;
        active.from = active.from.map(rename);
        active.gate = active.gate.min(1);
        match &mut active.stop {
            Some(Stop::Halted { reason: words } | Stop::Paused { by: words }) => words.clear(),
            None => {}
        }
        if let Phase::Back { reason, .. } = &mut active.phase {
            reason.clear();
        }
    }
    state
}

/// Everything that can happen in a state; `others`: also requests for other versions.
fn events(state: &State, others: bool) -> Vec<Event> {
    let by = || "ann".to_owned();
    let versions = [1, 2, 3, 4_u64];
    let fresh = versions.into_iter().find(|it| !state.pinned().contains(&Version(*it))).unwrap_or(5);
    let supersede = Event::Start { to: Version(fresh), by: by(), policy: quick(), supersede: true };
    let mut all = vec![
        Event::Pause { by: by() },
        Event::Resume { by: by(), accept: false, at_once: false },
        Event::Resume { by: by(), accept: true, at_once: false },
        Event::Resume { by: by(), accept: false, at_once: true },
        Event::Abort { by: by() },
        Event::Withdraw { by: by() },
        rollback(None),
        tick(),
        Event::Restarted,
        roots(&versions),
        Event::Roots(state.live.into_iter().collect()),
    ];
    if others || state.active.is_none() {
        all.extend([start(fresh), supersede, start(2)]);
    }
    for verdict in [Verdict::Pass, Verdict::Wait, Verdict::SoftBreach, Verdict::HardBreach] {
        all.push(judged(state, verdict));
    }
    for replica in state.seen.replicas() {
        let away = !state.seen.away.contains(&replica.node);
        all.push(Event::Node { node: replica.node.clone(), away });
        for version in state.wanted(&replica).into_iter().flatten() {
            let failed = Hold::Failed { reason: String::new(), everywhere: false };
            for hold in [Hold::Resident, Hold::Absent, failed] {
                all.push(held(vec![replica.clone()], version.0, hold));
            }
        }
    }
    let everywhere = Hold::Failed { reason: String::new(), everywhere: true };
    if let Some(active) = &state.active {
        all.extend(active.started.first().map(|it| held(vec![it.clone()], active.request.to.0, everywhere)));
    }
    all
}

fn check(before: &State, event: &Event, after: &State, effects: &[Effect]) {
    let why = || format!("{event:?}\n{before:?}\n{after:?}\n{effects:?}");
    // The live version is told to be held by every replica, and changes only to one that every shard answers from.
    for replica in after.seen.replicas() {
        assert!(after.live.is_none_or(|live| after.wanted(&replica).contains(&Some(live))), "{}", why());
    }
    if after.live != before.live {
        assert!(after.live.is_some_and(|live| after.seen.answers(live)), "{}", why());
    }
    // Shares.
    if let Some(candidate) = after.route().candidate {
        let version = candidate.version;
        assert!(after.seen.roots.contains(&version) && after.seen.answers(version), "{}", why());
        assert!(candidate.percent <= 1 || after.seen.is_safe(version), "{}", why());
        assert_eq!(after.route().pins().iter().map(|pin| pin.share).sum::<u32>(), 10_000, "{}", why());
    }
    if let (Some(rollout), Some(old)) = (&after.active, &before.active)
        && let Phase::Bake { step } = rollout.phase
        && rollout.phase != old.phase
        && rollout.request.id == old.request.id
        && rollout.traffic().map(|step| step.percent) != old.traffic().map(|step| step.percent)
        && rollout.step(step).is_some_and(|step| step.percent > 1)
    {
        let two = |resident: usize, _: usize, placed: usize| resident >= placed.min(2);
        assert!(after.seen.every_shard(rollout.request.to, two), "{}", why());
    }
    // Loads that were begun: within the limit, and not on all replicas that are here.
    if let Some(rollout) = &after.active {
        let busy = load::busy(&after.seen, rollout);
        let old = before.active.as_ref().filter(|old| old.request.id == rollout.request.id);
        let was = old.map(|old| load::busy(&before.seen, old)).unwrap_or_default();
        let begun = |node: &NodeId| busy.contains(node) && !was.contains(node);
        let told = effects
            .iter()
            .any(|it| matches!(it, Effect::Load { version, .. } if *version == rollout.request.to));
        for nodes in after.seen.placed.values().filter(|nodes| told && nodes.iter().any(begun)) {
            let loading = nodes.iter().filter(|node| busy.contains(*node)).count();
            let most = rollout.request.policy.max_unavailable as usize;
            let fell_back = old.is_some_and(|old| old.started.len() >= rollout.started.len());
            assert!(loading <= most || fell_back, "{}", why());
            let idle = nodes.iter().any(|node| !busy.contains(node) && !after.seen.away.contains(node));
            assert!(idle || nodes.len() == 1 || fell_back, "{}", why());
        }
    }
    // What is no more under way has ended visibly.
    if let Some(old) = &before.active {
        let goes_on = after.active.as_ref().is_some_and(|it| it.request.id == old.request.id);
        let ended = after.ended.iter().filter(|it| it.id == old.request.id).count();
        assert_eq!(ended, usize::from(!goes_on), "{}", why());
    }
    if effects.iter().any(|it| matches!(it, Effect::Refused { .. })) {
        assert_eq!(after, before, "{}", why());
    }
    if *event == rollback(None)
        && before.active.as_ref().is_some_and(|it| !matches!(it.phase, Phase::Back { .. }))
    {
        let refused = after == before;
        assert!(refused || after.route().candidate.is_none(), "{}", why());
    }
    match event {
        Event::Held(_) | Event::Node { .. } | Event::Roots(_) | Event::Placed(_) => {
            assert_eq!(step(after, event.clone()), (after.clone(), Vec::new()), "told twice: {}", why());
        }
        Event::Restarted => assert_eq!(after, before, "{}", why()),
        _ => {}
    }
}

/// All goes well from here on.
fn ends_well(state: &State) {
    let mut world = World { state: state.clone(), effects: Vec::new() };
    for _ in 0..60 {
        if world.state.active.is_none() {
            return;
        }
        let away: Vec<NodeId> = world.state.seen.away.iter().cloned().collect();
        world.all(away.into_iter().map(|node| Event::Node { node, away: false }));
        world.tell(roots(&[1, 2, 3, 4, 5])).tell(Event::Resume {
            by: "ann".to_owned(),
            accept: false,
            at_once: false,
        });
        (1..=5).for_each(|version| {
            world.load_all(version);
        });
        world.pass();
    }
    panic!("it does not end: {state:?}\n{:?}", world.state);
}

/// Nobody says anything any more. Only a pause is for ever.
fn ends_alone(state: &State) {
    let mut world = World { state: state.clone(), effects: Vec::new() };
    for _ in 0..60 {
        let Some(active) = &world.state.active else { return };
        if matches!(active.stop, Some(Stop::Paused { .. })) {
            return;
        }
        world.tell(tick());
    }
    panic!("it waits for ever: {state:?}\n{:?}", world.state);
}

fn walk(first: State, others: bool) -> usize {
    let mut seen = BTreeSet::new();
    let mut walked = 0_u64;
    let mut queue = VecDeque::from([canonical(first)]);
    seen.insert(format!("{:?}", queue[0]));
    while let Some(state) = queue.pop_front() {
        walked += 1;
        // The ways to the end meet soon: those of some states are enough.
        if others || walked.is_multiple_of(8) {
            let json = serde_json::to_string(&state).unwrap();
            assert_eq!(serde_json::from_str::<State>(&json).unwrap(), state);
            ends_well(&state);
            ends_alone(&state);
        }
        for event in events(&state, others) {
            let mut numbered = state.clone();
            numbered.requests = 7; // so that a new request has another number
            let (next, effects) = step(&numbered, event.clone());
            check(&numbered, &event, &next, &effects);
            let next = canonical(next);
            if seen.insert(format!("{next:?}")) {
                assert!(seen.len() < 1_000_000, "too many states");
                queue.push_back(next);
            }
        }
    }
    seen.len()
}

#[test]
fn one_shard_with_one_replica() {
    let states = walk(tree(1, 1), true);
    assert!(states > 5_000, "{states} states");
}

#[test]
fn one_shard_with_two_replicas() {
    let states = walk(tree(1, 2), false);
    assert!(states > 20_000, "{states} states");
}
