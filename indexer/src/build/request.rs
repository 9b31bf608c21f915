//! What a build is asked to do, checked before it does anything.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use canopy_common::clock::{System, WallClock};
use canopy_format::{
    layout::MAX_SHARDS, manifest::MAX_WARMUP, schema::Schema, signature::SigningKey, store::VersionStore,
};

use super::progress::{Progress, Silent};
use crate::{
    error::{Error, Result},
    source::Format,
};

/// Least memory a build works with, bytes.
pub const MIN_MEMORY: u64 = 64 << 20;
/// Longest warm-up query, bytes: what a root takes.
pub const MAX_WARMUP_BYTES: usize = 8 << 10;
/// Shards of a corpus' first version when the request names none.
pub const DEFAULT_SHARDS: u32 = 4;

/// A build. Start from [`BuildRequest::new`] and set what differs.
#[derive(Clone)]
pub struct BuildRequest {
    /// Where versions live.
    pub store: VersionStore,
    /// The corpus; it must exist.
    pub corpus: String,
    /// Input files, read in this order: of two records with one key the later wins.
    pub inputs: Vec<PathBuf>,
    /// What the files hold; their first bytes say when `None`.
    pub format: Option<Format>,
    /// Schema of this version; the corpus' own when `None`.
    pub schema: Option<Schema>,
    /// Number of shards; the parent version's when `None`. Default: 4 for a first version.
    pub shards: Option<u32>,
    /// Memory to work with, bytes; the process stays below 1.5 times this. Larger needs fewer passes over spill files
    /// and merges. At least 64 MiB. Default: 1 GiB
    pub memory: u64,
    /// Threads to work with. Default: 2
    pub threads: usize,
    /// Largest share of rejected records, 0..1. Default: 0.001
    pub max_rejects: f64,
    /// Where rejected records go, one JSON object a line. `None`: they are counted and the first few reported.
    pub reject_file: Option<PathBuf>,
    /// Publish also an empty version, one below half of its parent, or one of input files that end too early.
    pub force: bool,
    /// Log offsets that the input contains: partition -> next offset.
    pub cut: BTreeMap<u32, u64>,
    /// Epoch of the log that the cut is of; empty without a cut.
    pub log: String,
    /// Queries that leaves warm the version with, and examples of the search page; those of the parent when `None`.
    pub warmup: Option<Vec<String>>,
    /// Signs the version. Default: nobody does
    pub sign: Option<Arc<SigningKey>>,
    /// Directory for spill files. Default: inside the store, next to the version (a local store), so that moving the
    /// result costs nothing.
    pub temp: Option<PathBuf>,
    /// Who listens.
    pub progress: Arc<dyn Progress>,
    /// Stamps the manifest.
    pub clock: Arc<dyn WallClock>,
    /// Stops the build.
    pub cancel: Cancel,
}

impl BuildRequest {
    /// A build with default settings.
    pub fn new(store: VersionStore, corpus: impl Into<String>, inputs: Vec<PathBuf>) -> Self {
        Self {
            store,
            corpus: corpus.into(),
            inputs,
            format: None,
            schema: None,
            shards: None,
            memory: 1 << 30,
            threads: 2,
            max_rejects: 0.001,
            reject_file: None,
            force: false,
            cut: BTreeMap::new(),
            log: String::new(),
            warmup: None,
            sign: None,
            temp: None,
            progress: Arc::new(Silent),
            clock: Arc::new(System),
            cancel: Cancel::default(),
        }
    }

    /// Refuses settings that are out of bounds.
    pub(crate) fn check(&self) -> Result<()> {
        let invalid = |field, reason: String| Err(Error::Invalid { field, reason });
        if self.inputs.is_empty() {
            return invalid("input", "no input file given".into());
        }
        self.check_settings()
    }

    /// The same without its input.
    pub(crate) fn check_settings(&self) -> Result<()> {
        let invalid = |field, reason: String| Err(Error::Invalid { field, reason });
        if self.memory < MIN_MEMORY {
            return invalid("memory", format!("{} bytes is too little; give at least 64 MiB", self.memory));
        }
        if !(1..=1024).contains(&self.threads) {
            return invalid("threads", format!("{} is not within 1..1024", self.threads));
        }
        if !(0.0..=1.0).contains(&self.max_rejects) {
            return invalid("max_rejects", format!("{} is not a share within 0..1", self.max_rejects));
        }
        if let Some(shards) = self.shards.filter(|shards| !(1..=MAX_SHARDS).contains(shards)) {
            return invalid("shards", format!("{shards} is not within 1..{MAX_SHARDS}"));
        }
        let warmup = self.warmup.as_deref().unwrap_or_default();
        if warmup.len() > MAX_WARMUP {
            return invalid("warmup", format!("{} queries; give at most {MAX_WARMUP}", warmup.len()));
        }
        if let Some(long) = warmup.iter().find(|query| query.len() > MAX_WARMUP_BYTES) {
            let start: String = long.chars().take(40).collect();
            return invalid("warmup", format!("{start:?}… is longer than {MAX_WARMUP_BYTES} bytes"));
        }
        Ok(())
    }
}

/// Stops a build from outside: it ends with an error soon after and leaves no visible version.
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the build to stop.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// An error once it was asked to.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) { Err(Error::Cancelled) } else { Ok(()) }
    }
}
