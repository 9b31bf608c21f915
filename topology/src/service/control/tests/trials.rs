//! Trials through the service: whose sums count where, who asks the judged queries, what a restart keeps.

use super::*;
use crate::gates::judged::Paired;

fn judged_text() -> String {
    let lines: Vec<String> =
        (0..20).map(|at| format!("{{\"q\":\"query {at}\",\"gains\":{{\"k\":1}}}}\n")).collect();
    lines.concat()
}

fn root(node: &str, batch: u64, seen: Vec<Seen>) -> NodeReport {
    let trials = seen.iter().map(Seen::to_wire).collect();
    NodeReport { batch, trials, ..said(node, Role::Root, vec![holds(1, ""), holds(2, "")]) }
}

/// At the first step of a rollout that the judged queries belong to.
fn judged_rollout(percent: u8) -> World {
    let mut world = World::new();
    world.start(1, &[(100, 0)]).unwrap();
    world.settle();
    world.start(3, &[(100, 0)]).unwrap();
    world.control.command("web", Event::Abort { by: "ann".into() }).unwrap();
    let bake = canopy_common::config::Time::ms(0);
    let steps = vec![Step { percent, bake, sample: 0 }, Step { percent: 100, bake, sample: 0 }];
    let policy = Policy { steps, judged: judged_text().as_str().into(), ..Policy::default() };
    let start = Event::Start { to: Version(2), by: "ann".into(), policy, supersede: false };
    world.control.command("web", start).unwrap();
    for _ in 0..6 {
        world.round();
    }
    world
}

fn trial(world: &World) -> Trial {
    world.control.snapshot().corpora["web"].trial.unwrap()
}

/// Half a second.
fn pass_time(world: &mut World) {
    world.now += Duration::from_millis(500);
    world.control.tick(Duration::from_millis(500), world.now);
}

#[test]
fn one_root_at_a_time_asks_the_judged_queries_until_they_are_answered() {
    let mut world = judged_rollout(1);
    world.hear(&root("root-2", 1, vec![]));
    let now = trial(&world);
    let tasks = |world: &mut World, root: &str| {
        let tasks = world.control.judge_tasks(&root.into());
        tasks.into_iter().map(|task| (task.version, task.control, task.gate)).collect::<Vec<_>>()
    };
    assert_eq!(tasks(&mut world, "root-1"), [(2, 1, now.gate)]);
    assert_eq!(tasks(&mut world, "root-2"), []);
    assert_eq!(tasks(&mut world, "leaf-1"), []);
    assert_eq!(world.control.judged_queries("web", now.gate).unwrap().len(), 20);
    assert!(world.control.judged_queries("web", now.gate + 1).unwrap_err().to_string().contains("is over"));
    // The first root leaves: another one has the task.
    world.hear(&NodeReport { draining: true, ..root("root-1", 2, vec![]) });
    assert_eq!(tasks(&mut world, "root-2"), [(2, 1, now.gate)]);
    assert!(world.pins().contains(&(2, 100)), "the step waits for them: {:?}", world.pins());

    let mut seen = Seen::of("web", &now);
    let mut paired = Paired::default();
    (0..20).for_each(|at| paired.record(0.5, 0.5 - 0.1 * f64::from(at % 2)));
    seen.comparison.judged = Some(paired);
    world.hear(&root("root-2", 3, vec![Seen { gate: now.gate - 1, ..seen.clone() }]));
    assert_eq!(tasks(&mut world, "root-2").len(), 1, "an answer of another gate is none");
    world.hear(&root("root-2", 4, vec![seen]));
    assert_eq!(tasks(&mut world, "root-2"), []);
    pass_time(&mut world);
    assert_eq!(world.pins(), [(1, 10_000)], "five points are lost");
    let audit = world.control.audited().join("\n");
    assert!(audit.contains("HARD BREACH nDCG@10 over 20 judged queries 0.5000 -> 0.4500"), "{audit}");
}

#[test]
fn sums_of_another_gate_or_rollout_count_nowhere() {
    let mut world = judged_rollout(1);
    let now = trial(&world);
    let before = world.control.judgement("web").unwrap().sample;
    let mut seen = Seen::of("web", &now);
    seen.comparison.control.queries = 50;
    seen.comparison.treatment.queries = 50;
    let other = |gate| Seen { gate, ..seen.clone() };
    world.hear(&root(
        "root-1",
        90,
        vec![other(now.gate - 1), other(1), other(0), other(now.gate + (1 << 32))],
    ));
    assert_eq!(world.control.judgement("web").unwrap().sample, before);
    world.hear(&root("root-1", 91, vec![seen.clone()]));
    assert_eq!(world.control.judgement("web").unwrap().sample, before + 50);
    // A step that is judged anew has another number.
    world.control.command("web", Event::Pause { by: "ann".into() }).unwrap();
    world.control.command("web", Event::Resume { by: "ann".into(), accept: false, at_once: false }).unwrap();
    assert_ne!(trial(&world).gate, now.gate);
    world.hear(&root("root-1", 92, vec![seen]));
    assert_eq!(world.control.judgement("web").unwrap().sample, 0);
}

#[test]
fn a_restart_opens_the_gate_again_with_the_same_number_and_keeps_the_judged_queries() {
    let mut world = judged_rollout(1);
    let now = trial(&world);
    let stored = serde_json::to_string(&world.control.desired().corpora["web"]).unwrap();
    let mut desired = world.control.desired().clone();
    desired.corpora.insert("web".into(), serde_json::from_str(&stored).unwrap());
    world.control = Control::new(desired, Epoch(9_999_999), world.now);
    world.control.configure(&config()).unwrap();
    assert_eq!(trial(&world), now);
    world.hear(&root("root-1", 93, vec![]));
    assert_eq!(world.control.judge_tasks(&"root-1".into()).len(), 1);
    let mut seen = Seen::of("web", &now);
    // Enough for the next look.
    (seen.comparison.control.queries, seen.comparison.treatment.queries) = (1_000, 1_000);
    seen.comparison.treatment.errors = 500;
    world.hear(&root("root-1", 94, vec![seen]));
    pass_time(&mut world);
    assert_eq!(world.pins(), [(1, 10_000)], "it is judged as before");
}

/// A rollout at its first step of 1 %, which needs 400 queries; each round tells of 100 of each arm.
fn sampled() -> World {
    let mut world = World::new();
    world.start(1, &[(100, 0)]).unwrap();
    world.settle();
    let bake = canopy_common::config::Time::ms(60_000);
    let steps = vec![Step { percent: 1, bake, sample: 400 }, Step { percent: 100, bake, sample: 0 }];
    let policy = Policy { steps, grace: canopy_common::config::Time::ms(1000), ..Policy::default() };
    let start = Event::Start { to: Version(2), by: "ann".into(), policy, supersede: false };
    world.control.command("web", start).unwrap();
    world
}

/// Another service follows, which has what was stored.
fn follow(world: &mut World) {
    use crate::service::store::{FileStore, TopologyStore};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("topology.redb");
    let open = || TopologyStore::new(FileStore::open(path.to_str().unwrap()).unwrap());
    open().save(world.control.desired(), &[]).unwrap();
    let stored = open().load().unwrap();
    assert_eq!(stored, *world.control.desired());
    world.control = Control::new(stored, EPOCH, world.now);
    world.control.configure(&config()).unwrap();
}

#[test]
fn a_failover_after_each_look_changes_nothing_of_the_verdict() {
    let run = |followed: bool, errors: u64| {
        let (mut world, mut said, mut looks, mut last) = (sampled(), Vec::new(), 0, None);
        for _ in 0..40 {
            world.round();
            let audit = world.control.audited();
            said.extend(audit.into_iter().filter(|line| line.contains("look ")));
            world.errors = errors;
            let kept = world.control.desired().gates.get("web").cloned();
            if followed && kept.is_some() && kept != last {
                follow(&mut world);
                looks += 1;
                world.control.audited();
            }
            last = kept;
        }
        (said, world.pins(), world.control.desired().gates.len(), looks)
    };
    for errors in [0, 20] {
        let (said, pins, gates, _) = run(false, errors);
        let (again, same_pins, same_gates, looks) = run(true, errors);
        assert!(looks > 0 && !said.is_empty(), "{said:?}");
        assert_eq!((&said, &pins, gates), (&again, &same_pins, same_gates));
    }
    let (passed, ..) = run(true, 0);
    assert!(passed[0].contains("passed over 400 queries an arm: look 3 at 400 queries an arm"), "{passed:?}");
    let (broken, pins, gates, _) = run(true, 20);
    assert!(broken[0].contains("HARD BREACH errors"), "{broken:?}");
    assert_eq!((pins, gates), (vec![(1, 10_000)], 0), "a rollout that is over leaves nothing behind");
}

#[test]
fn a_plan_without_a_canary_is_judged_at_100_per_cent_by_what_was_compared_or_says_that_it_is_not() {
    let skipped = |sample: u64| {
        let mut world = World::new();
        world.start(1, &[(100, 0)]).unwrap();
        world.settle();
        let step = |percent, sample, minutes: u64| Step {
            percent,
            bake: canopy_common::config::Time::ms(minutes * 60_000),
            sample,
        };
        let policy = Policy { steps: vec![step(0, sample, 0), step(100, 0, 5)], ..Policy::default() };
        let start = Event::Start { to: Version(2), by: "ann".into(), policy, supersede: false };
        world.control.command("web", start).unwrap();
        for _ in 0..20 {
            world.round();
        }
        assert_eq!(world.pins(), [(2, 10_000)]);
        let status = world.control.corpora_status();
        assert_eq!(status["web"]["rollout"]["state"], "full");
        status["web"]["judgement"]["skipped"].to_string()
    };
    let judged = skipped(200);
    assert!(judged.contains("shares are compared with the step before"), "{judged}");
    let unjudged = skipped(0);
    assert!(unjudged.contains("anything (no control is left, and no step before compared 100"), "{unjudged}");
}
