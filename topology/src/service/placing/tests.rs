//! Placements that are computed, reached step by step, under the eyes of whoever asks a shard at any time.

mod lost;

use std::time::Duration;

use canopy_common::{
    config::Time,
    ids::{Epoch, Version},
};
use canopy_proto::topology::{self as wire, NodeReport, held};
use proptest::prelude::*;
use tokio::time::Instant;

use super::*;
use crate::{
    config::{Placement, TopologyConfig},
    gates::{Comparison, wire::Seen},
    rollout::{Policy, Step},
    routing::Trial,
    service::report::Word,
};

/// A tree whose leaves do what they are told, one after the other.
struct Tree {
    control: Control,
    now: Instant,
    leaves: BTreeMap<String, BTreeSet<(u64, String)>>,
    /// How many shards a version has; what is not named has all.
    shards: BTreeMap<u64, u32>,
    batch: u64,
}

impl Tree {
    fn of(leaves: usize, shards: u32, replicas: u32) -> Self {
        let now = Instant::now();
        let control = Control::new(super::super::desired::Desired::default(), Epoch(1), now);
        let mut tree = Self { control, now, leaves: BTreeMap::new(), shards: BTreeMap::new(), batch: 0 };
        (0..leaves).for_each(|number| tree.join(number));
        tree.place(&PlaceAsked { replicas, shards, ..asked() }).unwrap();
        let start =
            Event::Start { to: Version(1), by: "ann".into(), policy: Policy::default(), supersede: false };
        tree.control.command("web", start).unwrap();
        for _ in 0..200 {
            tree.round(usize::MAX);
        }
        assert_eq!(tree.control.desired().corpora["web"].live, Some(Version(1)));
        tree
    }

    fn join(&mut self, number: usize) {
        self.leaves.insert(format!("leaf-{number}"), BTreeSet::new());
        self.report(&format!("leaf-{number}"));
    }

    fn report(&mut self, leaf: &str) {
        let Some(holds) = self.leaves.get(leaf) else { return };
        let held = holds.iter().map(|(version, shard)| {
            let void = !self.has(*version, &shard.parse().unwrap());
            wire::Held {
                corpus: "web".into(),
                version: *version,
                shard: shard.clone(),
                state: if void { held::State::Void } else { held::State::Resident } as i32,
                bytes: if void { 0 } else { 1000 },
                memory: if void { 0 } else { 500 },
                ..wire::Held::default()
            }
        });
        let number: usize = leaf.trim_start_matches("leaf-").parse().unwrap();
        let report = NodeReport {
            node: leaf.into(),
            role: "leaf".into(),
            address: format!("h:{}", number + 1),
            zone: format!("zone-{}", number % 2),
            held: held.collect(),
            capacity: Some(wire::Capacity { memory: 1 << 20, disk: 0, cores: 4 }),
            ..NodeReport::default()
        };
        let word = Word::check(&report).unwrap();
        if self.control.renew(&word, self.now).is_none() {
            self.control.hear(word, self.now).unwrap();
        }
    }

    /// At most `most` leaves take one shard each, and drop what they need not hold; time goes by.
    fn round(&mut self, most: usize) {
        let snapshot = self.control.snapshot().clone();
        let mut left = most;
        for leaf in self.leaves.keys().cloned().collect::<Vec<_>>() {
            let id = NodeId::from(leaf.as_str());
            let wanted: BTreeSet<(u64, String)> = snapshot
                .wanted(&id)
                .filter_map(|(_, version, shard)| Some((version?.0, shard.to_string())))
                .collect();
            let holds = self.leaves.get_mut(&leaf).unwrap();
            holds.retain(|held| wanted.contains(held));
            if left > 0
                && let Some(next) = wanted.iter().find(|it| !holds.contains(*it))
            {
                holds.insert(next.clone());
                left -= 1;
            }
            self.report(&leaf);
        }
        self.root();
        self.now += Duration::from_millis(500);
        self.control.tick(Duration::from_millis(500), self.now);
    }

    fn has(&self, version: u64, shard: &ShardId) -> bool {
        self.shards.get(&version).is_none_or(|count| shard.number < *count)
    }

    /// Opens every version, and tells of a trial where both arms can be asked of the same leaves.
    fn root(&mut self) {
        let snapshot = self.control.snapshot().clone();
        let corpus = &snapshot.corpora["web"];
        let versions = corpus.versions.keys().map(|version| version.0).chain([1]).collect::<BTreeSet<_>>();
        let statistics = |version| wire::Held {
            corpus: "web".into(),
            version,
            state: held::State::Resident as i32,
            ..wire::Held::default()
        };
        let comparable = |version: Version, other: Version| {
            let both = corpus.both(version, other).unwrap_or_default();
            let mut placed = self.placed().into_keys().filter(|shard| self.has(version.0, shard));
            placed.all(|shard| both.get(&shard).is_some_and(|leaves| !leaves.is_empty()))
        };
        let saw = |trial: &Trial| {
            let mut seen = Seen::of("web", trial);
            let Comparison { control, treatment, overlap, .. } = &mut seen.comparison;
            for arm in [control, treatment] {
                arm.queries = 100;
                (0..100).for_each(|at| arm.latencies.record(10_000 + at));
            }
            overlap.record(1.0);
            seen.to_wire()
        };
        let trial = corpus.trial.filter(|trial| {
            comparable(trial.version, trial.control) && comparable(trial.control, trial.version)
        });
        self.batch += 1;
        let report = NodeReport {
            node: "root".into(),
            role: "root".into(),
            address: "h:999".into(),
            held: versions.into_iter().map(statistics).collect(),
            trials: trial.iter().map(saw).collect(),
            batch: self.batch,
            ..NodeReport::default()
        };
        self.control.hear(Word::check(&report).unwrap(), self.now).unwrap();
    }

    fn place(&mut self, asked: &PlaceAsked) -> Result<(Vec<String>, Value)> {
        self.control.place(asked, false)
    }

    /// Leaves that have each shard now, and keep it.
    fn answering(&self) -> BTreeMap<ShardId, usize> {
        let snapshot = self.control.snapshot();
        let wanted = &snapshot.corpora["web"].versions[&Version(1)].wanted;
        let holds = |node: &NodeId, shard: &ShardId| {
            self.leaves.get(&*node.0).is_some_and(|holds| holds.contains(&(1, shard.to_string())))
        };
        wanted
            .iter()
            .map(|(shard, nodes)| (shard.clone(), nodes.iter().filter(|node| holds(node, shard)).count()))
            .collect()
    }

    fn placed(&self) -> BTreeMap<ShardId, Vec<NodeId>> {
        self.control.desired().corpora["web"].seen.placed.clone()
    }

    fn moving(&self) -> usize {
        let status = self.control.corpora_status();
        status["web"]["placement"]["moving"].as_array().unwrap().len()
    }

    /// Until nothing is moved any more; of no shard answer fewer than `least` meanwhile.
    fn settle(&mut self, least: usize) {
        for _ in 0..500 {
            if self.moving() == 0 {
                return;
            }
            self.round(1);
            let answering = self.answering();
            assert!(answering.values().all(|count| *count >= least), "{answering:?}");
        }
        panic!("it does not settle: {:#}", self.control.corpora_status());
    }
}

fn asked() -> PlaceAsked {
    PlaceAsked { corpus: "web".into(), by: "ann".into(), ..PlaceAsked::default() }
}

#[test]
fn a_first_placement_is_even_though_nobody_knows_how_large_the_shards_are() {
    for (leaves, shards, replicas) in [(4, 2, 2), (4, 4, 2), (6, 3, 2), (3, 6, 1), (8, 4, 2)] {
        let tree = Tree::of(leaves, shards, replicas);
        let mut held: BTreeMap<NodeId, usize> = BTreeMap::new();
        tree.placed().into_values().flatten().for_each(|node| *held.entry(node).or_default() += 1);
        let share = (shards * replicas) as usize / leaves;
        assert!(held.len() == leaves && held.values().all(|count| *count == share), "{held:?}");
    }
}

#[test]
fn replicas_are_added_and_a_leaf_is_emptied_while_every_shard_answers() {
    let mut tree = Tree::of(4, 4, 2);
    tree.settle(2);
    let before = tree.placed();
    assert!(before.values().all(|nodes| nodes.len() == 2));
    for nodes in before.values() {
        let zone = |node: &NodeId| node.0.trim_start_matches("leaf-").parse::<usize>().unwrap() % 2;
        assert_ne!(zone(&nodes[0]), zone(&nodes[1]), "spread over both zones: {nodes:?}");
    }
    // A plan changes nothing.
    let more = PlaceAsked { replicas: 3, ..asked() };
    let (done, plan) = tree.control.place(&more, true).unwrap();
    assert!(done.is_empty() && tree.placed() == before);
    // One new replica of each shard, and at most one that goes elsewhere so that each leaf holds three.
    let moves = plan["moves"].as_array().unwrap().len();
    assert!((4..=5).contains(&moves), "{plan:#}");
    assert_eq!((&plan["bytes"], &plan["total_bytes"]), (&(moves * 1000).into(), &12_000.into()));
    // Then it is done: nothing is dropped, and what was there answers all the time.
    let (done, _) = tree.place(&more).unwrap();
    assert!(done[0].contains(&format!("{moves} moves")), "{done:?}");
    tree.settle(2);
    assert!(tree.placed().values().all(|nodes| nodes.len() == 3));
    // One leaf goes: what it holds is loaded elsewhere first.
    let emptied = NodeId::from("leaf-0");
    let remove = PlaceAsked { remove: vec![emptied.clone()], ..asked() };
    tree.place(&remove).unwrap();
    tree.settle(2);
    assert!(tree.placed().values().all(|nodes| nodes.len() == 3 && !nodes.contains(&emptied)));
    // It stays empty, and can be forgotten once it is away.
    assert!(tree.control.forget(&emptied, "ann").unwrap_err().to_string().contains("stop it"));
    tree.leaves.remove("leaf-0");
    for _ in 0..10 {
        tree.round(1);
    }
    assert!(tree.control.forget(&NodeId::from("leaf-1"), "ann").is_err());
    tree.control.forget(&emptied, "ann").unwrap();
    assert!(!tree.control.snapshot().nodes.contains_key(&emptied));
    let audit = tree.control.audited().join("\n");
    assert!(
        audit.contains("ann empties leaf-0") && audit.contains("every shard is where it shall be"),
        "{audit}"
    );
}

#[test]
fn a_leaf_that_joins_is_filled_only_when_somebody_asks_for_it() {
    let mut tree = Tree::of(4, 16, 2);
    let before = tree.placed();
    tree.join(9);
    for _ in 0..10 {
        tree.round(1);
    }
    assert_eq!(tree.placed(), before);
    let (_, plan) = tree.control.place(&asked(), true).unwrap();
    let moves = plan["moves"].as_array().unwrap();
    let to_it = moves.iter().filter(|it| it["load"] == "leaf-9").count();
    assert!(to_it >= 4 && moves.len() <= to_it + 2, "about its share and little else: {plan:#}");
    tree.place(&asked()).unwrap();
    tree.settle(2);
    let on_it = tree.placed().values().filter(|nodes| nodes.contains(&"leaf-9".into())).count();
    assert!((4..=8).contains(&on_it), "{on_it} of 32 replicas on one of five");
}

#[test]
fn what_cannot_be_done_is_refused_with_the_reason() {
    let mut tree = Tree::of(3, 4, 2);
    let message = |result: Result<(Vec<String>, Value)>| result.unwrap_err().to_string();
    let before = tree.placed();
    let many = message(tree.place(&PlaceAsked { replicas: 4, ..asked() }));
    assert!(
        many.contains("too few leaves: 4 shards of main want 4 replicas") && many.contains("are 3 leaves"),
        "{many}"
    );
    let all = ["leaf-0", "leaf-1"].map(NodeId::from).to_vec();
    assert!(message(tree.place(&PlaceAsked { remove: all, ..asked() })).contains("there are 1 leaves"));
    let nobody = PlaceAsked { remove: vec!["nobody".into()], ..asked() };
    assert!(message(tree.place(&nobody)).contains("there is no leaf"));
    assert!(
        message(tree.place(&PlaceAsked { corpus: "news".into(), ..asked() })).contains("how many shards")
    );
    assert!(
        message(tree.place(&PlaceAsked { group: "fresh".into(), ..asked() })).contains("placed are: main")
    );
    assert!(
        message(tree.place(&PlaceAsked { shards: 2, ..asked() }))
            .contains("main has 4 shards, and v1 has main/2")
    );
    let many = message(tree.place(&PlaceAsked { shards: 100_000, ..asked() }));
    assert!(many.contains("100000 shards; write 1 to 1024"), "{many}");
    assert_eq!(tree.placed(), before);
    assert!(!tree.control.desired().nodes[&NodeId::from("leaf-0")].emptied, "nothing of it was done");
}

#[test]
fn what_was_shown_is_done_or_nothing() {
    let mut tree = Tree::of(4, 8, 2);
    tree.join(9);
    let (_, plan) = tree.control.place(&asked(), true).unwrap();
    let shown = plan["plan"].as_str().unwrap().to_owned();
    let (_, again) = tree.control.place(&asked(), true).unwrap();
    assert_eq!(again["plan"], plan["plan"], "looked at twice it is the same");
    // Another leaf comes between the two.
    tree.join(10);
    let before = (tree.placed(), tree.control.desired().placings.clone());
    let asked_of = |plan: &str| PlaceAsked { plan: plan.to_owned(), ..asked() };
    let refused = tree.place(&asked_of(&shown)).unwrap_err().to_string();
    assert!(refused.contains(&shown) && refused.contains("changed since it was shown"), "{refused}");
    assert_eq!((tree.placed(), tree.control.desired().placings.clone()), before, "nothing was done");
    let emptied = PlaceAsked { remove: vec!["leaf-0".into()], ..asked_of(&shown) };
    assert!(tree.place(&emptied).is_err(), "another wish");
    assert!(!tree.control.desired().nodes[&NodeId::from("leaf-0")].emptied);
    let (_, now) = tree.control.place(&asked(), true).unwrap();
    let (_, done) = tree.place(&asked_of(now["plan"].as_str().unwrap())).unwrap();
    assert_eq!(done["moves"], now["moves"]);
    tree.settle(2);
}

#[test]
fn a_placement_of_the_configuration_beats_a_computed_one() {
    let mut tree = Tree::of(3, 1, 2);
    let node = |id: &str, port: usize| {
        crate::config::NodeConfig::at(id, crate::config::Role::Leaf, format!("h:{port}"))
    };
    let config = TopologyConfig {
        nodes: vec![node("leaf-0", 1), node("leaf-1", 2), node("leaf-2", 3)],
        placements: vec![Placement {
            corpus: "web".into(),
            shards: vec!["main/0".into()],
            replicas: vec!["leaf-0".into(), "leaf-1".into(), "leaf-2".into()],
            version: 0,
        }],
        ..TopologyConfig::default()
    };
    tree.control.configure(&config).unwrap();
    tree.settle(2);
    assert_eq!(tree.placed()[&ShardId::new("main", 0)].len(), 3, "reached like any other");
    let refused = tree.place(&PlaceAsked { replicas: 2, ..asked() }).unwrap_err().to_string();
    assert!(refused.contains("beats one that is computed") && refused.contains("restart"), "{refused}");
    let (_, plan) = tree.control.place(&PlaceAsked { replicas: 2, ..asked() }, true).unwrap();
    assert!(plan["refused"].as_str().unwrap().contains("configuration"), "it can be looked at: {plan}");
}

#[test]
fn a_service_that_starts_again_goes_on_with_a_move() {
    let mut tree = Tree::of(4, 4, 2);
    tree.place(&PlaceAsked { replicas: 3, ..asked() }).unwrap();
    tree.round(1);
    assert!(tree.moving() > 0);
    tree.control = Control::new(tree.control.desired().clone(), Epoch(9), tree.now);
    tree.settle(2);
    assert!(tree.placed().values().all(|nodes| nodes.len() == 3));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn whatever_is_asked_no_shard_falls_below_what_it_had_or_shall_have(
        wishes in prop::collection::vec((0_u8..3, 0_usize..6, 1_u32..4), 1..6),
    ) {
        let mut tree = Tree::of(6, 5, 2);
        let mut least = 2;
        for (kind, leaf, replicas) in wishes {
            let wish = match kind {
                0 => PlaceAsked { replicas, ..asked() },
                1 => PlaceAsked { remove: vec![format!("leaf-{leaf}").as_str().into()], ..asked() },
                _ => {
                    let _all_may_be_here = tree.control.drain(&format!("leaf-{leaf}").as_str().into(), true, "ann");
                    asked()
                }
            };
            if tree.place(&wish).is_ok() && wish.replicas > 0 {
                least = least.min(wish.replicas as usize);
            }
            // The next one may come in the middle of it.
            for _ in 0..3 {
                tree.round(1);
                prop_assert!(tree.answering().values().all(|count| *count >= least), "{:?}", tree.answering());
            }
        }
        tree.settle(least);
        for nodes in tree.placed().values() {
            let distinct: BTreeSet<_> = nodes.iter().collect();
            prop_assert_eq!(distinct.len(), nodes.len());
        }
    }
}

/// Rolls a version out step by step, each judged, to its end; what the gates said that they can't judge.
fn roll_out(tree: &mut Tree, to: u64) -> BTreeSet<String> {
    let step = |percent, sample| Step { percent, bake: Time::ms(0), sample };
    let steps = vec![step(0, 100), step(1, 200), step(50, 200), step(100, 0)];
    let (retain, grace) = (Time::ms(1000), Time::ms(1000));
    let policy = Policy { steps, retain, grace, ..Policy::default() };
    let start = Event::Start { to: Version(to), by: "ann".into(), policy, supersede: false };
    tree.control.command("web", start).unwrap();
    let mut skipped = BTreeSet::new();
    for _ in 0..300 {
        tree.round(usize::MAX);
        skipped.extend(tree.control.judgement("web").into_iter().flat_map(|it| it.skipped));
        let state = &tree.control.desired().corpora["web"];
        if state.live == Some(Version(to)) && state.active.is_none() {
            return skipped;
        }
    }
    panic!("it does not end: {:#}\n{:?}", tree.control.corpora_status(), tree.control.audited());
}

#[test]
fn a_version_of_twice_the_shards_is_rolled_out_and_one_of_fewer_after_it() {
    let mut tree = Tree::of(4, 4, 2);
    tree.shards = [(1, 4), (2, 8), (3, 4)].into();
    let place = |tree: &mut Tree, shards| tree.place(&PlaceAsked { shards, ..asked() });
    let settle = |tree: &mut Tree| (0..200).for_each(|_| tree.round(1));
    settle(&mut tree);
    assert!(!roll_out(&mut tree, 4).iter().any(|skipped| skipped.contains("shards")), "alike");
    tree.shards.insert(4, 4);
    // The shards of both are placed; the version that serves lacks half of them, and nothing waits for these.
    place(&mut tree, 8).unwrap();
    settle(&mut tree);
    assert_eq!((tree.moving(), tree.placed().len(), tree.control.alarms(tree.now)), (0, 8, 0));
    let skipped = roll_out(&mut tree, 2);
    assert!(
        skipped.iter().any(|it| it.contains("latencies (the versions have 4 and 8 shards")),
        "{skipped:?}"
    );
    let audit = tree.control.audited().join("\n");
    assert!(audit.contains("canary 50 % passed over") && audit.contains("shadow passed over"), "{audit}");
    // Fewer: only once nothing that is kept has them.
    let error = place(&mut tree, 4).unwrap_err().to_string();
    assert!(error.contains("main has 8 shards, and v2 has main/4"), "{error}");
    let skipped = roll_out(&mut tree, 3);
    assert!(skipped.iter().any(|it| it.contains("the versions have 8 and 4 shards")), "{skipped:?}");
    place(&mut tree, 4).unwrap();
    settle(&mut tree);
    assert_eq!((tree.moving(), tree.placed().len(), tree.control.alarms(tree.now)), (0, 4, 0));
    assert!(tree.placed().values().all(|nodes| nodes.len() == 2));
}
