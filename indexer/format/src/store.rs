//! Where versions live: a directory or an object store, through `object_store`. Version numbers are claimed with
//! put-if-absent; a version exists for readers only when its manifest does.
//!
//! Layout: `corpora/NAME/corpus.json`, `corpora/NAME/versions/0000001742/{claim, statistics/…, shards/main-0003/…,
//! manifest-HASH.sig, manifest.json}`.
//!
//! Two builds that end at the same time must not share a number, and a build that dies half-way must never be seen.
//! Hence the rule: only create-only writes decide (the claim, the manifest), nothing is decided by listing; what was
//! left behind by a dead build is a directory without a manifest, which readers skip. On a local directory every
//! write is synced before it returns. Every name is checked before it becomes a path.

mod address;
mod config;
mod connect;
mod copy;
mod files;
#[cfg(feature = "hooked")]
pub mod hooked;
mod publish;
mod remove;
mod serve;
mod table;

use std::{path::PathBuf, sync::Arc};

use canopy_common::ids::{Version, valid_name};
use object_store::{
    Error as StoreError, ListResult, ObjectStore, ObjectStoreExt, PutMode, PutPayload, path::Path,
};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    manifest::Manifest,
    schema::Schema,
    signature::Trusted,
};

pub use config::StoreConfig;
pub use files::DamagedFile;
pub use serve::{Found, PassedOver};
pub use table::Table;

/// Most log partitions of a corpus.
pub const MAX_PARTITIONS: u32 = 1024;
/// Largest corpus file or manifest that is read, bytes.
const MAX_JSON: u64 = 256 << 20;
/// Numbers tried by one claim while other builds claim too.
const CLAIM_TRIES: u64 = 1000;

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
    /// Where a store in a directory is, also for who maps nothing of it.
    directory: Option<PathBuf>,
    trusted: Trusted,
    cache: Option<Arc<std::path::Path>>,
}

impl VersionStore {
    /// A store over any object store; nothing of it is mapped in place.
    pub fn remote(objects: Arc<dyn ObjectStore>) -> Self {
        Self { objects, local: None, directory: None, trusted: Trusted::default(), cache: None }
    }

    /// The same store as one that is not on this machine: whoever reads it brings the files, and maps nothing in place.
    pub fn at_a_distance(&self) -> Self {
        Self { local: None, ..self.clone() }
    }

    /// Takes only versions that one of these keys signed.
    pub fn trusting(self, trusted: Trusted) -> Self {
        Self { trusted, ..self }
    }

    /// Whose versions are taken.
    pub fn trusted(&self) -> &Trusted {
        &self.trusted
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
    pub async fn create_corpus(&self, corpus: &Corpus) -> Result<()> {
        check_corpus(&corpus.name)?;
        corpus.schema.check()?;
        if !(1..=MAX_PARTITIONS).contains(&corpus.partitions) {
            let reason = format!("{} is not within 1 to {MAX_PARTITIONS}", corpus.partitions);
            return Err(Error::Invalid { field: "partitions", reason });
        }
        self.create(&corpus_file(&corpus.name), json(corpus), &format!("corpus {}", corpus.name)).await
    }

    /// Replaces a corpus' schema for the next build.
    pub async fn set_schema(&self, name: &str, schema: Schema) -> Result<()> {
        schema.check()?;
        let corpus = Corpus { schema, ..self.corpus(name).await? };
        self.objects.put(&corpus_file(name), json(&corpus)).await?;
        Ok(())
    }

    /// A corpus by name.
    pub async fn corpus(&self, name: &str) -> Result<Corpus> {
        check_corpus(name)?;
        let path = corpus_file(name);
        let bytes = match self.read(&path).await? {
            Some(bytes) => bytes,
            // Whoever keeps what it read goes on with that.
            None if self.cache.is_some() => {
                return Err(self.unmounted().await.unwrap_or_else(|| Error::NoCorpus(name.to_owned())));
            }
            None => return Err(Error::NoCorpus(name.to_owned())),
        };
        let damaged = |reason| Error::Damaged { file: path.to_string(), reason };
        let corpus: Corpus = serde_json::from_slice(&bytes).map_err(|error| damaged(error.to_string()))?;
        if corpus.name != name {
            return Err(damaged(format!("it is the file of corpus {:?}", corpus.name)));
        }
        corpus.schema.check().map_err(|error| damaged(error.to_string()))?;
        Ok(corpus)
    }

    /// All corpora, by name.
    pub async fn corpora(&self) -> Result<Vec<Corpus>> {
        let mut corpora = Vec::new();
        for name in self.directories(&Path::from("corpora")).await? {
            if !valid_name(&name) {
                continue;
            }
            match self.corpus(&name).await {
                Ok(corpus) => corpora.push(corpus),
                Err(Error::NoCorpus(_)) => {}
                Err(error) => return Err(error),
            }
        }
        corpora.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(corpora)
    }

    /// Claims the next version number: above every number in use, complete or not.
    pub async fn claim(&self, corpus: &str) -> Result<Version> {
        self.claim_with(corpus, "claimed\n").await
    }

    async fn claim_with(&self, corpus: &str, claim: &str) -> Result<Version> {
        self.corpus(corpus).await?;
        let newest = self.newest_in_use(corpus).await?.map_or(0, |version| version.0);
        for number in (1..=CLAIM_TRIES).filter_map(|step| newest.checked_add(step)) {
            let version = Version(number);
            match self.create(&object(corpus, version, "claim"), claim.to_owned().into(), "").await {
                Ok(()) => return Ok(version),
                Err(Error::Exists(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let reason = format!("no number above v{newest} is free; are other builds claiming without end?");
        Err(Error::Invalid { field: "version", reason })
    }

    /// Complete versions, oldest first.
    pub async fn versions(&self, corpus: &str) -> Result<Vec<Version>> {
        self.corpus(corpus).await?;
        let mut complete = Vec::new();
        for version in self.numbers(corpus).await? {
            // By listing: asking for an object opens it, and one that can't be read would hide all others.
            let manifest = object(corpus, version, MANIFEST);
            if self.listed(corpus, version).await?.objects.iter().any(|found| found.location == manifest) {
                complete.push(version);
            }
        }
        Ok(complete)
    }

    /// The newest complete version's manifest; an error when it is damaged. What is served or built on may be an
    /// older one, see [`VersionStore::to_serve`].
    pub async fn latest(&self, corpus: &str) -> Result<Manifest> {
        let newest = self.versions(corpus).await?.pop();
        self.manifest(corpus, newest.ok_or_else(|| Error::NoVersionYet(corpus.to_owned()))?).await
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

    /// The highest number whose directory holds anything. An empty one is what a failed build leaves.
    async fn newest_in_use(&self, corpus: &str) -> Result<Option<Version>> {
        for version in self.numbers(corpus).await?.into_iter().rev() {
            let found = self.listed(corpus, version).await?;
            if !found.objects.is_empty() || !found.common_prefixes.is_empty() {
                return Ok(Some(version));
            }
        }
        Ok(None)
    }

    /// Numbers with a directory, ascending.
    async fn numbers(&self, corpus: &str) -> Result<Vec<Version>> {
        let names = self.directories(&Path::from(format!("corpora/{corpus}/versions"))).await?;
        let digits = |name: &String| name.len() >= 10 && name.bytes().all(|byte| byte.is_ascii_digit());
        let mut numbers: Vec<_> = names
            .iter()
            .filter(|name| digits(name))
            .filter_map(|name| name.parse().ok())
            .map(Version)
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// What stands at the top of a version's directory.
    async fn listed(&self, corpus: &str, version: Version) -> Result<ListResult> {
        let directory = Path::from(Self::version_path(corpus, version));
        Ok(self.objects.list_with_delimiter(Some(&directory)).await?)
    }

    async fn directories(&self, path: &Path) -> Result<Vec<String>> {
        let listed = self.objects.list_with_delimiter(Some(path)).await?;
        Ok(listed.common_prefixes.iter().filter_map(|path| path.filename()).map(str::to_owned).collect())
    }

    /// Length of an object, `None` when there is none.
    async fn size(&self, path: &Path) -> Result<Option<u64>> {
        match self.objects.head(path).await {
            Ok(found) => Ok(Some(found.size)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// What a file is that is not there: damage, or nothing that is known where the whole directory is gone.
    async fn missing(&self, path: &Path) -> Error {
        let damaged = || Error::Damaged { file: path.to_string(), reason: "it is missing".to_owned() };
        self.unmounted().await.unwrap_or_else(damaged)
    }

    /// A directory without corpora is none from which anything was ever served: it was taken away, or is not mounted.
    async fn unmounted(&self) -> Option<Error> {
        let directory = self.directory.as_ref()?;
        if tokio::fs::metadata(directory.join("corpora")).await.is_ok() {
            return None;
        }
        Some(Error::Store(format!("{} holds no corpora; is it mounted?", directory.display()).into()))
    }

    /// A small object, `None` when there is none.
    async fn read(&self, path: &Path) -> Result<Option<bytes::Bytes>> {
        match self.objects.get(path).await {
            Ok(found) if found.meta.size > MAX_JSON => Err(Error::Damaged {
                file: path.to_string(),
                reason: format!("{} bytes are more than the {MAX_JSON} it may have", found.meta.size),
            }),
            Ok(found) => Ok(Some(found.bytes().await?)),
            Err(StoreError::NotFound { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Writes an object that must not exist; `what` names it in the error.
    async fn create(&self, path: &Path, payload: PutPayload, what: &str) -> Result<()> {
        match self.objects.put_opts(path, payload, PutMode::Create.into()).await {
            Ok(_) => Ok(()),
            Err(StoreError::AlreadyExists { .. }) => Err(Error::Exists(what.to_owned())),
            Err(error) => Err(error.into()),
        }
    }
}

const MANIFEST: &str = "manifest.json";
/// Beside the manifest, when it is signed, in a version that was published before signatures were named by what they
/// sign, and in what a node keeps of one.
const SIGNATURE: &str = "manifest.sig";

/// Beside the manifest, when it is signed. Named by the bytes that it signs: of two publishers of one number each writes the
/// signature of his own manifest, and whichever manifest comes first has its own beside it.
fn signature_of(manifest: &[u8]) -> String {
    format!("manifest-{}.sig", &blake3::hash(manifest).to_hex()[..32])
}

/// Whether a path is that of a signature, of whichever manifest.
fn is_signature(path: &str) -> bool {
    let of = path.strip_prefix("manifest-").and_then(|rest| rest.strip_suffix(".sig"));
    of.is_some_and(|hash| !hash.contains('/'))
}

/// Whether a path is one of those that are not a file of the version itself.
fn reserved(path: &str) -> bool {
    is_signature(path) || matches!(path, MANIFEST | SIGNATURE | "claim")
}

fn corpus_file(name: &str) -> Path {
    Path::from(format!("corpora/{name}/corpus.json"))
}

/// An object of a version; the names were checked.
fn object(corpus: &str, version: Version, path: &str) -> Path {
    Path::from(format!("{}/{path}", VersionStore::version_path(corpus, version)))
}

fn check_corpus(name: &str) -> Result<()> {
    if valid_name(name) {
        return Ok(());
    }
    let name: String = name.chars().take(80).collect();
    Err(Error::Invalid { field: "corpus", reason: format!("{name:?} must be 1 to 64 of a-z, 0-9, - and _") })
}

fn json(corpus: &Corpus) -> PutPayload {
    // A corpus has string keys only: writing it to memory cannot fail, and readers refuse an empty file.
    serde_json::to_vec_pretty(corpus).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
