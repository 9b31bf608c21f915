//! Brings the files of a shard from a remote store into the cache directory, before anything opens them. A local store needs
//! none of it: its files are mapped in place.
//!
//! The failure this prevents: a file that came half, taken for whole after a crash. Files come under a name ending in
//! `.part`, are continued where they ended, and get their name when they have the length of the manifest; what they hold is
//! verified later, against the manifest, by the same code as anything else. Nothing in the cache is served without that.
//! Disk is checked before the first byte. Units: bytes, bytes a second.

use std::{
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use canopy_common::{
    disk,
    ids::{ShardId, Version},
};
use canopy_format::{
    manifest::{FileEntry, Manifest, ShardEntry},
    store::VersionStore,
};
use futures::{FutureExt, StreamExt, TryStreamExt, stream};
use tokio::{
    fs,
    io::AsyncWriteExt,
    time::{Instant, sleep_until},
};

use crate::error::{Error, Result};

/// Files at a time.
const FILES: usize = 4;
/// Bytes asked for at a time.
const PART: u64 = 4 << 20;

/// Fetching for one shard.
pub struct Stage<'a> {
    /// Where from.
    pub store: &'a VersionStore,
    /// Where to.
    pub cache_dir: &'a str,
    /// Bytes a second at most; 0: as fast as it goes.
    pub rate: u64,
    /// Told the bytes that came; whether to go on.
    pub went: &'a (dyn Fn(u64) -> bool + Sync),
}

/// The version's directory in the cache.
fn version_dir(cache_dir: &str, corpus: &str, version: Version) -> PathBuf {
    Path::new(cache_dir).join(VersionStore::version_path(corpus, version))
}

/// Deletes what was fetched of a shard.
pub fn forget(cache_dir: &str, corpus: &str, version: Version, shard: &ShardId) -> io::Result<()> {
    let directory = version_dir(cache_dir, corpus, version);
    match std::fs::remove_dir_all(directory.join(Manifest::shard_dir(shard))) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Only when it is empty: the last shard takes the version with it.
    match std::fs::remove_dir(directory.join("shards")) {
        Ok(()) => VersionStore::forget_table(cache_dir, corpus, version),
        Err(_) if !directory.join("shards").exists() => {
            VersionStore::forget_table(cache_dir, corpus, version)
        }
        Err(_) => Ok(()),
    }
}

impl Stage<'_> {
    /// The directory of the version with all files of the shard; `None`: given up.
    pub async fn fetch(&self, manifest: &Manifest, entry: &ShardEntry) -> Result<Option<PathBuf>> {
        let (corpus, version) = (&manifest.corpus, manifest.version);
        if let Some(directory) = self.store.version_dir(corpus, version) {
            return Ok(Some(directory));
        }
        let directory = version_dir(self.cache_dir, corpus, version);
        let shard_dir = directory.join(Manifest::shard_dir(&entry.shard));
        fs::create_dir_all(&shard_dir).await.map_err(failed(&shard_dir))?;
        let need = missing(&directory, entry).await;
        let free = disk::free(&shard_dir).map_err(failed(&shard_dir))?;
        if need > free {
            return Err(Error::NoRoom { what: "disk", shard: entry.shard.clone(), need, free });
        }
        let each = entry.files.iter().map(|file| self.file(corpus, version, file, &directory).boxed());
        let each: Vec<_> = each.collect();
        let whole: Vec<bool> = stream::iter(each).buffer_unordered(FILES).try_collect().await?;
        Ok(whole.into_iter().all(|whole| whole).then_some(directory))
    }

    /// Whether the file is there in the end, whole by its length.
    async fn file(&self, corpus: &str, version: Version, file: &FileEntry, directory: &Path) -> Result<bool> {
        let target = directory.join(&file.path);
        if length(&target).await == Some(file.bytes) {
            return Ok((self.went)(file.bytes));
        }
        if let Some(parent) = target.parent() {
            fs::create_dir_all(parent).await.map_err(failed(parent))?;
        }
        let partial = partial(&target);
        let mut came = length(&partial).await.unwrap_or(0);
        if came > file.bytes {
            fs::remove_file(&partial).await.map_err(failed(&partial))?;
            came = 0;
        }
        if !(self.went)(came) {
            return Ok(false);
        }
        let mut out = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&partial)
            .await
            .map_err(failed(&partial))?;
        while came < file.bytes {
            let begun = Instant::now();
            let bytes = self.store.read_range(corpus, version, file, came, PART).await?;
            out.write_all(&bytes).await.map_err(failed(&partial))?;
            // It has only taken the bytes: that the disk is full is the answer to the flush.
            out.flush().await.map_err(failed(&partial))?;
            came += bytes.len() as u64;
            if !(self.went)(bytes.len() as u64) {
                return Ok(false);
            }
            if self.rate > 0 {
                // Several files share the rate.
                let due = bytes.len() as f64 * FILES as f64 / self.rate as f64;
                sleep_until(begun + Duration::from_secs_f64(due)).await;
            }
        }
        out.sync_all().await.map_err(failed(&partial))?;
        fs::rename(&partial, &target).await.map_err(failed(&target))?;
        Ok(true)
    }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::Io { path: path.display().to_string(), source }
}

fn partial(target: &Path) -> PathBuf {
    let mut name = target.as_os_str().to_owned();
    name.push(".part");
    name.into()
}

async fn length(path: &Path) -> Option<u64> {
    fs::metadata(path).await.ok().map(|found| found.len())
}

/// Bytes still to come.
async fn missing(directory: &Path, entry: &ShardEntry) -> u64 {
    let mut need = 0;
    for file in &entry.files {
        let target = directory.join(&file.path);
        let whole = length(&target).await == Some(file.bytes);
        let came = if whole { file.bytes } else { length(&partial(&target)).await.unwrap_or(0) };
        need += file.bytes.saturating_sub(came);
    }
    need
}

#[cfg(test)]
mod tests;
