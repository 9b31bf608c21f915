//! Between open and warm: what was written since the version was cut is replayed, while what is served goes on.
//!
//! Rules. A version that takes the place of another waits until it holds what the log held when it began, however long that takes,
//! since it would else show less than before. One that takes nobody's place waits so long as the log is heard: with a
//! log that is away it serves what it has, and says so. So does one whose log is lost; no wait helps there.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use canopy_common::{
    clock::WallClock,
    ids::{ShardId, Version},
};
use canopy_format::{
    graves::Graves,
    layout::SLOTS,
    manifest::{Manifest, ShardEntry},
    store::{Corpus, Ordering, VersionStore},
};
use canopy_log::Slots;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{End, Lifecycle};
use crate::{
    metrics::Metrics,
    overlay::{
        Follower, Following, Source,
        apply::Counts,
        checkpoint::{self, Of},
        follow::{Report, Stage, Wanted},
        ground::Ground,
    },
    shards::{Place, State, background::Priority, open::Job},
    view::ShardView,
};

/// How often is looked whether a replay is still wanted.
const LOOK: Duration = Duration::from_millis(100);
/// Longest wait for what the checkpoints of a leaf take at its end.
const SAVING: Duration = Duration::from_secs(10);

/// Where updates come from, and who is told.
#[derive(Clone)]
pub struct Feed {
    /// The log.
    pub source: Arc<dyn Source>,
    /// Wall time.
    pub clock: Arc<dyn WallClock>,
    /// Counts what became of operations.
    pub metrics: Metrics,
}

impl Lifecycle {
    /// Replays the log onto an open shard; `None`: nothing is to be followed.
    pub(super) async fn replay(
        &self,
        job: &Job,
        view: &ShardView,
        priority: Priority,
    ) -> Result<Option<Follower>, End> {
        let Some(feed) = &self.feed else { return Ok(None) };
        let place = &job.place;
        self.shards.board.update(place, |line| line.state = State::Replaying);
        let corpus = match self.store.corpus(&place.corpus).await {
            Ok(corpus) => corpus,
            Err(error) => return Err(End::Later(error.into())),
        };
        let following = self.what_to_follow(job, view, feed, &corpus, priority).map_err(End::Damaged)?;
        let follower = Follower::start(following);
        let begun = Instant::now();
        loop {
            let stage = follower.caught_up(Some(LOOK)).await;
            if !self.shards.board.wanted(place) || self.drain.started() {
                return Err(End::GivenUp);
            }
            let alone = job.before.is_none();
            if stage != Stage::Replaying || (alone && follower.view().lag.stale()) {
                let (shard, version, took) = (&place.shard, view.version, begun.elapsed());
                tracing::info!(corpus = &*place.corpus, %shard, %version, ?stage, ?took, "overlay replayed");
                return Ok(Some(follower));
            }
        }
    }

    fn what_to_follow(
        &self,
        job: &Job,
        view: &ShardView,
        feed: &Feed,
        corpus: &Corpus,
        priority: Priority,
    ) -> crate::error::Result<Following> {
        let (manifest, shard) = (&job.release.manifest, &job.place.shard);
        let slots = slots(manifest, shard);
        let mut cut = std::collections::BTreeMap::new();
        for slot in (0..SLOTS).filter(|slot| slots.contains(*slot)) {
            let partition = u32::from(slot) % corpus.partitions.max(1);
            cut.entry(partition).or_insert_with(|| manifest.cut.get(&partition).copied().unwrap_or(0));
        }
        let name = Of {
            corpus: job.place.corpus.to_string(),
            version: manifest.version.0,
            shard: shard.to_string(),
            base: base(&job.entry),
        };
        let wanted = Wanted {
            corpus: name.corpus.clone(),
            epoch: manifest.log.clone(),
            slots: slots.as_bytes().to_vec().into(),
            node: self.shards.node.to_string(),
        };
        let graves = match corpus.ordering {
            Ordering::Log => Graves::default(),
            Ordering::Producer => Graves::open(&job.version_dir.join(Manifest::shard_dir(shard)))?,
        };
        let saved = saved_at(&self.config.cache_dir, &name.corpus, manifest.version, shard);
        Ok(Following {
            wanted,
            cut,
            source: feed.source.clone(),
            ground: Arc::new(Ground::new(view.clone(), corpus.ordering, slots, graves)?),
            config: self.config.overlay.clone(),
            checkpoint: (saved, name),
            clock: feed.clock.clone(),
            priority,
            tell: self.told(&job.place, feed),
        })
    }

    /// Keeps the shard's line and the counters up to date.
    fn told(&self, place: &Place, feed: &Feed) -> Box<dyn Fn(&Report) + Send + Sync> {
        let (shards, place, metrics) = (self.shards.clone(), place.clone(), feed.metrics.clone());
        let last = Mutex::new(Counts::default());
        Box::new(move |report| {
            shards.board.update(&place, |line| line.overlay = Some(Box::new(report.clone())));
            let before = std::mem::replace(&mut *last.lock(), report.counts);
            for (result, now, then) in [
                ("applied", report.counts.applied, before.applied),
                ("stale", report.counts.stale, before.stale),
                ("refused", report.counts.refused, before.refused),
                ("deferred", report.counts.deferred, before.deferred),
            ] {
                metrics.operations.with_label_values(&[result]).inc_by(now.saturating_sub(then));
            }
        })
    }

    /// Saves every overlay, at the end of the leaf.
    pub async fn save(&self) {
        let followers = std::mem::take(&mut *self.followers.lock());
        let all = followers.values().map(|follower| follower.save(SAVING));
        futures::future::join_all(all).await;
    }
}

/// The slots of a shard.
fn slots(manifest: &Manifest, shard: &ShardId) -> Slots {
    let mut slots = Slots::none();
    let layout = manifest.layouts.iter().find(|layout| layout.group == *shard.group);
    for (slot, of) in layout.into_iter().flat_map(|layout| (0..SLOTS).zip(&layout.table)) {
        if u32::from(*of) == shard.number {
            slots.set(slot);
        }
    }
    slots
}

/// Names the files of a shard.
fn base(entry: &ShardEntry) -> String {
    let files = entry.files.iter().flat_map(|file| [file.path.as_str(), ":", file.blake3.as_str(), "\n"]);
    let files: String = files.collect();
    format!("{:032x}", xxhash_rust::xxh3::xxh3_128(files.as_bytes()))
}

/// Where the overlay of a shard of a version is saved.
pub(super) fn saved_at(cache_dir: &str, corpus: &str, version: Version, shard: &ShardId) -> PathBuf {
    let version = VersionStore::version_path(corpus, version);
    checkpoint::path(Path::new(cache_dir), &version, &Manifest::shard_dir(shard))
}
