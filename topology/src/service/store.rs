//! What survives the topology service, as documents of JSON by key: one for each node and corpus, so that a change writes what
//! changed and a newer build can read them. Where they lie is a [`Store`]: a file that one service has ([`mod@file`]), or etcd,
//! which several share (`etcd`, with the feature of that name).
//!
//! The failure this prevents: a service that writes over what another one decided. Rules of every store: a write is made as a
//! whole or not at all, with its lines of the audit log, and is on disks before it is acknowledged; it is made only while
//! nobody else has written since this handle read (compare and set), and only by the one that leads. After a write that
//! failed nobody knows whether it was made, so the store is read again before the next one.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{Epoch, NodeId};
use serde::{Serialize, de::DeserializeOwned};

use super::desired::Desired;
use crate::error::{Error, Result};

#[cfg(feature = "etcd")]
pub mod etcd;
pub mod file;
pub mod pieces;
pub mod shared;

pub use file::FileStore;

const EPOCH: &str = "epoch";
const NODE: &str = "node/";
const CORPUS: &str = "corpus/";
const PLACING: &str = "placing/";
const GATE: &str = "gate/";

/// Documents by key.
pub type Documents = BTreeMap<String, Vec<u8>>;

/// A place for documents. Every call blocks, for the disk or for the network.
pub trait Store: Send {
    /// Everything, once no write of before can be made any more.
    fn read(&mut self) -> Result<Documents>;

    /// Makes `from`, which was read or written last, into `to`, and appends to the audit log. Errors: another one leads
    /// ([`Error::Deposed`]), or nobody knows whether it was made.
    fn write(&mut self, from: &Documents, to: &Documents, audit: &[String]) -> Result<()>;

    /// The last lines of the audit log, oldest first.
    fn audit(&mut self, last: usize) -> Result<Vec<String>>;

    /// Whether what was written is where it was put. Asked often: a look, no reading.
    fn is_there(&self) -> bool {
        true
    }
}

/// What the service keeps, in whatever store.
pub struct TopologyStore {
    store: Box<dyn Store>,
    /// What is stored; `None`: not known.
    stored: Option<Documents>,
}

impl TopologyStore {
    /// Over a store.
    pub fn new(store: impl Store + 'static) -> Self {
        Self { store: Box::new(store), stored: None }
    }

    /// What was stored last; nothing: the default.
    pub fn load(&mut self) -> Result<Desired> {
        let documents = self.store.read()?;
        let mut desired = Desired::default();
        for (key, bytes) in &documents {
            if key == EPOCH {
                desired.epoch = Epoch(read_json(key, bytes)?);
            } else if let Some(node) = key.strip_prefix(NODE) {
                desired.nodes.insert(NodeId::from(node), read_json(key, bytes)?);
            } else if let Some(corpus) = key.strip_prefix(CORPUS) {
                desired.corpora.insert(corpus.to_owned(), read_json(key, bytes)?);
            } else if let Some(corpus) = key.strip_prefix(PLACING) {
                desired.placings.insert(corpus.to_owned(), read_json(key, bytes)?);
            } else if let Some(corpus) = key.strip_prefix(GATE) {
                // Without it the gate is opened from nothing; the service need not stand still for that.
                match read_json(key, bytes) {
                    Ok(kept) => drop(desired.gates.insert(corpus.to_owned(), Arc::new(kept))),
                    Err(error) => {
                        tracing::warn!(%error, "the last look at a trial can't be read; it begins anew");
                    }
                }
            }
        }
        self.stored = Some(documents);
        Ok(desired)
    }

    /// Stores what is different, with lines for the audit log (JSON). Nothing is written when nothing is.
    pub fn save(&mut self, desired: &Desired, audit: &[String]) -> Result<()> {
        let mut next = Documents::from([(EPOCH.to_owned(), json(&desired.epoch.0))]);
        next.extend(desired.nodes.iter().map(|(node, record)| (format!("{NODE}{node}"), json(record))));
        next.extend(desired.corpora.iter().map(|(name, state)| (format!("{CORPUS}{name}"), json(state))));
        next.extend(desired.placings.iter().map(|(name, it)| (format!("{PLACING}{name}"), json(it))));
        next.extend(desired.gates.iter().map(|(name, kept)| (format!("{GATE}{name}"), json(&**kept))));
        let stored = self.stored.take().map_or_else(|| self.store.read(), Ok)?;
        if next != stored || !audit.is_empty() || !self.store.is_there() {
            self.store.write(&stored, &next, audit)?;
        }
        self.stored = Some(next);
        Ok(())
    }

    /// Whether what was stored is where it was put.
    pub fn is_there(&self) -> bool {
        self.store.is_there()
    }

    /// The last lines of the audit log, oldest first.
    pub fn audit(&mut self, last: usize) -> Result<Vec<String>> {
        self.store.audit(last)
    }
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
    use parking_lot::Mutex;

    use super::*;
    use crate::{config::Role, rollout::State, service::desired::NodeRecord};

    fn desired() -> Desired {
        let node = NodeRecord { drained: true, ..NodeRecord::new(Role::Leaf, "h:1") };
        let state = State { live: Some(Version(3)), ..State::default() };
        Desired {
            epoch: Epoch(7),
            nodes: [("a".into(), node.clone()), ("b".into(), node)].into(),
            corpora: [("web".to_owned(), state)].into(),
            ..Desired::default()
        }
    }

    #[test]
    fn what_was_stored_is_there_after_a_restart_and_one_service_has_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/topology.redb");
        let path = path.to_str().unwrap();
        let open = || FileStore::open(path).map(TopologyStore::new);
        let mut store = open().unwrap();
        assert_eq!(store.load().unwrap(), Desired::default());
        assert!(store.audit(5).unwrap().is_empty());
        let mut desired = desired();
        store.save(&desired, &["one".into(), "two".into()]).unwrap();
        desired.nodes.remove(&NodeId::from("b"));
        desired.epoch = Epoch(8);
        store.save(&desired, &["three".into()]).unwrap();
        let second = open().err().unwrap().to_string();
        assert!(second.contains("another topology service has it open"), "{second}");
        drop(store);
        let mut store = open().unwrap();
        assert_eq!(store.load().unwrap(), desired);
        assert_eq!(store.audit(2).unwrap(), ["two", "three"]);
        assert!(FileStore::open("/proc/no/such.redb").is_err());
    }

    #[test]
    fn a_file_that_is_removed_is_made_again_and_another_one_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        let (path, moved) = (at("topology.redb"), at("moved"));
        let mut store = TopologyStore::new(FileStore::open(path.to_str().unwrap()).unwrap());
        store.load().unwrap();
        let desired = desired();
        store.save(&desired, &["one".into()]).unwrap();
        assert!(store.is_there());
        std::fs::rename(&path, &moved).unwrap();
        assert!(!store.is_there());
        // Nothing is different, and it is stored.
        store.save(&desired, &[]).unwrap();
        assert!(store.is_there());
        drop(store);
        let mut store = TopologyStore::new(FileStore::open(path.to_str().unwrap()).unwrap());
        assert_eq!(store.load().unwrap(), desired);
        std::fs::rename(&moved, &path).unwrap();
        let refused = store.save(&Desired::default(), &[]).unwrap_err().to_string();
        assert!(!store.is_there() && refused.contains("another file lies there"), "{refused}");
    }

    /// Makes the next write and says that it failed.
    #[derive(Clone, Default)]
    struct Doubtful(Arc<Mutex<(Documents, bool)>>);

    impl Store for Doubtful {
        fn read(&mut self) -> Result<Documents> {
            Ok(self.0.lock().0.clone())
        }
        fn write(&mut self, from: &Documents, to: &Documents, _: &[String]) -> Result<()> {
            let mut state = self.0.lock();
            assert_eq!(state.0, *from, "it is compared with what is there");
            state.0 = to.clone();
            if std::mem::take(&mut state.1) {
                return Err(Error::Refused("nobody knows".to_owned()));
            }
            Ok(())
        }
        fn audit(&mut self, _: usize) -> Result<Vec<String>> {
            Ok(Vec::new())
        }
    }

    #[test]
    fn after_a_write_in_doubt_the_store_is_read_before_the_next() {
        let doubtful = Doubtful::default();
        let mut store = TopologyStore::new(doubtful.clone());
        store.load().unwrap();
        let first = desired();
        doubtful.0.lock().1 = true;
        assert!(store.save(&first, &[]).is_err());
        // The service goes on as before the change, and that is what is stored from now on.
        let before = Desired { epoch: Epoch(9), ..Desired::default() };
        store.save(&before, &[]).unwrap();
        assert_eq!(TopologyStore::new(doubtful).load().unwrap(), before);
    }
}
