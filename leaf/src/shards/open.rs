//! From "its files are here" to "answers": verify, open, prove by queries, warm. Shards are independent: one that is
//! damaged is set aside with its reason, the others serve.
//!
//! The failure this prevents: an empty, half-written or foreign shard that opens fine and answers nothing. Rules: every
//! file is compared with the manifest first; schema, analysis and format must be those this build knows; the engine's
//! own schema must be the one that the corpus schema maps to, and its documents those of the manifest; nothing is
//! published before it has answered a query and given a stored document.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use canopy_common::{
    deadline::Deadline,
    drain::Drain,
    ids::{ShardId, Version},
};
use canopy_format::manifest::{Manifest, ShardEntry};
use canopy_indexer::index_schema::IndexSchema;
use canopy_proto::v1::SearchRequest;
use tantivy::{Index, ReloadPolicy};

use super::{
    Serving, Shards, State, files::ShardFiles, pace::Pace, quarantine::Source, status::Place, verify, warm,
};
use crate::{
    error::{Error, Result},
    fault::FaultConfig,
    search_shard,
    stop::Stop,
    view::{Base, ShardView},
};

/// Longest that the proof by a query may take.
const PROOF: Duration = Duration::from_secs(30);

/// A version whose manifest was read.
pub struct Release {
    /// Its table of contents.
    pub manifest: Manifest,
    /// How its documents are mapped to the engine.
    pub schema: IndexSchema,
}

/// One shard to open.
pub struct Job {
    /// Its line.
    pub place: Place,
    /// Its version.
    pub release: Arc<Release>,
    /// Its part of the manifest.
    pub entry: ShardEntry,
    /// Where the version's files are.
    pub version_dir: PathBuf,
    /// How much of a core may be taken.
    pub pace: Pace,
    /// Longest that warming may take.
    pub warm: Duration,
    /// What this leaf was asked of late.
    pub sample: Vec<SearchRequest>,
    /// What it serves of the shard now.
    pub before: Option<Arc<Serving>>,
    /// Where the process is killed on purpose.
    pub fault: FaultConfig,
    /// Leaving ends the work.
    pub drain: Drain,
}

/// A shard that is open and was not asked anything yet.
pub struct Open {
    /// Its files.
    pub files: ShardFiles,
    /// The base alone.
    pub view: ShardView,
}

/// What a step ended with.
pub enum Opened<T> {
    /// It can go on.
    Ready(Box<T>),
    /// Nobody wants it any more.
    GivenUp,
    /// It is not what the manifest says.
    Damaged(Error),
}

impl Job {
    /// Verifies and opens it, on a thread that may block.
    pub fn open(&self, shards: &Shards) -> Opened<Open> {
        self.guarded(shards, || self.verified(shards))
    }

    /// Proves and warms it with this view, on a thread that may block.
    pub fn warm(&self, open: Open, shards: &Shards) -> Opened<Serving> {
        self.guarded(shards, || self.warmed(open, shards))
    }

    fn guarded<T>(&self, shards: &Shards, work: impl FnOnce() -> Result<T>) -> Opened<T> {
        // Damage that the checksums can't know (it was built so) may panic inside the engine; it is this shard's end only.
        let opened = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
            let reason = "the engine panicked while opening it".to_owned();
            Err(Error::Damaged { shard: self.place.shard.clone(), reason })
        });
        match opened {
            Ok(done) => Opened::Ready(Box::new(done)),
            Err(_) if !self.goes_on(shards) => Opened::GivenUp,
            Err(error) => Opened::Damaged(error),
        }
    }

    fn goes_on(&self, shards: &Shards) -> bool {
        shards.board.wanted(&self.place) && !self.drain.started()
    }

    fn damaged(&self, reason: impl Into<String>) -> Error {
        Error::Damaged { shard: self.place.shard.clone(), reason: reason.into() }
    }

    fn point(&self, name: &str) {
        if self.before.is_some() {
            self.fault.point(name);
        }
    }

    fn verified(&self, shards: &Shards) -> Result<Open> {
        let Self { place, release, entry, .. } = self;
        let state = |state| shards.board.update(place, |line| line.state = state);
        state(State::Verifying);
        let mut steps = self.pace.steps();
        let open = verify::shard(&self.version_dir, entry, &mut |bytes| {
            let mut half = false;
            shards.board.update(place, |line| {
                line.verified += bytes;
                half = line.verified >= entry.bytes / 2;
            });
            if half {
                self.point("verify.half");
            }
            steps.rest();
            self.goes_on(shards)
        })?;
        state(State::Opening);
        let mapped = ShardFiles::map(open);
        let files = mapped.map_err(|error| self.damaged(format!("it can't be mapped: {error}")))?;
        self.point("open.mapped");
        let view = open_view(&files, &place.shard, release.manifest.version, &release.schema, entry)?;
        Ok(Open { files, view })
    }

    fn warmed(&self, Open { files, view }: Open, shards: &Shards) -> Result<Serving> {
        let Self { place, release, entry, .. } = self;
        shards.board.update(place, |line| line.state = State::Warming);
        let stop = within(self.warm);
        let mut steps = self.pace.steps();
        files.prefault(&mut || {
            steps.rest();
            !stop.now() && self.goes_on(shards)
        });
        let probe = warm::probe(&view, &release.manifest, entry)?;
        // Reading may have taken all of the time; a proof that was cut short is none.
        warm::check(&view, &probe, &within(PROOF)).map_err(|failure| self.damaged(failure.message))?;
        let warming = warm::Warming {
            view: &view,
            manifest: &release.manifest,
            entry,
            pace: &self.pace,
            stop: &stop,
            ask: &|view, asked, stop| drop(search_shard::search(view, asked, 0, stop)),
        };
        warming.queries()?;
        self.point("warm.half");
        if let Some(before) = &self.before {
            warming.sample(&self.sample, &before.view(), &|| self.goes_on(shards));
        }
        if let Some(file) = files.unreadable() {
            return Err(self.damaged(format!("{} could not be read from the disk", file.display())));
        }
        if !self.goes_on(shards) {
            return Err(self.damaged("it is not wanted any more"));
        }
        let mut serving = Serving::new(place.corpus.clone(), view, files, probe, shards.leases.number());
        serving.source = Some(Source { version_dir: self.version_dir.clone(), entry: entry.clone() });
        Ok(serving)
    }
}

/// Stops after a time.
fn within(time: Duration) -> Stop {
    Stop::new(Deadline::after(time), Arc::default())
}

/// Opens verified files as a view.
pub fn open_view(
    files: &ShardFiles,
    shard: &ShardId,
    version: Version,
    schema: &IndexSchema,
    entry: &ShardEntry,
) -> Result<ShardView> {
    let index = Index::open(files.clone()).map_err(Error::engine("open shard"))?;
    if index.schema() != schema.engine {
        let reason = "its engine schema is not the one of the version's schema; rebuild the version";
        return Err(Error::Damaged { shard: shard.clone(), reason: reason.to_owned() });
    }
    let reader = index.reader_builder().reload_policy(ReloadPolicy::Manual).try_into();
    let searcher = reader.map_err(Error::engine("open shard"))?.searcher();
    let base = Base::open(shard, searcher, schema.clone())?;
    if base.documents != entry.documents {
        let reason = format!("it has {} documents, the manifest says {}", base.documents, entry.documents);
        return Err(Error::Damaged { shard: shard.clone(), reason });
    }
    Ok(ShardView::new(shard.clone(), version, Arc::new(base)))
}
