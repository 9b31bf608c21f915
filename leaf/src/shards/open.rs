//! From "should be held" to "answers": manifest, verify, open, prove by queries, publish. Shards are independent: one
//! that is damaged or does not fit is set aside with its reason, the others serve.
//!
//! The failure this prevents: an empty, half-written or foreign shard that opens fine and answers nothing. Rules: every
//! file is compared with the manifest first; schema, analysis and format must be those this build knows; the engine's
//! own schema must be the one that the corpus schema maps to, and its documents those of the manifest; nothing is
//! published before it has answered a query and given a stored document.

use std::{
    collections::BTreeMap,
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
use canopy_format::{
    manifest::{Manifest, ShardEntry},
    store::{Found, PassedOver, VersionStore},
};
use canopy_indexer::index_schema::IndexSchema;
use canopy_topology::routing::RoutingSnapshot;
use parking_lot::Mutex;
use tantivy::{Index, ReloadPolicy};

use super::{Serving, Shards, State, files::ShardFiles, quarantine::Source, verify, warm};
use crate::{
    error::{Error, Result},
    stop::Stop,
    view::{Base, ShardView},
};

/// Longest that warming one shard may take.
const WARM: Duration = Duration::from_secs(30);
/// Pause before a version that could not be found is looked for again.
const AGAIN: Duration = Duration::from_secs(5);

/// Opens the shards that a routing snapshot places on this leaf.
pub struct Opener {
    /// Where versions are.
    pub store: VersionStore,
    /// Where views go.
    pub shards: Arc<Shards>,
    /// Shards verified and opened at a time.
    pub threads: usize,
    /// Leaving ends the work.
    pub drain: Drain,
}

struct Job {
    manifest: Arc<Manifest>,
    shard: ShardId,
    version_dir: PathBuf,
    schema: IndexSchema,
}

impl Opener {
    /// Brings every shard to an end, good or bad. A corpus whose version can't be found (not built yet, store away) is
    /// looked for again until draining begins.
    pub async fn run(&self, routing: &RoutingSnapshot) {
        let mut wanted: BTreeMap<&str, Vec<ShardId>> = BTreeMap::new();
        for (corpus, shard) in routing.shards_of(&self.shards.node) {
            let version = routing.corpora.get(corpus).and_then(|routing| routing.version);
            self.shards.board.want(corpus, shard, version);
            wanted.entry(corpus).or_default().push(shard.clone());
        }
        while !wanted.is_empty() && !self.drain.started() {
            let mut jobs = Vec::new();
            let mut later = BTreeMap::new();
            for (corpus, shards) in wanted {
                let version = routing.corpora.get(corpus).and_then(|routing| routing.version);
                match self.jobs(corpus, version, &shards).await {
                    Ok(some) => jobs.extend(some),
                    Err(error) => {
                        tracing::error!(corpus, %error, "corpus can't be opened; trying again");
                        for shard in &shards {
                            self.fail(corpus, shard, State::Failed, &error);
                        }
                        later.insert(corpus, shards);
                    }
                }
            }
            self.open_all(jobs).await;
            wanted = later;
            if !wanted.is_empty() {
                tokio::select! {
                    biased;
                    () = self.drain.wait_started() => {}
                    () = tokio::time::sleep(AGAIN) => {}
                }
            }
        }
    }

    /// What is to be done for one corpus. Errors: its version can't be found, or not by this build.
    async fn jobs(&self, corpus: &str, version: Option<Version>, shards: &[ShardId]) -> Result<Vec<Job>> {
        let Found { manifest, passed_over } = self.store.to_serve(corpus, version).await?;
        let version = manifest.version;
        for PassedOver { version: newer, reason } in &passed_over {
            tracing::error!(corpus, %version, %newer, reason, "the newer version can't be served");
        }
        self.shards.board.pass_over(corpus, passed_over);
        let version_dir = self.store.version_dir(corpus, version).ok_or_else(|| {
            Error::invalid(
                "store",
                "the store is not a directory; fetching from object stores is not enabled yet",
            )
        })?;
        let schema = IndexSchema::new(&manifest.schema)?;
        let manifest = Arc::new(manifest);
        let mut jobs = Vec::new();
        for shard in shards {
            let Some(entry) = manifest.shard(shard) else {
                let held: Vec<_> =
                    manifest.layouts.iter().map(|l| format!("{} {}", l.shards, l.group)).collect();
                let reason = format!("{version} has no shard {shard}; its shards are: {}", held.join(", "));
                self.fail(corpus, shard, State::Failed, &Error::invalid("placements", reason));
                continue;
            };
            self.shards.board.update(corpus, shard, |line| {
                line.wanted = Some(version);
                line.state = State::Wanted;
                line.documents = entry.documents;
                line.bytes = entry.bytes;
            });
            let (shard, version_dir) = (shard.clone(), version_dir.clone());
            jobs.push(Job { manifest: manifest.clone(), shard, version_dir, schema: schema.clone() });
        }
        Ok(jobs)
    }

    async fn open_all(&self, jobs: Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        let threads = self.threads.clamp(1, jobs.len());
        let (shards, drain) = (self.shards.clone(), self.drain.clone());
        let work = move || {
            let jobs = Mutex::new(jobs.into_iter());
            std::thread::scope(|scope| {
                for _ in 0..threads {
                    scope.spawn(|| {
                        while let Some(job) = next(&jobs) {
                            open_one(&shards, &job, &drain);
                        }
                    });
                }
            });
        };
        if tokio::task::spawn_blocking(work).await.is_err() {
            tracing::error!("opening shards was broken off");
        }
    }

    fn fail(&self, corpus: &str, shard: &ShardId, state: State, error: &Error) {
        fail(&self.shards, corpus, shard, state, error);
    }
}

fn next(jobs: &Mutex<std::vec::IntoIter<Job>>) -> Option<Job> {
    jobs.lock().next()
}

fn fail(shards: &Shards, corpus: &str, shard: &ShardId, state: State, error: &Error) {
    shards.board.update(corpus, shard, |line| {
        line.state = state;
        line.last_error = error.to_string();
    });
}

fn open_one(shards: &Arc<Shards>, job: &Job, drain: &Drain) {
    let (corpus, shard) = (&job.manifest.corpus, &job.shard);
    // Damage that the checksums can't know (it was built so) may panic inside the engine; it is this shard's end only.
    let opened = catch_unwind(AssertUnwindSafe(|| job.open(shards, drain))).unwrap_or_else(|_| {
        let reason = "the engine panicked while opening it".to_owned();
        Err(Error::Damaged { shard: shard.clone(), reason })
    });
    match opened {
        Ok(serving) => {
            tracing::info!(corpus, %shard, version = %serving.view.version, "shard serves");
            shards.publish(serving);
        }
        Err(error) => {
            tracing::error!(corpus, %shard, %error, "shard quarantined");
            fail(shards, corpus, shard, State::Quarantined, &error);
        }
    }
}

impl Job {
    fn open(&self, shards: &Shards, drain: &Drain) -> Result<Serving> {
        let (corpus, shard) = (&self.manifest.corpus, &self.shard);
        let damaged = |reason: String| Error::Damaged { shard: shard.clone(), reason };
        let entry = self.manifest.shard(shard).ok_or_else(|| damaged("not in the manifest".to_owned()))?;
        let state = |state| shards.board.update(corpus, shard, |line| line.state = state);
        state(State::Verifying);
        let open = verify::shard(&self.version_dir, entry, &|bytes| {
            shards.board.update(corpus, shard, |line| line.verified += bytes);
            !drain.started()
        })?;
        state(State::Opening);
        let files = ShardFiles::map(open).map_err(|error| damaged(format!("it can't be mapped: {error}")))?;
        let view = open_view(&files, shard, self.manifest.version, &self.schema, entry)?;
        state(State::Warming);
        let stop = Stop::new(Deadline::after(WARM), Arc::default());
        let probe = warm::probe(&view, &self.manifest, entry)?;
        warm::check(&view, &probe, &stop).map_err(|failure| damaged(failure.message))?;
        warm::run(&view, &self.manifest, entry, &stop)?;
        if let Some(file) = files.unreadable() {
            return Err(damaged(format!("{} could not be read from the disk", file.display())));
        }
        let mut serving = Serving::new(corpus.as_str().into(), view, files, probe, shards.leases.number());
        serving.source = Some(self.source(entry));
        Ok(serving)
    }

    fn source(&self, entry: &ShardEntry) -> Source {
        Source { version_dir: self.version_dir.clone(), entry: entry.clone() }
    }
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
