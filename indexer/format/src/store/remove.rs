//! Taking a version out of the store: its manifest first, so that from then on it exists for nobody, then its files. Broken off in
//! between it is what a dead build leaves: a directory without a manifest, which readers skip and the next build or removal
//! clears. Its number is not given out again: numbers only grow. So the newest published version stays, also while a build has
//! claimed a higher number: a build that fails gives its number back, and the next one would be that of what was removed.
//!
//! Whoever has the files mapped keeps them until he lets go; whether somebody still needs them is the caller's to know.

use std::{fs, io};

use canopy_common::ids::Version;
use futures::TryStreamExt;
use object_store::{Error as StoreError, ObjectStore, ObjectStoreExt, path::Path};

use super::{MANIFEST, VersionStore, check_corpus, corpus_file, object};
use crate::error::{Error, Result};

impl VersionStore {
    /// Removes a version; bytes of its files that were there. Errors: it is the newest, whose number the next one is above.
    pub async fn remove(&self, corpus: &str, version: Version) -> Result<u64> {
        check_corpus(corpus)?;
        let in_use = self.newest_in_use(corpus).await?;
        let published = self.newest_published(corpus).await?;
        // A number that is above all published ones may be somebody's who publishes it just now.
        let stays = |newest: Option<Version>| newest.is_some_and(|newest| version >= newest);
        if in_use.is_none() || stays(in_use) || stays(published) {
            let reason = format!("{version} is the newest of {corpus}; the newest stays");
            return Err(Error::Invalid { field: "version", reason });
        }
        self.delete(&object(corpus, version, MANIFEST)).await?;
        let directory = Path::from(Self::version_path(corpus, version));
        let mut bytes = 0;
        let found: Vec<_> = self.objects.list(Some(&directory)).try_collect().await?;
        for file in found {
            self.delete(&file.location).await?;
            bytes += file.size;
        }
        if let Some(directory) = self.version_dir(corpus, version) {
            let removed = fs::remove_dir_all(&directory);
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(Error::io(&directory, error));
            }
        }
        Ok(bytes)
    }

    /// Removes a corpus with all its versions; bytes of the objects that were there. Its own file goes first: from then on it exists
    /// for nobody, and broken off later the rest goes with the next call. Whether somebody serves it is the caller's to know.
    pub async fn remove_corpus(&self, corpus: &str) -> Result<u64> {
        check_corpus(corpus)?;
        let directory = Path::from(format!("corpora/{corpus}"));
        let found: Vec<_> = self.objects.list(Some(&directory)).try_collect().await?;
        if found.is_empty() {
            return Err(Error::NoCorpus(corpus.to_owned()));
        }
        self.delete(&corpus_file(corpus)).await?;
        let mut bytes = 0;
        for file in found {
            self.delete(&file.location).await?;
            bytes += file.size;
        }
        if let Some(root) = self.local() {
            let directory = root.join("corpora").join(corpus);
            let removed = fs::remove_dir_all(&directory);
            if let Err(error) = removed
                && error.kind() != io::ErrorKind::NotFound
            {
                return Err(Error::io(&directory, error));
            }
        }
        Ok(bytes)
    }

    async fn newest_published(&self, corpus: &str) -> Result<Option<Version>> {
        for version in self.numbers(corpus).await?.into_iter().rev() {
            let manifest = object(corpus, version, MANIFEST);
            if self.listed(corpus, version).await?.objects.iter().any(|found| found.location == manifest) {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }

    async fn delete(&self, path: &Path) -> Result<()> {
        match self.objects.delete(path).await {
            Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
