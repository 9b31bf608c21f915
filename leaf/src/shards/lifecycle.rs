//! Keeps what this leaf holds in step with the routing snapshot, one way for a start, a swap and a rollback: what should be
//! held is fetched, verified, opened, warmed and published; what should not be is kept for the retention time, then let go
//! of. Nothing here is on the path of a query.
//!
//! The failure this prevents: a swap request that is lost because another one is at work. The loop never works itself; it
//! compares the newest snapshot with the [board](super::Board), starts what can be started, and looks again whenever something
//! ended or came due. Rules: while the leaf answers, one shard is opened at a time and within the configured
//! share of a core; a version is looked for once and its manifest kept while it is wanted, so that all its shards
//! are of one version; what failed is tried again, also when it panicked.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use canopy_common::{
    drain::Drain,
    ids::{NodeId, Version},
};
use canopy_format::{
    manifest::{Manifest, ShardEntry},
    store::{Found, PassedOver, VersionStore},
};
use canopy_indexer::index_schema::IndexSchema;
use canopy_topology::routing::{Routing, RoutingSnapshot};
use parking_lot::Mutex;
use tokio::{
    sync::OnceCell,
    task::{Id, JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use super::{
    Place, Serving, Shards, State,
    background::{self, Priority},
    open::{Job, Opened, Release},
    pace::Pace,
    room::Amounts,
    stage,
};
use crate::{
    config::LeafConfig,
    error::{Error, Result},
    overlay::Follower,
    recent::Recent,
};

mod keep;
mod replay;

use keep::Going;
pub use replay::Feed;

/// Pause before what failed is tried again.
pub(super) const AGAIN: Duration = Duration::from_secs(5);
/// Pause before room that comes by itself is asked for again.
const SOON: Duration = Duration::from_secs(1);

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
    releases: Mutex<BTreeMap<Wanted, Arc<OnceCell<Arc<Release>>>>>,
    going: Mutex<Going>,
    /// Corpora that a topology service places.
    placed: Mutex<BTreeSet<Arc<str>>>,
    /// The log; `None`: nothing is followed.
    feed: Option<Feed>,
    /// Of each shard that is served.
    followers: Mutex<BTreeMap<Place, Follower>>,
}

/// A version of a corpus as it is wanted.
type Wanted = (Arc<str>, Option<Version>);

/// What working on one shard ended with.
enum End {
    Ready(Box<Serving>, Option<Follower>),
    GivenUp,
    /// Not now: tried again.
    Later(Error),
    /// Not before something else has gone, which it does by itself.
    Wait(Error),
    /// Not ever, as things are.
    Never(Error),
    /// The version has no such shard, and need not.
    Void(String),
    Damaged(Error),
}

impl Lifecycle {
    /// For the shards of one leaf. Files that are fetched lie in a directory of its own, since several leaves of one machine may
    /// be told the same one and each removes what it does not hold.
    pub fn new(
        store: VersionStore,
        shards: Arc<Shards>,
        config: LeafConfig,
        recent: Arc<Recent>,
        drain: Drain,
    ) -> Self {
        let copied = config.cache_local && store.local().is_some();
        let store = if copied { store.at_a_distance() } else { store };
        let cache_dir = Path::new(&config.cache_dir).join(&*shards.node.0).to_string_lossy().into_owned();
        let store = store.cached_in(&cache_dir);
        let config = LeafConfig { cache_dir, ..config };
        let going = Mutex::new(Going::new(config.retain.0));
        Self {
            store,
            shards,
            config,
            recent,
            drain,
            releases: Mutex::default(),
            going,
            placed: Mutex::default(),
            feed: None,
            followers: Mutex::default(),
        }
    }

    /// The same, with what was written since the versions were cut.
    pub fn following(self, feed: Feed) -> Self {
        Self { feed: Some(feed), ..self }
    }

    /// Follows the routing snapshot until draining begins.
    pub async fn run(self: Arc<Self>, routing: Routing) {
        let mut following = routing.follow();
        let mut work = JoinSet::new();
        let mut begun: Vec<(Id, Place)> = Vec::new();
        loop {
            while work.len() < self.at_once()
                && let Some((place, was)) = self.shards.board.start(Instant::now())
            {
                let (this, of) = (self.clone(), place.clone());
                let task = work.spawn(async move {
                    if was == State::Quarantined {
                        this.forget(&place).await;
                    }
                    let end = this.bring(&place).await;
                    this.settle(place, end).await;
                });
                begun.push((task.id(), of));
            }
            let due = self.due(work.len() < self.at_once());
            tokio::select! {
                biased;
                () = self.drain.wait_started() => return,
                snapshot = following.next() => self.follow(&snapshot),
                Some(done) = work.join_next_with_id(), if !work.is_empty() => {
                    let id = done.as_ref().map_or_else(JoinError::id, |(id, ())| *id);
                    let at = begun.iter().position(|(of, _)| *of == id);
                    let place = at.map(|at| begun.swap_remove(at).1);
                    if let (Err(error), Some(place)) = (done, place) {
                        self.broken_off(&place, &error);
                    }
                }
                () = sleep_until(due) => self.retire().await,
            }
        }
    }

    /// When to look again: what a query found damaged, and what its last query let go of, is nobody's event.
    fn due(&self, idle: bool) -> Instant {
        let now = Instant::now();
        let at_the_latest = now + if self.going.lock().is_empty() { AGAIN } else { SOON };
        self.shards.board.due(idle).map_or(at_the_latest, |due| due.min(at_the_latest))
    }

    /// Beside running queries: one.
    fn at_once(&self) -> usize {
        if self.shards.directory.snapshot().all().next().is_some() {
            1
        } else {
            self.config.opening_threads()
        }
    }

    fn follow(&self, snapshot: &RoutingSnapshot) {
        if !snapshot.known() {
            return;
        }
        let wanted = wanted(snapshot, &self.shards.node);
        let placed = snapshot.corpora.iter().filter(|(_, corpus)| corpus.placed_shards > 0);
        *self.placed.lock() = placed.map(|(name, _)| name.as_str().into()).collect();
        let gone = self.shards.board.follow(&wanted, Instant::now(), self.config.retain.0);
        let releases: BTreeSet<_> =
            wanted.iter().map(|place| (place.corpus.clone(), place.version)).collect();
        self.releases.lock().retain(|release, _| releases.contains(release));
        self.going.lock().known(gone, Instant::now());
    }

    /// The version of a line, read once, by whoever is the first to need it. The others of that version wait for him, and
    /// nobody else does.
    async fn release(&self, place: &Place) -> Result<Arc<Release>> {
        let once = self.releases.lock().entry((place.corpus.clone(), place.version)).or_default().clone();
        once.get_or_try_init(|| self.read_release(place)).await.cloned()
    }

    async fn read_release(&self, place: &Place) -> Result<Arc<Release>> {
        let corpus = &*place.corpus;
        // Read again, the newest is the one that it was: the other shards are of that.
        let version = place.version.or_else(|| self.shards.board.version(place));
        let Found { manifest, passed_over } = self.store.to_serve(corpus, version).await?;
        for PassedOver { version: newer, reason } in &passed_over {
            tracing::error!(corpus, version = %manifest.version, %newer, reason, "the newer version can't be served");
        }
        if version == place.version {
            self.shards.board.pass_over(corpus, passed_over);
        }
        let schema = IndexSchema::of(&manifest.schema, manifest.whole)?;
        Ok(Arc::new(Release { manifest, schema }))
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
            // The service places the shards of all versions; a file that names one too many is wrong.
            if self.placed.lock().contains(&place.corpus) {
                return End::Void(reason);
            }
            return End::Never(Error::invalid("placements", reason));
        };
        let limits = Amounts::limits(self.config.memory.0);
        if let Err(error) = self.shards.board.reserve(place, manifest.version, &entry, &limits) {
            return self.no_room(error);
        }
        self.followers.lock().remove(place);
        let before = self.before(place);
        let version_dir = match self.fetch(place, manifest, &entry, before.is_some()).await {
            Ok(Some(version_dir)) => version_dir,
            Ok(None) => return End::GivenUp,
            Err(error) if error.lacks_room() => return self.no_room(error),
            Err(error) => return End::Later(error),
        };
        self.open(place, &release, entry, version_dir, before).await
    }

    /// Brings its files, where they do not lie already; `exchange`: another version is served meanwhile.
    async fn fetch(
        &self,
        place: &Place,
        manifest: &Manifest,
        entry: &ShardEntry,
        exchange: bool,
    ) -> Result<Option<PathBuf>> {
        let board = &self.shards.board;
        let point = |name| {
            if exchange {
                self.config.fault.point(name);
            }
        };
        let stage = stage::Stage {
            store: &self.store,
            cache_dir: &self.config.cache_dir,
            rate: self.config.fetch_rate.0,
            went: &|bytes| {
                point("fetch.begun");
                let mut half = false;
                board.update(place, |line| {
                    line.fetched += bytes;
                    half = line.fetched >= entry.bytes / 2;
                });
                if half {
                    point("fetch.half");
                }
                board.wanted(place) && !self.drain.started()
            },
        };
        let version_dir = stage.fetch(manifest, entry).await?;
        point("fetch.whole");
        Ok(version_dir)
    }

    async fn open(
        &self,
        place: &Place,
        release: &Arc<Release>,
        entry: ShardEntry,
        version_dir: PathBuf,
        before: Option<Arc<Serving>>,
    ) -> End {
        let priority = if before.is_some() { Priority::Low } else { Priority::Equal };
        let job = Arc::new(Job {
            place: place.clone(),
            release: release.clone(),
            entry,
            version_dir,
            pace: before.as_ref().map_or(Pace::FULL, |_| Pace::percent(self.config.warm_percent)),
            warm: self.config.warm_limit.0,
            sample: self.recent.sample(&place.corpus),
            before,
            fault: self.config.fault.clone(),
            drain: self.drain.clone(),
        });
        let (shards, opening) = (self.shards.clone(), job.clone());
        let mut open = match ended(background::run("open", priority, move || opening.open(&shards)).await) {
            Ok(open) => open,
            Err(end) => return end,
        };
        let follower = match self.replay(&job, &open.view, priority).await {
            Ok(follower) => follower,
            Err(end) => return end,
        };
        if let Some(follower) = &follower {
            open.view = follower.view();
        }
        let shards = self.shards.clone();
        match ended(background::run("warm", priority, move || job.warm(*open, &shards)).await) {
            Ok(serving) => End::Ready(serving, follower),
            Err(end) => end,
        }
    }

    /// What the leaf serves of the same shard.
    fn before(&self, place: &Place) -> Option<Arc<Serving>> {
        let snapshot = self.shards.directory.snapshot();
        let same = |serving: &&Arc<Serving>| *serving.corpus == *place.corpus && serving.shard == place.shard;
        snapshot.all().filter(same).max_by_key(|serving| serving.version).cloned()
    }

    fn serve(&self, place: &Place, serving: Serving, follower: Option<Follower>) {
        let exchange = self.before(place).is_some();
        let point = |name| {
            if exchange {
                self.config.fault.point(name);
            }
        };
        point("swap.before");
        tracing::info!(corpus = &*place.corpus, shard = %place.shard, version = %serving.version, "shard serves");
        let serving = self.shards.publish_at(place, serving, self.config.retain.0);
        if let Some(follower) = follower {
            follower.attach(&serving);
            self.followers.lock().insert(place.clone(), follower);
        }
        point("swap.after");
    }

    /// `given_up`: nobody but an operator can help; the topology service is told so.
    fn fail(&self, place: &Place, state: State, error: &Error, due: Option<Instant>, given_up: bool) {
        self.shards.board.update(place, |line| {
            line.given_up = given_up.then(|| error.everywhere());
            line.state = state;
            line.takes = Amounts::default();
            line.last_error = error.to_string();
            line.due = due;
        });
    }

    /// The work on it ended without an end: it panicked. It would else be worked on by nobody for ever, and keep its room.
    fn broken_off(&self, place: &Place, error: &JoinError) {
        let (corpus, shard) = (&*place.corpus, &place.shard);
        tracing::error!(corpus, %shard, %error, "the work on a shard was broken off; trying again");
        if self.shards.board.give_up(place) {
            self.going.lock().known(vec![place.clone()], Instant::now());
            return;
        }
        if self.shards.board.worked_on(place) {
            let error = Error::Io {
                path: "bringing it".to_owned(),
                source: std::io::Error::other(error.to_string()),
            };
            self.fail(place, State::Failed, &error, Some(Instant::now() + AGAIN), false);
        }
    }

    async fn settle(&self, place: Place, mut end: End) {
        let (corpus, shard) = (&*place.corpus, &place.shard);
        if !self.shards.board.wanted(&place) {
            drop(end);
            self.forget(&place).await;
            if self.shards.board.give_up(&place) {
                tracing::info!(corpus, %shard, version = ?place.version, "superseded before it served");
                return;
            }
            // Wanted again meanwhile.
            end = End::GivenUp;
        }
        let fail = |state, error: &Error, due: Option<Instant>| {
            self.fail(&place, state, error, due, due.is_none() || error.needs_somebody());
        };
        let again = Some(Instant::now() + AGAIN);
        match end {
            End::Ready(serving, follower) => self.serve(&place, *serving, follower),
            // Wanted again since, or the leaf leaves.
            End::GivenUp => self.shards.board.begin_anew(&place),
            End::Later(error) => {
                tracing::error!(corpus, %shard, %error, "shard can't be opened; trying again");
                fail(State::Failed, &error, again);
            }
            End::Wait(error) => {
                tracing::warn!(corpus, %shard, %error, "waiting until what is wanted no more has gone");
                self.fail(&place, State::Failed, &error, Some(Instant::now() + SOON), false);
            }
            End::Never(error) => {
                tracing::error!(corpus, %shard, %error, "shard can't be opened");
                fail(State::Failed, &error, None);
            }
            End::Void(reason) => {
                tracing::info!(corpus, %shard, reason, "nothing is to be held");
                self.shards.board.update(&place, |line| {
                    (line.state, line.due) = (State::Void, None);
                    line.last_error.clear();
                });
            }
            End::Damaged(error) if self.store.local().is_none() => {
                let due = self.came_damaged(&place).await;
                tracing::error!(corpus, %shard, %error, again = due.is_some(), "shard came damaged");
                fail(State::Failed, &error, due);
            }
            End::Damaged(error) => {
                tracing::error!(corpus, %shard, %error, "shard quarantined");
                fail(State::Quarantined, &error, Some(Instant::now() + super::quarantine::LOOK_AGAIN));
            }
        }
    }
}

/// What a step on a thread of its own came to.
fn ended<T>(step: std::io::Result<Opened<T>>) -> std::result::Result<Box<T>, End> {
    match step {
        Ok(Opened::Ready(done)) => Ok(done),
        Ok(Opened::GivenUp) => Err(End::GivenUp),
        Ok(Opened::Damaged(error)) => Err(End::Damaged(error)),
        Err(source) => Err(End::Later(Error::Io { path: "opening".to_owned(), source })),
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
