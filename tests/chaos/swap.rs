//! A version takes the place of another under load, with real processes: no query fails, none is mixed or partial; the way
//! back takes a moment and no download; and all of it goes on while the topology service is away.

use std::{path::Path, time::Duration};

use canopy_common::ids::Version;
use canopy_format::store::VersionStore;
use canopy_indexer::build::{self, BuildRequest};
use canopy_tests::{
    api::Answered,
    cluster::{Shape, copy_store},
    corpus::{self, Page},
    process::{self, Fleet, Signal, free_addresses},
    wait::{wait_for, wait_until},
};
use canopy_topology::config::{NodeConfig, Role};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    load::{Load, pass},
    stage::{self, EVERY, SHARDS},
};

const PATIENCE: Duration = Duration::from_mins(1);
const QUICK: &str = r#"
retain = "10min"
grace = "1s"
steps = [
    { percent = 0, bake = "300ms", sample = 0 },
    { percent = 1, bake = "300ms", sample = 0 },
    { percent = 50, bake = "500ms", sample = 0 },
    { percent = 100, bake = "300ms", sample = 0 },
]
"#;

/// A fleet with a topology service, and a command line that knows it.
struct Served {
    fleet: Fleet,
    config: String,
    plan: String,
}

/// A copy of the stage's store, with one version; the number of documents in it.
fn store(stage: &stage::Stage, name: &str) -> (std::path::PathBuf, VersionStore) {
    let copy = stage.shelf.dir().join(name);
    copy_store(&stage.store(), &copy);
    let store = VersionStore::open(&copy.to_string_lossy(), false).expect("a store");
    (copy, store)
}

/// Builds the next version, of `count` documents.
async fn publish(directory: &Path, store: &VersionStore, seed: u64, count: usize) -> Version {
    let records: Vec<Value> = corpus::generate(seed, count).iter().map(Page::record).collect();
    let input = corpus::write(&directory.join("next.jsonl"), &records);
    let request = BuildRequest {
        shards: Some(SHARDS),
        memory: 256 << 20,
        ..BuildRequest::new(store.clone(), "web", vec![input])
    };
    build::run(request).await.expect("a build").version
}

impl Served {
    async fn start(store: &Path) -> Self {
        let mut free = free_addresses(2).await.into_iter();
        let service = NodeConfig {
            admin: free.next().expect("an address"),
            ..NodeConfig::at("topology-0", Role::Topology, free.next().expect("an address"))
        };
        let adjust = |config: &mut canopy_cli::config::Config| config.topology.nodes.push(service);
        let mut fleet = Fleet::prepare(store, &Shape::flat(2, 2), &[("web", SHARDS)], adjust).await;
        fleet.spawn_all();
        fleet.wait_ready("topology-0").await;
        let config = fleet.config_file();
        let plan = config.with_file_name("plan.toml");
        std::fs::write(&plan, QUICK).expect("written");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Self { config: text(&config), plan: text(&plan), fleet }
    }

    async fn try_command(&self, arguments: &[&str]) -> (bool, String) {
        let mut all = arguments.to_vec();
        all.extend(["-c", &self.config]);
        let output = process::run(&all).await;
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), text)
    }

    async fn command(&self, arguments: &[&str]) -> String {
        let (ok, text) = self.try_command(arguments).await;
        assert!(ok, "{arguments:?}: {text}");
        text
    }

    async fn roll_out(&self, version: Version) {
        let number = version.0.to_string();
        self.command(&["rollout", "start", "--corpus", "web", "--version", &number, "--plan", &self.plan])
            .await;
    }

    /// Waits until all queries go to a version.
    async fn all_on(&self, version: Version) {
        let all = vec![(version.0, 10_000)];
        wait_until("all queries on one version", PATIENCE, all, || async {
            let shown = self.command(&["rollout", "status", "--corpus", "web", "--json"]).await;
            let corpus: Value = serde_json::from_str(&shown).expect("JSON");
            let pins = corpus["pins"].as_array().into_iter().flatten();
            pins.map(|pin| (pin["version"].as_u64().unwrap_or(0), pin["share"].as_u64().unwrap_or(0)))
                .collect()
        })
        .await;
    }

    async fn first(&mut self, version: Version) {
        self.roll_out(version).await;
        self.all_on(version).await;
        self.fleet.wait_all_ready().await;
    }
}

/// The version of an answer that is whole and of one version, with its documents.
fn version(answered: Option<&Answered>) -> (u64, u64) {
    let answer = answered.expect("no connection fails").clone().ok();
    let json = &answer.json;
    assert_eq!(json["coverage"]["complete"], true, "{json:#}");
    assert_eq!(json["degraded"], Value::Array(Vec::new()), "{json:#}");
    let of = |key: &str| json["version"][key].as_u64().expect("a version");
    assert!(of("min") == of("wanted") && of("max") == of("wanted"), "{}", json["version"]);
    assert!(answer.hits().all(|hit| hit["version"].as_u64() == Some(of("wanted"))), "{json:#}");
    (of("wanted"), answer.documents().2)
}

#[test]
fn a_swap_under_load_fails_mixes_and_cuts_no_answer_and_the_way_back_is_at_once() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "swapped");
        let old = store.latest("web").await.expect("a version").version;
        let old_documents: u64 = stage.documents.iter().sum();
        let mut served = Served::start(&directory).await;
        let (ok, text) = served.try_command(&["rollout", "pause", "--corpus", "web"]).await;
        assert!(!ok && text.contains("no rollout is under way"), "{text}");
        served.first(old).await;

        let parameters = [EVERY, ("timeout_ms", "20000")];
        let load = Load::start(served.fleet.root(), Duration::from_millis(20), &parameters);
        let new = publish(&directory, &store, 9, 1500).await;
        let dry = served
            .command(&["rollout", "start", "--corpus", "web", "--version", &new.0.to_string(), "--dry-run"])
            .await;
        assert!(dry.contains("50 %") && dry.contains("100 %"), "{dry}");
        served.roll_out(new).await;
        served.all_on(new).await;
        pass(Duration::from_millis(300)).await;
        let answers = load.finish().await;
        let seen: Vec<(u64, u64)> = answers.iter().map(|answer| version(answer.as_ref())).collect();
        let count = |wanted: (u64, u64)| seen.iter().filter(|seen| **seen == wanted).count();
        println!(
            "{} answers: {} of {old}, {} of {new}",
            seen.len(),
            count((old.0, old_documents)),
            count((new.0, 1500))
        );
        assert_eq!(
            count((old.0, old_documents)) + count((new.0, 1500)),
            seen.len(),
            "each whole, of one version"
        );
        assert_eq!((seen[0].0, seen[seen.len() - 1].0), (old.0, new.0));

        // Back, under load again.
        let load = Load::start(served.fleet.root(), Duration::from_millis(10), &parameters);
        pass(Duration::from_millis(200)).await;
        let begun = Instant::now();
        let done = served.command(&["rollback", "--corpus", "web", "--reason", "a test"]).await;
        let root = served.fleet.root();
        wait_for("an answer of the old version", PATIENCE, || async {
            let answer = root.search("web", &parameters).await;
            (answer.json["version"]["wanted"].as_u64() == Some(old.0)).then_some(())
        })
        .await;
        println!("back after {:?}: {}", begun.elapsed(), done.trim());
        pass(Duration::from_millis(200)).await;
        let answers = load.finish().await;
        let seen: Vec<u64> = answers.iter().map(|answer| version(answer.as_ref()).0).collect();
        let turned = seen.iter().position(|version| *version == old.0).expect("it turned");
        assert!(seen[turned..].iter().all(|version| *version == old.0), "no query goes to it any more");
        let audit = served.command(&["topology", "audit"]).await;
        assert!(audit.contains("a test") && audit.contains(&format!("{new}")), "{audit}");
    });
}

#[test]
fn queries_and_a_restarted_leaf_need_no_topology_service() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "alone");
        let only = store.latest("web").await.expect("a version").version;
        let mut served = Served::start(&directory).await;
        served.first(only).await;
        served.fleet.signal("topology-0", Signal::Kill);
        served.fleet.ended("topology-0").await;
        let parameters = [EVERY, ("timeout_ms", "20000")];
        let load = Load::start(served.fleet.root(), Duration::from_millis(20), &parameters);
        served.fleet.signal("leaf-1", Signal::Kill);
        served.fleet.ended("leaf-1").await;
        served.fleet.spawn("leaf-1", &[]);
        served.fleet.wait_ready("leaf-1").await;
        assert!(served.fleet.log("leaf-1").contains("goes by the last good routing snapshot"));
        for answer in load.finish().await {
            assert_eq!(version(answer.as_ref()).0, only.0);
        }
        let (ok, text) = served.try_command(&["topology", "show"]).await;
        assert!(!ok && text.contains("queries go on without it"), "{text}");
        // It comes back with everything it knew, and goes on.
        served.fleet.spawn("topology-0", &[]);
        served.fleet.wait_ready("topology-0").await;
        served.all_on(only).await;
        let next = publish(&directory, &store, 4, 800).await;
        served.roll_out(next).await;
        served.all_on(next).await;
    });
}
