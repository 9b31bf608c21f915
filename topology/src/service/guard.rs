//! Who may speak with this service: nodes and commands of its own tree, and, where a token is configured, only those commands
//! that carry it.
//!
//! The failure this prevents: a command that was meant for another tree (a copied file, an address that was given to another
//! service), or a node that joins the wrong one. Rules: names are compared where both sides have one, and of nodes also where one
//! has none; the token is compared in a time that does not depend on where it differs, and is never logged.

use std::fs;

use canopy_common::config::Secret;
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
}

/// The token of a configuration; `None`: it names none. Errors: the file.
pub fn token(config: &TopologyConfig) -> Result<Option<Secret>> {
    let path = &config.token_file;
    if path.is_empty() {
        return Ok(None);
    }
    let text = fs::read_to_string(path)
        .map_err(|source| Error::Io { what: format!("topology.token_file {path}"), source })?;
    let token = Secret::new(&text);
    if token.reveal().chars().count() < SHORTEST || !token.reveal().chars().all(|c| c.is_ascii_graphic()) {
        let message = format!(
            "{path} holds no token: write at least {SHORTEST} letters, digits and signs, in one line"
        );
        return Err(Error::invalid("topology.token_file", message));
    }
    Ok(Some(token))
}

impl Guard {
    /// Of a configuration. Errors: the token's file.
    pub fn new(config: &TopologyConfig) -> Result<Self> {
        Ok(Self { cluster: config.cluster.clone(), token: token(config)? })
    }

    /// A node of the tree.
    pub fn node(&self, cluster: &str) -> Result<()> {
        self.same(cluster)
    }

    /// Somebody who asks for something.
    pub fn asker(&self, cluster: &str) -> Result<()> {
        if cluster.is_empty() { Ok(()) } else { self.same(cluster) }
    }

    /// Somebody who wants something done.
    pub fn command(&self, cluster: &str, metadata: &MetadataMap) -> Result<()> {
        self.asker(cluster)?;
        let Some(token) = &self.token else { return Ok(()) };
        let given = metadata.get("authorization").map(MetadataValue::as_bytes);
        let given = given.and_then(|value| value.strip_prefix(b"Bearer "));
        match given {
            Some(given) if same_bytes(given, token.reveal().as_bytes()) => Ok(()),
            Some(_) => Err(Error::Unauthenticated("the token is not the service's".to_owned())),
            None => Err(Error::Unauthenticated(
                "commands need a token here; name its file as topology.token_file, or --token-file"
                    .to_owned(),
            )),
        }
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

/// Takes the same time wherever they differ; their lengths are no secret.
fn same_bytes(one: &[u8], other: &[u8]) -> bool {
    let differ = one.iter().zip(other).fold(0, |differ, (one, other)| differ | (one ^ other));
    std::hint::black_box(differ) == 0 && one.len() == other.len()
}

#[cfg(test)]
mod tests {
    use canopy_common::error::{Classify, ErrorClass};

    use super::*;

    fn guard(cluster: &str, token: Option<&str>) -> Guard {
        Guard { cluster: cluster.to_owned(), token: token.map(Secret::new) }
    }

    #[test]
    fn another_tree_is_refused_and_one_that_does_not_say_may_ask() {
        let web = guard("web-eu", None);
        assert!(web.node("web-eu").is_ok() && web.asker("web-eu").is_ok() && web.asker("").is_ok());
        for other in ["web-us", ""] {
            let error = web.node(other).unwrap_err().to_string();
            assert!(error.contains("\"web-eu\"") && error.contains("topology.cluster"), "{error}");
        }
        assert!(web.asker("web-us").is_err() && web.command("web-us", &MetadataMap::new()).is_err());
        assert!(guard("", None).node("").is_ok() && guard("", None).node("web-eu").is_err());
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
}
