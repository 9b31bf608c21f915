//! A corpus built and served in this process over real sockets, for benchmarks that measure the whole path.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, bail};
use canopy_cli::{
    config::Config,
    http::Client,
    tree::{Surroundings, Tree},
};
use canopy_common::net::NetIo;
use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering, VersionStore},
};
use canopy_indexer::build::{self, BuildRequest};
use canopy_topology::config::{NodeConfig, Placement, Role, TopologyConfig};

/// A running tree with one corpus, `web`.
pub struct Served {
    tree: Tree,
    /// HTTP address of the root.
    pub root: String,
    client: Client,
}

/// Builds `web` in `dir` from the inputs.
pub async fn build(dir: &Path, inputs: &[PathBuf], shards: u32) -> Result<VersionStore> {
    let store = VersionStore::open(&dir.join("store").to_string_lossy(), true)?;
    let corpus = Corpus {
        name: "web".to_owned(),
        schema: Schema::web(),
        partitions: 16,
        ordering: Ordering::default(),
    };
    store.create_corpus(&corpus).await?;
    let request = BuildRequest {
        shards: Some(shards),
        max_rejects: 0.01,
        ..BuildRequest::new(store.clone(), "web", inputs.to_vec())
    };
    build::run(request).await?;
    Ok(store)
}

/// One root and `leaves` leaves that share the shards, one replica each; port 0 everywhere.
pub fn flat(shards: u32, leaves: u32) -> TopologyConfig {
    let mut nodes = vec![NodeConfig::local("root-1", Role::Root)];
    nodes.extend((1..=leaves).map(|n| NodeConfig::local(format!("leaf-{n}"), Role::Leaf)));
    let placements = (0..leaves)
        .map(|leaf| Placement {
            corpus: "web".to_owned(),
            shards: (leaf..shards).step_by(leaves as usize).map(|n| format!("main/{n}")).collect(),
            replicas: vec![format!("leaf-{}", leaf + 1)],
            version: 0,
        })
        .filter(|placement| !placement.shards.is_empty())
        .collect();
    TopologyConfig { nodes, placements, ..TopologyConfig::default() }
}

impl Served {
    /// Builds and serves from one leaf.
    pub async fn build(dir: &Path, inputs: &[PathBuf], shards: u32) -> Result<Self> {
        let store = build(dir, inputs, shards).await?;
        let config = Config { topology: flat(shards, 1), ..Config::default() };
        Self::start(&store, &config).await
    }

    /// Serves what is built already.
    pub async fn start(store: &VersionStore, config: &Config) -> Result<Self> {
        let tree = Tree::start(config, Some(store), &Surroundings::real()?, |_| true).await?;
        let root = tree.roots().next().context("a root")?.to_owned();
        for node in &tree.topology.nodes {
            let client = Client::new(NetIo::tcp(), &node.admin, Duration::from_secs(5));
            client.wait_ready(Duration::from_mins(5)).await?;
        }
        let client = Client::new(NetIo::tcp(), &root, Duration::from_secs(70));
        Ok(Self { tree, root, client })
    }

    /// A JSON answer; any status but 200 is an error.
    pub async fn get(&self, path: &str) -> Result<serde_json::Value> {
        let answered = self.client.get(path).await?;
        if !answered.status().is_success() {
            bail!("{}: {}", answered.status(), String::from_utf8_lossy(answered.body()));
        }
        Ok(serde_json::from_slice(answered.body())?)
    }

    /// Ends the tree.
    pub async fn stop(self, patience: Duration) {
        let _ended_or_given_up = tokio::time::timeout(patience, self.tree.stop(Duration::ZERO)).await;
    }
}
