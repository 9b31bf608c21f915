//! What tests of versions share: a fleet with a topology service over a store of its own, versions to roll out, and what an
//! answer that nothing is wrong with looks like.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use canopy_cli::config::Config;
use canopy_common::ids::Version;
use canopy_format::store::VersionStore;
use canopy_indexer::build::{self, BuildRequest};
use canopy_tests::{
    api::Answered,
    cluster::{Shape, copy_store},
    corpus::{self, Page},
    process::{self, Fleet, free_addresses},
    wait::wait_until,
};
use canopy_topology::config::{NodeConfig, Role};
use serde_json::Value;

use crate::stage::{self, SHARDS};

/// How long anything may take on a machine that does other things too.
pub const PATIENCE: Duration = Duration::from_mins(1);

/// A fleet with a topology service, and a command line that knows it.
pub struct Served {
    /// Its processes.
    pub fleet: Fleet,
    config: String,
    plan: String,
}

/// A copy of the stage's store, with one version; the number of documents in it.
pub fn store(stage: &stage::Stage, name: &str) -> (PathBuf, VersionStore) {
    let copy = stage.shelf.dir().join(name);
    copy_store(&stage.store(), &copy);
    let store = VersionStore::open(&copy.to_string_lossy(), false).expect("a store");
    (copy, store)
}

/// Builds the next version, of `count` documents.
pub async fn publish(directory: &Path, store: &VersionStore, seed: u64, count: usize) -> Version {
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
    /// Two leaves that hold everything, below one root.
    pub async fn start(store: &Path, plan: &str) -> Self {
        Self::shaped(store, plan, &Shape::flat(2, 2), |_| ()).await
    }

    /// Any shape and configuration, plus a topology service.
    pub async fn shaped(store: &Path, plan: &str, shape: &Shape, adjust: impl FnOnce(&mut Config)) -> Self {
        let mut free = free_addresses(2).await.into_iter();
        let service = NodeConfig {
            admin: free.next().expect("an address"),
            ..NodeConfig::at("topology-0", Role::Topology, free.next().expect("an address"))
        };
        let adjust = |config: &mut Config| {
            config.topology.nodes.push(service);
            adjust(config);
        };
        let mut fleet = Fleet::prepare(store, shape, &[("web", SHARDS)], adjust).await;
        fleet.spawn_all();
        fleet.wait_ready("topology-0").await;
        let config = fleet.config_file();
        let file = config.with_file_name("plan.toml");
        std::fs::write(&file, plan).expect("written");
        let text = |path: &Path| path.to_string_lossy().into_owned();
        Self { config: text(&config), plan: text(&file), fleet }
    }

    /// The configuration file.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// A command; whether it succeeded, and what it said.
    pub async fn try_command(&self, arguments: &[&str]) -> (bool, String) {
        let mut all = arguments.to_vec();
        all.extend(["-c", &self.config]);
        let output = process::run(&all).await;
        let text =
            format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.success(), text)
    }

    /// One that succeeds.
    pub async fn command(&self, arguments: &[&str]) -> String {
        let (ok, text) = self.try_command(arguments).await;
        assert!(ok, "{arguments:?}: {text}");
        text
    }

    /// Begins a rollout.
    pub async fn roll_out(&self, version: Version) {
        let number = version.0.to_string();
        self.command(&["rollout", "start", "--corpus", "web", "--version", &number, "--plan", &self.plan])
            .await;
    }

    /// What the service knows of the corpus; null while it is away.
    pub async fn corpus(&self) -> Value {
        let status = self.fleet.admin("topology-0").try_get("/status").await;
        status.map_or(Value::Null, |status| status.json["corpora"]["web"].clone())
    }

    /// Waits until all queries go to a version.
    pub async fn all_on(&self, version: Version) {
        let all = vec![(version.0, 10_000)];
        wait_until("all queries on one version", PATIENCE, all, || async {
            let corpus = self.corpus().await;
            let pins = corpus["pins"].as_array().into_iter().flatten();
            pins.map(|pin| (pin["version"].as_u64().unwrap_or(0), pin["share"].as_u64().unwrap_or(0)))
                .collect()
        })
        .await;
    }

    /// Waits until no rollout is under way or waits.
    pub async fn quiet(&self) {
        wait_until("no rollout", PATIENCE, true, || async {
            let corpus = self.corpus().await;
            corpus.is_object() && corpus["rollout"].is_null() && corpus["waiting"].is_null()
        })
        .await;
    }

    /// Rolls out the first version, until every node would answer.
    pub async fn first(&mut self, version: Version) {
        self.roll_out(version).await;
        self.all_on(version).await;
        self.fleet.wait_all_ready().await;
    }
}

/// The version of an answer that is whole and of one version, with its documents.
pub fn version(answered: Option<&Answered>) -> (u64, u64) {
    let answer = answered.expect("no connection fails").clone().ok();
    let json = &answer.json;
    assert_eq!(json["coverage"]["complete"], true, "{json:#}");
    assert_eq!(json["degraded"], Value::Array(Vec::new()), "{json:#}");
    let of = |key: &str| json["version"][key].as_u64().expect("a version");
    assert!(of("min") == of("wanted") && of("max") == of("wanted"), "{}", json["version"]);
    assert!(answer.hits().all(|hit| hit["version"].as_u64() == Some(of("wanted"))), "{json:#}");
    (of("wanted"), answer.documents().2)
}
