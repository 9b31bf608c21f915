//! The next version made of the last one and the log, without the source: what was written since the cut of the last
//! version is put into it, and the new version's cut is where the log was read to.
//!
//! `read log -> partition by slot -> (spill) -> sort -> newest write of each key -> merge with the last version's segments ->
//! statistics -> check -> store -> verify -> manifest`. What comes before and after the merge is the build's own; the rules
//! of what counts are [`canopy_format::newest`], which the leaves' overlays use too.
//!
//! The failure this prevents: a version that answers otherwise than one built of the same documents. Rules: a document
//! of the last version that no write touched is not analysed again, its postings are copied; one that was replaced or
//! deleted is analysed once more from its whole form, to know what to subtract; words as written are kept only while a
//! document has them (`spellings.rs`). So documents, terms, lengths and counts are those of a full build, and with them
//! every score to the bit; the files are not the same to the byte, documents stand in another order.
//!
//! With another number of shards everything is analysed again, from the whole form of the documents.
//!
//! Memory is bounded as in a build: operations above their share are spilled, a merge streams. Nothing is visible before
//! the manifest; whatever fails or is stopped leaves the number free.

use std::{path::PathBuf, sync::Arc};

use canopy_common::{
    clock::{System, WallClock},
    ids::Version,
};
use canopy_format::{signature::SigningKey, store::VersionStore, token::Token};
use serde::Serialize;
use tokio::time::Instant;

use crate::{
    build::{BuildReport, BuildRequest, Cancel, Progress, Silent},
    error::{Error, Result},
};

mod base;
mod gather;
mod judge;
mod operations;
mod rebuild;
mod replay;
mod run;
mod shard;
mod spellings;

pub use judge::Unfit;
pub use operations::{Chunk, Ends, Logged, Operations, Range};

/// What is to be absorbed, and how. Start from [`AbsorbRequest::new`] and set what differs.
#[derive(Clone)]
pub struct AbsorbRequest {
    /// Where versions live.
    pub store: VersionStore,
    /// The corpus; it must have a version.
    pub corpus: String,
    /// The log.
    pub operations: Arc<dyn Operations>,
    /// Up to where; its end at the beginning when `None`.
    pub until: Option<Token>,
    /// Number of shards; those of the last version when `None`.
    pub shards: Option<u32>,
    /// Memory to work with, bytes; at least 64 MiB. Default: 1 GiB
    pub memory: u64,
    /// Threads to work with. Default: 2
    pub threads: usize,
    /// Signs the version. Default: nobody does
    pub sign: Option<Arc<SigningKey>>,
    /// Directory for temporary files; beside the version when `None` (a local store).
    pub temp: Option<PathBuf>,
    /// Who listens.
    pub progress: Arc<dyn Progress>,
    /// Stamps the manifest.
    pub clock: Arc<dyn WallClock>,
    /// Stops it.
    pub cancel: Cancel,
    /// Most memory of the words of removed documents that are looked for one by one, bytes; above it all documents are
    /// analysed. A share of `memory` when `None`.
    pub words: Option<usize>,
}

impl AbsorbRequest {
    /// Everything in the log, with default settings.
    pub fn new(store: VersionStore, corpus: impl Into<String>, operations: Arc<dyn Operations>) -> Self {
        Self {
            store,
            corpus: corpus.into(),
            operations,
            until: None,
            shards: None,
            memory: 1 << 30,
            threads: 2,
            sign: None,
            temp: None,
            progress: Arc::new(Silent),
            clock: Arc::new(System),
            cancel: Cancel::default(),
            words: None,
        }
    }

    /// The same as a build, for the parts that both have.
    fn as_build(&self) -> BuildRequest {
        BuildRequest {
            shards: self.shards,
            memory: self.memory,
            threads: self.threads,
            force: true,
            sign: self.sign.clone(),
            temp: self.temp.clone(),
            progress: self.progress.clone(),
            clock: self.clock.clone(),
            cancel: self.cancel.clone(),
            ..BuildRequest::new(self.store.clone(), self.corpus.clone(), vec![])
        }
    }
}

/// What was done with the operations.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Absorbed {
    /// Operations read.
    pub operations: u64,
    /// Those that changed nothing: a newer write was known.
    pub stale: u64,
    /// Those that could not be applied: patches without a document, and what is no document under this schema. Leaves
    /// have reported them as dead letters.
    pub refused: u64,
    /// Documents that came or were changed.
    pub documents: u64,
    /// Documents of the last version that are no more, or were changed.
    pub removed: u64,
    /// Documents that were analysed, the removed ones too.
    pub analysed: u64,
}

impl Absorbed {
    fn merge(&mut self, other: &Self) {
        self.operations += other.operations;
        self.stale += other.stale;
        self.refused += other.refused;
        self.documents += other.documents;
        self.removed += other.removed;
        self.analysed += other.analysed;
    }
}

/// The outcome.
#[derive(Debug, Clone, Serialize)]
pub struct AbsorbReport {
    /// The new version.
    #[serde(flatten)]
    pub build: BuildReport,
    /// The version that it was made of.
    pub of: Version,
    /// What was done.
    pub absorbed: Absorbed,
    /// The new version's cut.
    pub token: String,
}

/// Makes and publishes the next version of a corpus. `None`: nothing was written since the last one. Dropping the
/// future stops it.
pub async fn run(request: AbsorbRequest) -> Result<Option<AbsorbReport>> {
    let began = Instant::now();
    let mut build = request.as_build();
    build.check_settings()?;
    let Some(plan) = judge::plan(&request, &build).await? else { return Ok(None) };
    (build.cut, build.log) = (plan.until.offsets.clone(), plan.until.epoch.clone());
    let (of, token) = (plan.base.version, plan.until.to_string());
    let (mut report, absorbed) = run::publish(&request, &build, plan).await?;
    report.total_seconds = began.elapsed().as_secs_f64();
    Ok(Some(AbsorbReport { build: report, of, absorbed, token }))
}

/// An error of what was found in a place.
fn damaged(what: &str, reason: impl Into<String>) -> Error {
    Error::Damaged { what: what.to_owned(), reason: reason.into() }
}

#[cfg(test)]
mod tests;
