//! What nodes say of themselves: that the same word costs nothing, which process a node is, how well it is, what it lacks.

use canopy_proto::topology::{Load, ShardLoad};

use super::*;
use crate::service::{
    desired::Standing,
    replicas::{AWAY, BEHIND},
};

/// A world in which a version serves.
fn serving() -> World {
    let mut world = World::new();
    world.start(1, &[(100, 0)]).unwrap();
    world.settle();
    world
}

fn word(world: &World, leaf: &'static str) -> NodeReport {
    said(leaf, Role::Leaf, world.leaves[leaf].clone())
}

#[test]
fn a_word_that_changes_nothing_is_a_renewal_and_any_other_is_not() {
    let mut world = serving();
    let renews = |world: &mut World, report: &NodeReport| {
        let before = world.control.desired().clone();
        let renewed = world.control.renew(&Word::check(report).unwrap(), world.now).is_some();
        assert_eq!(*world.control.desired(), before, "whatever it is, nothing stored is changed by looking");
        renewed
    };
    let same = word(&world, "leaf-1");
    assert!(renews(&mut world, &same));
    let busy = NodeReport { load: Some(Load { queries: 5, ..Load::default() }), ..same.clone() };
    assert!(renews(&mut world, &busy), "what it does is not stored");
    let changes: [fn(&mut NodeReport); 8] = [
        |it| it.zone = "b".into(),
        |it| it.draining = true,
        |it| it.held.truncate(1),
        |it| it.held[0].reason = "x".into(),
        |it| it.held[0].state = held::State::Loading as i32,
        |it| it.held.push(holds(7, "main/0")),
        |it| it.epoch = u64::MAX / 4,
        |it| it.node = "leaf-3".into(),
    ];
    for change in changes {
        let mut other = same.clone();
        change(&mut other);
        assert!(!renews(&mut world, &other), "{other:?}");
    }
    // What it holds beside counts once somebody wants it.
    let mut early = same.clone();
    early.held.extend([holds(2, "main/0"), holds(2, "main/1")]);
    world.hear(&early);
    assert!(renews(&mut world, &early), "nobody wants that version");
    world.start(2, &[(100, 0)]).unwrap();
    assert!(!renews(&mut world, &early), "somebody does");
    world.hear(&early);
    assert!(renews(&mut world, &early));
    // And its lease was renewed all the time.
    world.now += LEASE;
    assert!(renews(&mut world, &early));
}

#[test]
fn words_that_come_together_are_taken_over_as_one_after_the_other() {
    let (mut one, mut all) = (serving(), serving());
    let held = one.leaves["leaf-1"].clone();
    let words = [
        said("leaf-1", Role::Leaf, held[..1].to_vec()),
        said("leaf-2", Role::Leaf, vec![]),
        said("leaf-1", Role::Leaf, vec![]),
        said("leaf-1", Role::Leaf, held.clone()),
        said("leaf-3", Role::Leaf, vec![]),
        said("leaf-2", Role::Leaf, held),
    ];
    for report in &words {
        one.control.hear(Word::check(report).unwrap(), one.now).unwrap();
    }
    let now = all.now;
    all.control.hear_all(words.iter().map(|report| Word::check(report).unwrap()).collect(), now);
    let of = |world: &World| (world.control.desired().corpora.clone(), world.control.desired().nodes.clone());
    assert_eq!(of(&one), of(&all));
    assert!(all.control.snapshot().epoch < one.control.snapshot().epoch, "as one change");
}

#[test]
fn a_second_process_of_a_node_is_refused_while_the_first_is_alive() {
    let mut world = serving();
    let of = |incarnation, address: &str, world: &World| NodeReport {
        incarnation,
        address: address.into(),
        ..word(world, "leaf-1")
    };
    let address = |world: &World| world.control.snapshot().nodes[&NodeId::from("leaf-1")].address.clone();
    let hear = |world: &mut World, report: NodeReport| {
        let words = vec![Word::check(&report).unwrap()];
        let now = world.now;
        world.control.hear_all(words, now).pop().unwrap()
    };
    let first = of(7, "127.0.0.1:1", &world);
    hear(&mut world, first.clone()).unwrap();
    let second = of(8, "127.0.0.1:4", &world);
    let refused = hear(&mut world, second.clone()).unwrap_err().to_string();
    assert!(
        refused.contains("leaf-1 at 127.0.0.1:1 is taken") && refused.contains("another id"),
        "{refused}"
    );
    assert!(world.control.renew(&Word::check(&second).unwrap(), world.now).unwrap().is_err());
    assert_eq!(address(&world), "127.0.0.1:1");
    // Until the first is away.
    world.now += LEASE * 2;
    world.control.tick(Duration::from_millis(500), world.now);
    hear(&mut world, second).unwrap();
    assert_eq!(address(&world), "127.0.0.1:4");
    assert!(hear(&mut world, first).is_err(), "and then the first is the second");
    // Started again where it stood, it is the node at once.
    let again = of(9, "127.0.0.1:4", &world);
    hear(&mut world, again).unwrap();
    // One that leaves makes room.
    let leaving = NodeReport { draining: true, ..of(9, "127.0.0.1:4", &world) };
    hear(&mut world, leaving).unwrap();
    let moved = of(10, "127.0.0.1:5", &world);
    hear(&mut world, moved).unwrap();
    assert_eq!(address(&world), "127.0.0.1:5");
}

#[test]
fn a_leaf_of_the_configuration_that_never_comes_is_away_after_a_lease() {
    let mut world = World::new();
    let away = |world: &World| world.control.desired().corpora["web"].seen.away.contains(&"leaf-2".into());
    for _ in 0..6 {
        world.hear(&said("leaf-1", Role::Leaf, vec![]));
        world.now += Duration::from_millis(500);
        world.control.tick(Duration::from_millis(500), world.now);
    }
    assert!(!away(&world), "it has a whole lease");
    world.now += Duration::from_millis(500);
    world.hear(&said("leaf-1", Role::Leaf, vec![]));
    world.control.tick(Duration::from_millis(500), world.now);
    assert!(away(&world), "a rollout does not wait for it");
    world.hear(&said("leaf-2", Role::Leaf, vec![]));
    assert!(!away(&world));
}

/// A second in which each leaf did so many queries, with so many errors and such a latency.
fn second(
    world: &mut World,
    totals: &mut BTreeMap<&'static str, Load>,
    did: &[(&'static str, u64, u64, f64)],
) {
    for (leaf, queries, errors, latency_p90_us) in did {
        let load = totals.entry(*leaf).or_default();
        (load.queries, load.errors) = (load.queries + queries, load.errors + errors);
        load.latency_p90_us = *latency_p90_us;
        load.shards = vec![ShardLoad { corpus: "web".into(), shard: "main/0".into(), queries: load.queries }];
        let report = NodeReport { load: Some(load.clone()), ..word(world, leaf) };
        world.hear(&report);
    }
    world.now += Duration::from_secs(1);
    world.control.tick(Duration::from_secs(1), world.now);
}

#[test]
fn a_slow_leaf_is_named_last_and_a_failing_one_is_not_asked_where_another_answers() {
    let mut world = serving();
    let mut totals = BTreeMap::new();
    let health = |world: &World, leaf: &str| {
        let nodes = world.control.nodes_status();
        let node = nodes.as_array().unwrap().iter().find(|node| node["node"] == leaf).unwrap().clone();
        node["health"].as_str().unwrap().to_owned()
    };
    let fine = [("leaf-1", 100, 0, 10_000.0), ("leaf-2", 100, 0, 10_000.0)];
    for _ in 0..3 {
        second(&mut world, &mut totals, &fine);
    }
    assert_eq!(health(&world, "leaf-1"), "healthy");
    let epoch = world.control.snapshot().epoch;
    second(&mut world, &mut totals, &fine);
    assert_eq!(world.control.snapshot().epoch, epoch, "nothing to tell");
    let slow = [("leaf-1", 100, 0, 50_000.0), ("leaf-2", 100, 0, 10_000.0)];
    for _ in 0..2 {
        second(&mut world, &mut totals, &slow);
        assert_eq!(world.held(1, 0), ["leaf-1", "leaf-2"], "one bad second or two say nothing");
    }
    second(&mut world, &mut totals, &slow);
    assert_eq!(health(&world, "leaf-1"), "sub_healthy");
    assert_eq!(world.held(1, 0), ["leaf-2", "leaf-1"]);
    for _ in 0..9 {
        second(&mut world, &mut totals, &fine);
    }
    assert_eq!(world.held(1, 0), ["leaf-2", "leaf-1"], "back only after ten good ones");
    second(&mut world, &mut totals, &fine);
    assert_eq!(world.held(1, 0), ["leaf-1", "leaf-2"]);
    let failing = [("leaf-1", 100, 80, 10_000.0), ("leaf-2", 100, 0, 10_000.0)];
    for _ in 0..3 {
        second(&mut world, &mut totals, &failing);
    }
    assert_eq!(health(&world, "leaf-1"), "faulty");
    assert_eq!(world.asked(1, 0), ["leaf-2"]);
    assert_eq!(world.held(1, 0), ["leaf-2", "leaf-1"], "it answers where leaf-2 does not");
    assert_eq!(world.control.desired().nodes[&NodeId::from("leaf-1")].standing, Standing::Faulty);
    let both = [("leaf-1", 100, 80, 10_000.0), ("leaf-2", 100, 80, 10_000.0)];
    for _ in 0..3 {
        second(&mut world, &mut totals, &both);
    }
    assert_eq!(world.asked(1, 0).len(), 2, "when all fail it is not theirs");
    let audit = world.control.audited().join("\n");
    assert!(audit.contains("leaf-1 is faulty") && audit.contains("of its queries fail"), "{audit}");
}

#[test]
fn what_is_asked_most_is_known() {
    let mut world = serving();
    let mut totals = BTreeMap::new();
    for _ in 0..30 {
        second(&mut world, &mut totals, &[("leaf-1", 90, 0, 1.0), ("leaf-2", 10, 0, 1.0)]);
    }
    let hot = world.control.hot_status();
    assert_eq!(hot[0]["shard"], "web:main/0");
    assert!((hot[0]["queries_per_second"].as_f64().unwrap() - 100.0).abs() < 5.0, "{hot}");
    // And what a plan is made with.
    let sized = Held { bytes: 1 << 20, ..holds(1, "main/0") };
    world.hear(&said("leaf-1", Role::Leaf, vec![sized, holds(1, "main/1")]));
    let load = world.control.load_of("web");
    assert!((load.queries_per_second - 100.0).abs() < 5.0, "{load:?}");
    assert_eq!(load.bytes, [(ShardId::new("main", 0), 1 << 20)].into());
    assert_eq!(world.control.load_of("news").queries_per_second, 0.0);
}

#[test]
fn every_replica_has_a_line_and_one_that_stays_behind_is_an_alarm() {
    let mut world = serving();
    let lines = |world: &World| world.control.replicas_status(world.now).as_array().unwrap().clone();
    let all = lines(&world);
    assert_eq!(all.len(), 4, "two shards on two leaves, also when nothing happens");
    assert!(
        all.iter().all(|line| line["state"] == "serving" && line["serving"] == line["wanted"]),
        "{all:?}"
    );
    // A rollout that only leaf-1 follows.
    world.start(2, &[(100, 0)]).unwrap();
    let failed = Held { state: held::State::Failed as i32, reason: "no room".into(), ..holds(2, "main/1") };
    let first: Vec<Held> = [1, 2].iter().flat_map(|v| [holds(*v, "main/0"), holds(*v, "main/1")]).collect();
    let second = [holds(1, "main/0"), holds(1, "main/1"), failed];
    for _ in 0..20 {
        world.hear(&said("leaf-1", Role::Leaf, first.clone()));
        world.hear(&said("leaf-2", Role::Leaf, second.to_vec()));
        world.now += Duration::from_secs(1);
        world.control.tick(Duration::from_secs(1), world.now);
    }
    let all = lines(&world);
    let of = |node: &str, shard: &str| {
        all.iter().find(|line| line["node"] == node && line["shard"] == shard).unwrap().clone()
    };
    assert_eq!(of("leaf-1", "main/0")["serving"], serde_json::json!([1, 2]));
    assert_eq!(of("leaf-2", "main/1")["serving"], serde_json::json!([1]));
    assert_eq!(world.control.alarms(world.now), 0, "not yet");
    // What could not be loaded is not wanted any more; what was told and never came is.
    assert_eq!(of("leaf-2", "main/1")["wanted"], serde_json::json!([1]));
    assert_eq!(of("leaf-2", "main/0")["wanted"], serde_json::json!([1, 2]));
    world.now += BEHIND;
    assert_eq!(world.control.alarms(world.now), 1, "{}", world.control.alarms_status(world.now));
    // A leaf that forgets what serves.
    let mut world = serving();
    for _ in 0..BEHIND.as_secs() + 3 {
        world.hear(&said("leaf-1", Role::Leaf, vec![holds(1, "main/0"), holds(1, "main/1")]));
        world.hear(&said("leaf-2", Role::Leaf, vec![holds(1, "main/0"), holds(3, "main/1")]));
        world.now += Duration::from_secs(1);
        world.control.tick(Duration::from_secs(1), world.now);
    }
    let alarms = world.control.alarms_status(world.now);
    assert_eq!(alarms.as_array().unwrap().len(), 1, "{alarms}");
    assert_eq!((&alarms[0]["node"], &alarms[0]["shard"]), (&"leaf-2".into(), &"main/1".into()));
    let all = lines(&world);
    let line = all.iter().find(|line| line["node"] == "leaf-2" && line["shard"] == "main/1").unwrap();
    assert_eq!((&line["state"], &line["retiring"]), (&"wanted".into(), &serde_json::json!([3])), "{line}");
}

#[test]
fn there_are_as_many_series_after_many_versions_as_before() {
    let registry = prometheus::Registry::new();
    let metrics = crate::service::metrics::Metrics::new(&registry);
    let series = || registry.gather().iter().map(|family| family.get_metric().len()).sum::<usize>();
    let mut world = serving();
    metrics.seen(&world.control);
    let before = series();
    for version in 2..30 {
        world.start(version, &[(100, 0)]).unwrap();
        world.settle();
        world.hear(&said(&format!("leaf-{version}"), Role::Leaf, vec![holds(version, "main/0")]));
        metrics.seen(&world.control);
    }
    assert_eq!(world.pins(), [(29, 10_000)]);
    assert_eq!(series(), before);
}

#[test]
fn nodes_are_bounded_and_known_ones_never_refused() {
    let mut world = World::new();
    let most = world.control.desired().nodes.len() + 2;
    world.control.configure(&TopologyConfig { max_nodes: most as u32, ..config() }).unwrap();
    let new = |number: usize| said(&format!("spare-{number}"), Role::Leaf, vec![]);
    let hear = |world: &mut World, report: &NodeReport| {
        let word = Word::check(report).unwrap();
        let renewed = world.control.renew(&word, world.now);
        renewed.unwrap_or_else(|| world.control.hear(word, world.now))
    };
    for number in 1..=2 {
        hear(&mut world, &new(number)).unwrap();
    }
    let error = hear(&mut world, &new(3)).unwrap_err().to_string();
    assert!(error.contains("spare-3 is new") && error.contains("topology.max_nodes"), "{error}");
    // A flood of names in one change is bounded too.
    let words = (4..50).map(|number| Word::check(&new(number)).unwrap()).collect();
    assert!(world.control.hear_all(words, world.now).iter().all(Result::is_err));
    assert_eq!(world.control.desired().nodes.len(), most);
    // Known nodes come and go, also those of the configuration, and fewer than are known may be allowed.
    world.control.configure(&TopologyConfig { max_nodes: 1, ..config() }).unwrap();
    for number in 1..=2 {
        hear(&mut world, &NodeReport { zone: "b".into(), ..new(number) }).unwrap();
    }
    hear(&mut world, &said("leaf-1", Role::Leaf, vec![])).unwrap();
    // Who is forgotten makes room.
    world.control.configure(&TopologyConfig { max_nodes: most as u32, ..config() }).unwrap();
    world.now += 2 * LEASE;
    world.control.tick(Duration::from_millis(500), world.now);
    world.control.forget(&"spare-1".into(), "ann").unwrap();
    hear(&mut world, &new(3)).unwrap();
}

#[test]
fn a_mass_lapse_is_one_line_of_the_audit_log() {
    let mut world = serving();
    let words = (1..=300).map(|at| said(&format!("spare-{at}"), Role::Leaf, vec![]));
    let words = words.map(|report| Word::check(&report).unwrap()).collect();
    assert!(world.control.hear_all(words, world.now).iter().all(Result::is_ok));
    world.control.audited();
    world.now += 2 * LEASE;
    world.control.tick(Duration::from_millis(500), world.now);
    let audit = world.control.audited();
    let away: Vec<_> = audit.iter().filter(|line| line.contains("away")).collect();
    assert_eq!(away.len(), 1, "{audit:?}");
    let here = world.control.desired().nodes.len() - 1;
    assert!(
        away[0].starts_with(&format!("{here} (leaf-1, leaf-2, root-1, spare-1, spare-10 and")),
        "{away:?}"
    );
    assert!(away[0].contains("not heard of for 3s"), "{away:?}");
    assert!((1..=300).all(|at| !world.control.is_here(&format!("spare-{at}").as_str().into())));
}

#[test]
fn a_leaf_that_was_down_has_its_whole_way_up_after_a_restart_of_the_service() {
    let mut world = serving();
    let mut totals = BTreeMap::new();
    let fine = [("leaf-1", 100, 0, 10_000.0), ("leaf-2", 100, 0, 10_000.0)];
    let failing = [("leaf-1", 100, 80, 10_000.0), ("leaf-2", 100, 0, 10_000.0)];
    for did in [fine, fine, failing, failing, failing] {
        second(&mut world, &mut totals, &did);
    }
    let standing = |world: &World| world.control.desired().nodes[&NodeId::from("leaf-1")].standing;
    assert_eq!(standing(&world), Standing::Faulty);
    for round in 0..3 {
        world.control = Control::new(world.control.desired().clone(), EPOCH, world.now);
        world.control.configure(&config()).unwrap();
        // The first word after the restart is what later ones are compared with.
        for _ in 0..10 {
            assert_eq!((standing(&world), world.asked(1, 0)), (Standing::Faulty, vec!["leaf-2".to_owned()]));
            second(&mut world, &mut totals, &fine);
            if round < 2 {
                break;
            }
        }
    }
    second(&mut world, &mut totals, &fine);
    assert_eq!((standing(&world), world.held(1, 0).len()), (Standing::Good, 2));
}

#[test]
fn a_leaf_that_is_away_is_an_alarm_and_holds_nothing_and_a_rollout_says_that_it_waits_for_it() {
    let mut world = serving();
    let first: Vec<Held> = [1, 2].iter().flat_map(|v| [holds(*v, "main/0"), holds(*v, "main/1")]).collect();
    let second = |world: &mut World| {
        world.hear(&said("leaf-1", Role::Leaf, first.clone()));
        world.hear(&said("root-1", Role::Root, vec![holds(1, ""), holds(2, "")]));
        world.now += Duration::from_secs(1);
        world.control.tick(Duration::from_secs(1), world.now);
    };
    (0..AWAY.as_secs() / 2).for_each(|_| second(&mut world));
    assert_eq!(world.control.alarms(world.now), 0, "it may only have been started again");
    (0..AWAY.as_secs()).for_each(|_| second(&mut world));
    assert_eq!(world.control.alarms(world.now), 2, "of replicas");
    let alarms = world.control.alarms_status(world.now);
    assert_eq!(alarms.as_array().unwrap().len(), 1, "one of the leaf: {alarms}");
    let alarm = &alarms[0];
    assert_eq!(
        (&alarm["node"], &alarm["shards"], &alarm["state"]),
        (&"leaf-2".into(), &2.into(), &"away".into())
    );
    assert!(alarm["last_error"].as_str().unwrap().contains("leaf-2 is away"), "{alarm}");
    world.start(2, &[(100, 0)]).unwrap();
    (0..10).for_each(|_| second(&mut world));
    let status = world.control.corpora_status();
    let rollout = &status["web"]["rollout"];
    assert_eq!((&rollout["resident"], &rollout["replicas"]), (&2.into(), &4.into()), "{rollout:#}");
    assert_eq!(rollout["waits"], "leaf-2 (away, 2 shards)", "{rollout:#}");
    // Back, it is no alarm.
    let word = word(&world, "leaf-2");
    world.hear(&word);
    second(&mut world);
    assert_eq!(world.control.alarms(world.now), 0);
}

#[test]
fn what_is_drained_already_is_said_to_be() {
    let mut world = serving();
    let leaf = NodeId::from("leaf-1");
    let mut said = |undo| world.control.drain(&leaf, undo, "ann").unwrap().join("; ");
    assert_eq!(said(true), "leaf-1 is not drained; nothing was changed");
    assert_eq!(said(false), "ann drains leaf-1");
    assert_eq!(said(false), "leaf-1 is drained already; nothing was changed");
    assert_eq!(said(true), "ann takes back leaf-1");
}

#[test]
fn who_drains_the_last_leaf_of_a_shard_is_told_which() {
    let mut world = serving();
    let said = |world: &mut World, leaf: &str, undo| {
        world.control.drain(&leaf.into(), undo, "ann").unwrap().join("; ")
    };
    assert_eq!(said(&mut world, "leaf-2", false), "ann drains leaf-2");
    let last = said(&mut world, "leaf-1", false);
    assert!(last.contains("do not stop leaf-1") && last.contains("web main/0, web main/1"), "{last}");
    // Taken back while nobody is here, there is nothing to stop.
    world.now += 2 * LEASE;
    world.control.tick(Duration::from_millis(500), world.now);
    assert_eq!(said(&mut world, "leaf-1", true), "ann takes back leaf-1");
}

#[test]
fn who_comes_back_and_who_left_is_in_the_audit_log() {
    let mut world = serving();
    let lapses = |world: &mut World| {
        let other = word(world, "leaf-2");
        world.now += LEASE + Duration::from_millis(500);
        world.hear(&other);
        world.control.tick(Duration::from_millis(500), world.now);
        world.control.audited().join("\n")
    };
    let first = lapses(&mut world);
    assert!(first.contains("leaf-1") && first.contains("away: not heard of for 3s"), "{first}");
    let back = word(&world, "leaf-1");
    world.hear(&back);
    let again = world.control.audited().join("\n");
    assert!(again.contains("leaf-1 is here again"), "{again}");
    world.hear(&NodeReport { draining: true, ..back });
    let left = lapses(&mut world);
    assert!(left.contains("leaf-1 has left, as it said") && !left.contains("leaf-1 is away"), "{left}");
}
