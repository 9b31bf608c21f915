//! Keeps what this leaf holds in step with the routing snapshot, one way for a start, a swap and a rollback: what should be
//! held is fetched, verified, opened, warmed and published; what should not be is kept for the retention time, then let go
//! of. Nothing here is on the path of a query.
//!
//! The failure this prevents: a swap request that is lost because another one is at work. The loop never works itself; it
//! compares the newest snapshot with the [board](super::Board), starts what can be started, and looks again whenever something
//! ended or came due. Rules: while the leaf answers, one shard is opened at a time and within the configured
//! share of a core; a version is looked for once and its manifest kept while it is wanted, so that all its shards
//! are of one version; what failed is tried again.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use canopy_common::{
    drain::Drain,
    ids::{NodeId, Version},
};
use canopy_format::store::{Found, PassedOver, VersionStore};
use canopy_indexer::index_schema::IndexSchema;
use canopy_topology::routing::{Routing, RoutingSnapshot};
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Place, Serving, Shards, State,
    open::{Job, Opened, Release},
    pace::Pace,
    room, stage,
};
use crate::{
    config::LeafConfig,
    error::{Error, Result},
    recent::Recent,
};

/// Pause before what failed is tried again.
const AGAIN: Duration = Duration::from_secs(5);

/// What opening and keeping shards needs.
pub struct Lifecycle {
    /// Where versions are.
    pub store: VersionStore,
    /// Where views go.
    pub shards: Arc<Shards>,
    /// `[leaf]`.
    pub config: LeafConfig,
    /// What this leaf was asked of late.
    pub recent: Arc<Recent>,
    /// Leaving ends the work.
    pub drain: Drain,
    releases: Mutex<BTreeMap<Wanted, Arc<Release>>>,
}

/// A version of a corpus as it is wanted.
type Wanted = (Arc<str>, Option<Version>);

/// What working on one shard ended with.
enum End {
    Ready(Box<Serving>),
    GivenUp,
    /// Not now: tried again.
    Later(Error),
    /// Not ever, as things are.
    Never(Error),
    Damaged(Error),
}

impl Lifecycle {
    /// For the shards of one leaf.
    pub fn new(
        store: VersionStore,
        shards: Arc<Shards>,
        config: LeafConfig,
        recent: Arc<Recent>,
        drain: Drain,
    ) -> Self {
        Self { store, shards, config, recent, drain, releases: Mutex::default() }
    }

    /// Follows the routing snapshot until draining begins.
    pub async fn run(self: Arc<Self>, routing: Routing) {
        let mut following = routing.follow();
        let mut work = JoinSet::new();
        loop {
            while work.len() < self.at_once()
                && let Some(place) = self.shards.board.start(Instant::now())
            {
                let this = self.clone();
                work.spawn(async move {
                    let end = this.bring(&place).await;
                    this.settle(place, end);
                });
            }
            let idle = work.len() < self.at_once();
            let due = self.shards.board.due(idle).unwrap_or_else(|| Instant::now() + AGAIN);
            tokio::select! {
                biased;
                () = self.drain.wait_started() => return,
                snapshot = following.next() => self.follow(&snapshot).await,
                Some(done) = work.join_next(), if !work.is_empty() => {
                    if let Err(error) = done {
                        tracing::error!(%error, "opening a shard was broken off");
                    }
                }
                () = sleep_until(due) => self.retire(),
            }
        }
    }

    /// Beside running queries: one.
    fn at_once(&self) -> usize {
        if self.shards.directory.snapshot().all().next().is_some() {
            1
        } else {
            self.config.opening_threads()
        }
    }

    async fn follow(&self, snapshot: &RoutingSnapshot) {
        if !snapshot.known() {
            return;
        }
        let wanted = wanted(snapshot, &self.shards.node);
        self.shards.board.follow(&wanted, Instant::now(), self.config.retain.0);
        let releases: BTreeSet<_> =
            wanted.iter().map(|place| (place.corpus.clone(), place.version)).collect();
        self.releases.lock().await.retain(|release, _| releases.contains(release));
    }

    /// Lets go of what was kept long enough.
    fn retire(&self) {
        for (place, line) in self.shards.board.retired(Instant::now()) {
            let snapshot = self.shards.directory.snapshot();
            let version = line.version.or(place.version);
            let held = version.and_then(|version| snapshot.version(&place.corpus, version));
            if let Some(serving) = held.and_then(|shards| shards.get(&place.shard.to_string())) {
                tracing::info!(corpus = &*place.corpus, shard = %place.shard, version = %serving.view.version, "shard retired");
                self.shards.retire(serving);
            }
            self.forget(&place);
        }
    }

    /// Deletes what was fetched for a shard that is not held any more.
    fn forget(&self, place: &Place) {
        if self.store.local().is_none()
            && let Some(version) = place.version
        {
            let gone = stage::forget(&self.config.cache_dir, &place.corpus, version, &place.shard);
            if let Err(error) = gone {
                tracing::warn!(corpus = &*place.corpus, shard = %place.shard, %version, %error, "fetched files could not be deleted");
            }
        }
    }

    /// The version of a line, read once.
    async fn release(&self, place: &Place) -> Result<Arc<Release>> {
        let mut releases = self.releases.lock().await;
        let key = (place.corpus.clone(), place.version);
        if let Some(release) = releases.get(&key) {
            return Ok(release.clone());
        }
        let corpus = &*place.corpus;
        let Found { manifest, passed_over } = self.store.to_serve(corpus, place.version).await?;
        for PassedOver { version: newer, reason } in &passed_over {
            tracing::error!(corpus, version = %manifest.version, %newer, reason, "the newer version can't be served");
        }
        self.shards.board.pass_over(corpus, passed_over);
        let schema = IndexSchema::new(&manifest.schema)?;
        let release = Arc::new(Release { manifest, schema });
        releases.insert(key, release.clone());
        Ok(release)
    }

    /// Brings one shard to an end, good or bad.
    async fn bring(&self, place: &Place) -> End {
        let release = match self.release(place).await {
            Ok(release) => release,
            Err(error) => return End::Later(error),
        };
        let manifest = &release.manifest;
        let Some(entry) = manifest.shard(&place.shard).cloned() else {
            let held: Vec<_> = manifest.layouts.iter().map(|l| format!("{} {}", l.shards, l.group)).collect();
            let (version, shard) = (manifest.version, &place.shard);
            let reason = format!("{version} has no shard {shard}; its shards are: {}", held.join(", "));
            return End::Never(Error::invalid("placements", reason));
        };
        let board = &self.shards.board;
        if let Err(error) = room::check(board.resident(), &entry, self.config.memory.0) {
            return End::Later(error);
        }
        board.update(place, |line| {
            line.version = Some(manifest.version);
            line.documents = entry.documents;
            line.bytes = entry.bytes;
            line.resident = entry.resident_bytes;
        });
        let stage = stage::Stage {
            store: &self.store,
            cache_dir: &self.config.cache_dir,
            rate: self.config.fetch_rate.0,
            went: &|bytes| {
                board.update(place, |line| line.fetched += bytes);
                board.wanted(place) && !self.drain.started()
            },
        };
        let version_dir = match stage.fetch(manifest, &entry).await {
            Ok(Some(version_dir)) => version_dir,
            Ok(None) => return End::GivenUp,
            Err(error) => return End::Later(error),
        };
        let before = self.before(place);
        let job = Job {
            place: place.clone(),
            release: release.clone(),
            entry,
            version_dir,
            pace: before.as_ref().map_or(Pace::FULL, |_| Pace::percent(self.config.warm_percent)),
            warm: self.config.warm_limit.0,
            sample: self.recent.sample(&place.corpus),
            before,
            drain: self.drain.clone(),
        };
        let shards = self.shards.clone();
        match tokio::task::spawn_blocking(move || job.run(&shards)).await {
            Ok(Opened::Ready(serving)) => End::Ready(serving),
            Ok(Opened::GivenUp) => End::GivenUp,
            Ok(Opened::Damaged(error)) => End::Damaged(error),
            Err(error) => {
                End::Later(Error::Io { path: "opening".to_owned(), source: std::io::Error::other(error) })
            }
        }
    }

    /// What the leaf serves of the same shard.
    fn before(&self, place: &Place) -> Option<Arc<Serving>> {
        let snapshot = self.shards.directory.snapshot();
        let same =
            |serving: &&Arc<Serving>| *serving.corpus == *place.corpus && serving.view.shard == place.shard;
        snapshot.all().filter(same).max_by_key(|serving| serving.view.version).cloned()
    }

    fn settle(&self, place: Place, end: End) {
        let (corpus, shard) = (&*place.corpus, &place.shard);
        if self.shards.board.give_up(&place) {
            tracing::info!(corpus, %shard, version = ?place.version, "superseded before it served");
            self.forget(&place);
            return;
        }
        let fail = |state, error: &Error, due: Option<Instant>| {
            self.shards.board.update(&place, |line| {
                let for_now = due.is_some() && !error.needs_somebody();
                line.given_up = (!for_now).then(|| error.everywhere());
                line.state = state;
                line.resident = 0;
                line.last_error = error.to_string();
                line.due = due;
            });
        };
        let again = Some(Instant::now() + AGAIN);
        match end {
            End::Ready(serving) => {
                tracing::info!(corpus, %shard, version = %serving.view.version, "shard serves");
                self.shards.publish_at(&place, *serving, self.config.retain.0);
            }
            // Wanted again since, or the leaf leaves.
            End::GivenUp => self.shards.board.update(&place, |line| line.state = State::Wanted),
            End::Later(error) => {
                tracing::error!(corpus, %shard, %error, "shard can't be opened; trying again");
                fail(State::Failed, &error, again);
            }
            End::Never(error) => {
                tracing::error!(corpus, %shard, %error, "shard can't be opened");
                fail(State::Failed, &error, None);
            }
            End::Damaged(error) if self.store.local().is_none() => {
                tracing::error!(corpus, %shard, %error, "shard damaged; fetching it again");
                self.forget(&place);
                fail(State::Failed, &error, again);
            }
            End::Damaged(error) => {
                tracing::error!(corpus, %shard, %error, "shard quarantined");
                fail(State::Quarantined, &error, None);
            }
        }
    }
}

fn wanted(snapshot: &RoutingSnapshot, node: &NodeId) -> BTreeSet<Place> {
    let mut names: BTreeMap<&str, Arc<str>> = BTreeMap::new();
    let mut places = BTreeSet::new();
    for (corpus, version, shard) in snapshot.wanted(node) {
        let corpus = names.entry(corpus).or_insert_with(|| corpus.into()).clone();
        places.insert(Place { corpus, shard: shard.clone(), version });
    }
    places
}

#[cfg(test)]
mod tests;
