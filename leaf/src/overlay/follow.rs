//! Follows the log for one resident shard of a version, from its cut or checkpoint on, until it is let go of.
//!
//! Rules. A new version's overlay is replayed while the old version serves; it answers when it holds what the log held
//! when it began (its goal, fixed then), so that it never shows less than what it takes the place of. A log that is away, or that
//! lost what is wanted, keeps nobody from answering: the shard serves what it has and says `stale`, a gap with one line in the log
//! until a newer version cures it. Views are published here and nowhere else.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, Weak},
    time::Duration,
};

use canopy_common::clock::WallClock;
use parking_lot::Mutex;
use tokio::{sync::watch, task::JoinHandle};

use super::{apply::Counts, checkpoint::Of, config::OverlayConfig, ground::Ground, source::Source};
use crate::{
    shards::{Serving, background::Priority},
    view::ShardView,
};

mod link;
mod pace;
mod replay;

pub use link::Wanted;

/// What to follow, and what for.
pub struct Following {
    /// What is asked of the log.
    pub wanted: Wanted,
    /// Offset of each followed partition that the version holds everything below.
    pub cut: BTreeMap<u32, u64>,
    /// The log.
    pub source: Arc<dyn Source>,
    /// What the overlay lies on.
    pub ground: Arc<Ground>,
    /// `[leaf.overlay]`.
    pub config: OverlayConfig,
    /// Where it is saved, and as what.
    pub checkpoint: (PathBuf, Of),
    /// Wall time.
    pub clock: Arc<dyn WallClock>,
    /// Whether its threads give way.
    pub priority: Priority,
    /// Is told how it goes, about once a second and whenever something is shown.
    pub tell: Box<dyn Fn(&Report) + Send + Sync>,
}

/// How far a follower is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Stage {
    /// It has not shown yet what the log held when it began.
    #[default]
    Replaying,
    /// It has.
    CaughtUp,
    /// The log does not have what is wanted.
    Lost,
}

/// How it goes, for the status page and metrics.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// How far.
    pub stage: Stage,
    /// Which log; empty: not known yet.
    pub epoch: String,
    /// Next offset of each partition that is shown.
    pub offsets: BTreeMap<u32, u64>,
    /// Records between that and the end, of all slots.
    pub behind: u64,
    /// Offsets to replay when it began, and how many of them are left.
    pub replay: (u64, u64),
    /// Records applied a second while it replays or is far behind; the last such time.
    pub rate: u64,
    /// Live documents, and those kept in the log only.
    pub documents: u64,
    /// See there.
    pub deferred: u64,
    /// Base documents that are hidden.
    pub tombstones: u64,
    /// Parts.
    pub parts: u64,
    /// Memory.
    pub bytes: u64,
    /// What became of records since it began.
    pub counts: Counts,
    /// Dead letters that could not be handed over.
    pub letters_lost: u64,
    /// From a record's acceptance to its arrival here, of the newest, ms.
    pub log_ms: u64,
    /// How long the oldest of the last batch waited to be applied, ms.
    pub refresh_ms: u64,
    /// How long the last batch took to be applied, ms.
    pub apply_ms: u64,
    /// Event time of the oldest record that is not shown, microseconds since 1970; 0: none.
    pub oldest_us: i64,
    /// Why it is stale; empty: it is not.
    pub stale: String,
}

impl Report {
    /// For the status page; `now_us`: wall time.
    pub fn to_json(&self, now_us: i64) -> serde_json::Value {
        let lag_ms = if self.oldest_us == 0 { 0 } else { (now_us - self.oldest_us).max(0) / 1000 };
        let offsets: BTreeMap<String, u64> =
            self.offsets.iter().map(|(partition, next)| (partition.to_string(), *next)).collect();
        let stage = match self.stage {
            Stage::Replaying => "replaying",
            Stage::CaughtUp => "following",
            Stage::Lost => "lost",
        };
        serde_json::json!({
            "stage": stage,
            "epoch": self.epoch,
            "offsets": offsets,
            "behind": self.behind,
            "replay": { "records": self.replay.0, "left": self.replay.1, "per_second": self.rate },
            "documents": self.documents,
            "deferred": self.deferred,
            "tombstones": self.tombstones,
            "parts": self.parts,
            "bytes": self.bytes,
            "operations": {
                "applied": self.counts.applied,
                "stale": self.counts.stale,
                "refused": self.counts.refused,
                "deferred": self.counts.deferred,
                "letters_lost": self.letters_lost,
            },
            "lag_ms": lag_ms,
            "lag": { "log_ms": self.log_ms, "refresh_ms": self.refresh_ms, "apply_ms": self.apply_ms },
            "stale": self.stale,
        })
    }
}

/// What loop and handle share.
struct Shared {
    stage: watch::Sender<Stage>,
    shown: Mutex<Shown>,
}

struct Shown {
    view: ShardView,
    serving: Option<Weak<Serving>>,
}

impl Shared {
    /// Shows a view; whether anybody could still see it.
    fn show(&self, view: ShardView) -> bool {
        let mut shown = self.shown.lock();
        shown.view = view.clone();
        let Some(serving) = &shown.serving else { return true };
        match serving.upgrade().filter(|serving| !serving.retired()) {
            Some(serving) => {
                serving.publish_view(view);
                true
            }
            None => false,
        }
    }
}

/// A shard that follows the log. Dropped, it stops as it is.
pub struct Follower {
    shared: Arc<Shared>,
    stop: tokio_util::sync::CancellationToken,
    task: Mutex<Option<JoinHandle<()>>>,
}

impl Follower {
    /// Begins.
    pub fn start(following: Following) -> Self {
        let shown = Shown { view: following.ground.view.clone(), serving: None };
        let shared =
            Arc::new(Shared { stage: watch::Sender::new(Stage::Replaying), shown: Mutex::new(shown) });
        let stop = tokio_util::sync::CancellationToken::new();
        let task = tokio::spawn(replay::run(following, shared.clone(), stop.clone()));
        Self { shared, stop, task: Mutex::new(Some(task)) }
    }

    /// Waits until it has caught up or has lost its log, for `patience` at most; how far it is then.
    pub async fn caught_up(&self, patience: Option<Duration>) -> Stage {
        let mut stage = self.shared.stage.subscribe();
        let reached = stage.wait_for(|stage| *stage != Stage::Replaying);
        match patience {
            Some(patience) => drop(tokio::time::timeout(patience, reached).await),
            None => drop(reached.await),
        }
        self.stage()
    }

    /// How far it is.
    pub fn stage(&self) -> Stage {
        *self.shared.stage.borrow()
    }

    /// What it has shown last.
    pub fn view(&self) -> ShardView {
        self.shared.shown.lock().view.clone()
    }

    /// From now on it publishes there, at first what it has.
    pub fn attach(&self, serving: &Arc<Serving>) {
        let mut shown = self.shared.shown.lock();
        shown.serving = Some(Arc::downgrade(serving));
        serving.publish_view(shown.view.clone());
    }

    /// Waits until it has ended by itself.
    #[cfg(test)]
    pub(super) async fn ended(&self) {
        let task = self.task.lock().take();
        if let Some(task) = task {
            let _ended = task.await;
        }
    }

    /// Saves and ends; waits for that, for `patience` at most.
    pub async fn save(&self, patience: Duration) {
        self.stop.cancel();
        let task = self.task.lock().take();
        if let Some(task) = task {
            let abort = task.abort_handle();
            if tokio::time::timeout(patience, task).await.is_err() {
                tracing::warn!("an overlay could not be saved in time; more is replayed at the next start");
                abort.abort();
            }
        }
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        if let Some(task) = self.task.get_mut().take() {
            task.abort();
        }
    }
}
