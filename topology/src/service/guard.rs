//! Who may speak with this service: nodes and commands of its own tree, and, where a token is configured, only those that carry
//! it. Nodes may have a token of their own, with which nobody commands.
//!
//! The failure this prevents: a command that was meant for another tree (a copied file, an address that was given to another
//! service), or a node that joins the wrong one, or that is none and says what it likes. Rules: names are compared where both
//! sides have one, and of nodes also where one has none; the token is compared in a time that does not depend on where it
//! differs, and is never logged.

use std::path::Path;

use canopy_common::{bounded, config::Secret};
use tonic::metadata::{MetadataMap, MetadataValue};

use crate::{
    config::TopologyConfig,
    error::{Error, Result},
};

/// Shortest token that is taken, characters.
const SHORTEST: usize = 16;

/// See the module.
pub struct Guard {
    cluster: String,
    token: Option<Secret>,
    /// Of nodes, where they have one of their own.
    node_token: Option<Secret>,
}

/// The token of commands; `None`: the configuration names none. Errors: the file.
pub fn token(config: &TopologyConfig) -> Result<Option<Secret>> {
    read("token_file", &config.token_file)
}

/// What a node carries: the token of nodes, else that of commands. Errors: the file.
pub fn node_token(config: &TopologyConfig) -> Result<Option<Secret>> {
    match read("node_token_file", &config.node_token_file)? {
        None => token(config),
        own => Ok(own),
    }
}

fn read(key: &str, path: &str) -> Result<Option<Secret>> {
    if path.is_empty() {
        return Ok(None);
    }
    let text = bounded::text(Path::new(path), bounded::MOST_SECRET)
        .map_err(|source| Error::Io { what: format!("topology.{key} {path}"), source })?;
    let token = Secret::new(&text);
    if token.reveal().chars().count() < SHORTEST || !token.reveal().chars().all(|c| c.is_ascii_graphic()) {
        let message = format!(
            "topology.{key} {path} holds no token: write at least {SHORTEST} letters, digits and signs, in one line"
        );
        return Err(Error::invalid(format!("topology.{key}"), message));
    }
    Ok(Some(token))
}

impl Guard {
    /// Of a configuration. Errors: a token's file.
    pub fn new(config: &TopologyConfig) -> Result<Self> {
        let (token, node_token) = (token(config)?, read("node_token_file", &config.node_token_file)?);
        if token.is_none() && node_token.is_some() {
            let message =
                "nodes have a token and commands have none, so anybody may command; name token_file too";
            return Err(Error::invalid("topology.node_token_file", message));
        }
        Ok(Self { cluster: config.cluster.clone(), token, node_token })
    }

    /// A node of the tree.
    pub fn node(&self, cluster: &str, metadata: &MetadataMap) -> Result<()> {
        self.same(cluster)?;
        self.bears(metadata)
    }

    /// Somebody who says that it is a node: with the token of nodes, or of commands.
    pub fn bears(&self, metadata: &MetadataMap) -> Result<()> {
        let known: Vec<&Secret> = self.node_token.iter().chain(&self.token).collect();
        admit(
            &known,
            metadata,
            "nodes need a token here; name its file as topology.node_token_file, or that of commands as topology.token_file",
        )
    }

    /// Somebody who asks for something.
    pub fn asker(&self, cluster: &str) -> Result<()> {
        if cluster.is_empty() { Ok(()) } else { self.same(cluster) }
    }

    /// Somebody who wants something done.
    pub fn command(&self, cluster: &str, metadata: &MetadataMap) -> Result<()> {
        self.asker(cluster)?;
        let known: Vec<&Secret> = self.token.iter().collect();
        admit(
            &known,
            metadata,
            "commands need a token here; name its file as topology.token_file, or --token-file",
        )
    }

    fn same(&self, cluster: &str) -> Result<()> {
        if cluster == self.cluster {
            return Ok(());
        }
        let shown = |name: &str| {
            if name.is_empty() { "a tree without a name".to_owned() } else { format!("{name:?}") }
        };
        let cluster: String = cluster.chars().take(80).collect();
        Err(Error::invalid(
            "cluster",
            format!(
                "this is the topology service of {}, not of {}; look at topology.cluster and at the address",
                shown(&self.cluster),
                shown(&cluster)
            ),
        ))
    }
}

/// Whether one of the tokens is there, if there are any.
fn admit(known: &[&Secret], metadata: &MetadataMap, missing: &str) -> Result<()> {
    if known.is_empty() {
        return Ok(());
    }
    let given = metadata.get("authorization").map(MetadataValue::as_bytes);
    let Some(given) = given.and_then(|value| value.strip_prefix(b"Bearer ")) else {
        return Err(Error::Unauthenticated(missing.to_owned()));
    };
    // All are looked at, whichever it is.
    let same = known.iter().filter(|token| same_bytes(given, token.reveal().as_bytes())).count();
    if same > 0 { Ok(()) } else { Err(Error::Unauthenticated("the token is not the service's".to_owned())) }
}

/// Takes the same time wherever they differ; their lengths are no secret.
fn same_bytes(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    std::hint::black_box(differ) == 0 && one.len() == other.len()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use canopy_common::error::{Classify, ErrorClass};

    use super::*;

    fn guard(cluster: &str, token: Option<&str>) -> Guard {
        Guard { cluster: cluster.to_owned(), token: token.map(Secret::new), node_token: None }
    }

    #[test]
    fn another_tree_is_refused_and_one_that_does_not_say_may_ask() {
        let web = guard("web-eu", None);
        assert!(
            web.node("web-eu", &MetadataMap::new()).is_ok()
                && web.asker("web-eu").is_ok()
                && web.asker("").is_ok()
        );
        for other in ["web-us", ""] {
            let error = web.node(other, &MetadataMap::new()).unwrap_err().to_string();
            assert!(error.contains("\"web-eu\"") && error.contains("topology.cluster"), "{error}");
        }
        assert!(web.asker("web-us").is_err() && web.command("web-us", &MetadataMap::new()).is_err());
        assert!(guard("", None).node("", &MetadataMap::new()).is_ok());
        assert!(guard("", None).node("web-eu", &MetadataMap::new()).is_err());
    }

    #[test]
    fn a_command_carries_the_token_where_there_is_one() {
        let with = |value: Option<&str>| {
            let mut metadata = MetadataMap::new();
            if let Some(value) = value {
                metadata.insert("authorization", value.parse().unwrap());
            }
            guard("", Some("0123456789abcdef")).command("", &metadata)
        };
        assert!(with(Some("Bearer 0123456789abcdef")).is_ok());
        for wrong in [
            None,
            Some("0123456789abcdef"),
            Some("Bearer 0123456789abcdeX"),
            Some("Bearer 0123456789abcde"),
            Some("Bearer 0123456789abcdef0"),
            Some("Bearer "),
        ] {
            let error = with(wrong).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Unauthenticated, "{wrong:?}");
            assert!(!error.to_string().contains("0123"), "{error}");
        }
        assert!(guard("", None).command("", &MetadataMap::new()).is_ok());
    }

    #[test]
    fn a_token_file_holds_one_long_word() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let config =
            TopologyConfig { token_file: path.to_string_lossy().into_owned(), ..TopologyConfig::default() };
        assert!(token(&config).unwrap_err().to_string().contains("token_file"));
        for bad in ["short\n", "two words that are long\n", ""] {
            fs::write(&path, bad).unwrap();
            let error = token(&config).unwrap_err().to_string();
            assert!(
                error.contains("at least 16") && (bad.is_empty() || !error.contains(bad.trim())),
                "{error}"
            );
        }
        fs::write(&path, "0123456789abcdef\n").unwrap();
        assert_eq!(token(&config).unwrap().unwrap().reveal(), "0123456789abcdef");
        assert!(token(&TopologyConfig::default()).unwrap().is_none());
    }

    #[test]
    fn nodes_carry_a_token_too_and_with_their_own_nobody_commands() {
        let bearing = |token: &str| {
            let mut metadata = MetadataMap::new();
            metadata.insert("authorization", format!("Bearer {token}").parse().unwrap());
            metadata
        };
        let (none, commands, nodes) =
            (MetadataMap::new(), bearing("0123456789abcdef"), bearing("nodes-of-this-tree"));
        let one = guard("", Some("0123456789abcdef"));
        let two = Guard {
            node_token: Some(Secret::new("nodes-of-this-tree")),
            ..guard("", Some("0123456789abcdef"))
        };
        for guard in [&one, &two] {
            assert!(guard.node("", &commands).is_ok() && guard.command("", &commands).is_ok());
            let error = guard.node("", &none).unwrap_err();
            assert_eq!(error.class(), ErrorClass::Unauthenticated);
            assert!(error.to_string().contains("topology.node_token_file"), "{error}");
            assert!(guard.node("", &bearing("another-tree-altogether")).is_err());
        }
        assert!(one.node("", &nodes).is_err() && two.node("", &nodes).is_ok());
        assert!(two.command("", &nodes).is_err());
    }

    #[test]
    fn what_a_node_carries_is_its_own_token_or_that_of_commands() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = dir.path().join(name);
            fs::write(&path, text).unwrap();
            path.to_string_lossy().into_owned()
        };
        let (token_file, node_token_file) =
            (file("commands", "0123456789abcdef\n"), file("nodes", "nodes-of-this-tree\n"));
        let carried = |config: &TopologyConfig| node_token(config).unwrap().map(|it| it.reveal().to_owned());
        let mut config = TopologyConfig { token_file, ..TopologyConfig::default() };
        assert_eq!(carried(&config).as_deref(), Some("0123456789abcdef"));
        config.node_token_file.clone_from(&node_token_file);
        assert_eq!(carried(&config).as_deref(), Some("nodes-of-this-tree"));
        assert!(Guard::new(&config).is_ok());
        let alone = TopologyConfig { node_token_file, ..TopologyConfig::default() };
        assert!(Guard::new(&alone).err().unwrap().to_string().contains("name token_file too"));
    }
}
