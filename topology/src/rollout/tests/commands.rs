//! Commands of people, in any order.

use super::*;
use crate::rollout::dry_run::{Load, dry_run};

fn supersede(to: u64) -> Event {
    Event::Start { to: Version(to), by: "bob".to_owned(), policy: quick(), supersede: true }
}

#[test]
fn of_versions_published_at_once_the_last_serves_and_each_ends_visibly() {
    let mut world = World::new(1, 2);
    world.all([start(2), start(3), start(4)]).tell(roots(&[1, 2, 3, 4])).load_all(4);
    for _ in 0..6 {
        world.pass().load_all(4);
    }
    let ended: Vec<_> = world.state.ended.iter().map(|it| (it.to.0, it.outcome)).collect();
    assert_eq!(ended, [(2, Outcome::Superseded), (3, Outcome::Superseded), (4, Outcome::Serving)]);
    assert_eq!(world.pins(), [(4, 10_000)]);
}

#[test]
fn a_rollout_that_answers_queries_is_waited_for_or_turned_back() {
    let mut world = World::new(1, 2);
    world.until(2, 1).tell(start(3));
    assert_eq!((world.label().as_str(), world.state.waiting.as_ref().unwrap().to.0), ("canary 1 %", 3));
    world.tell(start(4));
    assert_eq!(world.outcome(), Some((3, Outcome::Superseded)));
    assert_eq!(world.state.pinned().into_iter().map(|it| it.0).collect::<Vec<_>>(), [1, 2, 4]);
    world.tell(supersede(5));
    assert_eq!((world.label().as_str(), world.pins()), ("rolling back (superseded)", vec![(1, 10_000)]));
    world.tell(tick());
    assert_eq!((world.outcome(), world.label()), (Some((2, Outcome::Superseded)), "stage".to_owned()));
    assert_eq!(world.state.active.as_ref().unwrap().request.to.0, 5);
}

#[test]
fn a_rollback_flips_the_pins_in_one_step() {
    for percent in [1, 50, 100] {
        let mut world = World::new(2, 3);
        world.until(2, percent).tell(start(3)).tell(rollback(None));
        assert_eq!(world.pins(), [(1, 10_000)]);
        assert!(world.loads(1).is_empty(), "nothing is downloaded");
        world.tell(rollback(None)).tell(tick());
        assert_eq!((world.outcome(), world.label()), (Some((2, Outcome::RolledBack)), "none".to_owned()));
        assert_eq!(
            world.state.ended[0].outcome,
            Outcome::Aborted,
            "the one that waited does not begin either"
        );
    }
    let mut world = World::new(1, 2);
    world.until(2, 100).tell(tick());
    assert_eq!((world.label().as_str(), world.pins()), ("retain", vec![(2, 10_000)]));
    world.tell(rollback(Some(1)));
    assert_eq!(world.pins(), [(1, 10_000)]);
    let candidate = world.state.seen.replicas().next().unwrap();
    assert_eq!(world.state.wanted(&candidate), [Some(Version(1)), Some(Version(2))], "its queries still run");
    world.tell(tick());
    assert_eq!(world.state.wanted(&candidate), [Some(Version(1)), None]);
}

#[test]
fn a_rollback_to_a_dropped_version_is_a_rollout() {
    let mut world = World::new(1, 2);
    world.until(2, 100).all([tick(), tick()]);
    assert_eq!(world.label(), "none");
    world.tell(rollback(None));
    assert_eq!((world.label().as_str(), world.loads(1).len()), ("stage", 1));
    let mut world = World::new(1, 2);
    world.tell(rollback(None));
    assert!(world.refused().unwrap().contains("--to"));
    world.tell(rollback(Some(1)));
    assert_eq!(world.refused(), Some("v1 is live already"));
}

#[test]
fn a_rollback_needs_the_old_version_everywhere() {
    let mut world = World::new(1, 2);
    world.until(2, 100).tell(tick());
    let all: Vec<Replica> = world.state.seen.replicas().collect();
    world.tell(held(all, 1, Hold::Absent)).tell(rollback(None));
    assert!(world.refused().unwrap().starts_with("v1 is not resident"), "{:?}", world.effects);
    assert_eq!(world.pins(), [(2, 10_000)]);
}

#[test]
fn what_can_not_be_done_is_refused_and_changes_nothing() {
    let mut world = World::new(1, 2);
    let resume = |accept| Event::Resume { by: "ann".to_owned(), accept, at_once: false };
    let pause = || Event::Pause { by: "ann".to_owned() };
    let abort = || Event::Abort { by: "ann".to_owned() };
    let refuse = |world: &mut World, event: Event| {
        let before = world.state.clone();
        world.tell(event.clone());
        assert!(world.refused().is_some(), "{event:?}");
        assert_eq!(world.state, before);
    };
    for event in [pause(), resume(false), abort(), start(1), start(0), Event::Placed(BTreeMap::new())] {
        refuse(&mut world, event);
    }
    let policy = Policy { steps: Vec::new(), ..quick() };
    refuse(&mut world, Event::Start { to: Version(2), by: String::new(), policy, supersede: true });
    world.until(2, 100);
    refuse(&mut world, resume(false));
    world.tell(tick());
    for event in [abort(), start(1), start(2)] {
        let before = world.state.clone();
        world.tell(event);
        assert_eq!(world.state, before);
    }
    world.tell(rollback(None));
    refuse(&mut world, pause());
}

#[test]
fn accepting_passes_a_step_and_aborting_ends_it() {
    let mut world = World::new(1, 2);
    world.until(2, 1);
    world.tell(Event::Resume { by: "ann".to_owned(), accept: true, at_once: false }).tell(tick());
    assert_eq!(world.label(), "canary 1 %, loading for canary 50 %");
    world.tell(Event::Abort { by: "ann".to_owned() }).tell(tick());
    assert_eq!(world.outcome(), Some((2, Outcome::Aborted)));
    world.tell(start(3)).tell(Event::Abort { by: "ann".to_owned() });
    assert_eq!(world.outcome(), Some((3, Outcome::Aborted)), "it answered no query: at once");
}

#[test]
fn a_dry_run_says_what_would_happen() {
    let world = World::new(2, 6);
    let bytes = world.state.seen.placed.keys().map(|shard| (shard.clone(), 1 << 30)).collect();
    let load = Load { queries_per_second: 600.0, bytes, ..Load::default() };
    let run = dry_run(&world.state, Version(2), &Policy::default(), false, &load);
    let waves: Vec<Vec<usize>> =
        run.steps.iter().map(|step| step.waves.iter().map(|wave| wave.replicas).collect()).collect();
    let rows: Vec<usize> = run.steps.iter().map(|step| step.rows).collect();
    assert_eq!(rows, [1, 1, 2, 3, 6]);
    assert_eq!(waves.iter().flatten().sum::<usize>(), 12, "every replica once: {waves:?}");
    assert!(waves.iter().flatten().all(|replicas| *replicas <= 2), "one leaf at a time: {waves:?}");
    assert_eq!(run.steps[3].new_replica_qps, 100.0);
    assert_eq!(run.steps[1].sample_seconds, Some(4_600.0 / 6.0));
    assert_eq!(run.steps[0].waves[0].bytes, run.steps[0].waves[0].replicas as u64 * (1 << 30));
    assert_eq!(run.warnings, Vec::<String>::new());
    assert_eq!(run.answer, ["dry run starts a rollout to v2"]);
    // Judged queries change nothing of what is loaded when.
    let line = |at: usize| format!("{{\"q\":\"query {at}\",\"gains\":{{\"k\":1}}}}\n");
    let judged = (0..20).map(line).collect::<String>().as_str().into();
    let policy = Policy { judged, ..Policy::default() };
    assert_eq!(dry_run(&world.state, Version(2), &policy, false, &load).steps, run.steps);

    let small = World::new(1, 1);
    let load = Load { queries_per_second: 0.1, ..load };
    let run = dry_run(&small.state, Version(2), &Policy::default(), false, &load);
    assert!(run.warnings.iter().any(|it| it.contains("single replica")), "{:?}", run.warnings);
    assert!(run.warnings.iter().any(|it| it.contains("halts after")), "{:?}", run.warnings);
    let run = dry_run(&small.state, Version(1), &Policy::default(), false, &load);
    assert_eq!((run.refused.as_deref(), run.steps.len()), (Some("v1 is live already"), 0));
}

#[test]
fn a_dry_run_over_15600_leaves() {
    let nodes =
        |shard: u32| (0..78).map(|row| NodeId::from(format!("leaf-{row}-{shard}").as_str())).collect();
    let placed = (0..200).map(|shard| (ShardId::new("main", shard), nodes(shard))).collect();
    let (state, _) = step(&State::serving(Version(1)), Event::Placed(placed));
    let policy = Policy { max_unavailable: 8, ..Policy::default() };
    let run = dry_run(&state, Version(2), &policy, false, &Load::default());
    let waves: Vec<usize> = run.steps.iter().map(|step| step.waves.len()).collect();
    // Rows 1, 8, 39 and 78, by eight.
    assert_eq!(waves, [1, 0, 1, 4, 5], "{:?}", run.steps);
    assert_eq!(
        run.steps[4].waves[0],
        crate::rollout::dry_run::Wave { replicas: 1_600, leaves: 1_600, bytes: 0 }
    );
}

#[test]
fn a_dry_run_says_what_another_number_of_shards_costs() {
    let mut world = World::new(4, 2);
    let has = |count| Load {
        corpus: "web".to_owned(),
        shards: [("main".to_owned(), count)].into(),
        ..Load::default()
    };
    let run =
        |world: &World, count| dry_run(&world.state, Version(2), &Policy::default(), false, &has(count));
    let latencies = |run: &crate::rollout::dry_run::DryRun| {
        run.skipped.iter().find(|skipped| skipped.starts_with("latencies")).cloned()
    };
    let alike = run(&world, 4);
    assert_eq!((alike.refused.clone(), latencies(&alike), alike.steps.len()), (None, None, 5));
    let refused = run(&world, 8).refused.unwrap();
    assert!(
        refused.contains("v2 has 8 shards of main, and 4 are placed (main/4 is on no leaf)"),
        "{refused}"
    );
    assert!(refused.contains("place --corpus web --group main --shards 8"), "{refused}");
    let fewer = run(&world, 3);
    assert!(latencies(&fewer).unwrap().contains("v1 and the new version have 4 and 3 shards"), "{fewer:?}");
    assert!(fewer.warnings.iter().any(|it| it.contains("1 of the placed shards are not of v2 (main/3")));
    // The version that serves does not have the last shard.
    let last = ShardId::new("main", 3);
    let void = world.state.seen.replicas().filter(|replica| replica.shard == last);
    let void = void.map(|replica| Report { replica, version: Version(1), hold: Hold::Void });
    let void = void.collect();
    world.tell(Event::Held(void));
    assert_eq!(latencies(&run(&world, 3)), None);
    assert!(latencies(&run(&world, 4)).unwrap().contains("3 and 4 shards"));
}

#[test]
fn a_dry_run_says_what_a_plan_without_a_canary_does_not_judge() {
    let world = World::new(1, 2);
    let step = |percent, sample| Step { percent, bake: canopy_common::config::Time::ms(0), sample };
    let skipped = |steps: &[Step]| {
        let policy = Policy { steps: steps.to_vec(), ..Policy::default() };
        dry_run(&world.state, Version(2), &policy, false, &Load::default()).skipped.join("; ")
    };
    let bare = skipped(&[step(0, 0), Step::ALL]);
    assert!(bare.contains("latencies: the plan has no step of 1 to 99 %"), "{bare}");
    assert!(
        bare.contains("the step at 100 %, unless an earlier one happens to compare 100 queries"),
        "{bare}"
    );
    let sampled = skipped(&[step(0, 200), Step::ALL]);
    assert!(sampled.contains("latencies") && !sampled.contains("the step at 100 %"), "{sampled}");
    let whole = skipped(&[step(0, 200), step(1, 4_600), Step::ALL]);
    assert!(!whole.contains("latencies") && !whole.contains("at 100 %"), "{whole}");
}

#[test]
fn what_is_removed_is_needed_by_nobody_whoever_comes_first() {
    let release = |version| Event::Release { version: Version(version), by: "gc".to_owned() };
    let refused = |world: &World| world.effects.iter().any(|effect| matches!(effect, Effect::Refused { .. }));
    let mut world = World::new(1, 2);
    world.tell(release(1));
    assert!(refused(&world), "it serves");
    // A rollout that begins after somebody looked, and before he removes.
    let looked = world.state.needed();
    assert!(!looked.contains(&Version(2)));
    world.tell(start(2)).tell(release(2));
    assert!(refused(&world) && world.state.removing.is_empty());
    world.until(2, 100).all([tick(), tick()]);
    while world.state.active.is_some() {
        world.tell(tick());
    }
    assert_eq!(world.state.live, Some(Version(2)));
    world.tell(release(1));
    assert!(refused(&world), "a rollback goes to it, though no leaf holds it");
    // Or he comes first: then nothing goes to it, also not back.
    world.tell(release(9));
    assert!(!refused(&world) && world.state.removing.contains(&Version(9)));
    let stored: State = serde_json::from_str(&serde_json::to_string(&world.state).unwrap()).unwrap();
    assert_eq!(stored, world.state, "also after a restart");
    for event in [start(9), rollback(Some(9))] {
        world.tell(event);
        assert!(refused(&world) && world.state.active.is_none() && world.state.waiting.is_none());
    }
    world.tell(release(9));
    assert!(!refused(&world), "once more does no harm");
    world.tell(Event::Released { version: Version(9) }).tell(start(9));
    assert!(!refused(&world) && world.state.active.is_some());
}

#[test]
fn the_audit_log_has_every_number_of_a_judgement() {
    let numbers = "overlap 0.1234 -> 0.5678 (limit 0.5, p 1.00e-9 of 2.00e-4); ".repeat(20);
    let told = |percent, verdict| {
        let mut world = World::new(1, 2);
        world.until(2, percent);
        let gate = world.state.active.as_ref().unwrap().gate;
        let (sample, reason) = (100, numbers.clone());
        world.tell(Event::Judged { gate, verdict, sample, reason, baseline: None });
        let whole = |it: &Effect| matches!(it, Effect::Audit { what, .. } if what.contains(&numbers));
        world.effects.iter().any(whole)
    };
    for percent in [0, 1] {
        for verdict in [Verdict::Pass, Verdict::SoftBreach, Verdict::HardBreach] {
            assert!(told(percent, verdict), "{percent} %, {verdict:?}");
        }
    }
}

#[test]
fn a_version_that_comes_in_the_retention_is_told_that_nothing_is_turned_back() {
    let mut world = World::new(1, 2);
    world.until(2, 100).tell(tick());
    assert_eq!(world.label(), "retain");
    world.tell(start(3));
    let said = |it: &Effect| match it {
        Effect::Audit { what, .. } => Some(what.clone()),
        _ => None,
    };
    let said: String = world.effects.iter().filter_map(said).collect();
    assert!(said.contains("v3 begins when the retention is over, in 10 s"), "{said}");
    assert!(said.contains("v2 serves on") && !said.contains("turn back"), "{said}");
}

#[test]
fn a_dry_run_asks_for_a_step_of_1_per_cent_only_where_there_can_be_one() {
    let policy = Policy { steps: vec![Step::ALL], ..Policy::default() };
    let warnings =
        |state: &State| dry_run(state, Version(2), &policy, false, &Load::default()).warnings.join("; ");
    let world = World::new(1, 2);
    assert!(warnings(&world.state).contains("put a step of 1 % before"), "{}", warnings(&world.state));
    let first = State { live: None, ..world.state.clone() };
    let said = warnings(&first);
    assert!(said.contains("the corpus's first version") && !said.contains("step of 1 %"), "{said}");
}

#[test]
fn a_dry_run_warns_of_a_shadow_step_that_is_too_short_for_its_sample() {
    let world = World::new(1, 2);
    let warnings = |rate, policy: &Policy| {
        let load = Load { queries_per_second: rate, ..Load::default() };
        dry_run(&world.state, Version(2), policy, false, &load).warnings.join("; ")
    };
    let slow = warnings(5.0, &Policy::default());
    assert!(slow.contains("at 5.0 queries/s, of which 1 % are copied"), "{slow}");
    assert!(slow.contains("shadow step takes 1 h 6 min and it halts after 32 min"), "{slow}");
    assert!(slow.contains("raise shadow_percent"), "{slow}");
    let more = warnings(5.0, &Policy { shadow_percent: 50, ..Policy::default() });
    assert!(!more.contains("shadow"), "{more}");
    assert!(!warnings(0.0, &Policy::default()).contains("shadow"), "nothing is known of the rate");
}
