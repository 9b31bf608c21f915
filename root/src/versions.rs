//! The versions that this root serves: manifest and statistics of each corpus, opened and verified before the root
//! calls itself ready, and read by every query through one snapshot.
//!
//! A query carries the numbers of its pinned version, so a root without them could only guess scores. Therefore a
//! corpus is served only once its statistics file has the length and checksum that the manifest states, and its
//! analysis is the one of this build. A newest version that can't be used is passed over and named in the log, on the
//! status page and in a metric; a pinned one is an error. Statistics of a local store are read in place; those of a remote one are
//! fetched once into the cache directory. While a store is away, opening is tried again with growing pauses; what is
//! open stays open.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, time::Duration};

use arc_swap::ArcSwap;
use canopy_common::{
    drain::Drain,
    ids::{ShardId, Version},
};
use canopy_format::{
    manifest::Manifest,
    schema::{Kind, SEARCH_FIELD},
    statistics::Statistics,
    store::{Found, PassedOver, VersionStore},
};
use canopy_topology::routing::RoutingSnapshot;
use prometheus::IntGauge;
use serde_json::{Value, json};

use crate::error::{Error, Result};

/// First pause after a failure; it doubles to the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// Bytes of an average token with its space, for estimates of answer sizes.
const BYTES_PER_TOKEN: u64 = 7;
/// Bytes of an average keyword, date or number with its name.
const BYTES_PER_VALUE: u64 = 64;

/// One open version of a corpus. Immutable.
pub struct CorpusState {
    /// Its table of contents.
    pub manifest: Manifest,
    /// Its document frequencies.
    pub statistics: Statistics,
    /// Every shard with its documents, in the manifest's order: the account of every query is kept over these.
    pub shards: Vec<(ShardId, u64)>,
    /// Newer versions that can't be served.
    pub passed_over: Vec<PassedOver>,
}

impl CorpusState {
    /// From a verified version.
    pub fn new(manifest: Manifest, statistics: Statistics) -> Self {
        let shards = manifest.shards.iter().map(|entry| (entry.shard.clone(), entry.documents)).collect();
        Self { manifest, statistics, shards, passed_over: Vec::new() }
    }

    /// Bytes that a field takes in an answer, on average over the version's documents.
    pub fn average_bytes(&self, field: &str) -> u64 {
        let text = self.manifest.schema.field(field).is_some_and(|field| field.kind == Kind::Text);
        if !text {
            return BYTES_PER_VALUE;
        }
        let tokens = &self.manifest.statistics.tokens;
        let total = tokens.get(field).or_else(|| tokens.get(SEARCH_FIELD)).copied().unwrap_or(0);
        (total / self.manifest.documents().max(1)).saturating_mul(BYTES_PER_TOKEN)
    }
}

#[derive(Clone)]
enum Slot {
    Opening { why: String },
    Open(Arc<CorpusState>),
}

/// All corpora of the routing snapshot, open or opening. Readers take a snapshot and never wait.
pub struct Versions {
    corpora: ArcSwap<BTreeMap<String, Slot>>,
}

impl Versions {
    /// The corpora that are to be opened.
    pub fn expecting(names: impl IntoIterator<Item = String>) -> Self {
        let opening = |name| (name, Slot::Opening { why: "its version is being opened".to_owned() });
        Self { corpora: ArcSwap::from_pointee(names.into_iter().map(opening).collect()) }
    }

    /// The open version of a corpus: the one snapshot of a query.
    pub fn corpus(&self, name: &str) -> Result<Arc<CorpusState>> {
        match self.corpora.load().get(name) {
            Some(Slot::Open(state)) => Ok(state.clone()),
            Some(Slot::Opening { why }) => Err(Error::NotOpen { corpus: name.to_owned(), why: why.clone() }),
            None => Err(Error::UnknownCorpus(name.chars().take(80).collect())),
        }
    }

    /// All open corpora, by name.
    pub fn open(&self) -> Vec<Arc<CorpusState>> {
        let corpora = self.corpora.load();
        let open = corpora.values().filter_map(|slot| match slot {
            Slot::Open(state) => Some(state.clone()),
            Slot::Opening { .. } => None,
        });
        open.collect()
    }

    /// What is not open yet and why; empty when all is.
    pub fn opening(&self) -> Vec<String> {
        let corpora = self.corpora.load();
        let opening = corpora.iter().filter_map(|(name, slot)| match slot {
            Slot::Opening { why } => Some(format!("{name}: {why}")),
            Slot::Open(_) => None,
        });
        opening.collect()
    }

    /// For `/status`.
    pub fn status(&self) -> Value {
        let one = |slot: &Slot| match slot {
            Slot::Open(state) => json!({
                "state": "serving", "version": state.manifest.version, "documents": state.manifest.documents(),
                "shards": state.shards.len(), "statistics": state.statistics.id(),
            }),
            Slot::Opening { why } => json!({ "state": "opening", "why": why }),
        };
        self.corpora.load().iter().map(|(name, slot)| (name.clone(), one(slot))).collect()
    }

    /// Newer versions than those that are served, which can't be.
    pub fn passed_over(&self) -> Vec<Value> {
        let open = self.open();
        let each = open.iter().flat_map(|state| {
            let one = |passed: &PassedOver| {
                json!({ "corpus": state.manifest.corpus, "version": passed.version, "reason": passed.reason })
            };
            state.passed_over.iter().map(one)
        });
        each.collect()
    }

    /// Serves a version from now on.
    pub fn publish(&self, state: CorpusState) {
        let name = state.manifest.corpus.clone();
        self.put(name, Slot::Open(Arc::new(state)));
    }

    fn put(&self, name: String, slot: Slot) {
        self.corpora.rcu(|corpora| {
            let mut next = BTreeMap::clone(corpora);
            next.insert(name.clone(), slot.clone());
            next
        });
    }
}

/// Opens every corpus of the routing snapshot, each at its own pace, until all are open or the process drains.
pub async fn open_all(
    versions: &Versions,
    store: &VersionStore,
    routing: &RoutingSnapshot,
    cache_dir: &str,
    drain: &Drain,
    passed_over: &IntGauge,
) {
    let each = routing.corpora.iter().map(|(name, corpus)| async move {
        let mut pause = FIRST_PAUSE;
        loop {
            match open(store, name, corpus.version, cache_dir).await {
                Ok(state) => {
                    let version = state.manifest.version;
                    for PassedOver { version: newer, reason } in &state.passed_over {
                        tracing::error!(corpus = name, %version, %newer, reason, "the newer version can't be served");
                    }
                    passed_over.add(state.passed_over.len() as i64);
                    tracing::info!(corpus = name, %version, "version is open");
                    versions.publish(state);
                    return;
                }
                Err(error) => {
                    tracing::warn!(corpus = name, %error, retry_after = ?pause, "version could not be opened");
                    versions.put(name.clone(), Slot::Opening { why: error.to_string() });
                }
            }
            tokio::select! {
                biased;
                () = drain.wait_started() => return,
                () = tokio::time::sleep(pause) => pause = (pause * 2).min(LONGEST_PAUSE),
            }
        }
    });
    futures::future::join_all(each).await;
}

/// Reads and verifies the pinned version, or the newest that can be served.
async fn open(
    store: &VersionStore,
    corpus: &str,
    pinned: Option<Version>,
    cache_dir: &str,
) -> Result<CorpusState> {
    let Found { manifest, passed_over } = store.to_serve(corpus, pinned).await?;
    let path = statistics_file(store, &manifest, cache_dir).await?;
    let entry = manifest.statistics.clone();
    let opened = tokio::task::spawn_blocking(move || Statistics::open(&path, &entry)).await;
    let statistics = opened.map_err(|error| io("statistics", std::io::Error::other(error)))??;
    Ok(CorpusState { passed_over, ..CorpusState::new(manifest, statistics) })
}

fn io(what: impl Into<String>, source: std::io::Error) -> Error {
    Error::Io { what: what.into(), source }
}

/// Where the statistics lie on this machine; fetched first when the store is remote.
async fn statistics_file(store: &VersionStore, manifest: &Manifest, cache_dir: &str) -> Result<PathBuf> {
    let file = &manifest.statistics.file;
    if let Some(dir) = store.version_dir(&manifest.corpus, manifest.version) {
        return Ok(dir.join(&file.path));
    }
    // Named by content: a file that is complete is right for whichever version names it.
    let target = PathBuf::from(cache_dir).join(format!("{}-{}.fst", manifest.corpus, file.blake3));
    if tokio::fs::metadata(&target).await.is_ok_and(|found| found.len() == file.bytes) {
        return Ok(target);
    }
    let fail = |error| io(format!("root.cache_dir {cache_dir}"), error);
    tokio::fs::create_dir_all(cache_dir).await.map_err(fail)?;
    store.get_file(&manifest.corpus, manifest.version, file, &target).await?;
    Ok(target)
}

#[cfg(test)]
mod tests;
