//! The files of a version: put below its directory, published by the manifest, re-read by `verify`. Files are hashed
//! as they pass, in blocks, so that a file of any size takes the same memory.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path as FilePath, PathBuf},
};

use canopy_common::ids::Version;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStoreExt, WriteMultipart, path::Path};
use serde::Serialize;
use tokio::io::AsyncWriteExt;

use super::{MANIFEST, VersionStore, check_corpus, object, reserved};
use crate::{
    checksum::{BLOCK, Checksum, Hashing},
    error::{Error, Result},
    manifest::{FileEntry, Manifest, valid_path},
};

/// Bytes that `verify` reads at a time, and of one part of an upload.
pub(super) const PART: u64 = 8 << 20;
/// Files that `verify` reads at a time.
const AT_ONCE: usize = 4;
/// Parts of one upload; S3 takes 10,000.
const MOST_PARTS: u64 = 9000;

/// A file of a version that is not what the manifest says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DamagedFile {
    /// What it should be.
    #[serde(flatten)]
    pub file: FileEntry,
    /// What is wrong.
    pub reason: String,
}

impl VersionStore {
    /// Uploads a local file to a path below the version; returns its entry (length and BLAKE3 of what was sent). On a
    /// local store the file is moved. An unpublished file may be put again; a published version never changes.
    pub async fn put_file(
        &self,
        corpus: &str,
        version: Version,
        path: &str,
        file: &FilePath,
    ) -> Result<FileEntry> {
        check_corpus(corpus)?;
        if !valid_path(path) || reserved(path) {
            return Err(Error::Invalid {
                field: "path",
                reason: format!("{path:?} cannot be a file of a version"),
            });
        }
        if self.size(&object(corpus, version, MANIFEST)).await?.is_some() {
            return Err(Error::Exists(format!("{corpus} {version}")));
        }
        let Some(directory) = self.version_dir(corpus, version) else {
            return self.upload(&object(corpus, version, path), path, file).await;
        };
        let (file, path) = (file.to_owned(), path.to_owned());
        blocking(move || take_in(&file, &directory.join(&path), &path)).await
    }

    /// Downloads a file of a version to `target`, by way of a file beside it, so that what is at `target` is whole and what its
    /// entry says.
    pub async fn get_file(
        &self,
        corpus: &str,
        version: Version,
        file: &FileEntry,
        target: &FilePath,
    ) -> Result<()> {
        let fail = |error| Error::io(target, error);
        let partial = target.with_extension("part");
        let mut out = tokio::fs::File::create(&partial).await.map_err(fail)?;
        let mut checksum = Checksum::default();
        let mut came = 0;
        while came < file.bytes {
            let bytes = self.read_range(corpus, version, file, came, PART).await?;
            came += bytes.len() as u64;
            out.write_all(&bytes).await.map_err(fail)?;
            checksum = blocking(move || {
                checksum.update(&bytes);
                Ok(checksum)
            })
            .await?;
        }
        out.sync_all().await.map_err(fail)?;
        if let Err(damaged) = file.check(&checksum.entry(&file.path)) {
            tokio::fs::remove_file(&partial).await.map_err(fail)?;
            return Err(damaged);
        }
        tokio::fs::rename(&partial, target).await.map_err(fail)
    }

    /// A part of a file of a version: at most `most` bytes from `start`, which is within it. Never empty. Errors: the store can't be
    /// asked, or it holds no such file, or a shorter one: then the version is damaged.
    pub async fn read_range(
        &self,
        corpus: &str,
        version: Version,
        file: &FileEntry,
        start: u64,
        most: u64,
    ) -> Result<bytes::Bytes> {
        check_corpus(corpus)?;
        let end = file.bytes.min(start.saturating_add(most));
        let path = object(corpus, version, &file.path);
        let damaged = |reason: String| Err(Error::Damaged { file: path.to_string(), reason });
        let short = || format!("it ends before byte {end} of {}", file.bytes);
        match self.objects.get_range(&path, start..end).await {
            Ok(bytes) if bytes.is_empty() => damaged(short()),
            Ok(bytes) => Ok(bytes),
            Err(object_store::Error::NotFound { .. }) => Err(self.missing(&path).await),
            // Stores have words of their own for a range beyond the end.
            Err(error) => match self.size(&path).await {
                Ok(Some(bytes)) if bytes < end => damaged(short()),
                _ => Err(error.into()),
            },
        }
    }

    /// Re-reads every file of a version and compares length and BLAKE3; the damaged ones, those that can't be read among
    /// them. `progress(bytes)` is called as it goes.
    pub async fn verify(
        &self,
        manifest: &Manifest,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Vec<DamagedFile>> {
        check_corpus(&manifest.corpus)?;
        let each = manifest.files().map(|file| async move {
            let path = object(&manifest.corpus, manifest.version, &file.path);
            let flaw = self.flaw(file, &path, progress).await?;
            Ok::<_, Error>(flaw.map(|reason| DamagedFile { file: file.clone(), reason }))
        });
        let each: Vec<_> = each.collect();
        let found: Vec<_> = stream::iter(each).buffered(AT_ONCE).try_collect().await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// What is wrong with the statistics of a version, if anything; more than `most` bytes are not read.
    pub async fn statistics_flaw(
        &self,
        corpus: &str,
        version: Version,
        most: u64,
    ) -> Result<Option<DamagedFile>> {
        let file = self.manifest(corpus, version).await?.statistics.file;
        if file.bytes > most {
            return Ok(None);
        }
        let flaw = self.flaw(&file, &object(corpus, version, &file.path), &|_| ()).await?;
        Ok(flaw.map(|reason| DamagedFile { file, reason }))
    }

    /// What is wrong with a file, if anything.
    async fn flaw(
        &self,
        file: &FileEntry,
        path: &Path,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<Option<String>> {
        let unreadable = |error: Error| Ok(Some(format!("it can't be read: {error}")));
        match self.size(path).await {
            Ok(Some(bytes)) if bytes == file.bytes => {}
            Ok(Some(bytes)) => {
                return Ok(Some(format!("it has {bytes} bytes, the manifest says {}", file.bytes)));
            }
            Ok(None) => return Ok(Some("it is missing".to_owned())),
            Err(error) => return unreadable(error),
        }
        let mut checksum = Checksum::default();
        let mut start = 0;
        while start < file.bytes {
            let end = file.bytes.min(start + PART);
            let bytes = match self.objects.get_range(path, start..end).await {
                Ok(bytes) if bytes.is_empty() => return Ok(Some("it ends too early".to_owned())),
                Ok(bytes) => bytes,
                Err(error) => return unreadable(error.into()),
            };
            start += bytes.len() as u64;
            progress(bytes.len() as u64);
            checksum = blocking(move || {
                checksum.update(&bytes);
                Ok(checksum)
            })
            .await?;
        }
        let same = file.check(&checksum.entry(&file.path)).is_ok();
        Ok((!same).then(|| "its content is not the one that was published".to_owned()))
    }

    /// Sends a file to a remote store: a small one at once, another in parts.
    async fn upload(&self, to: &Path, name: &str, file: &FilePath) -> Result<FileEntry> {
        let size = tokio::fs::metadata(file).await.map_err(|source| Error::io(file, source))?.len();
        if size <= PART {
            let bytes = tokio::fs::read(file).await.map_err(|source| Error::io(file, source))?;
            let mut checksum = Checksum::default();
            checksum.update(&bytes);
            self.objects.put(to, bytes.into()).await?;
            return Ok(checksum.entry(name));
        }
        let mut upload = self.parts(to, size).await?;
        match send(&mut upload, file).await {
            Ok(checksum) => {
                upload.finish().await?;
                Ok(checksum.entry(name))
            }
            Err(error) => {
                upload.abort().await?;
                Err(error)
            }
        }
    }

    /// An upload of so many bytes in parts.
    pub(super) async fn parts(&self, to: &Path, size: u64) -> Result<WriteMultipart> {
        let part = PART.max(size.div_ceil(MOST_PARTS)).next_multiple_of(1 << 20);
        Ok(WriteMultipart::new_with_chunk_size(self.objects.put_multipart(to).await?, part as usize))
    }
}

async fn send(upload: &mut WriteMultipart, path: &FilePath) -> Result<Checksum> {
    let owned = path.to_owned();
    let mut file = blocking(move || File::open(&owned).map_err(|source| Error::io(&owned, source))).await?;
    let mut checksum = Checksum::default();
    loop {
        upload.wait_for_capacity(4).await?;
        let owned = path.to_owned();
        let read = move || {
            let mut block = Vec::with_capacity(BLOCK);
            let read = (&mut file).take(BLOCK as u64).read_to_end(&mut block);
            read.map_err(|source| Error::io(&owned, source))?;
            checksum.update(&block);
            Ok((file, checksum, block))
        };
        let block;
        (file, checksum, block) = blocking(read).await?;
        if block.is_empty() {
            return Ok(checksum);
        }
        upload.put(block.into());
    }
}

/// Moves a file into the store's directory; copies it when it lies on another file system.
fn take_in(file: &FilePath, to: &FilePath, name: &str) -> Result<FileEntry> {
    let directory = to.parent().unwrap_or(to).to_owned();
    fs::create_dir_all(&directory).map_err(|source| Error::io(&directory, source))?;
    let entry = FileEntry::of_file(file, name)?;
    File::open(file).and_then(|file| file.sync_all()).map_err(|source| Error::io(file, source))?;
    let entry = match fs::rename(file, to) {
        Ok(()) => entry,
        Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
            let entry = copy(file, to, name)?;
            fs::remove_file(file).map_err(|source| Error::io(file, source))?;
            entry
        }
        Err(error) => return Err(Error::io(to, error)),
    };
    sync_up(&directory)?;
    Ok(entry)
}

/// Copies through a temporary name, so that a crash leaves no half file under the right one.
fn copy(file: &FilePath, to: &FilePath, name: &str) -> Result<FileEntry> {
    let part = PathBuf::from(format!("{}.part", to.display()));
    let copied = File::open(file).and_then(|mut source| {
        let mut target = Hashing::new(File::create(&part)?);
        io::copy(&mut source, &mut target)?;
        let (target, checksum) = target.into_parts();
        target.sync_all()?;
        fs::rename(&part, to)?;
        Ok(checksum.entry(name))
    });
    copied.map_err(|source| {
        let _ = fs::remove_file(&part);
        Error::io(to, source)
    })
}

/// Syncs a directory and those above it up to the version's, so that the new names survive a power loss.
fn sync_up(directory: &FilePath) -> Result<()> {
    for directory in directory.ancestors().take(3) {
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|source| Error::io(directory, source))?;
    }
    Ok(())
}

pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(object_store::Error::from)?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_hashes_what_it_wrote_and_leaves_no_part() {
        let directory = tempfile::tempdir().unwrap();
        let (from, to) = (directory.path().join("from"), directory.path().join("to"));
        fs::write(&from, b"content").unwrap();
        let entry = copy(&from, &to, "x").unwrap();
        assert_eq!(entry, FileEntry::of_file(&to, "x").unwrap());
        assert!(copy(&directory.path().join("none"), &to, "x").is_err());
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}
