//! Bringing a version from one store to another: its number, then its files, each checked while it passes. What becomes of them is
//! the caller's: nobody sees the version before its manifest is published.
//!
//! The failure this prevents: a copy that begins anew whenever it is broken off, or goes on over the half of another one. A claim
//! says whose it is, so the same copy finds its own again; files that are there with the right length are not sent twice, and
//! what they hold is read back before the manifest is written.

use canopy_common::ids::Version;
use object_store::{ObjectStore, ObjectStoreExt};

use super::{
    VersionStore, check_corpus,
    files::{PART, blocking},
    object,
};
use crate::{
    checksum::Checksum,
    error::{Error, Result},
    manifest::FileEntry,
};

/// Parts of one file that are on their way at a time.
const ON_THE_WAY: usize = 2;

impl VersionStore {
    /// Claims this very number for `whom`; true: it was claimed so before. Errors: somebody else has it, or a higher one is in use.
    pub async fn claim_as(&self, corpus: &str, version: Version, whom: &str) -> Result<bool> {
        self.corpus(corpus).await?;
        let taken = |reason: String| Err(Error::Invalid { field: "version", reason });
        if let Some(newest) = self.newest_in_use(corpus).await?.filter(|newest| *newest > version) {
            return taken(format!(
                "{newest} of {corpus} is in use there, and numbers only grow; --renumber takes the next one"
            ));
        }
        let claim = format!("claimed\n{whom}\n");
        let path = object(corpus, version, CLAIM);
        match self.create(&path, claim.clone().into(), "").await {
            Ok(()) => return Ok(false),
            Err(Error::Exists(_)) => {}
            Err(error) => return Err(error),
        }
        match self.read(&path).await? {
            Some(found) if found == claim => Ok(true),
            _ => taken(format!(
                "{version} of {corpus} was claimed there by somebody else; --renumber takes the next number"
            )),
        }
    }

    /// A number above all published ones that `whom` has claimed before.
    pub async fn claimed_by(&self, corpus: &str, whom: &str) -> Result<Option<Version>> {
        let published = self.versions(corpus).await?.pop().unwrap_or(Version(0));
        for version in
            self.numbers(corpus).await?.into_iter().rev().take_while(|version| *version > published)
        {
            let found = self.read(&object(corpus, version, CLAIM)).await?;
            if found.is_some_and(|found| found == format!("claimed\n{whom}\n")) {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }

    /// Claims the next number for `whom`.
    pub async fn claim_next_as(&self, corpus: &str, whom: &str) -> Result<Version> {
        if let Some(version) = self.claimed_by(corpus, whom).await? {
            return Ok(version);
        }
        self.claim_with(corpus, &format!("claimed\n{whom}\n")).await
    }

    /// Whether a file of this length is there.
    pub async fn holds(&self, corpus: &str, version: Version, file: &FileEntry) -> Result<bool> {
        check_corpus(corpus)?;
        Ok(self.size(&object(corpus, version, &file.path)).await? == Some(file.bytes))
    }

    /// Copies one file of `from`, whose number there is `source`, to number `version` here. `progress(bytes)` is called as it goes.
    /// Errors: what came is not what the entry says.
    pub async fn copy_file(
        &self,
        (from, source): (&Self, Version),
        corpus: &str,
        version: Version,
        file: &FileEntry,
        progress: &(dyn Fn(u64) + Sync),
    ) -> Result<()> {
        check_corpus(corpus)?;
        let to = object(corpus, version, &file.path);
        if file.bytes <= PART {
            let bytes = match file.bytes {
                0 => bytes::Bytes::new(),
                _ => from.read_range(corpus, source, file, 0, PART).await?,
            };
            file.check_bytes(&bytes)?;
            progress(bytes.len() as u64);
            self.objects.put(&to, bytes.into()).await?;
            return Ok(());
        }
        let mut upload = self.parts(&to, file.bytes).await?;
        let (mut checksum, mut came) = (Checksum::default(), 0);
        let sent: Result<()> = async {
            while came < file.bytes {
                upload.wait_for_capacity(ON_THE_WAY).await?;
                let bytes = from.read_range(corpus, source, file, came, PART).await?;
                came += bytes.len() as u64;
                progress(bytes.len() as u64);
                let (hashed, passed) = (std::mem::take(&mut checksum), bytes.clone());
                checksum = blocking(move || {
                    let mut checksum = hashed;
                    checksum.update(&passed);
                    Ok(checksum)
                })
                .await?;
                upload.put(bytes);
            }
            file.check(&checksum.entry(&file.path))
        }
        .await;
        match sent {
            Ok(()) => {
                upload.finish().await?;
                Ok(())
            }
            Err(error) => {
                upload.abort().await?;
                Err(error)
            }
        }
    }

    /// Removes numbers below the newest published one that were claimed and never published, and whose last object is older than
    /// `before_us` (microseconds since 1970): what builds and copies that died have left in a remote store. In a local one the next
    /// build does it. Returns them with their bytes; `dry`: removes nothing.
    pub async fn remove_abandoned(
        &self,
        corpus: &str,
        before_us: i64,
        dry: bool,
    ) -> Result<Vec<(Version, u64)>> {
        let mut removed = Vec::new();
        if self.local.is_some() {
            return Ok(removed);
        }
        let published = self.versions(corpus).await?;
        let Some(newest) = published.last() else { return Ok(removed) };
        for version in self.numbers(corpus).await?.into_iter().filter(|version| version < newest) {
            if published.binary_search(&version).is_ok() {
                continue;
            }
            let directory = Self::version_path(corpus, version).into();
            let found: Vec<_> =
                futures::TryStreamExt::try_collect(self.objects.list(Some(&directory))).await?;
            if found.iter().any(|object| object.last_modified.timestamp_micros() >= before_us) {
                continue;
            }
            let bytes = if dry {
                found.iter().map(|object| object.size).sum()
            } else {
                self.remove(corpus, version).await?
            };
            removed.push((version, bytes));
        }
        Ok(removed)
    }
}

const CLAIM: &str = "claim";
