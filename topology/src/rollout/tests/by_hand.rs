//! The way of a rollout: order of loads, shares, judgements, failures.

use super::*;
use crate::rollout::Stop;

fn names(replicas: &[Replica]) -> Vec<String> {
    replicas.iter().map(|it| format!("{}@{}", it.shard.number, it.node)).collect()
}

#[test]
fn a_good_version_goes_all_the_way() {
    let mut world = World::new(2, 3);
    world.tell(start(2));
    // Shard 1's first replica is on leaf-1, which has shard 0 too: that would be two leaves at once.
    assert_eq!(names(&world.loads(2)), ["0@leaf-0", "1@leaf-0"]);
    assert_eq!((world.label(), world.pins()), ("stage".to_owned(), vec![(1, 10_000)]));
    world.load_all(2);
    assert_eq!(world.label(), "stage", "a root lacks its statistics");
    world.tell(roots(&[1, 2]));
    assert_eq!((world.label(), world.pins()), ("shadow".to_owned(), vec![(1, 10_000)]));
    assert_eq!(world.state.route().candidate.unwrap().shadow_percent, 1);
    assert!(matches!(&world.effects[1], Effect::Judge { gate: 1, .. }), "{:?}", world.effects);
    let mut seen = Vec::new();
    for _ in 0..6 {
        world.pass().load_all(2);
        seen.push((world.label(), world.pins(), world.state.live.unwrap().0));
    }
    let expected = [
        ("canary 1 %", vec![(2, 100), (1, 9_900)], 1),
        ("canary 50 %", vec![(2, 5_000), (1, 5_000)], 1),
        ("full", vec![(2, 10_000)], 1),
        ("retain", vec![(2, 10_000)], 2),
        ("none", vec![(2, 10_000)], 2),
        ("none", vec![(2, 10_000)], 2),
    ];
    assert_eq!(seen, expected.map(|(label, pins, live)| (label.to_owned(), pins, live)));
    assert_eq!(world.outcome(), Some((2, Outcome::Serving)));
    let any = world.state.seen.replicas().next().unwrap();
    assert_eq!(world.state.wanted(&any), [Some(Version(2)), None]);
}

#[test]
fn the_old_version_is_dropped_only_when_its_retention_is_over() {
    let mut world = World::new(1, 2);
    let dropped = |world: &World| world.effects.iter().any(|it| matches!(it, Effect::Drop { .. }));
    world.until(2, 100).tell(tick());
    assert_eq!((world.label(), dropped(&world)), ("retain".to_owned(), false));
    world.tell(tick());
    assert!(dropped(&world));
    let Effect::Drop { version, replicas } = &world.effects[0] else { panic!("{:?}", world.effects) };
    assert_eq!((version.0, replicas.len()), (1, 2));
}

#[test]
fn above_one_per_cent_every_shard_has_two_replicas_and_a_lost_leaf_takes_the_share_back() {
    let mut world = World::new(1, 4);
    world.until(2, 1).pass();
    assert_eq!((world.label().as_str(), world.pins()[0]), ("canary 1 %, loading for canary 50 %", (2, 100)));
    world.load_all(2);
    assert_eq!(world.pins()[0], (2, 5_000));
    let away = |away| Event::Node { node: "leaf-1".into(), away };
    world.tell(away(true));
    assert_eq!(world.pins()[0], (2, 100), "three are here, one of them has it");
    world.tell(away(false));
    assert_eq!(world.pins()[0], (2, 5_000));
    world.all([Event::Node { node: "leaf-0".into(), away: true }, away(true)]);
    assert_eq!(world.pins(), [(1, 10_000)], "nobody has it");
    world.all([Event::Node { node: "leaf-0".into(), away: false }, away(false), roots(&[1])]);
    assert_eq!(world.pins(), [(1, 10_000)], "a root lacks its statistics");
}

#[test]
fn of_no_shard_do_more_replicas_load_than_allowed_and_never_all() {
    for (replicas, most, expected) in [(1, 1, 1), (2, 1, 1), (2, 2, 1), (3, 3, 2), (6, 1, 1), (6, 3, 3)] {
        let mut world = World::new(1, replicas);
        let mut policy = quick();
        policy.max_unavailable = most;
        policy.steps = vec![Step { percent: 100, sample: 0, ..policy.steps[0].clone() }];
        world.tell(Event::Start { to: Version(2), by: String::new(), policy, supersede: false });
        assert_eq!(world.loads(2).len(), expected, "{replicas} replicas, {most} at once");
    }
}

#[test]
fn breaches_halt_or_turn_back() {
    let mut world = World::new(1, 2);
    world.until(2, 50);
    let soft = judged(&world.state, Verdict::SoftBreach);
    world.tell(soft.clone());
    assert_eq!(world.label(), "halted in canary 50 %: numbers");
    assert_eq!(world.pins()[0], (2, 5_000), "it stays where it is");
    world.tell(Event::Resume { by: "ann".to_owned(), accept: false, at_once: false });
    assert!(world.effects.iter().any(|it| matches!(it, Effect::Judge { .. })), "it is judged anew");
    world.tell(soft);
    assert_eq!(world.label(), "canary 50 %", "an old verdict says nothing");
    let hard = judged(&world.state, Verdict::HardBreach);
    world.tell(Event::Pause { by: "bob".to_owned() }).tell(hard);
    assert_eq!((world.label().as_str(), world.pins()), ("rolling back (rolled back)", vec![(1, 10_000)]));
    assert!(!world.effects.iter().any(|it| matches!(it, Effect::Drop { .. })), "its queries still run");
    world.tell(tick());
    assert_eq!(world.outcome(), Some((2, Outcome::RolledBack)));
    assert_eq!(world.state.ended[0].reason, "numbers");
}

#[test]
fn a_breach_counts_while_the_next_replicas_load() {
    let mut world = World::new(1, 3);
    world.until(2, 1).pass();
    let hard = judged(&world.state, Verdict::HardBreach);
    world.tell(hard);
    assert_eq!(world.label(), "rolling back (rolled back)");
}

#[test]
fn a_pass_needs_its_sample_and_its_time() {
    let mut world = World::new(1, 2);
    world.until(2, 1);
    let gate = world.state.active.as_ref().unwrap().gate;
    let (verdict, baseline) = (Verdict::Pass, None);
    let pass = |sample| Event::Judged { gate, verdict, sample, reason: String::new(), baseline };
    world.tell(pass(99)).tell(tick());
    assert_eq!(world.label(), "canary 1 %");
    world.tell(pass(100));
    assert_eq!(world.label(), "canary 1 %, loading for canary 50 %");
    world.load_all(2).tell(pass(100)).tell(tick());
    assert_eq!(world.label(), "canary 50 %", "the pass was of another step");
}

#[test]
fn a_sleeping_machine_ends_no_bake_time() {
    let mut world = World::new(1, 2);
    let mut policy = quick();
    policy.steps[0].bake = Time::ms(10 * TICK_MS);
    world.tell(Event::Start { to: Version(2), by: String::new(), policy, supersede: false });
    world.tell(roots(&[1, 2])).load_all(2);
    let pass = judged(&world.state, Verdict::Pass);
    world.tell(pass).tell(Event::Tick { elapsed_ms: u64::MAX });
    assert_eq!(world.label(), "shadow");
}

#[test]
fn a_replica_that_fails_is_passed_over_until_there_are_too_few() {
    let failed = |everywhere| Hold::Failed { reason: "4 GiB needed, 1 GiB free".to_owned(), everywhere };
    let mut world = World::new(1, 4);
    world.tell(roots(&[1, 2])).tell(start(2));
    let first = world.loads(2);
    world.tell(held(first, 2, failed(false)));
    assert_eq!(names(&world.loads(2)), ["0@leaf-1"]);
    assert!(world.effects.iter().any(|it| matches!(it, Effect::Drop { .. })), "its disk is freed");
    let second = world.loads(2);
    world.load_all(2);
    assert_eq!(world.label(), "stage", "roots forget versions that nobody asked for");
    world.tell(roots(&[1, 2]));
    for _ in 0..6 {
        world.pass().load_all(2);
    }
    assert_eq!(world.outcome(), Some((2, Outcome::Serving)), "three of four are enough");

    let mut world = World::new(1, 2);
    world.tell(start(2)).tell(held(vec![second[0].clone()], 2, failed(false)));
    assert_eq!(world.label(), "stage", "it was not told to load");
    let first = world.loads(2);
    world.tell(start(2)).tell(roots(&[1, 2])).load_all(2).pass().pass();
    let other: Vec<Replica> = world.state.seen.replicas().filter(|it| !first.contains(it)).collect();
    world.tell(held(vec![second[0].clone()], 2, failed(false)));
    assert!(
        matches!(world.state.active.as_ref().unwrap().stop, Some(Stop::Halted { .. })),
        "{}",
        world.label()
    );
    assert!(world.label().contains("4 GiB needed"), "{}", world.label());
    world.tell(Event::Resume { by: "ann".to_owned(), accept: false, at_once: false });
    assert_eq!(world.loads(2), vec![second[0].clone()], "it is tried again, of {other:?}");

    let mut world = World::new(2, 2);
    world.tell(start(2));
    let first = world.loads(2);
    world.tell(held(first, 2, failed(true)));
    assert_eq!(world.outcome(), Some((2, Outcome::Failed)));
}

#[test]
fn what_never_comes_halts_and_a_halt_that_nobody_ends_turns_back() {
    let mut world = World::new(1, 2);
    world.tell(start(2)).tell(tick());
    assert!(world.label().starts_with("halted in stage: no replica got ready for 10s"), "{}", world.label());
    world.tell(tick());
    assert_eq!(world.outcome(), Some((2, Outcome::Failed)));

    let mut world = World::new(1, 2);
    world.until(2, 1).all([tick(), tick()]);
    assert!(world.label().starts_with("halted in canary 1 %"), "{}", world.label());
    world.all([tick(), tick()]);
    assert_eq!(world.outcome(), Some((2, Outcome::RolledBack)));
}

#[test]
fn the_first_version_of_a_corpus_serves_when_it_is_loaded() {
    let mut world = World { state: State::empty(), effects: Vec::new() };
    world.tell(Event::Placed(placed(2, 2))).tell(start(1)).tell(roots(&[1]));
    assert_eq!(world.pins(), []);
    world.load_all(1);
    assert_eq!((world.pins(), world.outcome()), (vec![(1, 10_000)], Some((1, Outcome::Serving))));
}

#[test]
fn a_leaf_that_joins_takes_part() {
    let mut world = World::new(1, 2);
    world.until(2, 50).tell(Event::Placed(placed(1, 3)));
    assert_eq!(names(&world.loads(1)), ["0@leaf-2"]);
    world.load_all(1).pass();
    assert_eq!(names(&world.loads(2)), ["0@leaf-2"]);
    world.load_all(2);
    assert_eq!(world.label(), "full");
    world.tell(Event::Placed(placed(1, 2)));
    let dropped = world.effects.iter().filter(|it| matches!(it, Effect::Drop { .. })).count();
    assert_eq!(dropped, 2, "both versions of the one that left");
}
