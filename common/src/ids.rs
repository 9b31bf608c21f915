//! Names of things: newtypes, so that a shard number can't be passed for a version. Each parses what it prints.

use std::{fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a text is not an id.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
#[error("{what} {text:?} is not valid; expected {expected}")]
pub struct IdError {
    what: &'static str,
    text: String,
    expected: &'static str,
}

/// One query, across all hops. Printed as 32 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueryId(pub [u8; 16]);

impl fmt::Display for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for QueryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl QueryId {
    /// Reads 16 bytes from the wire.
    pub fn from_wire(bytes: &[u8]) -> Result<Self, IdError> {
        bytes.try_into().map(Self).map_err(|_| IdError {
            what: "query id",
            text: format!("{} bytes", bytes.len()),
            expected: "16 bytes",
        })
    }
}

impl FromStr for QueryId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad =
            || IdError { what: "query id", text: text.chars().take(40).collect(), expected: "32 hex digits" };
        if text.len() != 32 || !text.is_ascii() {
            return Err(bad());
        }
        let mut bytes = [0; 16];
        for (i, byte) in bytes.iter_mut().enumerate() {
            *byte = u8::from_str_radix(&text[2 * i..2 * i + 2], 16).map_err(|_| bad())?;
        }
        Ok(Self(bytes))
    }
}

/// One RPC of a branch. Unique within its query at the node that sent it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct AttemptId(pub u64);

/// A process of the tree, by its configured name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct NodeId(pub Arc<str>);

impl From<&str> for NodeId {
    fn from(name: &str) -> Self {
        Self(name.into())
    }
}

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A shard: number within its group. Printed as `main/3`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ShardId {
    /// The group: shards that share a tier and a topic.
    pub group: Arc<str>,
    /// Number within the group, from 0.
    pub number: u32,
}

impl ShardId {
    /// The shard `number` of `group`.
    pub fn new(group: &str, number: u32) -> Self {
        Self { group: group.into(), number }
    }
}

impl fmt::Display for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.group, self.number)
    }
}

impl fmt::Debug for ShardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for ShardId {
    type Err = IdError;

    fn from_str(text: &str) -> Result<Self, IdError> {
        let bad = || IdError {
            what: "shard",
            text: text.chars().take(80).collect(),
            expected: "GROUP/NUMBER, such as main/3",
        };
        let (group, number) = text.rsplit_once('/').ok_or_else(bad)?;
        if !valid_name(group) {
            return Err(bad());
        }
        Ok(Self::new(group, number.parse().map_err(|_| bad())?))
    }
}

impl Serialize for ShardId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ShardId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Corpus, group and node names: 1 to 64 of `a-z 0-9 - _`, starting with a letter or digit.
pub fn valid_name(name: &str) -> bool {
    let ok = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    (1..=64).contains(&name.len())
        && name.starts_with(ok)
        && name.chars().all(|c| ok(c) || c == '-' || c == '_')
}

/// A complete immutable build of a corpus, numbered upwards from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Version(pub u64);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

/// Number of a routing snapshot, growing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Epoch(pub u64);

/// xxh3-128 of a document's key. Orders hits of equal score, the same on every replica and in every tree.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct KeyHash(pub u128);

impl KeyHash {
    /// Hash of a document key.
    pub fn of(key: &str) -> Self {
        Self(xxhash_rust::xxh3::xxh3_128(key.as_bytes()))
    }

    /// From its two halves on the wire.
    pub fn from_parts(high: u64, low: u64) -> Self {
        Self((u128::from(high) << 64) | u128::from(low))
    }

    /// Upper and lower half.
    pub fn parts(self) -> (u64, u64) {
        ((self.0 >> 64) as u64, self.0 as u64)
    }
}

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_parse_what_they_print() {
        let id = QueryId([0xab; 16]);
        assert_eq!(id.to_string().parse(), Ok(id));
        let shard = ShardId::new("main", 7);
        assert_eq!(shard.to_string().parse(), Ok(shard));
        for bad in ["", "main", "main/", "/3", "main/-1", "Main/1", "main/99999999999"] {
            assert!(bad.parse::<ShardId>().is_err(), "{bad}");
        }
        assert!("é".repeat(16).parse::<QueryId>().is_err());
    }

    #[test]
    fn key_hash_is_pinned_for_ever() {
        assert_eq!(format!("{:?}", KeyHash::of("https://example.org/")), "9db2570db118aad0d5065686b5f20b16");
        let hash = KeyHash::of("a");
        let (high, low) = hash.parts();
        assert_eq!(KeyHash::from_parts(high, low), hash);
    }
}
