//! `[topology]` of the configuration: nodes and placements by hand, for set-ups without the topology service. It
//! makes one routing snapshot, epoch 1.
//!
//! A typing error here would send queries to a process that does not hold the shard, so everything that can be checked
//! without asking anyone is checked at start, and all problems are listed at once, each with the key it stands at.

use std::collections::BTreeMap;

use canopy_common::{
    config::{Section, Time},
    ids::{ShardId, valid_name},
};
use serde::{Deserialize, Serialize};

pub mod store;
pub mod store_files;

use store::StoreAddress;

/// Longest name of a machine, bytes.
const LONGEST_HOST: usize = 253;
/// Largest `max_nodes`.
const MOST_NODES: u32 = 1_000_000;
/// Most shards of one group; part of the layout's contract.
pub(crate) const MAX_SHARDS_PER_GROUP: u32 = 1024;

/// The section.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopologyConfig {
    /// Processes of the tree.
    pub nodes: Vec<NodeConfig>,
    /// Which leaves hold which shards.
    pub placements: Vec<Placement>,
    /// The topology service's store: a file, or `etcd://host:port[,host:port]/prefix`, which several services share. Default:
    /// topology.redb.
    pub store: String,
    /// User at the store; empty: none. Default: empty.
    pub store_user: String,
    /// File with the user's password. Default: empty.
    pub store_password_file: String,
    /// File with the certificate (PEM) of the authority that signs those of the store's servers; with it traffic to the store
    /// is encrypted. Default: empty.
    pub store_ca_file: String,
    /// File with the certificate (PEM) by which the store knows this service. Default: empty.
    pub store_cert_file: String,
    /// File with its private key (PEM). Default: empty.
    pub store_key_file: String,
    /// Name that the certificates of the store's servers are for; empty: the host of each address. Default: empty.
    pub store_server_name: String,
    /// Patience for one answer of the store. Default: 2s.
    pub store_timeout: Time,
    /// How long a service that is not heard of stays the leader of several. Default: 3s.
    pub store_lease: Time,
    /// Name of the tree. A node or a command of another one is refused. Default: empty.
    pub cluster: String,
    /// File with a token that commands must carry, of the service and of whoever commands it; empty: none is asked for.
    /// Default: empty.
    pub token_file: String,
    /// File with a token that nodes' reports and watches must carry, of the service and of every node; empty: that of token_file,
    /// if there is one. Default: empty.
    pub node_token_file: String,
    /// Nodes that the service knows at most; those that it knows are never refused. Default: 100000.
    pub max_nodes: u32,
    /// Where a node keeps the last routing snapshot that it went by, so that it can start while the topology service is
    /// away. Default: state.
    pub state_dir: String,
}

impl Default for TopologyConfig {
    fn default() -> Self {
        let (store, state_dir) = ("topology.redb".to_owned(), "state".to_owned());
        Self {
            nodes: Vec::new(),
            placements: Vec::new(),
            store,
            store_user: String::new(),
            store_password_file: String::new(),
            store_ca_file: String::new(),
            store_cert_file: String::new(),
            store_key_file: String::new(),
            store_server_name: String::new(),
            store_timeout: Time::ms(2000),
            store_lease: Time::ms(3000),
            cluster: String::new(),
            token_file: String::new(),
            node_token_file: String::new(),
            max_nodes: 100_000,
            state_dir,
        }
    }
}

impl TopologyConfig {
    /// gRPC addresses of the ingests, in the order of the file; none: leaves follow no log.
    pub fn ingests(&self) -> Vec<String> {
        let ingests = self.nodes.iter().filter(|node| node.role == Role::Ingest);
        ingests.map(|node| node.address.clone()).collect()
    }

    /// Addresses of the topology service; none: the topology is static.
    pub fn services(&self) -> Vec<String> {
        let services = self.nodes.iter().filter(|node| node.role == Role::Topology);
        services.map(|node| node.address.clone()).collect()
    }
}

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Faces clients.
    Root,
    /// Fans out and merges.
    Aggregator,
    /// Searches shards.
    Leaf,
    /// Takes operations and keeps the log that leaves follow.
    Ingest,
    /// Keeps who serves what.
    Topology,
}

impl Role {
    /// Every role.
    pub const ALL: [Self; 5] = [Self::Root, Self::Aggregator, Self::Leaf, Self::Ingest, Self::Topology];

    /// The role of a word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// Whether it reads versions from their store.
    pub fn reads_versions(self) -> bool {
        matches!(self, Self::Root | Self::Leaf | Self::Ingest)
    }

    /// Whether queries pass it. Others are in no routing snapshot, and the topology service need not know them.
    pub fn takes_queries(self) -> bool {
        matches!(self, Self::Root | Self::Aggregator | Self::Leaf)
    }

    /// The word in the configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::Aggregator => "aggregator",
            Self::Leaf => "leaf",
            Self::Ingest => "ingest",
            Self::Topology => "topology",
        }
    }
}

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// Name, unique.
    pub id: String,
    /// What it is.
    pub role: Role,
    /// gRPC `host:port` that others reach it at.
    pub address: String,
    /// `host:port` of its admin pages, for `canopy status`; empty: none.
    #[serde(default)]
    pub admin: String,
    /// Zone; empty: none.
    #[serde(default)]
    pub zone: String,
}

impl NodeConfig {
    /// A node at `address`, without admin pages and zone.
    pub fn at(id: impl Into<String>, role: Role, address: impl Into<String>) -> Self {
        let (admin, zone) = Default::default();
        Self { id: id.into(), role, address: address.into(), admin, zone }
    }

    /// A node of this process on free ports of the loopback interface; what binds them notes them.
    pub fn local(id: impl Into<String>, role: Role) -> Self {
        const FREE: &str = "127.0.0.1:0";
        Self { admin: FREE.to_owned(), ..Self::at(id, role, FREE) }
    }
}

/// A set of shards with the same replicas.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Corpus.
    pub corpus: String,
    /// `["main/0", "main/1"]`.
    pub shards: Vec<String>,
    /// Leaves that hold them.
    pub replicas: Vec<String>,
    /// Version served; 0: the newest complete one in the store when the process starts.
    #[serde(default)]
    pub version: u64,
}

impl Section for TopologyConfig {
    const NAME: &'static str = "topology";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        (
            "nodes",
            "processes of the tree: id, role (root, aggregator, leaf, ingest, topology), address, admin, zone",
        ),
        ("placements", "which leaves hold which shards: corpus, shards, replicas, version (0: the newest)"),
        ("store", "store of the topology service: a file, or etcd://host:port[,host:port]/prefix"),
        ("store_user", "user at the store; empty: none"),
        ("store_password_file", "file with the password of store_user"),
        ("store_ca_file", "file with the authority's certificate, PEM: traffic to the store is encrypted"),
        ("store_cert_file", "file with the certificate by which the store knows this service, PEM"),
        ("store_key_file", "file with the private key of store_cert_file, PEM"),
        ("store_server_name", "name that the store's certificates are for; empty: the host of each address"),
        ("store_timeout", "patience for one answer of the store; 100ms..60s"),
        ("store_lease", "how long the leader of several services leads without a word; 2s..60s"),
        ("cluster", "name of the tree; nodes and commands of another one are refused"),
        ("token_file", "file with the token that commands carry; empty: none is asked for"),
        (
            "node_token_file",
            "file with the token that nodes carry; empty: that of token_file, if there is one",
        ),
        ("max_nodes", "nodes that the service knows at most, known ones are never refused; 1..1000000"),
        (
            "state_dir",
            "where nodes keep the last routing snapshot, for a start while the topology service is away",
        ),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let mut check = Check::default();
        for (index, node) in self.nodes.iter().enumerate() {
            check.node(index, node);
        }
        for (index, placement) in self.placements.iter().enumerate() {
            check.placement(index, placement);
        }
        check.store(self);
        if !self.cluster.is_empty() && !valid_name(&self.cluster) {
            check.wrong("cluster", format!("{:?} is not a name; use a-z, 0-9, - and _", self.cluster));
        }
        if !(1..=MOST_NODES).contains(&self.max_nodes) {
            check.wrong("max_nodes", format!("{} is outside 1..{MOST_NODES}", self.max_nodes));
        }
        if self.state_dir.is_empty() {
            check.wrong("state_dir", "it is empty; name a path");
        }
        check.problems
    }
}

/// Whether `text` is `host:port` with a port that can be dialled.
pub fn dialable(text: &str) -> bool {
    text.rsplit_once(':').is_some_and(|(host, port)| {
        let plain = |c: char| !c.is_whitespace() && !c.is_control() && c != '/';
        let host_ok = (1..=LONGEST_HOST).contains(&host.len()) && host.chars().all(plain);
        host_ok && port.parse::<u16>().is_ok_and(|port| port > 0)
    })
}

/// What is known so far, and what is wrong.
#[derive(Default)]
struct Check<'a> {
    roles: BTreeMap<&'a str, Role>,
    addresses: BTreeMap<&'a str, &'a str>,
    placed: BTreeMap<(&'a str, String), usize>,
    versions: BTreeMap<&'a str, u64>,
    problems: Vec<(String, String)>,
}

impl<'a> Check<'a> {
    fn wrong(&mut self, key: impl Into<String>, reason: impl Into<String>) {
        self.problems.push((key.into(), reason.into()));
    }

    fn store(&mut self, config: &TopologyConfig) {
        match StoreAddress::parse(&config.store) {
            Err(reason) => self.wrong("store", reason),
            Ok(StoreAddress::File(path)) if config.services().len() > 1 => {
                let reason = format!(
                    "{} topology services can't share the file {path}; name an etcd: etcd://host:port/prefix",
                    config.services().len()
                );
                self.wrong("store", reason);
            }
            Ok(_) => {}
        }
        if config.store_user.is_empty() != config.store_password_file.is_empty() {
            self.wrong("store_user", "a user and the file of its password are named together, or neither is");
        }
        self.store_tls(config);
        for (key, value, low) in
            [("store_timeout", config.store_timeout, 100), ("store_lease", config.store_lease, 2000)]
        {
            let (low, high) = (Time::ms(low), Time::ms(60_000));
            if value < low || value > high {
                self.wrong(key, format!("{value} is outside {low}..{high}"));
            }
        }
    }

    fn store_tls(&mut self, config: &TopologyConfig) {
        if config.store_cert_file.is_empty() != config.store_key_file.is_empty() {
            self.wrong("store_cert_file", "a certificate and its key are named together, or neither is");
        }
        let of_tls = [
            ("store_ca_file", &config.store_ca_file),
            ("store_cert_file", &config.store_cert_file),
            ("store_server_name", &config.store_server_name),
        ];
        let named: Vec<&str> =
            of_tls.iter().filter(|(_, value)| !value.is_empty()).map(|(key, _)| *key).collect();
        let Some(first) = named.first() else { return };
        if config.store_ca_file.is_empty() {
            self.wrong(
                *first,
                "nothing is encrypted without the authority's certificate; name store_ca_file too",
            );
        }
        if matches!(StoreAddress::parse(&config.store), Ok(StoreAddress::File(_))) {
            self.wrong(*first, "the store is a file; certificates are for one in etcd");
        }
        let name = &config.store_server_name;
        if !name.is_empty() && !dialable(&format!("{name}:1")) {
            self.wrong("store_server_name", format!("{name:?} is not a host name"));
        }
    }

    fn node(&mut self, index: usize, node: &'a NodeConfig) {
        let key = |field: &str| format!("nodes[{index}].{field}");
        if !valid_name(&node.id) {
            self.wrong(key("id"), format!("{:?} is not a name; use a-z, 0-9, - and _", node.id));
        }
        if self.roles.insert(&node.id, node.role).is_some() {
            self.wrong(key("id"), format!("{:?} is the id of another node too", node.id));
        }
        if !node.zone.is_empty() && !valid_name(&node.zone) {
            self.wrong(key("zone"), format!("{:?} is not a name; use a-z, 0-9, - and _", node.zone));
        }
        self.address(key("address"), &node.id, &node.address);
        if !node.admin.is_empty() {
            self.address(key("admin"), &node.id, &node.admin);
        }
    }

    fn address(&mut self, key: String, id: &'a str, address: &'a str) {
        if !dialable(address) {
            self.wrong(key, format!("{address:?} is not host:port with a port of 1 to 65535"));
        } else if let Some(other) = self.addresses.insert(address, id) {
            self.wrong(key, format!("{address} is used by node {other:?} too"));
        }
    }

    fn placement(&mut self, index: usize, placement: &'a Placement) {
        let key = |field: &str| format!("placements[{index}].{field}");
        if !valid_name(&placement.corpus) {
            self.wrong(key("corpus"), format!("{:?} is not a name; use a-z, 0-9, - and _", placement.corpus));
        }
        if placement.shards.is_empty() {
            self.wrong(key("shards"), "no shard is named; write such as [\"main/0\"]");
        }
        for (at, shard) in placement.shards.iter().enumerate() {
            self.shard(index, format!("{}[{at}]", key("shards")), &placement.corpus, shard);
        }
        if placement.replicas.is_empty() {
            self.wrong(key("replicas"), "no leaf is named; a shard needs at least one replica");
        }
        for (at, leaf) in placement.replicas.iter().enumerate() {
            let key = format!("{}[{at}]", key("replicas"));
            if placement.replicas[..at].contains(leaf) {
                self.wrong(&key, format!("{leaf:?} is named twice; a leaf holds a shard once"));
            }
            match self.roles.get(leaf.as_str()) {
                Some(Role::Leaf) => {}
                Some(role) => {
                    self.wrong(&key, format!("{leaf:?} is a node of role {}, not a leaf", role.as_str()));
                }
                None => self.wrong(&key, format!("there is no node {leaf:?}; add it to nodes")),
            }
        }
        let version = *self.versions.entry(&placement.corpus).or_insert(placement.version);
        if version != placement.version {
            let reason = format!(
                "corpus {:?} has version {version} elsewhere; one corpus serves one",
                placement.corpus
            );
            self.wrong(key("version"), reason);
        }
    }

    fn shard(&mut self, index: usize, key: String, corpus: &'a str, name: &str) {
        match name.parse::<ShardId>() {
            Err(error) => self.wrong(key, error.to_string()),
            Ok(shard) if shard.number >= MAX_SHARDS_PER_GROUP => {
                self.wrong(
                    key,
                    format!("{name} is out of range; a group has at most {MAX_SHARDS_PER_GROUP} shards"),
                );
            }
            Ok(shard) => {
                if let Some(other) = self.placed.insert((corpus, shard.to_string()), index) {
                    self.wrong(
                        key,
                        format!("{name} is placed in placements[{other}] already; merge the two"),
                    );
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
