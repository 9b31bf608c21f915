//! Where versions live: a directory or an object store, through `object_store`. Version numbers are claimed with
//! put-if-absent; a version exists for readers only when its manifest does.
//!
//! Layout: `corpora/NAME/corpus.json`, `corpora/NAME/versions/0000001742/{claim, statistics/…, shards/main-0003/…,
//! manifest.json}`.

use std::{path::PathBuf, sync::Arc};

use canopy_common::ids::Version;
use object_store::ObjectStore;
use serde::{Deserialize, Serialize};

use crate::{
    error::Result,
    manifest::{FileEntry, Manifest},
    schema::Schema,
};

/// What a corpus is, fixed at `corpus create`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Corpus {
    /// Name.
    pub name: String,
    /// Schema of the next build.
    pub schema: Schema,
    /// Log partitions, fixed for ever.
    pub partitions: u32,
    /// What decides between two writes of a key.
    pub ordering: Ordering,
}

/// Which order decides between two writes of a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "lowercase")]
pub enum Ordering {
    /// The log's.
    #[default]
    Log,
    /// The producer's own number.
    Producer,
}

/// A store of versions. Cheap to clone.
#[derive(Clone)]
pub struct VersionStore {
    objects: Arc<dyn ObjectStore>,
    local: Option<PathBuf>,
}

impl VersionStore {
    /// Opens `file:///dir`, a plain directory path, or (later) `s3://bucket/prefix`. The directory is created when
    /// `create`, else it must exist.
    pub fn open(_url: &str, _create: bool) -> Result<Self> {
        todo!()
    }

    /// The directory, when the store is local: leaves map files in place.
    pub fn local(&self) -> Option<&PathBuf> {
        self.local.as_ref()
    }

    /// The objects.
    pub fn objects(&self) -> &Arc<dyn ObjectStore> {
        &self.objects
    }

    /// Creates a corpus; refuses one that exists.
    pub async fn create_corpus(&self, _corpus: &Corpus) -> Result<()> {
        todo!()
    }

    /// Replaces a corpus' schema for the next build.
    pub async fn set_schema(&self, _name: &str, _schema: Schema) -> Result<()> {
        todo!()
    }

    /// A corpus by name.
    pub async fn corpus(&self, _name: &str) -> Result<Corpus> {
        todo!()
    }

    /// All corpora, by name.
    pub async fn corpora(&self) -> Result<Vec<Corpus>> {
        todo!()
    }

    /// Claims the next version number.
    pub async fn claim(&self, _corpus: &str) -> Result<Version> {
        todo!()
    }

    /// Complete versions, oldest first.
    pub async fn versions(&self, _corpus: &str) -> Result<Vec<Version>> {
        todo!()
    }

    /// The manifest of a version.
    pub async fn manifest(&self, _corpus: &str, _version: Version) -> Result<Manifest> {
        todo!()
    }

    /// The newest complete version's manifest.
    pub async fn latest(&self, _corpus: &str) -> Result<Manifest> {
        todo!()
    }

    /// Uploads a local file to a path below the version; returns its entry (length and BLAKE3 of what was sent). On a
    /// local store the file is moved or hard-linked.
    pub async fn put_file(
        &self,
        _corpus: &str,
        _version: Version,
        _path: &str,
        _file: &std::path::Path,
    ) -> Result<FileEntry> {
        todo!()
    }

    /// Makes the version visible: writes the manifest, create-only.
    pub async fn publish(&self, _manifest: &Manifest) -> Result<()> {
        todo!()
    }

    /// Local directory of a version, `None` for a remote store.
    pub fn version_dir(&self, corpus: &str, version: Version) -> Option<PathBuf> {
        let local = self.local.as_ref()?;
        Some(local.join(Self::version_path(corpus, version)))
    }

    /// Path of a version below the store.
    pub fn version_path(corpus: &str, version: Version) -> String {
        format!("corpora/{corpus}/versions/{:010}", version.0)
    }

    /// Re-reads every file of a version and compares length and BLAKE3; the damaged ones. `progress(bytes)` is called
    /// as it goes.
    pub async fn verify(
        &self,
        _manifest: &Manifest,
        _progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<FileEntry>> {
        todo!()
    }
}
