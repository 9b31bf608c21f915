//! Reading a version's table of contents: its manifest, who signed it, and what is kept of it on this machine.
//!
//! The failure this prevents: a node that can't come back while the store is away, though all it needs lies on its own disk. Rules:
//! the store is asked first; only when it can't be reached is the kept table taken, aloud; a kept one is judged like any
//! other, signature included. What a store that answers says counts: a version that is gone is gone.

use std::{
    fs, io,
    path::{Path as FilePath, PathBuf},
};

use bytes::Bytes;
use canopy_common::ids::Version;

use super::{
    MANIFEST, SIGNATURE, VersionStore, check_corpus, files::blocking, is_signature, object, signature_of,
};
use crate::{
    error::{Error, Result},
    manifest::Manifest,
    signature::Signature,
};

/// A manifest as it was published.
#[derive(Debug, Clone)]
pub struct Table {
    /// What it says.
    pub manifest: Manifest,
    /// Its bytes, which a signature is over.
    pub bytes: Bytes,
    /// What stands beside it.
    pub signature: Option<Signature>,
}

/// The files of a table.
struct Raw {
    manifest: Bytes,
    signature: Option<Bytes>,
    /// Where it has no signature: the file of one of another manifest.
    foreign: Option<String>,
}

impl VersionStore {
    /// Keeps the tables of versions that are read in this directory of a cache, laid out like the store. Of use for a remote store
    /// only: a local one is on this machine already.
    pub fn cached_in(mut self, cache_dir: &str) -> Self {
        self.cache = self.local.is_none().then(|| PathBuf::from(cache_dir).into());
        self
    }

    /// The manifest of a version. Errors: there is none, it is damaged, or nobody who is trusted signed it.
    pub async fn manifest(&self, corpus: &str, version: Version) -> Result<Manifest> {
        Ok(self.table(corpus, version).await?.manifest)
    }

    /// The same with its bytes and signature.
    pub async fn table(&self, corpus: &str, version: Version) -> Result<Table> {
        check_corpus(corpus)?;
        let path = object(corpus, version, MANIFEST);
        let none = || Error::NoVersion { corpus: corpus.to_owned(), version };
        let raw = match self.raw(corpus, version).await {
            Ok(Some(raw)) => Ok(raw),
            Ok(None) => Err(self.corpus(corpus).await.err().unwrap_or_else(none)),
            Err(error) => Err(error),
        };
        let (raw, kept) = match raw {
            Ok(raw) => (raw, None),
            Err(error) => match self.kept(corpus, version) {
                Some(raw) if error.is_away() => {
                    tracing::warn!(corpus, %version, %error, "the store is away; going on with what is kept of the version");
                    (raw, Some(error))
                }
                _ => return Err(error),
            },
        };
        let table = match (self.judged(corpus, version, &raw, path.as_ref()), kept) {
            // What this disk made of a kept one says nothing of the version.
            (Err(Error::Damaged { .. }), Some(away)) => return Err(away),
            (judged, Some(_)) => return judged,
            (judged, None) => judged?,
        };
        if self.cache.is_none() {
            return Ok(table);
        }
        // It waits for the disk.
        let (store, of) = (self.clone(), corpus.to_owned());
        if let Err(error) = blocking(move || store.keep(&of, version, &raw)).await {
            tracing::warn!(corpus, %version, %error, "the manifest can't be kept; without the store this node won't come back");
        }
        Ok(table)
    }

    async fn raw(&self, corpus: &str, version: Version) -> Result<Option<Raw>> {
        let Some(manifest) = self.read(&object(corpus, version, MANIFEST)).await? else { return Ok(None) };
        let signature = match self.read(&object(corpus, version, &signature_of(&manifest))).await? {
            None => self.read(&object(corpus, version, SIGNATURE)).await?,
            found => found,
        };
        // Who never signs and whose manifest was changed are not the same: only asked where it counts.
        let foreign = match &signature {
            None if !self.trusted.everybody() => self.foreign_signature(corpus, version).await?,
            _ => None,
        };
        Ok(Some(Raw { manifest, signature, foreign }))
    }

    /// A signature beside the manifest; the manifest's own is known not to be there.
    async fn foreign_signature(&self, corpus: &str, version: Version) -> Result<Option<String>> {
        let listed = self.listed(corpus, version).await?.objects;
        let mut names = listed.iter().filter_map(|object| object.location.filename());
        Ok(names.find(|name| is_signature(name)).map(str::to_owned))
    }

    /// Whether the files of a table are what they should be.
    fn judged(&self, corpus: &str, version: Version, raw: &Raw, path: &str) -> Result<Table> {
        let of = || corpus.to_owned();
        let untrusted = |reason: String| Error::Untrusted { corpus: of(), version, reason };
        let changed = |reason: String| Error::Changed { corpus: of(), version, reason };
        let signature = match raw.signature.as_deref().map(Signature::from_json) {
            Some(Err(reason)) if !self.trusted.everybody() => return Err(untrusted(reason)),
            Some(Ok(signature)) => Some(signature),
            Some(Err(_)) | None => None,
        };
        if !self.trusted.everybody() {
            let known = signature.as_ref().is_some_and(|signature| self.trusted.knows(signature));
            let judged = self.trusted.check(&raw.manifest, signature.as_ref());
            judged.map_err(|reason| match &raw.foreign {
                Some(file) => changed(format!(
                    "no signature is of its manifest, and {file} beside it is of another one: it was changed since it was signed, or \
                     another publisher's lies there"
                )),
                None if known => changed(reason),
                None => untrusted(reason),
            })?;
        }
        let manifest = Manifest::from_json(&raw.manifest, path)?;
        if manifest.corpus != corpus || manifest.version != version {
            let reason = format!("it is the manifest of {} {}", manifest.corpus, manifest.version);
            return Err(Error::Damaged { file: path.to_owned(), reason });
        }
        Ok(Table { manifest, bytes: raw.manifest.clone(), signature })
    }

    /// Versions whose tables are kept, oldest first.
    pub(super) fn kept_versions(&self, corpus: &str) -> Vec<Version> {
        let Some(cache) = &self.cache else { return Vec::new() };
        let directory = cache.join("corpora").join(corpus).join("versions");
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        let whole = entries.filter(|entry| entry.path().join(MANIFEST).is_file());
        let mut kept: Vec<_> =
            whole.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).map(Version).collect();
        kept.sort_unstable();
        kept
    }

    fn kept_in(&self, corpus: &str, version: Version) -> Option<PathBuf> {
        Some(self.cache.as_ref()?.join(Self::version_path(corpus, version)))
    }

    fn kept(&self, corpus: &str, version: Version) -> Option<Raw> {
        let directory = self.kept_in(corpus, version)?;
        let manifest = fs::read(directory.join(MANIFEST)).ok()?.into();
        let signature = fs::read(directory.join(SIGNATURE)).ok().map(Bytes::from);
        Some(Raw { manifest, signature, foreign: None })
    }

    fn keep(&self, corpus: &str, version: Version, raw: &Raw) -> Result<()> {
        let Some(directory) = self.kept_in(corpus, version) else { return Ok(()) };
        if self
            .kept(corpus, version)
            .is_some_and(|kept| kept.manifest == raw.manifest && kept.signature == raw.signature)
        {
            return Ok(());
        }
        let failed = |source| Error::io(&directory, source);
        fs::create_dir_all(&directory).map_err(failed)?;
        let signature = directory.join(SIGNATURE);
        match &raw.signature {
            Some(bytes) => replace(&signature, bytes).map_err(failed)?,
            None if signature.exists() => fs::remove_file(&signature).map_err(failed)?,
            None => {}
        }
        replace(&directory.join(MANIFEST), &raw.manifest).map_err(failed)
    }

    /// Forgets what is kept of a version; its directory goes when nothing else is in it.
    pub fn forget_table(cache_dir: &str, corpus: &str, version: Version) -> io::Result<()> {
        let directory = FilePath::new(cache_dir).join(Self::version_path(corpus, version));
        for name in [MANIFEST, SIGNATURE] {
            match fs::remove_file(directory.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        let _other_files_are_there = fs::remove_dir(directory);
        Ok(())
    }
}

/// Writes a small file so that it is old or new, never half.
fn replace(path: &FilePath, bytes: &[u8]) -> io::Result<()> {
    let mut part = path.as_os_str().to_owned();
    part.push(".part");
    fs::write(&part, bytes)?;
    fs::File::open(&part)?.sync_all()?;
    fs::rename(&part, path)
}
