//! A service that has lost its store, and nodes that go on without it; moves that wait, and say for what.

use super::*;
use crate::{link::kept, rollout::Phase, routing::RoutingSnapshot, service::desired::Desired as Stored};

/// Nodes that go by what they took over of the service's snapshots, as their links do.
struct Nodes {
    tree: Tree,
    now: RoutingSnapshot,
}

impl Nodes {
    /// A tree that serves version 1, one leaf that joined later, and another corpus beside; the store is lost.
    fn of_a_lost_store() -> Self {
        let mut tree = Tree::of(4, 8, 2);
        tree.join(9);
        let mut now = (**tree.control.snapshot()).clone();
        now.corpora.insert("news".to_owned(), now.corpora["web"].clone());
        tree.control = Control::new(Stored::default(), Epoch(10_000), tree.now);
        (0..4).for_each(|number| tree.report(&format!("leaf-{number}")));
        tree.report("leaf-9");
        Self { tree, now }
    }

    /// Everybody does what the snapshot of nodes says; no query of either corpus finds nobody.
    fn round(&mut self) {
        let tree = &mut self.tree;
        let next = tree.control.snapshot();
        if next.epoch > self.now.epoch {
            self.now = kept::keep(&self.now, next).map_or_else(|| (**next).clone(), |(kept, _)| kept);
        }
        for leaf in tree.leaves.keys().cloned().collect::<Vec<_>>() {
            let id = NodeId::from(leaf.as_str());
            let wanted = self.now.wanted(&id).filter(|(corpus, ..)| *corpus == "web");
            let wanted = wanted.filter_map(|(_, version, shard)| Some((version?.0, shard.to_string())));
            tree.leaves.insert(leaf.clone(), wanted.collect());
            tree.report(&leaf);
        }
        let statistics = |version: &Version| wire::Held {
            corpus: "web".into(),
            version: version.0,
            state: held::State::Resident as i32,
            ..wire::Held::default()
        };
        let report = NodeReport {
            node: "root-1".into(),
            role: "root".into(),
            address: "h:99".into(),
            held: self.now.corpora["web"].versions.keys().map(statistics).collect(),
            ..NodeReport::default()
        };
        tree.control.hear(Word::check(&report).unwrap(), tree.now).unwrap();
        tree.now += Duration::from_millis(500);
        tree.control.tick(Duration::from_millis(500), tree.now);
        for (name, corpus) in &self.now.corpora {
            assert_eq!(corpus.pins.len(), 1, "{name} is answered");
            let held = corpus.holders(corpus.pins[0].version).unwrap();
            assert_eq!(held.len(), 8, "{name}");
            let answers = |(shard, nodes): (&ShardId, &Arc<[NodeId]>)| {
                let key = (corpus.pins[0].version.0, shard.to_string());
                nodes.iter().any(|node| tree.leaves.get(&*node.0).is_some_and(|holds| holds.contains(&key)))
            };
            // What leaves hold of the other one is not modelled: they keep what they should.
            assert!(name == "news" || held.iter().all(answers), "{name}: a query would find nobody");
        }
    }

    fn start(&mut self) -> Result<Vec<String>> {
        let policy = Policy { steps: vec![Step::ALL], ..Policy::default() };
        let start = Event::Start { to: Version(1), by: "ann".into(), policy, supersede: false };
        self.tree.control.command("web", start)
    }

    fn until_live(&mut self) {
        for _ in 0..20 {
            self.round();
            let state = &self.tree.control.desired().corpora["web"];
            if state.live == Some(Version(1)) && state.active.is_none() {
                return self.round();
            }
        }
        panic!("it stands: {:#}", self.tree.control.corpora_status());
    }
}

fn sets(placed: &BTreeMap<ShardId, Vec<NodeId>>) -> BTreeMap<ShardId, BTreeSet<NodeId>> {
    placed.iter().map(|(shard, nodes)| (shard.clone(), nodes.iter().cloned().collect())).collect()
}

#[test]
fn a_lost_store_is_made_again_from_what_leaves_hold_and_nothing_moves() {
    let mut nodes = Nodes::of_a_lost_store();
    let before: BTreeMap<ShardId, Vec<NodeId>> = {
        let wanted = &nodes.now.corpora["web"].versions[&Version(1)].wanted;
        wanted.iter().map(|(shard, nodes)| (shard.clone(), nodes.to_vec())).collect()
    };
    (0..4).for_each(|_| nodes.round());
    let refused = nodes.start().unwrap_err().to_string();
    assert!(refused.contains("leaves hold 8 shards") && refused.contains("topology place"), "{refused}");
    let asked = PlaceAsked { shards: 8, replicas: 2, ..asked() };
    let (_, plan) = nodes.tree.control.place(&asked, true).unwrap();
    assert_eq!(plan["moves"].as_array().unwrap().len(), 0, "{plan:#}");
    assert!(plan["warnings"][0].as_str().unwrap().contains("--version 1 --at-once"), "{plan:#}");
    nodes.tree.place(&asked).unwrap();
    assert_eq!(sets(&nodes.tree.placed()), sets(&before));
    let first: BTreeSet<NodeId> = nodes.tree.placed().into_values().map(|on| on[0].clone()).collect();
    assert!(first.len() > 2, "the first row is not the same few: {first:?}");
    (0..4).for_each(|_| nodes.round());
    // Another version than the one that serves would be compared with nothing.
    let unlike = |version, policy| nodes.tree.control.compared_with_nothing("web", Version(version), &policy);
    let careful = Policy::default();
    let told = unlike(2, careful.clone()).unwrap();
    assert!(told.contains("from v1") && told.contains("--version 1 --at-once"), "{told}");
    assert_eq!((unlike(1, careful.clone()), unlike(2, careful.first())), (None, None));
    nodes.start().unwrap();
    nodes.until_live();
    assert_eq!(nodes.tree.control.compared_with_nothing("web", Version(2), &careful), None, "it has one");
    assert_eq!(sets(&nodes.tree.placed()), sets(&before));
    // The nodes go by the service again, and the corpus that is not placed yet is answered as before.
    assert_eq!(nodes.now.corpora["web"], nodes.tree.control.snapshot().corpora["web"]);
    assert!(!nodes.tree.control.snapshot().corpora.contains_key("news"));
    // From now on leaves are filled like ever.
    nodes.tree.place(&super::asked()).unwrap();
    (0..100).for_each(|_| nodes.round());
    assert!(nodes.tree.placed().values().any(|on| on.contains(&"leaf-9".into())));
    assert_eq!(nodes.tree.moving(), 0);
}

#[test]
fn nothing_is_said_of_shards_and_replicas_and_all_of_it_is_found() {
    let mut nodes = Nodes::of_a_lost_store();
    nodes.tree.place(&asked()).unwrap();
    assert_eq!(nodes.tree.placed().len(), 8);
    assert!(nodes.tree.placed().values().all(|on| on.len() == 2));
    assert_eq!(nodes.tree.moving(), 0);
}

#[test]
fn what_is_asked_beside_waits_until_the_version_is_live_again() {
    let mut nodes = Nodes::of_a_lost_store();
    let found = nodes.tree.control.found("web").placed;
    let emptied = NodeId::from("leaf-0");
    let asked = PlaceAsked { shards: 8, replicas: 2, remove: vec![emptied.clone()], ..asked() };
    let (done, _) = nodes.tree.place(&asked).unwrap();
    let done = done.join("\n");
    assert!(done.contains("nothing is dropped before a version of web is live"), "{done}");
    assert_eq!(nodes.tree.placed(), found, "where they are");
    nodes.start().unwrap();
    nodes.until_live();
    (0..100).for_each(|_| nodes.round());
    assert!(nodes.tree.placed().values().all(|on| on.len() == 2 && !on.contains(&emptied)));
}

#[test]
fn leaves_that_come_late_count_until_a_version_is_live() {
    let mut nodes = Nodes::of_a_lost_store();
    let all = nodes.tree.control.found("web").placed;
    nodes.tree.control = Control::new(Stored::default(), Epoch(10_000), nodes.tree.now);
    (1..4).for_each(|number| nodes.tree.report(&format!("leaf-{number}")));
    nodes.tree.place(&PlaceAsked { shards: 8, replicas: 2, ..asked() }).unwrap();
    nodes.tree.report("leaf-0");
    let (_, plan) = nodes.tree.control.place(&asked(), true).unwrap();
    assert_eq!(plan["moves"].as_array().unwrap().len(), 0, "{plan:#}");
    nodes.tree.place(&asked()).unwrap();
    assert_eq!(sets(&nodes.tree.placed()), sets(&all));
    nodes.start().unwrap();
    nodes.until_live();
}

#[test]
fn who_was_away_when_the_service_ended_is_back_when_it_is_heard() {
    let mut tree = Tree::of(4, 8, 2);
    let leaf = NodeId::from("leaf-1");
    tree.control.tell(&leaf, true);
    for _ in 0..2 {
        tree.control = Control::new(tree.control.desired().clone(), Epoch(10_000), tree.now);
        assert!(tree.control.desired().corpora["web"].seen.away.contains(&leaf), "it is stored");
    }
    tree.report("leaf-1");
    assert!(tree.control.desired().corpora["web"].seen.away.is_empty(), "a rollout waits for it no more");
}

#[test]
fn a_move_in_the_retention_says_that_it_waits_and_forget_says_for_what() {
    let mut tree = Tree::of(4, 4, 2);
    tree.settle(2);
    let policy = Policy { steps: vec![Step::ALL], ..Policy::default() };
    let start = Event::Start { to: Version(2), by: "ann".into(), policy, supersede: false };
    tree.control.command("web", start).unwrap();
    for _ in 0..100 {
        tree.round(usize::MAX);
        if tree.control.desired().corpora["web"].active.as_ref().unwrap().phase == Phase::Retain {
            break;
        }
    }
    let emptied = NodeId::from("leaf-0");
    let (done, _) = tree.place(&PlaceAsked { remove: vec![emptied.clone()], ..asked() }).unwrap();
    let done = done.join("\n");
    assert!(done.contains("before the rollout to v2 is over (retain, 9 min"), "{done}");
    let waits = tree.control.corpora_status()["web"]["placement"]["waits"].clone();
    assert!(waits.as_str().unwrap().contains("the rollout to v2 is over (retain"), "{waits}");
    tree.leaves.remove("leaf-0");
    for _ in 0..10 {
        tree.round(usize::MAX);
    }
    let refused = tree.control.forget(&emptied, "ann").unwrap_err().to_string();
    assert!(refused.contains("leaf-0 is being emptied") && refused.contains("retain, 9 min"), "{refused}");
}
