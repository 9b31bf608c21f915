//! The whole configuration file: one section per role, composed here because only the binary knows all roles.

use std::{collections::BTreeMap, path::Path};

use anyhow::{Result, anyhow};
use canopy_aggregator::config::{AggregatorConfig, GatherConfig};
use canopy_common::{
    bounded,
    config::{Layers, Origin, Problem, Section, settings},
    rpc::RpcConfig,
    telemetry::TelemetryConfig,
};
use canopy_format::store::StoreConfig;
use canopy_ingest::IngestConfig;
use canopy_leaf::config::LeafConfig;
use canopy_root::config::RootConfig;
use canopy_topology::{
    config::{Role, TopologyConfig, store_files},
    service::{node_token, token},
};

/// All sections.
#[derive(Debug, Clone, Default)]
pub struct Config {
    /// Logs and traces.
    pub telemetry: TelemetryConfig,
    /// Messages and connections.
    pub rpc: RpcConfig,
    /// Versions.
    pub store: StoreConfig,
    /// Nodes and placements.
    pub topology: TopologyConfig,
    /// Roots.
    pub root: RootConfig,
    /// The scatter-gather engine, at roots and aggregators.
    pub gather: GatherConfig,
    /// Aggregators.
    pub aggregator: AggregatorConfig,
    /// Leaves.
    pub leaf: LeafConfig,
    /// Ingests.
    pub ingest: IngestConfig,
}

const SECTIONS: [&str; 9] = [
    TelemetryConfig::NAME,
    RpcConfig::NAME,
    StoreConfig::NAME,
    TopologyConfig::NAME,
    RootConfig::NAME,
    GatherConfig::NAME,
    AggregatorConfig::NAME,
    LeafConfig::NAME,
    IngestConfig::NAME,
];

/// A configuration with the account of its origins.
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// What is wrong.
    pub problems: Vec<Problem>,
    layers: Layers,
}

impl Loaded {
    /// Reads defaults < file < environment < assignments.
    pub fn read(file: Option<&Path>, assignments: &[String]) -> Self {
        let mut layers = Layers::default();
        let mut problems = Vec::new();
        if let Some(path) = file {
            let name = path.display().to_string();
            match bounded::text(path, bounded::MOST_SETTINGS) {
                Ok(text) => problems.extend(layers.file(&name, &text).err()),
                Err(error) => problems.push(Problem {
                    key: "file".to_owned(),
                    reason: format!("can't be read: {error}"),
                    origin: Origin::File(name),
                }),
            }
        }
        layers.process_environment();
        problems.extend(assignments.iter().filter_map(|assignment| layers.set(assignment).err()));
        Self::from_layers(layers, problems)
    }

    fn from_layers(layers: Layers, mut problems: Vec<Problem>) -> Self {
        fn take<T: Section>(layers: &Layers, problems: &mut Vec<Problem>) -> T {
            let (section, found) = layers.section();
            problems.extend(found);
            section
        }
        problems.extend(layers.unknown_sections(&SECTIONS));
        let config = Config {
            telemetry: take(&layers, &mut problems),
            rpc: take(&layers, &mut problems),
            store: take(&layers, &mut problems),
            topology: take(&layers, &mut problems),
            root: take(&layers, &mut problems),
            gather: take(&layers, &mut problems),
            aggregator: take(&layers, &mut problems),
            leaf: take(&layers, &mut problems),
            ingest: take(&layers, &mut problems),
        };
        Self { config, problems, layers }
    }

    /// What a tree lacks, though every value is right: (key, reason).
    pub fn gaps(&self) -> Vec<(String, String)> {
        let topology = &self.config.topology;
        let mut gaps = Vec::new();
        let mut lacks = |key: &str, reason: &str| gaps.push((format!("topology.{key}"), reason.to_owned()));
        let has = |role| topology.nodes.iter().any(|node| node.role == role);
        if topology.nodes.is_empty() {
            lacks("nodes", "no node is named, so nothing can be started; docs/operations.md has an example");
        } else {
            if !has(Role::Root) {
                lacks("nodes", "no node has the role root, so nobody takes queries");
            }
            if !has(Role::Leaf) {
                lacks("nodes", "no node has the role leaf, so nobody holds a shard");
            }
        }
        if topology.nodes.iter().any(|node| node.role == Role::Root && node.admin.is_empty()) {
            lacks("nodes", "a root has no admin address; its HTTP API listens there");
        }
        let mute = topology.nodes.iter().any(|node| node.role == Role::Ingest && node.admin.is_empty());
        if mute {
            lacks("nodes", "an ingest has no admin address; `canopy feed` and other writers reach it there");
        }
        // A topology service places what the file does not.
        let service = has(Role::Topology);
        if topology.placements.is_empty() && !service {
            lacks("placements", "no shard is placed on a leaf, so every query finds nothing");
        }
        let placed =
            |corpus: &String| topology.placements.iter().any(|placement| placement.corpus == *corpus);
        for corpus in self.config.gather.corpora.keys().filter(|corpus| !service && !placed(corpus)) {
            let reason = "no placement names this corpus, so these settings hold for nothing";
            gaps.push((format!("gather.corpora.{corpus}"), reason.to_owned()));
        }
        gaps
    }

    /// What is wrong with the files of this machine that it names: (key, reason).
    pub fn files(&self) -> Vec<(String, String)> {
        let Config { store, topology, .. } = &self.config;
        let mut wrong = store.files();
        // Where none is named for nodes, they carry that of commands.
        let nodes = (!topology.node_token_file.is_empty()).then(|| node_token(topology).err()).flatten();
        let (user, tls) = (store_files::password(topology).err(), store_files::certificates(topology).err());
        for error in [token(topology).err(), nodes, user, tls].into_iter().flatten() {
            // It begins with the setting.
            let line = crate::failure::line(&error.into());
            let (key, reason) = line.split_once(' ').unwrap_or((&line, ""));
            wrong.push((key.to_owned(), reason.to_owned()));
        }
        wrong
    }

    /// The configuration, or all problems as one error.
    pub fn checked(self) -> Result<Config> {
        self.sound().map(|loaded| loaded.config)
    }

    /// Itself, or all problems as one error.
    pub fn sound(self) -> Result<Self> {
        if self.problems.is_empty() {
            return Ok(self);
        }
        let lines: Vec<String> = self.problems.iter().map(|problem| format!("  {problem}")).collect();
        let count = lines.len();
        Err(anyhow!(
            "the configuration has {count} problem{}:\n{}\nhint: `canopy config schema` lists every key",
            if count == 1 { "" } else { "s" },
            lines.join("\n")
        ))
    }

    /// Every value by its full key, tables taken apart.
    pub fn settings(&self) -> BTreeMap<String, String> {
        let config = &self.config;
        let mut all = settings(&config.telemetry);
        all.extend(settings(&config.rpc));
        all.extend(settings(&config.store));
        all.extend(settings(&config.topology));
        all.extend(settings(&config.root));
        all.extend(settings(&config.gather));
        all.extend(settings(&config.aggregator));
        all.extend(settings(&config.leaf));
        all.extend(settings(&config.ingest));
        all
    }

    /// Every key with its value and origin.
    pub fn print(&self) -> Vec<(String, String, Origin)> {
        let (config, layers) = (&self.config, &self.layers);
        let mut lines = layers.print(&config.telemetry);
        lines.extend(layers.print(&config.rpc));
        lines.extend(layers.print(&config.store));
        lines.extend(layers.print(&config.topology));
        lines.extend(layers.print(&config.root));
        lines.extend(layers.print(&config.gather));
        lines.extend(layers.print(&config.aggregator));
        lines.extend(layers.print(&config.leaf));
        lines.extend(layers.print(&config.ingest));
        lines
    }
}

/// (key, default as TOML, what it is and its bounds) of every key.
pub fn schema() -> Vec<(String, String, &'static str)> {
    fn of<T: Section>(lines: &mut Vec<(String, String, &'static str)>) {
        let defaults = Layers::default().print(&T::default());
        for (key, doc) in T::DOCS {
            let full = format!("{}.{key}", T::NAME);
            let value = defaults.iter().find(|(name, _, _)| *name == full);
            lines.push((full, value.map_or_else(String::new, |(_, value, _)| value.clone()), doc));
        }
    }
    let mut lines = Vec::new();
    of::<TelemetryConfig>(&mut lines);
    of::<RpcConfig>(&mut lines);
    of::<StoreConfig>(&mut lines);
    of::<TopologyConfig>(&mut lines);
    of::<RootConfig>(&mut lines);
    of::<GatherConfig>(&mut lines);
    of::<AggregatorConfig>(&mut lines);
    of::<LeafConfig>(&mut lines);
    of::<IngestConfig>(&mut lines);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_documented_and_every_document_has_a_key() {
        let defaults = Loaded::from_layers(Layers::default(), Vec::new());
        assert_eq!(defaults.problems, []);
        let keys: Vec<String> = defaults.print().into_iter().map(|(key, _, _)| key).collect();
        let mut documented: Vec<String> = schema().into_iter().map(|(key, _, _)| key).collect();
        documented.sort();
        let mut sorted = keys;
        sorted.sort();
        assert_eq!(sorted, documented);
    }

    #[test]
    fn a_file_without_nodes_or_with_half_a_tree_has_gaps() {
        let gaps = |text: &str| {
            let mut layers = Layers::default();
            layers.file("c.toml", text).unwrap();
            let loaded = Loaded::from_layers(layers, Vec::new());
            assert_eq!(loaded.problems, []);
            loaded.gaps().into_iter().map(|(_, reason)| reason).collect::<Vec<_>>().join("\n")
        };
        for part in ["no node is named", "no shard is placed"] {
            assert!(gaps("[leaf]\nthreads = 2").contains(part), "{}", gaps("[leaf]\nthreads = 2"));
        }
        let root = "[[topology.nodes]]\nid = 'r'\nrole = 'root'\naddress = 'a:1'";
        for part in ["the role leaf", "no admin address", "no shard is placed"] {
            assert!(gaps(root).contains(part), "{}", gaps(root));
        }
        assert_eq!(gaps(include_str!("../../deploy/canopy.toml")), "");
        assert_eq!(gaps(include_str!("../../deploy/canopy-topology.toml")), "", "the service places");
        let typo =
            format!("{}\n[gather.corpora.wbe]\nhedge = 'off'", include_str!("../../deploy/canopy.toml"));
        assert_eq!(gaps(&typo), "no placement names this corpus, so these settings hold for nothing");
    }

    #[test]
    fn files_that_are_missing_or_hold_something_else_are_named_with_their_setting() {
        let directory = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::write(&path, text).unwrap();
            path.display().to_string()
        };
        let files = |text: &str| {
            let mut layers = Layers::default();
            layers.file("c.toml", text).unwrap();
            let loaded = Loaded::from_layers(layers, Vec::new());
            assert_eq!(loaded.problems, []);
            loaded.files()
        };
        let (short, good) = (file("short", "abc"), file("good", "0123456789abcdef\n"));
        let wrong = files(&format!(
            "[topology]\ntoken_file = '{short}'\nnode_token_file = '/nowhere/token'\n[store]\nurl = 's3://bucket'\n\
             access_key_file = '/nowhere/key'\nsecret_key_file = '{good}'\nverify_keys = ['nonsense', '{good}']"
        ));
        let etcd = files(&format!(
            "[topology]\nstore = 'etcd://h:1/p'\nstore_user = 'canopy'\nstore_password_file = '/nowhere/password'\n\
             store_ca_file = '{good}'\nnodes = [{{ id = 't', role = 'topology', address = 'h:2' }}]"
        ));
        let keys: Vec<&str> = etcd.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(keys, ["topology.store_password_file", "topology.store_ca_file"]);
        assert!(
            etcd[0].1.contains("No such file") && etcd[1].1.contains("CERTIFICATE is expected"),
            "{etcd:?}"
        );
        let keys: Vec<&str> = wrong.iter().map(|(key, _)| key.as_str()).collect();
        let expected = ["store.verify_keys", "store.verify_keys", "store.access_key_file"];
        assert_eq!(keys, [&expected[..], &["topology.token_file", "topology.node_token_file"]].concat());
        for ((_, reason), part) in wrong.iter().zip([
            "\"nonsense\" is no key in base64",
            "holds no Ed25519 public key",
            "/nowhere/key can't be read",
            "holds no token: write at least 16",
            "/nowhere/token: No such file",
        ]) {
            assert!(reason.contains(part) && !reason.starts_with("topology."), "{part}: {reason}");
        }
        assert_eq!(files(&format!("[topology]\ntoken_file = '{good}'")), []);
    }

    #[test]
    fn all_problems_of_all_sections_are_listed() {
        let mut layers = Layers::default();
        layers.file("c.toml", "[rpc]\nmax_message = '1B'\n[leaf]\nno_such_key = 1\n[lief]\na = 1").unwrap();
        let loaded = Loaded::from_layers(layers, Vec::new());
        let message = loaded.checked().unwrap_err().to_string();
        for part in ["3 problems", "rpc.max_message", "leaf.no_such_key", "lief"] {
            assert!(message.contains(part), "{message}");
        }
    }
}
