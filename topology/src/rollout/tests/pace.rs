//! Pause, at once, withdraw; rollbacks one after the other; what is judged when.

use super::*;
use crate::rollout::Baseline;

fn hurry() -> Event {
    Event::Resume { by: "ann".to_owned(), accept: false, at_once: true }
}

fn at_once(to: u64) -> Event {
    Event::Start { to: Version(to), by: "ann".to_owned(), policy: quick().first(), supersede: false }
}

fn pause() -> Event {
    Event::Pause { by: "ann".to_owned() }
}

fn rollback_from(from: u64) -> Event {
    match rollback(None) {
        Event::Rollback { to, by, reason, policy, .. } => {
            Event::Rollback { to, from: Some(Version(from)), by, reason, policy }
        }
        other => other,
    }
}

/// To the end of a rollout, retention and all.
fn served(world: &mut World, to: u64) {
    world.until(to, 100).all([tick(), tick()]);
    assert_eq!((world.outcome(), world.label()), (Some((to, Outcome::Serving)), "none".to_owned()));
}

fn said(world: &World) -> String {
    let said = world.effects.iter().filter_map(|effect| match effect {
        Effect::Audit { what, .. } => Some(what.as_str()),
        _ => None,
    });
    said.collect::<Vec<_>>().join("\n")
}

fn judges(world: &World) -> Option<(u32, u64, u8, Option<bool>, Option<Baseline>)> {
    world.effects.iter().find_map(|effect| match effect {
        Effect::Judge { gate, trial, step, judged, baseline, .. } => {
            Some((*gate, *trial, step.percent, *judged, *baseline))
        }
        _ => None,
    })
}

#[test]
fn a_rollout_under_way_is_hurried_from_any_step() {
    for percent in [0, 1, 50, 100] {
        for event in [hurry(), at_once(2)] {
            let mut world = World::new(2, 3);
            world.until(2, percent).tell(pause());
            let (before, gate) = (world.pins(), world.state.active.as_ref().unwrap().trial());
            world.tell(event.clone());
            assert!(said(&world).contains("leaves the other steps out"), "{}", said(&world));
            if percent < 100 {
                assert_eq!(world.pins(), before, "until it is loaded everywhere queries go as they did");
                assert_eq!(world.state.active.as_ref().unwrap().trial(), gate);
                world.tell(event);
                assert!(said(&world).contains("nothing was changed"), "{}", said(&world));
                world.load_all(2);
            }
            assert_eq!((world.label().as_str(), world.pins()), ("retain", vec![(2, 10_000)]));
            world.tell(hurry());
            assert!(said(&world).contains("live already; nothing was changed"), "{}", said(&world));
        }
    }
    let mut world = World::new(2, 3);
    world.until(2, 1).tell(hurry());
    let hard = judged(&world.state, Verdict::HardBreach);
    world.tell(hard);
    assert_eq!(world.label(), "rolling back (rolled back)", "a breach counts still");
    world.tell(hurry());
    assert!(world.refused().unwrap().contains("rolled back"));
}

#[test]
fn what_is_resumed_while_the_next_replicas_load_is_judged_anew() {
    let mut world = World::new(1, 4);
    world.until(2, 1).pass();
    assert_eq!(world.label(), "canary 1 %, loading for canary 50 %");
    let (gate, pins) = (world.state.active.as_ref().unwrap().gate, world.pins());
    let soft = judged(&world.state, Verdict::SoftBreach);
    world.tell(pause()).tell(soft);
    assert!(world.label().starts_with("paused"), "a pause is a pause: {}", world.label());
    world.tell(Event::Resume { by: "ann".to_owned(), accept: false, at_once: false });
    assert_eq!(
        judges(&world).map(|it| (it.0, it.2)),
        Some((gate + 1, 1)),
        "what was found must be found again"
    );
    assert_eq!((world.label().as_str(), world.pins()), ("canary 1 %, loading for canary 50 %", pins));
    let soft = judged(&world.state, Verdict::SoftBreach);
    world.tell(soft);
    assert!(world.label().starts_with("halted"), "{}", world.label());
}

#[test]
fn one_that_waits_is_hurried_or_withdrawn() {
    let mut world = World::new(1, 2);
    world.until(2, 1).tell(start(3)).tell(at_once(3));
    assert!(said(&world).contains("without steps"), "{}", said(&world));
    assert!(world.state.waiting.as_ref().unwrap().policy.is_at_once());
    let withdraw = || Event::Withdraw { by: "bob".to_owned() };
    world.tell(withdraw());
    assert_eq!((world.outcome(), world.label().as_str()), (Some((3, Outcome::Aborted)), "canary 1 %"));
    assert_eq!(world.state.ended[0].reason, "withdrawn by bob");
    world.tell(withdraw());
    assert_eq!(world.refused(), Some("no rollout waits"));
}

#[test]
fn nothing_is_paused_once_it_is_live() {
    let mut world = World::new(1, 2);
    world.until(2, 50).tell(pause()).tell(pause());
    assert!(said(&world).contains("paused by ann in canary 50 % already"), "{}", said(&world));
    world.tell(Event::Resume { by: "ann".to_owned(), accept: true, at_once: false }).tell(tick()).load_all(2);
    world.pass();
    assert_eq!(world.label(), "retain");
    world.tell(pause());
    assert!(world.refused().unwrap().contains("v2 is live, nothing is left to pause"), "{:?}", world.effects);
}

#[test]
fn a_rollback_to_a_dropped_version_goes_step_by_step_or_at_once_and_twice_is_not_back_and_forth() {
    let mut world = World::new(1, 2);
    served(&mut world, 2);
    world.tell(rollback(None));
    let words = said(&world);
    assert!(words.contains("v1 is not held any more") && words.contains("--at-once"), "{words}");
    assert!(words.contains("wrong answers") && world.label() == "stage", "{words}");
    // Somebody else says the same a moment later, in each step of it.
    let again = |world: &mut World| {
        let before = world.state.clone();
        world.tell(rollback(None));
        assert!(said(world).contains("a rollback to v1 is under way already"), "{:?}", world.effects);
        assert_eq!(world.state, before);
    };
    again(&mut world);
    let mut steps = World { state: world.state.clone(), effects: vec![] };
    steps.tell(roots(&[1, 2])).load_all(1).pass();
    assert_eq!(steps.label(), "canary 1 %");
    again(&mut steps);
    world.tell(hurry()).tell(roots(&[1, 2])).load_all(1);
    assert_eq!((world.label().as_str(), world.pins()), ("retain", vec![(1, 10_000)]));
    again(&mut world);
    // Who means the rollback itself says so, while v2 is held and after.
    let mut held = World { state: world.state.clone(), effects: vec![] };
    held.tell(rollback_from(1));
    assert_eq!((held.label().as_str(), held.pins()), ("rolling back (rolled back)", vec![(2, 10_000)]));
    held.tell(tick()).tell(rollback_from(2));
    assert!(said(&held).contains("v1 is not held any more") || held.label() == "stage", "{}", said(&held));
    world.tell(tick());
    assert!(world.state.ended[1].back);
    let mut ended = World { state: world.state.clone(), effects: vec![] };
    ended.tell(rollback_from(1));
    assert!(said(&ended).contains("v2 is not held any more"), "{:?}", ended.effects);
    let before = world.state.clone();
    world.tell(rollback(None));
    assert!(world.refused().unwrap().contains("a rollback to v1 already"), "{:?}", world.effects);
    assert_eq!(world.state, before);
    // By name it goes, and at once.
    let (by, reason, policy) = ("ann".to_owned(), "it was good".to_owned(), quick().first());
    world.tell(Event::Rollback { to: Some(Version(2)), from: None, by, reason, policy });
    assert!(said(&world).contains("as soon as it is loaded"), "{}", said(&world));
    world.tell(roots(&[1, 2])).load_all(2);
    assert_eq!(world.pins(), [(2, 10_000)]);
}

#[test]
fn after_a_flip_back_the_next_rollback_needs_a_name() {
    let mut world = World::new(1, 2);
    world.until(2, 100).tell(tick()).tell(rollback(None)).tell(rollback(None));
    assert!(said(&world).contains("rolling back (rolled back) already"), "{}", said(&world));
    world.tell(tick()).tell(rollback(None));
    assert!(world.refused().unwrap().contains("v2 was rolled back already"), "{:?}", world.effects);
}

#[test]
fn every_gate_has_a_number_of_its_own_and_the_last_step_what_the_control_had() {
    let mut world = World::new(1, 2);
    let mut numbers = std::collections::BTreeSet::new();
    for _ in 0..2 {
        world.until(2, 0);
        numbers.insert(world.state.active.as_ref().unwrap().trial());
        world.tell(Event::Restarted);
        assert_eq!(judges(&world).map(|it| (it.0, it.2, it.3)), Some((1, 0, Some(false))));
        world.pass();
        assert_eq!(judges(&world).map(|it| (it.0, it.2, it.3)), Some((2, 1, None)));
        numbers.insert(world.state.active.as_ref().unwrap().trial());
        assert_eq!(world.state.route().candidate.unwrap().gate, world.state.active.as_ref().unwrap().trial());
        world.tell(Event::Abort { by: "ann".to_owned() }).tell(tick());
    }
    assert_eq!(numbers.len(), 4, "also of another rollout to the same version");
    world.until(2, 50);
    let gate = world.state.active.as_ref().unwrap().gate;
    let control = Baseline { queries: 100, errors: 0, partial: 1, zero_results: 2 };
    let (verdict, reason) = (Verdict::Pass, "numbers".to_owned());
    world.tell(Event::Judged { gate, verdict, sample: 100, reason, baseline: Some(control) });
    world.tell(Event::Restarted);
    assert_eq!(judges(&world).map(|it| (it.2, it.4)), Some((50, None)), "it is watched after its pass too");
    world.tell(tick()).load_all(2);
    assert_eq!(
        (world.label().as_str(), judges(&world).map(|it| (it.2, it.4))),
        ("full", Some((100, Some(control))))
    );
    let hard = judged(&world.state, Verdict::HardBreach);
    world.tell(hard);
    assert_eq!(world.pins(), [(1, 10_000)], "a breach at 100 % turns back too");
}

#[test]
fn judged_queries_are_waited_for_in_the_first_step() {
    let mut world = World::new(1, 2);
    let line = |at: usize| format!("{{\"q\":\"query {at}\",\"gains\":{{\"k\":1}}}}\n");
    let text: String = (0..20).map(line).collect();
    let mut policy = quick();
    policy.steps[0].sample = 0;
    policy.judged = text.as_str().into();
    let start = |policy: Policy| Event::Start { to: Version(2), by: String::new(), policy, supersede: false };
    let bad = Policy { judged: "nonsense".into(), ..policy.clone() };
    world.tell(start(bad));
    assert!(world.refused().unwrap().contains("judged: line 1: column 2"), "{:?}", world.effects);
    world.tell(start(policy)).tell(roots(&[1, 2])).load_all(2);
    assert_eq!(judges(&world).map(|it| it.3), Some(Some(true)));
    world.tell(tick());
    assert_eq!(world.label(), "shadow", "though it plans no sample");
    world.pass();
    assert_eq!(world.label(), "canary 1 %");
}

#[test]
fn reasons_that_many_replicas_have_are_told_once() {
    let failed = Hold::Failed { reason: "disk full ".repeat(100), everywhere: false };
    let mut world = World::new(1, 4);
    world.tell(roots(&[1, 2])).tell(start(2));
    for _ in 0..4 {
        let told = world.loads(2);
        world.tell(held(told, 2, failed.clone()));
    }
    let label = world.label();
    assert!(label.starts_with("halted in stage: ") && label.chars().count() < 300, "{label}");
    let Some(crate::rollout::Stop::Halted { reason }) = &world.state.active.as_ref().unwrap().stop else {
        panic!()
    };
    assert!(reason.contains("times)") && reason.contains("resume, or abort"), "{reason}");
}

#[test]
fn two_who_turn_back_the_same_version_do_not_go_back_twice() {
    let mut world = World::new(1, 2);
    served(&mut world, 2);
    world.until(3, 50);
    let coming = world.state.clone();
    world.tell(rollback_from(2));
    assert!(world.refused().unwrap().contains("v3 is under way"), "{:?}", world.effects);
    assert_eq!(world.state, coming);
    world.tell(Event::Abort { by: "ann".to_owned() });
    while world.state.active.is_some() {
        world.tell(tick());
    }
    let aborted = world.state.clone();
    // The second one, a moment later: he means v3, and v2 is good.
    for (event, said) in
        [(rollback(None), "v3 was turned back already"), (rollback_from(3), "v3 does not serve any more")]
    {
        world.tell(event);
        assert!(world.refused().unwrap().contains(said), "{:?}", world.effects);
        assert_eq!(world.state, aborted);
    }
    // Who means v2 says so.
    world.tell(rollback_from(2));
    assert!(
        world.refused().is_none() && said(&world).contains("v1 is not held any more"),
        "{}",
        said(&world)
    );
}
