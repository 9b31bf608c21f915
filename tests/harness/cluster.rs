//! Whole trees in one process, over real sockets on free ports: the production `serve` functions of every role.

use std::{path::Path, time::Duration};

use canopy_cli::{
    config::Config,
    http::Client,
    tree::{Surroundings, Tree},
};
use canopy_common::{config::Time, net::NetIo, rng::Dice};
use canopy_format::store::VersionStore;
use canopy_topology::config::{NodeConfig, Placement, Role, TopologyConfig};

use crate::{
    api::Api,
    faulty_net::{Link, Links},
};

/// The shape of a tree.
#[derive(Debug, Clone)]
pub struct Shape {
    /// Roots.
    pub roots: u32,
    /// Aggregators; with any, a branch is one shard and more than four branches go through them.
    pub aggregators: u32,
    /// Leaves.
    pub leaves: u32,
    /// Leaves that hold each shard.
    pub replicas: u32,
    /// Ingests; more than one share a log, which only an engine of several processes can.
    pub ingests: u32,
}

impl Shape {
    /// One root over its leaves.
    pub fn flat(leaves: u32, replicas: u32) -> Self {
        Self { roots: 1, aggregators: 0, leaves, replicas, ingests: 0 }
    }

    /// Two aggregators in between.
    pub fn two_levels(leaves: u32, replicas: u32) -> Self {
        Self { aggregators: 2, ..Self::flat(leaves, replicas) }
    }

    /// The same with an ingest. Where its log is has to be said: `ingest.directory`.
    #[must_use]
    pub fn fed(self) -> Self {
        Self { ingests: 1, ..self }
    }

    /// Nodes and placements for corpora of so many shards: shard i is on leaves i, i + 1, … Addresses are by `address`.
    pub fn topology(&self, corpora: &[(&str, u32)], mut address: impl FnMut() -> String) -> TopologyConfig {
        let mut node = |id: String, role| {
            let node = NodeConfig::at(id, role, address());
            NodeConfig { admin: address(), ..node }
        };
        let mut nodes: Vec<NodeConfig> =
            (0..self.roots).map(|n| node(format!("root-{n}"), Role::Root)).collect();
        nodes.extend((0..self.aggregators).map(|n| node(format!("aggregator-{n}"), Role::Aggregator)));
        nodes.extend((0..self.leaves).map(|n| node(format!("leaf-{n}"), Role::Leaf)));
        nodes.extend((0..self.ingests).map(|n| node(format!("ingest-{n}"), Role::Ingest)));
        let placements = corpora.iter().flat_map(|(corpus, shards)| {
            (0..self.leaves.min(*shards)).map(move |home| Placement {
                corpus: (*corpus).to_owned(),
                shards: (home..*shards).step_by(self.leaves as usize).map(|n| format!("main/{n}")).collect(),
                replicas: (0..self.replicas).map(|n| format!("leaf-{}", (home + n) % self.leaves)).collect(),
                version: 0,
            })
        });
        TopologyConfig { placements: placements.collect(), nodes, ..TopologyConfig::default() }
    }

    /// Configuration of the whole tree.
    pub fn config(&self, corpora: &[(&str, u32)]) -> Config {
        let topology = self.topology(corpora, || "127.0.0.1:0".to_owned());
        let mut config = Config { topology, ..Config::default() };
        config.root.probe_interval = Time::ms(100);
        if self.aggregators > 0 {
            config.gather.fanout_max = 4;
            config.gather.branch_shards = 1;
        }
        config
    }
}

/// A running tree.
pub struct Cluster {
    tree: Tree,
    /// The links between its nodes.
    pub links: Links,
    /// APIs of its roots.
    pub roots: Vec<Api>,
}

impl Cluster {
    /// Starts a tree and waits until every node would answer.
    pub async fn start(store: &VersionStore, config: &Config) -> Self {
        let cluster = Self::start_unready(store, config).await;
        for node in &cluster.tree.topology.nodes {
            let client = Client::new(NetIo::tcp(), &node.admin, Duration::from_secs(5));
            client.wait_ready(Duration::from_mins(2)).await.expect("a tree that becomes ready");
        }
        cluster
    }

    /// Starts a tree of which some nodes may never become ready.
    pub async fn start_unready(store: &VersionStore, config: &Config) -> Self {
        let links = Links::default();
        let surroundings = Surroundings { net: links.net(), dice: Dice::seeded(7) };
        let tree =
            Tree::start(config, Some(store), &surroundings, |_| true).await.expect("a tree that starts");
        let roots = tree.roots().map(Api::new).collect();
        Self { tree, links, roots }
    }

    /// The first root.
    pub fn root(&self) -> &Api {
        &self.roots[0]
    }

    /// Its nodes and placements, ports resolved.
    pub fn topology(&self) -> &TopologyConfig {
        &self.tree.topology
    }

    /// A node by name.
    pub fn node(&self, id: &str) -> &NodeConfig {
        self.tree.topology.nodes.iter().find(|node| node.id == id).unwrap_or_else(|| panic!("no node {id}"))
    }

    /// The admin pages of a node.
    pub fn admin(&self, id: &str) -> Api {
        Api::new(&self.node(id).admin)
    }

    /// Changes the links to a node.
    pub fn link(&self, id: &str, link: Link) {
        self.links.set(&self.node(id).address, link);
    }

    /// Lets so many more requests to a node pass, then changes its links.
    pub fn link_after(&self, id: &str, requests: u32, link: Link) {
        self.links.set_after(&self.node(id).address, requests, link);
    }

    /// Stops the tree.
    pub async fn stop(self) {
        self.tree.abort();
        let _ended_or_given_up =
            tokio::time::timeout(Duration::from_secs(5), self.tree.stop(Duration::ZERO)).await;
    }
}

/// Copies a store, to damage the copy.
pub fn copy_store(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a writable directory");
    for entry in std::fs::read_dir(from).expect("a readable directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.path().is_dir() {
            copy_store(&entry.path(), &target);
        } else {
            std::fs::copy(entry.path(), target).expect("a copy");
        }
    }
}
