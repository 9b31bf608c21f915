//! From input files to a published version.
//!
//! `read -> validate -> partition by slot -> (spill) -> sort -> analyse -> write shard -> statistics -> check -> store ->
//! verify -> manifest`, a file per step. Reading and validating use all threads, then shards are written, one thread
//! each, as many at a time as memory allows. Memory is bounded whatever the input: rows above their share are spilled
//! as sorted runs, a shard is one merge over its runs.
//!
//! A build works below the version number it claims and shows nothing until the manifest, which is written last and
//! only after every file was read back. If it fails, there is no version and the number is free again; if it dies, the
//! next build removes what it left.
//!
//! Two builds of the same input, schema and `memory` make the same shards to the byte, whatever the threads.

use std::path::{Path, PathBuf};

use canopy_common::ids::Version;
use canopy_format::{analysis::Analyzer, document::Document, manifest::Manifest, schema::Schema};
use tokio::time::Instant;

use crate::{
    error::{Error, Result},
    index_schema::{IndexDocument, IndexSchema, Place, TokenCounts},
};

pub(crate) mod ahead;
pub(crate) mod check;
pub(crate) mod keys;
mod leftovers;
pub(crate) mod make;
pub(crate) mod partition;
pub(crate) mod plan;
mod progress;
mod publish;
mod read;
mod reject;
mod report;
mod request;
pub(crate) mod row;
pub(crate) mod seal;
pub(crate) mod shard;
pub(crate) mod sort;
pub(crate) mod spellings;
pub(crate) mod spill;
mod stop;
pub(crate) mod terms;
pub(crate) mod timing;
mod validate;

pub(crate) use leftovers::Hold;
pub use progress::{Amount, Progress, Silent, Stage};
pub use reject::RejectLine;
pub use report::{BuildReport, Leftover, ShardReport};
pub use request::{BuildRequest, Cancel, DEFAULT_SHARDS, MAX_WARMUP_BYTES, MIN_MEMORY};

/// Claims tried when others take them away.
const CLAIM_TRIES: u32 = 100;

/// Builds and publishes the next version of a corpus. Dropping the future stops the build.
pub async fn run(request: BuildRequest) -> Result<BuildReport> {
    let input = |path: &PathBuf| read::Input::file(path.clone(), request.format);
    let feed = make::Feed::new(request.inputs.iter().map(input).collect());
    run_on(request, feed).await
}

async fn run_on(request: BuildRequest, feed: make::Feed) -> Result<BuildReport> {
    request.check()?;
    let began = Instant::now();
    let plan = plan::plan(&request).await?;
    let inner = request.clone();
    let make = move |plan: &plan::Plan, work: &Path| Ok((make::make(&inner, plan, &feed, work)?, ()));
    let (mut report, ()) = publish_next(&request, plan, make).await?;
    report.total_seconds = began.elapsed().as_secs_f64();
    Ok(report)
}

/// Claims the next number, does `make` below it and publishes what that made.
pub(crate) async fn publish_next<T: Send + 'static>(
    request: &BuildRequest,
    mut plan: plan::Plan,
    make: impl FnOnce(&plan::Plan, &Path) -> Result<(make::Made, T)> + Send + 'static,
) -> Result<(BuildReport, T)> {
    let (store, corpus) = (request.store.clone(), request.corpus.clone());
    let leftovers = blocking(move || leftovers::clean(&store, &corpus)).await?;
    let (version, claim) = claim(request).await?;

    let _stop = CancelOnDrop(request.cancel.clone());
    // the claim travels with the work: its directory must not go while threads still write there
    let passed_over = std::mem::take(&mut plan.passed_over);
    let (claim, plan, made) = blocking(move || {
        let made = make(&plan, &claim.work);
        Ok((claim, plan, made))
    })
    .await?;
    let published = match made {
        Ok((mut made, with)) => {
            let manifest = publish::publish(request, &plan, version, &mut made).await;
            manifest.map(|manifest| (made, manifest, with))
        }
        Err(error) => Err(error),
    };
    match published {
        Ok((made, manifest, with)) => {
            Ok((BuildReport { passed_over, ..report(made, manifest, leftovers) }, with))
        }
        Err(error) => {
            blocking(move || {
                claim.undo();
                Ok(())
            })
            .await?;
            Err(error)
        }
    }
}

fn report(made: make::Made, manifest: Manifest, leftovers: Vec<Leftover>) -> BuildReport {
    BuildReport {
        documents: manifest.documents(),
        bytes: manifest.files().map(|file| file.bytes).sum(),
        corpus: manifest.corpus,
        version: manifest.version,
        parent: manifest.parent,
        shards: manifest
            .shards
            .into_iter()
            .map(|shard| ShardReport { shard: shard.shard, documents: shard.documents, bytes: shard.bytes })
            .collect(),
        counts: made.counts,
        anchors: made.shards.iter().map(|shard| shard.sort.anchors).sum(),
        rejects: made.rejects,
        languages: manifest.languages,
        seconds: made.timing.seconds,
        total_seconds: 0.0,
        spilled_bytes: made.spilled_bytes,
        segments: made.shards.iter().map(|shard| shard.segments).sum(),
        leftovers,
        passed_over: vec![],
    }
}

/// Claims a number and locks it. A cleaner that comes between the two takes a fresh claim for a dead one.
async fn claim(request: &BuildRequest) -> Result<(Version, leftovers::Claim)> {
    for _ in 0..CLAIM_TRIES {
        let version = request.store.claim(&request.corpus).await?;
        let (store, corpus, temp) = (request.store.clone(), request.corpus.clone(), request.temp.clone());
        let take = move || leftovers::Claim::take(&store, &corpus, version, temp.as_deref());
        if let Some(claim) = blocking(take).await? {
            return Ok((version, claim));
        }
    }
    let reason =
        format!("its claim was taken away {CLAIM_TRIES} times; are other builds claiming without end?");
    Err(Error::Invalid { field: "version", reason })
}

struct CancelOnDrop(Cancel);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|_| Error::Panicked)?
}

/// Writes one small shard into an empty directory, in memory, without a store around it: documents sorted by key, the
/// last of equal keys wins. For tests of what opens shards; a corpus is built by [`run`].
pub fn shard(dir: &Path, schema: &Schema, documents: Vec<Document>) -> Result<TokenCounts> {
    let index_schema = IndexSchema::new(schema)?;
    let analyzer = Analyzer::new();
    let by_key: std::collections::BTreeMap<_, _> =
        documents.into_iter().map(|document| (document.key_hash(), document)).collect();
    let directory = tantivy::directory::MmapDirectory::open(dir)
        .map_err(|error| Error::engine("open shard directory")(error.into()))?;
    let mut writer = index_schema
        .builder()
        .single_segment_index_writer::<IndexDocument>(directory, 64 << 20)
        .map_err(Error::engine("create shard"))?;
    let mut counts = TokenCounts::default();
    for document in by_key.values() {
        let document = index_schema.document(document, &analyzer, Place::default());
        counts.merge(&document.counts);
        writer.add_document(document).map_err(Error::engine("add document"))?;
    }
    writer.finalize().map_err(Error::engine("finish shard"))?;
    Ok(counts)
}

#[cfg(test)]
mod tests;
