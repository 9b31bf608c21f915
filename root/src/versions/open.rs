//! From a version in the store to one that queries can carry the numbers of: manifest, statistics, verified.
//!
//! Statistics of a local store are read in place; those of a remote one are fetched once into the cache directory. A newest
//! version that can't be used is passed over and named in the log, on the status page and in a metric; a pinned one is
//! an error.

use std::path::PathBuf;

use canopy_common::ids::Version;
use canopy_format::{
    manifest::Manifest,
    statistics::Statistics,
    store::{Found, VersionStore},
};

use super::{CorpusState, cache};
use crate::error::{Error, Result};

/// Reads and verifies the pinned version, or the newest that can be served.
pub async fn open(
    store: &VersionStore,
    corpus: &str,
    pinned: Option<Version>,
    cache_dir: &str,
) -> Result<CorpusState> {
    let Found { manifest, passed_over } = store.to_serve(corpus, pinned).await?;
    let path = statistics_file(store, &manifest, cache_dir).await?;
    let (entry, fetched) = (manifest.statistics.clone(), store.local().is_none());
    let opening = move || match Statistics::open(&path, &entry) {
        // What lies in the cache was whole when it came: this disk is at fault and not the version. It is fetched once more.
        Err(error) if fetched && error.of_the_version() => {
            let _gone_or_tried_again = std::fs::remove_file(&path);
            Err(io("the kept statistics", std::io::Error::other(error)))
        }
        opened => Ok(opened?),
    };
    let opened = tokio::task::spawn_blocking(opening).await;
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
    let target = cache::statistics(cache_dir, manifest);
    if tokio::fs::metadata(&target).await.is_ok_and(|found| found.len() == file.bytes) {
        return Ok(target);
    }
    let fail = |error| io(format!("root.cache_dir {cache_dir}"), error);
    tokio::fs::create_dir_all(cache_dir).await.map_err(fail)?;
    store.get_file(&manifest.corpus, manifest.version, file, &target).await?;
    Ok(target)
}
