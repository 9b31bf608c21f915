//! A finished version from one store to another: built on one machine, served from S3 by many.
//!
//! `judge -> claim -> copy -> read back -> manifest`. Nobody sees the version before its manifest, which comes last, so that a copy
//! that dies between any two steps leaves readers with exactly what they had; begun again it goes on where it ended, because
//! its claim says what it is a copy of. Refused before the first byte: a version that is not whole in its table, one without
//! documents or with fewer than half of the target's newest, another schema than the target's corpus, a number that is taken, a
//! signature that the target's readers would not take.
//!
//! The number is kept, so that a version has one name everywhere; `renumber` takes the target's next one, which changes the manifest
//! and so needs a key to sign it again. A key that is given signs also what is there already: keys are exchanged so. Units: bytes.

mod judge;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use canopy_common::ids::Version;
use canopy_format::{
    error::Error as FormatError,
    manifest::{FileEntry, MAX_WARMUP, Manifest},
    signature::{Signature, SigningKey, Trusted},
    store::{Table, VersionStore},
};
use futures::{StreamExt, TryStreamExt, stream};
use serde::Serialize;

use crate::{
    build::{Hold, MAX_WARMUP_BYTES},
    error::{Error, Result},
};

/// Files copied at a time.
const FILES: usize = 4;

/// What to copy, from where, to where.
pub struct PublishRequest {
    /// Where it is.
    pub from: VersionStore,
    /// Where it goes.
    pub to: VersionStore,
    /// The corpus; made in the target when it is not there.
    pub corpus: String,
    /// Which version; `None`: the newest.
    pub version: Option<Version>,
    /// Takes the next number of the target instead of the version's own.
    pub renumber: bool,
    /// Publishes also an empty version, one of fewer than half of the documents, one of another schema.
    pub force: bool,
    /// Warm-up queries instead of the version's own.
    pub warmup: Option<Vec<String>>,
    /// Signs it; `None`: its own signature goes with it.
    pub sign: Option<Arc<SigningKey>>,
    /// Told the bytes that were copied or read back.
    pub progress: Arc<dyn Fn(u64) + Send + Sync>,
}

impl PublishRequest {
    /// A copy of the newest version with its number.
    pub fn new(from: VersionStore, to: VersionStore, corpus: impl Into<String>) -> Self {
        Self {
            from,
            to,
            corpus: corpus.into(),
            version: None,
            renumber: false,
            force: false,
            warmup: None,
            sign: None,
            progress: Arc::new(|_| ()),
        }
    }
}

impl PublishRequest {
    /// The same, signed with a key. Whoever signs answers for what he read, so the keys that its readers trust are not asked
    /// for at the source: it may be signed by nobody yet, or by the key that is given up.
    pub fn signing(self, key: Option<Arc<SigningKey>>) -> Self {
        let from = if key.is_some() { self.from.trusting(Trusted::default()) } else { self.from };
        Self { from, sign: key, ..self }
    }
}

/// What was done.
#[derive(Debug, Clone, Serialize)]
pub struct PublishReport {
    /// The corpus.
    pub corpus: String,
    /// Its number in the target.
    pub version: Version,
    /// Its number where it came from.
    pub source: Version,
    /// Documents.
    pub documents: u64,
    /// Files.
    pub files: usize,
    /// Bytes of all files.
    pub bytes: u64,
    /// Bytes that were sent; the others were there from a copy that was broken off.
    pub sent_bytes: u64,
    /// Id of the key that signed it.
    pub signed_by: Option<String>,
    /// It was in the target already, the same to the byte, and nothing was sent.
    pub already_there: bool,
    /// It was there, and only its signature took the place of another one, or of none.
    pub signed_anew: bool,
}

/// What is to be published, judged.
struct Plan {
    source: Version,
    manifest: Manifest,
    json: Vec<u8>,
    signature: Option<Signature>,
    /// How the target's claim names it.
    whom: String,
}

/// Copies a version. Dropping the future stops it; it goes on when it is begun again.
pub async fn run(request: &PublishRequest) -> Result<PublishReport> {
    let table = source(request).await?;
    judge::corpus(request, &table.manifest).await?;
    let parent = judge::size(request, &table.manifest).await?;
    // What was renumbered differs in its manifest; the claim is by what it came from.
    let whom = format!("copy of {}", blake3::hash(&table.bytes).to_hex());
    let kept = (!request.renumber).then_some(table.manifest.version);
    for _ in 0..CLAIM_TRIES {
        // Also when it was somebody else's a moment ago: he may have published it.
        if let Some(report) = already_there(request, &table, kept).await? {
            return Ok(report);
        }
        judge::signature(request, &table)?;
        let Some((version, _hold)) = claim(request, kept, &whom).await? else { continue };
        let plan = plan(request, table.clone(), version, parent, whom.clone())?;
        match bring(request, &plan).await {
            Ok(sent) => return Ok(report(&plan, sent, false)),
            // In a remote store nobody is held off: the same copy, or another, was faster.
            Err(Error::Format(FormatError::Exists(_))) if kept.is_some() => {}
            Err(error) => return Err(error),
        }
    }
    let reason =
        format!("its claim was taken away {CLAIM_TRIES} times; are builds running there without end?");
    Err(Error::Invalid { field: "version", reason })
}

/// Sends it, reads it back and makes it visible; bytes that were sent.
async fn bring(request: &PublishRequest, plan: &Plan) -> Result<u64> {
    let sent = copy(request, plan).await?;
    read_back(request, plan).await?;
    request.to.publish_signed(&plan.json, plan.signature.as_ref()).await?;
    Ok(sent)
}

fn report(plan: &Plan, sent_bytes: u64, already_there: bool) -> PublishReport {
    let Plan { manifest, .. } = plan;
    PublishReport {
        corpus: manifest.corpus.clone(),
        version: manifest.version,
        source: plan.source,
        documents: manifest.documents(),
        files: manifest.files().count(),
        bytes: manifest.files().map(|file| file.bytes).sum(),
        sent_bytes,
        signed_by: plan.signature.as_ref().map(|signature| signature.key.clone()),
        already_there,
        signed_anew: false,
    }
}

async fn source(request: &PublishRequest) -> Result<Table> {
    let version = match request.version {
        Some(version) => version,
        None => request.from.latest(&request.corpus).await?.version,
    };
    let table = request.from.table(&request.corpus, version).await?;
    for file in table.manifest.files() {
        if !request.from.holds(&request.corpus, version, file).await? {
            let reason = format!("it is missing or has not {} bytes; nothing was published", file.bytes);
            return Err(Error::Damaged { what: format!("{} of {version}", file.path), reason });
        }
    }
    Ok(table)
}

/// The same version under its number: then there is nothing to do, but for the signature when it is by another key than the one
/// that is given.
async fn already_there(
    request: &PublishRequest,
    table: &Table,
    kept: Option<Version>,
) -> Result<Option<PublishReport>> {
    let Some(version) = kept else { return Ok(None) };
    // What is signed anew may have been signed by a key that is not taken any more.
    let to = match &request.sign {
        Some(_) => request.to.clone().trusting(Trusted::default()),
        None => request.to.clone(),
    };
    let found = match to.table(&request.corpus, version).await {
        Ok(found) => found,
        Err(FormatError::NoVersion { .. }) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    if found.bytes != table.bytes {
        let reason = format!(
            "the target has another {version} of {}; --renumber takes the next number",
            request.corpus
        );
        return Err(Error::Invalid { field: "version", reason });
    }
    let (mut signature, json) = (found.signature, found.bytes.to_vec());
    let signed = request.sign.as_ref().map(|key| key.sign(&json));
    let anew = signed.is_some() && signed != signature;
    if let Some(signed) = signed.filter(|_| anew) {
        judge::signature(request, table)?;
        to.sign_anew(&request.corpus, version, &json, &signed).await?;
        signature = Some(signed);
    }
    let plan = Plan { source: version, manifest: found.manifest, json, signature, whom: String::new() };
    Ok(Some(PublishReport { signed_anew: anew, ..report(&plan, 0, true) }))
}

/// Its number in the target, and the hold on it in a local store. `None`: a build took the claim for a dead one's, or the version was
/// published since.
async fn claim(
    request: &PublishRequest,
    kept: Option<Version>,
    whom: &str,
) -> Result<Option<(Version, Option<Hold>)>> {
    let (to, corpus) = (&request.to, &request.corpus);
    let version = match kept {
        Some(version) => {
            to.claim_as(corpus, version, whom).await?;
            version
        }
        None => to.claim_next_as(corpus, whom).await?,
    };
    if to.local().is_none() {
        return Ok(Some((version, None)));
    }
    // A build that begins takes what nobody holds for a dead one's.
    let (store, name) = (to.clone(), corpus.clone());
    let held = tokio::task::spawn_blocking(move || Hold::take(&store, &name, version)).await;
    Ok(held.map_err(|_| Error::Panicked)??.map(|hold| (version, Some(hold))))
}

/// Claims tried when builds take them away.
const CLAIM_TRIES: u32 = 20;

fn plan(
    request: &PublishRequest,
    table: Table,
    version: Version,
    parent: Option<Version>,
    whom: String,
) -> Result<Plan> {
    let source = table.manifest.version;
    let mut manifest = table.manifest;
    if request.renumber {
        manifest.version = version;
        manifest.parent = parent;
    }
    if let Some(warmup) = &request.warmup {
        if warmup.len() > MAX_WARMUP || warmup.iter().any(|query| query.len() > MAX_WARMUP_BYTES) {
            let reason = format!("at most {MAX_WARMUP} queries of {MAX_WARMUP_BYTES} bytes");
            return Err(Error::Invalid { field: "warmup", reason });
        }
        manifest.warmup.clone_from(warmup);
    }
    let changed = request.renumber || request.warmup.is_some();
    let json = if changed { manifest.to_json() } else { table.bytes.to_vec() };
    let signature = match &request.sign {
        Some(key) => Some(key.sign(&json)),
        None => table.signature.filter(|_| !changed),
    };
    Ok(Plan { source, manifest, json, signature, whom })
}

/// Sends what is not there; bytes that went.
async fn copy(request: &PublishRequest, plan: &Plan) -> Result<u64> {
    let sent = AtomicU64::new(0);
    let each = plan.manifest.files().map(|file| {
        let sent = &sent;
        async move {
            if request.to.holds(&request.corpus, plan.manifest.version, file).await? {
                (request.progress)(file.bytes);
                return Ok::<_, Error>(());
            }
            send(request, plan, file).await?;
            sent.fetch_add(file.bytes, Ordering::Relaxed);
            Ok(())
        }
    });
    let each: Vec<_> = each.collect();
    tracing::debug!(version = %plan.manifest.version, whom = plan.whom, "copying");
    stream::iter(each).buffer_unordered(FILES).try_collect::<Vec<()>>().await?;
    Ok(sent.into_inner())
}

async fn send(request: &PublishRequest, plan: &Plan, file: &FileEntry) -> Result<()> {
    let (from, progress) = ((&request.from, plan.source), &*request.progress);
    Ok(request
        .to
        .copy_file(from, &request.corpus, plan.manifest.version, file, &|bytes| progress(bytes))
        .await?)
}

/// Compares what the target holds with the manifest; what differs is what another copy left, and is sent once more.
async fn read_back(request: &PublishRequest, plan: &Plan) -> Result<()> {
    let progress = &*request.progress;
    let damaged = request.to.verify(&plan.manifest, &|bytes| progress(bytes)).await?;
    if damaged.is_empty() {
        return Ok(());
    }
    for one in &damaged {
        send(request, plan, &one.file).await?;
    }
    let still = request.to.verify(&plan.manifest, &|_| ()).await?;
    match still.first() {
        None => Ok(()),
        Some(one) => {
            let reason = format!("read back from the target, {}; nothing was published", one.reason);
            Err(Error::Damaged { what: one.file.path.clone(), reason })
        }
    }
}

#[cfg(test)]
mod tests;
