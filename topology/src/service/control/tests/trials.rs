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
    (seen.comparison.control.queries, seen.comparison.treatment.queries) = (200, 200);
    seen.comparison.treatment.errors = 100;
    world.hear(&root("root-1", 94, vec![seen]));
    pass_time(&mut world);
    assert_eq!(world.pins(), [(1, 10_000)], "it is judged as before");
}
