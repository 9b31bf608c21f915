//! The control over histories: register, roll out, lose nodes, restart.

mod trials;

use canopy_proto::topology::{Held, NodeReport, held};

use super::*;
use crate::{
    config::{NodeConfig, Placement},
    gates::wire::Seen,
    rollout::Step,
    routing::Trial,
    service::report::Word,
};

const EPOCH: Epoch = Epoch(1000);

fn config() -> TopologyConfig {
    let placement = Placement {
        corpus: "web".into(),
        shards: vec!["main/0".into(), "main/1".into()],
        replicas: vec!["leaf-1".into(), "leaf-2".into()],
        version: 0,
    };
    let node = |id: &str, role, port| NodeConfig::at(id, role, format!("127.0.0.1:{port}"));
    TopologyConfig {
        nodes: vec![
            node("leaf-1", Role::Leaf, 1),
            node("leaf-2", Role::Leaf, 2),
            node("topology", Role::Topology, 9),
        ],
        placements: vec![placement],
        ..TopologyConfig::default()
    }
}

/// A control whose nodes say what they hold.
struct World {
    control: Control,
    now: Instant,
    errors: u64,
    batch: u64,
    leaves: BTreeMap<&'static str, Vec<Held>>,
}

fn holds(version: u64, shard: &str) -> Held {
    let state = held::State::Resident as i32;
    Held { corpus: "web".into(), version, shard: shard.into(), state, ..Held::default() }
}

fn said(node: &str, role: Role, held: Vec<Held>) -> NodeReport {
    let address = format!("127.0.0.1:{}", node.trim_start_matches(|c: char| !c.is_ascii_digit()));
    NodeReport { node: node.into(), role: role.as_str().into(), address, held, ..NodeReport::default() }
}

impl World {
    fn new() -> Self {
        let now = Instant::now();
        let mut control = Control::new(Desired::default(), EPOCH, now);
        control.configure(&config()).unwrap();
        Self { control, now, errors: 0, batch: 0, leaves: [("leaf-1", vec![]), ("leaf-2", vec![])].into() }
    }

    fn hear(&mut self, report: &NodeReport) {
        let word = Word::check(report).unwrap();
        if self.control.renew(&word, self.now).is_none() {
            self.control.hear(word, self.now).unwrap();
        }
    }

    /// Everybody does what the snapshot says, and tells so, until nothing changes; half a second each time.
    fn settle(&mut self) {
        for _ in 0..40 {
            let before = self.control.desired().clone();
            self.round();
            if *self.control.desired() == before {
                return;
            }
        }
        panic!("it does not settle: {:#}", self.control.corpora_status());
    }

    /// A hundred queries of each arm; so many of the new version's fail.
    fn saw(&self, trial: &Trial) -> Seen {
        let mut seen = Seen::of("web", trial);
        for (arm, errors) in
            [(&mut seen.comparison.control, 0), (&mut seen.comparison.treatment, self.errors)]
        {
            (arm.queries, arm.errors) = (100, errors);
            (0..100).for_each(|at| arm.latencies.record(10_000 + at * 100));
        }
        seen
    }

    /// One round of it.
    fn round(&mut self) {
        let snapshot = self.control.snapshot().clone();
        for leaf in ["leaf-1", "leaf-2"] {
            let id = NodeId::from(leaf);
            let wanted = snapshot.wanted(&id);
            let held: Vec<Held> = wanted
                .filter_map(|(_, version, shard)| Some(holds(version?.0, &shard.to_string())))
                .collect();
            self.leaves.insert(leaf, held.clone());
            self.hear(&said(leaf, Role::Leaf, held));
        }
        let versions = snapshot.corpora["web"].versions.keys();
        let mut root = said("root-1", Role::Root, versions.map(|version| holds(version.0, "")).collect());
        self.batch += 1;
        root.batch = self.batch;
        root.trials = snapshot.corpora["web"].trial.iter().map(|trial| self.saw(trial).to_wire()).collect();
        self.hear(&root);
        self.now += Duration::from_millis(500);
        self.control.tick(Duration::from_millis(500), self.now);
    }

    fn start(&mut self, to: u64, steps: &[(u8, u64)]) -> Result<Vec<String>> {
        let steps = steps.iter().map(|(percent, bake_ms)| Step {
            percent: *percent,
            bake: canopy_common::config::Time::ms(*bake_ms),
            sample: 0,
        });
        let (retain, grace) = (canopy_common::config::Time::ms(5000), canopy_common::config::Time::ms(2000));
        let policy = Policy { steps: steps.collect(), retain, grace, ..Policy::default() };
        let start = Event::Start { to: Version(to), by: "ann".into(), policy, supersede: false };
        self.control.command("web", start)
    }

    fn pins(&self) -> Vec<(u64, u32)> {
        let pins = &self.control.snapshot().corpora["web"].pins;
        pins.iter().map(|pin| (pin.version.0, pin.share)).collect()
    }

    fn held(&self, version: u64, number: u32) -> Vec<String> {
        let shard = ShardId::new("main", number);
        let holders = self.control.snapshot().holders("web", Version(version), &shard);
        holders.iter().map(ToString::to_string).collect()
    }

    /// Of those who hold it, whom the service thinks best of.
    fn asked(&self, version: u64, number: u32) -> Vec<String> {
        let last = &self.control.snapshot().last;
        let why = |node: &String| last.get(&NodeId::from(node.as_str())).copied();
        let held = self.held(version, number);
        let best = held.iter().map(why).min().flatten();
        held.into_iter().filter(|node| why(node) == best).collect()
    }
}

#[test]
fn a_version_is_loaded_held_pinned_swapped_and_rolled_back() {
    let mut world = World::new();
    assert_eq!(world.control.snapshot().nodes.len(), 2, "the service is nobody's peer");
    assert!(world.start(0, &[(100, 0)]).is_err());
    let done = world.start(1, &[(100, 0)]).unwrap();
    assert!(!done.is_empty(), "{done:?}");
    assert_eq!(world.pins(), [], "nobody holds it yet");
    world.settle();
    assert_eq!(world.pins(), [(1, 10_000)]);
    assert_eq!(world.held(1, 0), ["leaf-1", "leaf-2"]);
    let epoch = world.control.snapshot().epoch;
    world.start(2, &[(1, 0), (100, 0)]).unwrap();
    assert!(world.control.snapshot().epoch > epoch);
    let versions = |world: &World| world.control.snapshot().corpora["web"].versions.len();
    assert_eq!(versions(&world), 2, "the old one stays while the new one loads");
    // Until it retains the old version.
    while world.pins() != [(2, 10_000)] {
        world.round();
    }
    let rollback = Event::Rollback {
        to: None,
        from: None,
        by: "bob".into(),
        reason: "empty pages".into(),
        policy: Policy::default(),
    };
    world.control.command("web", rollback).unwrap();
    assert_eq!(world.pins(), [(1, 10_000)], "at once");
    world.settle();
    assert_eq!(versions(&world), 1);
    let status = world.control.corpora_status();
    assert_eq!(status["web"]["ended"][0]["outcome"], "rolled back");
    let audit = world.control.audited().join("\n");
    assert!(audit.contains("bob") && audit.contains("empty pages"), "{audit}");
}

#[test]
fn who_is_away_or_leaves_is_not_asked_unless_nobody_else_is_there() {
    let mut world = World::new();
    world.start(1, &[(100, 0)]).unwrap();
    world.settle();
    // Only leaf-2 goes on reporting.
    let held = world.leaves["leaf-2"].clone();
    for _ in 0..8 {
        world.now += Duration::from_millis(500);
        world.hear(&said("leaf-2", Role::Leaf, held.clone()));
        world.control.tick(Duration::from_millis(500), world.now);
    }
    assert_eq!(world.asked(1, 0), ["leaf-2"]);
    world.now += LEASE * 3;
    world.control.tick(LEASE * 3, world.now);
    assert_eq!(world.asked(1, 0), ["leaf-2"], "a service that stood still gives everybody a whole lease");
    world.now += LEASE * 3;
    world.control.tick(Duration::from_millis(500), world.now);
    assert_eq!(
        world.asked(1, 0),
        ["leaf-1", "leaf-2"],
        "when everybody is away it is the service that is cut off"
    );
    assert_eq!(world.pins(), [(1, 10_000)], "and queries go on");
    world.settle();
    world.control.drain(&"leaf-1".into(), false, "ann").unwrap();
    assert_eq!(world.asked(1, 1), ["leaf-2"]);
    world.control.drain(&"leaf-2".into(), false, "ann").unwrap();
    assert_eq!(world.asked(1, 1), ["leaf-1", "leaf-2"], "the last ones are asked all the same");
    world.control.drain(&"leaf-1".into(), true, "ann").unwrap();
    assert_eq!(world.asked(1, 1), ["leaf-1"]);
    let leaving = NodeReport { draining: true, ..said("leaf-1", Role::Leaf, world.leaves["leaf-1"].clone()) };
    world.control.drain(&"leaf-2".into(), true, "ann").unwrap();
    world.hear(&leaving);
    assert_eq!(world.asked(1, 1), ["leaf-2"]);
    for unknown in ["nobody", "root-1"] {
        assert!(world.control.drain(&unknown.into(), false, "ann").is_err());
    }
}

#[test]
fn a_restarted_service_goes_on_from_what_it_stored() {
    let mut world = World::new();
    world.start(1, &[(100, 0)]).unwrap();
    world.settle();
    world.start(2, &[(1, 0), (50, 600_000), (100, 0)]).unwrap();
    for _ in 0..12 {
        world.round();
    }
    assert_eq!(world.pins(), [(2, 5_000), (1, 5_000)]);
    let (before, stored) = (world.control.snapshot().clone(), world.control.desired().clone());
    let mut again = Control::new(stored.clone(), Epoch(9_999_999), world.now);
    again.configure(&config()).unwrap();
    // Whatever a root said lives with the root: until one is heard of again the roots are as they were.
    let epochless = |snapshot: &RoutingSnapshot| RoutingSnapshot { epoch: Epoch(0), ..snapshot.clone() };
    assert_eq!(epochless(again.snapshot()), epochless(&before));
    assert!(again.snapshot().epoch > before.epoch, "above what was published");
    world.control = again;
    world.round();
    assert_eq!(world.pins(), [(2, 5_000), (1, 5_000)]);
    assert!(world.control.snapshot().epoch >= before.epoch);
}

#[test]
fn a_lost_store_begins_above_every_epoch_it_gave() {
    let mut world = World::new();
    assert!(world.control.snapshot().epoch >= EPOCH);
    world.start(1, &[(100, 0)]).unwrap();
    assert!(world.control.snapshot().epoch > EPOCH);
}

#[test]
fn what_a_node_says_is_checked_whole() {
    let good = said("leaf-1", Role::Leaf, vec![holds(1, "main/0")]);
    assert!(Word::check(&good).is_ok());
    let bad = |change: fn(&mut NodeReport), field: &str| {
        let mut report = good.clone();
        change(&mut report);
        let failure = canopy_common::error::Failure::from(Word::check(&report).err().expect(field));
        assert_eq!(failure.field.as_deref(), Some(field));
    };
    bad(|report| report.node = "../x".into(), "node");
    bad(|report| report.role = "king".into(), "role");
    bad(|report| report.role = "topology".into(), "role");
    bad(|report| report.address = "nowhere".into(), "address");
    bad(|report| report.address = "\u{1b}[2J:80".into(), "address");
    bad(|report| report.admin = format!("{}:80", "x".repeat(254)), "admin");
    bad(|report| report.zone = "Z z".into(), "zone");
    bad(|report| report.held[0].shard = "main".into(), "held.shard");
    bad(|report| report.held[0].corpus = String::new(), "held.corpus");
    bad(|report| report.held = vec![Held::default(); 70_000], "held");
    let mut world = World::new();
    let error = world.control.command("nope", Event::Pause { by: "ann".into() }).unwrap_err();
    assert!(error.to_string().contains("placed are: web"), "{error}");
    assert!(world.control.command("web", Event::Pause { by: "ann".into() }).is_err(), "nothing is under way");
}

#[test]
fn a_version_that_fails_queries_is_turned_back_and_a_good_one_goes_on() {
    for (errors, outcome, live) in [(0, "serving", 2), (5, "rolled back", 1)] {
        let mut world = World::new();
        world.start(1, &[(100, 0)]).unwrap();
        world.settle();
        world.errors = errors;
        let step = |percent, sample| Step { percent, bake: canopy_common::config::Time::ms(0), sample };
        let (retain, grace) = (canopy_common::config::Time::ms(1000), canopy_common::config::Time::ms(1000));
        let steps = vec![step(1, 3_000), step(100, 0)];
        let policy = Policy { steps, retain, grace, ..Policy::default() };
        let start = Event::Start { to: Version(2), by: "ann".into(), policy, supersede: false };
        world.control.command("web", start).unwrap();
        for _ in 0..80 {
            world.round();
        }
        let status = world.control.corpora_status();
        let ended = &status["web"]["ended"][0];
        assert_eq!(ended["outcome"], outcome, "{status:#}");
        assert_eq!(world.pins(), [(live, 10_000)]);
        let audit = world.control.audited().join("\n");
        let said = if errors == 0 {
            "passed over 3000 queries an arm"
        } else {
            "HARD BREACH errors 0.0000 -> 0.0500"
        };
        assert!(audit.contains(said), "{audit}");
    }
}

#[test]
fn what_is_told_again_is_counted_once_and_an_older_store_catches_up() {
    let mut world = World::new();
    world.start(1, &[(100, 0)]).unwrap();
    world.settle();
    world.start(2, &[(1, 600_000), (100, 0)]).unwrap();
    for _ in 0..6 {
        world.round();
    }
    let trial = world.control.snapshot().corpora["web"].trial.unwrap();
    let sample = |world: &World| world.control.judgement("web").map_or(0, |judged| judged.sample);
    let before = sample(&world);
    let mut root = said("root-1", Role::Root, vec![holds(1, ""), holds(2, "")]);
    (root.trials, root.batch) = (vec![world.saw(&trial).to_wire()], 77);
    for _ in 0..3 {
        world.hear(&root);
        world.now += Duration::from_millis(500);
        world.control.tick(Duration::from_millis(500), world.now);
    }
    assert_eq!(sample(&world), before + 100);
    // A node that goes by a later epoch than this store ever gave.
    let epoch = world.control.snapshot().epoch.0;
    world.hear(&NodeReport {
        epoch: epoch + 50,
        ..said("leaf-1", Role::Leaf, world.leaves["leaf-1"].clone())
    });
    assert!(world.control.snapshot().epoch.0 > epoch + 50);
}

mod fleet;
mod nodes;
