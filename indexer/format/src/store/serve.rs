//! Which version a node serves that has no pin, and which version a build goes on from.
//!
//! One garbled manifest, or one of a newer build, must not take a corpus down with the next restart, nor stop the build
//! that would mend it. Rule: versions are looked at from the newest down; one that is at fault (damaged, of a newer
//! format, analysed by other rules, without its statistics) is passed over and always named to whoever asked, so that it
//! is said aloud; it is never removed. What a store that is away or a denied read says about a version is nothing: that
//! is an error, and is tried again, so that nodes of one tree do not fall back one by one; only a node that begins and holds
//! versions in its cache goes on with those. Only the table of contents
//! counts, because every node must come to the same version; a damaged shard is the leaf's own affair. A pinned version
//! is served or it is an error.

use std::collections::BTreeMap;

use canopy_common::ids::Version;
use futures::TryStreamExt;
use object_store::{ObjectStore, path::Path};
use serde::Serialize;

use super::{VersionStore, object};
use crate::{
    analysis::Analyzer,
    error::{Error, Result},
    manifest::Manifest,
};

/// A version that was found, and what was passed over on the way to it.
#[derive(Debug)]
pub struct Found {
    /// The version.
    pub manifest: Manifest,
    /// Newer ones that can't be used, the newest first.
    pub passed_over: Vec<PassedOver>,
}

/// A version that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// Which.
    pub version: Version,
    /// Why, and what to do.
    pub reason: String,
}

impl VersionStore {
    /// The version that a node serves: the pinned one, else the newest that can be served.
    pub async fn to_serve(&self, corpus: &str, pinned: Option<Version>) -> Result<Found> {
        match pinned {
            Some(version) => {
                let manifest = self.manifest(corpus, version).await?;
                self.servable(&manifest).await?;
                Ok(Found { manifest, passed_over: Vec::new() })
            }
            None => self.newest(corpus, true).await,
        }
    }

    /// The version that a build goes on from: the newest whose manifest can be read.
    pub async fn to_build_on(&self, corpus: &str) -> Result<Found> {
        self.newest(corpus, false).await
    }

    /// Complete versions, oldest first, told apart: those that a node with this store's keys can serve, with every file of their
    /// length, and those that it can't, with the reason.
    pub async fn told_apart(&self, corpus: &str) -> Result<(Vec<Version>, Vec<PassedOver>)> {
        let (mut servable, mut others) = (Vec::new(), Vec::new());
        for version in self.versions(corpus).await? {
            match self.fault(corpus, version).await {
                Ok(None) => servable.push(version),
                Ok(Some(fault)) => others.push(PassedOver { version, reason: fault.to_string() }),
                // Removed a moment ago.
                Err(Error::NoVersion { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok((servable, others))
    }

    /// What is wrong with a version: it can't be read, is not trusted, is analysed by other rules, or lacks files; `None`: nothing,
    /// as far as its table and the lengths of its files say. Errors: the store can't be asked, or there is no such version.
    pub async fn fault(&self, corpus: &str, version: Version) -> Result<Option<Error>> {
        let judged = async {
            let manifest = self.good(corpus, version, true).await?;
            self.complete(&manifest).await
        };
        match judged.await {
            Ok(()) => Ok(None),
            Err(error) if error.of_the_version() => Ok(Some(error)),
            Err(error) => Err(error),
        }
    }

    /// Whether every file is there with its length. By one listing: asking for each would take a call of its own.
    async fn complete(&self, manifest: &Manifest) -> Result<()> {
        let (corpus, version) = (&manifest.corpus, manifest.version);
        let directory = Path::from(Self::version_path(corpus, version));
        let found: Vec<_> = self.objects.list(Some(&directory)).try_collect().await?;
        let found: BTreeMap<Path, u64> =
            found.into_iter().map(|object| (object.location, object.size)).collect();
        for file in manifest.files() {
            let path = object(corpus, version, &file.path);
            let reason = match found.get(&path) {
                Some(bytes) if *bytes == file.bytes => continue,
                Some(bytes) => format!("it has {bytes} bytes, the manifest says {}", file.bytes),
                None => return Err(self.missing(&path).await),
            };
            return Err(Error::Damaged { file: path.to_string(), reason });
        }
        Ok(())
    }

    async fn newest(&self, corpus: &str, servable: bool) -> Result<Found> {
        let (mut passed_over, mut first) = (Vec::new(), None);
        for version in self.known_versions(corpus).await?.into_iter().rev() {
            let error = match self.good(corpus, version, servable).await {
                Ok(manifest) => return Ok(Found { manifest, passed_over }),
                // Removed a moment ago.
                Err(Error::NoVersion { .. }) => continue,
                Err(error) if error.of_the_version() => error,
                Err(error) => return Err(error),
            };
            passed_over.push(PassedOver { version, reason: error.to_string() });
            first.get_or_insert(error);
        }
        Err(first.unwrap_or_else(|| Error::NoVersionYet(corpus.to_owned())))
    }

    /// Complete versions; those that are kept on this machine when the store is away and any are.
    async fn known_versions(&self, corpus: &str) -> Result<Vec<Version>> {
        let error = match self.versions(corpus).await {
            Err(error) if error.is_away() => error,
            found => return found,
        };
        let kept = self.kept_versions(corpus);
        if kept.is_empty() {
            return Err(error);
        }
        tracing::warn!(corpus, %error, "the store is away; going on with the versions that are kept here");
        Ok(kept)
    }

    async fn good(&self, corpus: &str, version: Version, servable: bool) -> Result<Manifest> {
        let manifest = self.manifest(corpus, version).await?;
        if servable {
            self.servable(&manifest).await?;
        }
        Ok(manifest)
    }

    /// Whether a version can be served by this build, as far as its table of contents says.
    async fn servable(&self, manifest: &Manifest) -> Result<()> {
        if manifest.analysis_id != Analyzer::id() {
            return Err(Error::OtherAnalysis {
                corpus: manifest.corpus.clone(),
                version: manifest.version,
                found: manifest.analysis_id.clone(),
                known: Analyzer::id().to_owned(),
            });
        }
        // Those of a remote store may be on this machine already.
        if self.local.is_none() {
            return Ok(());
        }
        let file = &manifest.statistics.file;
        let path = object(&manifest.corpus, manifest.version, &file.path);
        let reason = match self.size(&path).await? {
            Some(bytes) if bytes == file.bytes => return Ok(()),
            Some(bytes) => format!("it has {bytes} bytes, the manifest says {}", file.bytes),
            None => return Err(self.missing(&path).await),
        };
        Err(Error::Damaged { file: path.to_string(), reason })
    }
}
