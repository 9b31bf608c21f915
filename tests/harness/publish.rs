//! Versions for tests: a store in a directory of its own, filled by the indexer itself.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use canopy_format::{
    manifest::Manifest,
    schema::Schema,
    statistics::Statistics,
    store::{Corpus, Ordering, VersionStore},
};
use canopy_indexer::build::{self, BuildRequest};
use canopy_root::versions::CorpusState;
use parking_lot::Mutex;
use serde_json::Value;

use crate::corpus::{self, Page};

const PREFIX: &str = "canopy-test-";

/// Removes what processes that have ended left behind: a test binary does not drop what its tests share.
fn sweep() {
    let entries = std::fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    for entry in entries {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next());
        let gone = |process: &str| !Path::new("/proc").join(process).exists();
        if process.is_some_and(gone) {
            let _another_process_may_sweep_too = std::fs::remove_dir_all(entry.path());
        }
    }
}

/// A store.
pub struct Shelf {
    dir: tempfile::TempDir,
    /// The store.
    pub store: VersionStore,
    open: Mutex<BTreeMap<String, Arc<CorpusState>>>,
}

impl Shelf {
    /// An empty one.
    pub fn new() -> Self {
        sweep();
        let prefix = format!("{PREFIX}{}-", std::process::id());
        let dir = tempfile::Builder::new().prefix(&prefix).tempdir().expect("a temporary directory");
        let store = VersionStore::open(&dir.path().join("store").to_string_lossy(), true).expect("a store");
        Self { dir, store, open: Mutex::default() }
    }

    /// The directory of the whole shelf; the store is in `store`.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// Publishes one version of a new corpus.
    pub async fn publish(&self, name: &str, schema: &Schema, shards: u32, pages: &[Page]) -> Manifest {
        let records: Vec<Value> = pages.iter().map(Page::record).collect();
        self.publish_records(name, schema, shards, &records).await.0
    }

    /// The same from records as they are.
    pub async fn publish_records(
        &self,
        name: &str,
        schema: &Schema,
        shards: u32,
        records: &[Value],
    ) -> (Manifest, build::BuildReport) {
        let input = corpus::write(&self.dir().join(format!("{name}.jsonl")), records);
        let corpus = Corpus {
            name: name.to_owned(),
            schema: schema.clone(),
            partitions: 16,
            ordering: Ordering::default(),
        };
        self.store.create_corpus(&corpus).await.expect("a new corpus");
        let report = self.build(name, shards, vec![input]).await;
        (self.store.latest(name).await.expect("a version"), report)
    }

    /// Builds the next version of a corpus.
    pub async fn build(&self, name: &str, shards: u32, inputs: Vec<PathBuf>) -> build::BuildReport {
        let request = BuildRequest {
            shards: Some(shards),
            memory: 256 << 20,
            ..BuildRequest::new(self.store.clone(), name, inputs)
        };
        build::run(request).await.unwrap_or_else(|error| panic!("{name} could not be built: {error}"))
    }

    /// The newest version of a corpus as a root opens it, to read queries against.
    pub async fn state(&self, name: &str) -> Arc<CorpusState> {
        if let Some(state) = self.open.lock().get(name) {
            return state.clone();
        }
        let manifest = self.store.latest(name).await.expect("a version");
        let dir = self.store.version_dir(name, manifest.version).expect("a local store");
        let path = dir.join(&manifest.statistics.file.path);
        let statistics = Statistics::open(&path, &manifest.statistics).expect("statistics");
        let state = Arc::new(CorpusState::new(manifest, statistics));
        self.open.lock().insert(name.to_owned(), state.clone());
        state
    }
}

impl Default for Shelf {
    fn default() -> Self {
        Self::new()
    }
}
