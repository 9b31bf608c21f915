//! The way out: what is wanted no more is kept for its time, then served no more, and its files are deleted when the last query
//! that reads them has ended. What earlier processes left in the cache goes too, once it is known what is wanted.
//!
//! The failure this prevents: files removed under a running query, and a disk that fills with halves of versions nobody
//! asks for. Rules: what has a line on the board is never deleted; files go after the last use of their view; what makes
//! room early is asked by nobody.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Weak},
    time::Duration,
};

use canopy_common::ids::Version;
use canopy_format::{manifest::Manifest, store::VersionStore};
use tokio::time::Instant;

use super::{End, Lifecycle, replay};
use crate::{
    error::Error,
    overlay::checkpoint,
    shards::{
        Line, Place, Serving,
        background::{self, Priority},
        stage,
    },
};

/// What is served no more and has files.
pub(super) struct Going {
    views: Vec<(Place, Weak<Serving>)>,
    /// Of what an earlier process left, nothing is deleted before the topology had this long to say what is wanted.
    patience: Duration,
    leftovers: Option<Instant>,
    looked: bool,
}

impl Going {
    pub(super) fn new(patience: Duration) -> Self {
        Self { views: Vec::new(), patience, leftovers: None, looked: false }
    }

    /// Whether nothing waits for its last query.
    pub(super) fn is_empty(&self) -> bool {
        self.views.is_empty()
    }

    /// It is known what is wanted; these are not, and nothing reads them.
    pub(super) fn known(&mut self, gone: Vec<Place>, now: Instant) {
        self.views.extend(gone.into_iter().map(|place| (place, Weak::new())));
        if !self.looked {
            self.leftovers.get_or_insert(now + self.patience);
        }
    }

    /// Whether what earlier processes left is to be looked for now.
    fn look(&mut self, now: Instant) -> bool {
        let due = self.leftovers.is_some_and(|due| due <= now);
        if due {
            (self.leftovers, self.looked) = (None, true);
        }
        due
    }
}

impl Lifecycle {
    /// Lets go of what was kept long enough, and deletes what nobody reads any more.
    pub(super) async fn retire(&self) {
        for (place, line) in self.shards.board.retired(Instant::now()) {
            self.let_go(place, &line);
        }
        self.shards.leases.sweep();
        let (gone, stay) = std::mem::take(&mut self.going.lock().views)
            .into_iter()
            .partition::<Vec<_>, _>(|(_, view)| view.strong_count() == 0);
        self.going.lock().views.extend(stay);
        for (place, _) in gone {
            // Wanted again since: its files are in use, or will be.
            if !self.shards.board.has(&place) {
                self.forget(&place).await;
                self.config.fault.point("retire.after");
            }
        }
        let known = self.shards.board.versions_known();
        let look = known && self.going.lock().look(Instant::now());
        if look {
            self.sweep().await;
        }
    }

    /// Serves it no more.
    fn let_go(&self, place: Place, line: &Line) {
        self.config.fault.point("retire.before");
        drop(self.followers.lock().remove(&place));
        let snapshot = self.shards.directory.snapshot();
        let version = line.version.or(place.version);
        let held = version.and_then(|version| snapshot.version(&place.corpus, version));
        let mut view = Weak::new();
        if let Some(serving) = held.and_then(|shards| shards.get(&place.shard.to_string())) {
            tracing::info!(corpus = &*place.corpus, shard = %place.shard, version = %serving.version, "shard retired");
            view = Arc::downgrade(serving);
            self.shards.retire(serving);
        }
        self.going.lock().views.push((place, view));
    }

    /// There is no room. What is wanted no more makes some, at once when nobody asks of it, else when its time has come.
    pub(super) fn no_room(&self, error: Error) -> End {
        let (memory, bytes) = self.shards.board.going();
        let comes = match &error {
            Error::NoRoom { what: "memory", need, free, .. } => *need <= free.saturating_add(memory),
            Error::NoRoom { what: "disk", need, free, .. } => *need <= free.saturating_add(bytes),
            _ => bytes > 0,
        };
        if !comes {
            return End::Later(error);
        }
        let snapshot = self.shards.directory.snapshot();
        let idle = |place: &Place, line: &Line| {
            let held = line.version.and_then(|version| snapshot.version(&place.corpus, version));
            held.and_then(|shards| shards.get(&place.shard.to_string()))
                .is_none_or(|serving| !self.shards.leases.held(serving))
        };
        let gone = self.shards.board.retired_if(idle);
        drop(snapshot);
        for (place, line) in gone {
            self.let_go(place, &line);
        }
        End::Wait(error)
    }

    /// Deletes what was fetched for a shard that is not held any more.
    pub(super) async fn forget(&self, place: &Place) {
        // Of the newest, only the line says which that was.
        let version = place.version.or_else(|| self.shards.board.version(place));
        let Some(version) = version else { return };
        let fetched = self.store.local().is_none();
        let (cache_dir, of) = (self.config.cache_dir.clone(), place.clone());
        let work = move || {
            checkpoint::remove(&replay::saved_at(&cache_dir, &of.corpus, version, &of.shard))?;
            if fetched { stage::forget(&cache_dir, &of.corpus, version, &of.shard) } else { Ok(()) }
        };
        let gone = background::run("forget", Priority::Low, work).await;
        if let Err(error) = gone.flatten() {
            tracing::warn!(corpus = &*place.corpus, shard = %place.shard, %version, %error, "fetched files could not be deleted");
        }
    }

    /// What was fetched for a shard is damaged: it is deleted, and its manifest read again. When it is fetched again, if ever.
    pub(super) async fn came_damaged(&self, place: &Place) -> Option<Instant> {
        self.forget(place).await;
        self.releases.lock().remove(&(place.corpus.clone(), place.version));
        self.shards.board.came_damaged(place).map(|pause| Instant::now() + pause)
    }

    /// Deletes what lies in the cache and has no line.
    async fn sweep(&self) {
        let lines = self
            .shards
            .board
            .all()
            .into_iter()
            .map(|(place, line)| (place.clone(), line.version.or(place.version)));
        let going = self
            .going
            .lock()
            .views
            .iter()
            .map(|(place, _)| (place.clone(), place.version))
            .collect::<Vec<_>>();
        let cache_dir = PathBuf::from(&self.config.cache_dir);
        // Of a local store, only checkpoints lie in the cache.
        let root =
            if self.store.local().is_none() { cache_dir.clone() } else { checkpoint::root(&cache_dir) };
        let paths = |(place, version): (Place, Option<Version>)| {
            let fetched = VersionStore::version_path(&place.corpus, version?);
            let fetched = cache_dir.join(fetched).join(Manifest::shard_dir(&place.shard));
            let saved = replay::saved_at(&self.config.cache_dir, &place.corpus, version?, &place.shard);
            Some([fetched, saved])
        };
        let kept: BTreeSet<PathBuf> = lines.chain(going).filter_map(paths).flatten().collect();
        let work = move || {
            let mut removed = 0;
            remove_others(&root, &kept, &mut removed).map(|()| removed)
        };
        match background::run("sweep", Priority::Low, work).await.flatten() {
            Ok(0) => {}
            Ok(removed) => tracing::info!(removed, "directories that an earlier process left were deleted"),
            Err(error) => {
                tracing::warn!(%error, "what an earlier process left in the cache could not be deleted");
            }
        }
    }
}

/// Deletes every directory below `at` that neither is one of `kept` nor holds one.
fn remove_others(at: &Path, kept: &BTreeSet<PathBuf>, removed: &mut u64) -> io::Result<()> {
    let entries = match std::fs::read_dir(at) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let path = entry?.path();
        if kept.contains(&path) || !path.is_dir() {
            continue;
        }
        if kept.iter().any(|kept| kept.starts_with(&path)) {
            remove_others(&path, kept, removed)?;
        } else {
            std::fs::remove_dir_all(&path)?;
            *removed += 1;
        }
    }
    Ok(())
}
