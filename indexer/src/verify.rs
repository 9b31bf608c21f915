//! Whether a published version is what its manifest says: every file re-read (length, BLAKE3), then, in a local store,
//! the statistics and every shard opened and asked a query as a leaf would.

use canopy_common::ids::Version;
use canopy_format::{
    manifest::Manifest,
    statistics::Statistics,
    store::{DamagedFile, VersionStore},
};
use serde::Serialize;

use crate::{
    build::check,
    error::{Error, Result},
    index_schema::IndexSchema,
};

/// What `verify` found.
#[derive(Debug, Clone, Serialize)]
pub struct VerifyReport {
    /// The corpus.
    pub corpus: String,
    /// The version.
    pub version: Version,
    /// Files read.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files that are not what the manifest says.
    pub damaged: Vec<DamagedFile>,
    /// Shards and statistics that do not open or answer, with the reason.
    pub unusable: Vec<Unusable>,
    /// Shards were opened; only files were compared in a store that is not a local directory.
    pub opened: bool,
}

/// A part that is whole by its checksums and yet does not work.
#[derive(Debug, Clone, Serialize)]
pub struct Unusable {
    /// `main/3`, or `statistics`.
    pub part: String,
    /// Why.
    pub reason: String,
}

impl VerifyReport {
    /// Nothing is wrong.
    pub fn sound(&self) -> bool {
        self.damaged.is_empty() && self.unusable.is_empty()
    }
}

/// Verifies a version, the newest when none is named. `progress(bytes)` is called as files are read.
pub async fn verify(
    store: &VersionStore,
    corpus: &str,
    version: Option<Version>,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<VerifyReport> {
    let manifest = match version {
        Some(version) => store.manifest(corpus, version).await?,
        None => store.latest(corpus).await?,
    };
    let damaged = store.verify(&manifest, progress).await?;
    let mut report = VerifyReport {
        corpus: corpus.to_owned(),
        version: manifest.version,
        files: manifest.files().count(),
        bytes: manifest.files().map(|file| file.bytes).sum(),
        damaged,
        unusable: vec![],
        opened: false,
    };
    if let Some(directory) = store.version_dir(corpus, manifest.version) {
        let damaged = report.damaged.clone();
        let open = move || open(&manifest, &directory, &damaged);
        report.unusable = tokio::task::spawn_blocking(open).await.map_err(|_| Error::Panicked)??;
        report.opened = true;
    }
    Ok(report)
}

/// Opens all parts without a damaged file.
fn open(manifest: &Manifest, directory: &std::path::Path, damaged: &[DamagedFile]) -> Result<Vec<Unusable>> {
    let whole = |prefix: &str| !damaged.iter().any(|damaged| damaged.file.path.starts_with(prefix));
    let mut unusable = vec![];
    let mut note = |part: String, reason: String| unusable.push(Unusable { part, reason });
    let statistics = &manifest.statistics;
    if whole(&statistics.file.path)
        && let Err(error) = Statistics::open(&directory.join(&statistics.file.path), statistics)
    {
        note("statistics".into(), error.to_string());
    }
    let schema = IndexSchema::of(&manifest.schema, manifest.whole)?;
    for entry in &manifest.shards {
        let (path, name) = (Manifest::shard_dir(&entry.shard), entry.shard.to_string());
        if whole(&format!("{path}/"))
            && let Err(error) = check::shard(&directory.join(&path), &schema, entry.documents, &name)
        {
            note(name, error.to_string());
        }
    }
    Ok(unusable)
}
