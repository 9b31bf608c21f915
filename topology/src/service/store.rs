//! Where the service keeps what survives it: one file, an embedded transactional database (`redb`). A change and its lines of
//! the audit log are one transaction, on the disk before it is acknowledged.
//!
//! Documents are JSON, one for each node and corpus, so that a change writes what changed and a newer build can read them.
//! Two services on one file: the second does not start.

use std::{collections::BTreeMap, path::Path};

use canopy_common::ids::{Epoch, NodeId};
use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};
use serde::{Serialize, de::DeserializeOwned};

use super::desired::Desired;
use crate::error::{Error, Result};

const DOCUMENTS: TableDefinition<&str, &[u8]> = TableDefinition::new("documents");
const AUDIT: TableDefinition<u64, &str> = TableDefinition::new("audit");
const EPOCH: &str = "epoch";
const NODE: &str = "node/";
const CORPUS: &str = "corpus/";
/// Lines of the audit log that are kept.
const AUDIT_KEPT: u64 = 100_000;

/// The store.
pub struct TopologyStore {
    /// `None`: it failed, and is opened again when it is needed next.
    database: Option<Database>,
    path: String,
    stored: Documents,
}

/// Documents by key.
type Documents = BTreeMap<String, Vec<u8>>;

impl TopologyStore {
    /// Opens or creates the file. Errors: it can't be written, or another service has it open.
    pub fn open(path: &str) -> Result<Self> {
        let database = Some(database(path)?);
        Ok(Self { database, path: path.to_owned(), stored: BTreeMap::new() })
    }

    fn database(&mut self) -> Result<&Database> {
        let database = self.database.take().map_or_else(|| database(&self.path), Ok)?;
        Ok(self.database.insert(database))
    }

    /// What was stored last; nothing: the default.
    pub fn load(&mut self) -> Result<Desired> {
        let path = self.path.clone();
        let failed = |error: &dyn std::fmt::Display| failed(&path, error);
        let read = self.database()?.begin_read().map_err(|error| failed(&error))?;
        let table = match read.open_table(DOCUMENTS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Desired::default()),
            Err(error) => return Err(failed(&error)),
        };
        let mut desired = Desired::default();
        let mut stored = BTreeMap::new();
        for entry in table.iter().map_err(|error| failed(&error))? {
            let (key, bytes) = entry.map_err(|error| failed(&error))?;
            let (key, bytes) = (key.value(), bytes.value());
            if key == EPOCH {
                desired.epoch = Epoch(read_json(key, bytes)?);
            } else if let Some(node) = key.strip_prefix(NODE) {
                desired.nodes.insert(NodeId::from(node), read_json(key, bytes)?);
            } else if let Some(corpus) = key.strip_prefix(CORPUS) {
                desired.corpora.insert(corpus.to_owned(), read_json(key, bytes)?);
            }
            stored.insert(key.to_owned(), bytes.to_vec());
        }
        self.stored = stored;
        Ok(desired)
    }

    /// Stores what is different, with lines for the audit log (JSON). Nothing is written when nothing is.
    pub fn save(&mut self, desired: &Desired, audit: &[String]) -> Result<()> {
        let mut next = BTreeMap::from([(EPOCH.to_owned(), json(&desired.epoch.0))]);
        next.extend(desired.nodes.iter().map(|(node, record)| (format!("{NODE}{node}"), json(record))));
        next.extend(desired.corpora.iter().map(|(name, state)| (format!("{CORPUS}{name}"), json(state))));
        if next == self.stored && audit.is_empty() {
            return Ok(());
        }
        // A database that failed once (a full disk) refuses everything until it is opened again.
        if self.write(&next, audit).is_err() {
            self.database = None;
            self.write(&next, audit).inspect_err(|_| self.database = None)?;
        }
        self.stored = next;
        Ok(())
    }

    fn write(&mut self, next: &Documents, audit: &[String]) -> Result<()> {
        let stored = std::mem::take(&mut self.stored);
        let written = self.database().map(|database| write(database, &stored, next, audit));
        self.stored = stored;
        written?.map_err(|error| failed(&self.path, &error))
    }

    /// The last lines of the audit log, oldest first.
    pub fn audit(&mut self, last: usize) -> Result<Vec<String>> {
        let path = self.path.clone();
        let failed = |error: &dyn std::fmt::Display| failed(&path, error);
        let read = self.database()?.begin_read().map_err(|error| failed(&error))?;
        let log = match read.open_table(AUDIT) {
            Ok(log) => log,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let newest = log.iter().map_err(|error| failed(&error))?.rev().take(last);
        let mut lines = newest
            .map(|entry| entry.map(|(_, line)| line.value().to_owned()))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| failed(&error))?;
        lines.reverse();
        Ok(lines)
    }
}

fn failed(path: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Store { path: path.to_owned(), reason: error.to_string() }
}

fn write(
    database: &Database,
    stored: &Documents,
    next: &Documents,
    audit: &[String],
) -> std::result::Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut table = write.open_table(DOCUMENTS)?;
        for (key, bytes) in next.iter().filter(|(key, bytes)| stored.get(*key) != Some(*bytes)) {
            table.insert(key.as_str(), bytes.as_slice())?;
        }
        for key in stored.keys().filter(|key| !next.contains_key(*key)) {
            table.remove(key.as_str())?;
        }
        let mut log = write.open_table(AUDIT)?;
        let mut number = log.last()?.map_or(0, |(number, _)| number.value());
        for line in audit {
            number += 1;
            log.insert(number, line.as_str())?;
            if let Some(old) = number.checked_sub(AUDIT_KEPT) {
                log.remove(old)?;
            }
        }
    }
    write.commit()?;
    Ok(())
}

/// Opens the file, and its directories. Errors: it can't be written, or another service has it open.
fn database(path: &str) -> Result<Database> {
    let failed = |reason: String| Error::Store { path: path.to_owned(), reason };
    if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|error| failed(error.to_string()))?;
    }
    Database::create(path).map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => {
            failed("another topology service has it open; a corpus has one".to_owned())
        }
        error => failed(error.to_string()),
    })
}

fn json(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).unwrap_or_default()
}

fn read_json<T: DeserializeOwned>(key: &str, bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes)
        .map_err(|error| Error::Document { key: key.to_owned(), reason: error.to_string() })
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::Version;

    use super::*;
    use crate::{config::Role, rollout::State, service::desired::NodeRecord};

    #[test]
    fn what_was_stored_is_there_after_a_restart_and_one_service_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/topology.redb");
        let path = path.to_str().unwrap();
        let mut store = TopologyStore::open(path).unwrap();
        assert_eq!(store.load().unwrap(), Desired::default());
        assert!(store.audit(5).unwrap().is_empty());
        let node = NodeRecord {
            role: Role::Leaf,
            address: "h:1".into(),
            admin: String::new(),
            zone: String::new(),
            drained: true,
            leaving: false,
        };
        let state = State { live: Some(Version(3)), ..State::default() };
        let mut desired = Desired {
            epoch: Epoch(7),
            nodes: [("a".into(), node.clone()), ("b".into(), node)].into(),
            corpora: [("web".to_owned(), state)].into(),
        };
        store.save(&desired, &["one".into(), "two".into()]).unwrap();
        desired.nodes.remove(&NodeId::from("b"));
        desired.epoch = Epoch(8);
        store.save(&desired, &["three".into()]).unwrap();
        let second = TopologyStore::open(path).err().unwrap().to_string();
        assert!(second.contains("another topology service has it open"), "{second}");
        drop(store);
        let mut store = TopologyStore::open(path).unwrap();
        assert_eq!(store.load().unwrap(), desired);
        assert_eq!(store.audit(2).unwrap(), ["two", "three"]);
        assert!(TopologyStore::open("/proc/no/such.redb").is_err());
    }
}
