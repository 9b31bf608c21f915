//! What the writer and the readers of an embedded log share. Readers hold the lock only to look up places; they read the
//! files without it, and a file that is replaced or removed meanwhile stays readable for them.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::RwLock;
use serde_json::{Value as Json, json};
use tokio::sync::watch;

use super::{
    Config,
    disk::{Disk, DiskFile},
    index::Partition,
};

/// A place that is not what was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Its file.
    pub file: String,
    /// The segment's number.
    pub segment: u64,
    /// First wrong byte.
    pub byte: u64,
    /// What is wrong.
    pub reason: String,
}

/// A file of the log.
pub struct Segment {
    /// The open file.
    pub file: Arc<dyn DiskFile>,
    /// Bytes of it that count.
    pub bytes: u64,
    /// Next offsets when it was made.
    pub first: Vec<u64>,
}

/// What is where.
#[derive(Default)]
pub struct State {
    /// By number.
    pub partitions: Vec<Partition>,
    /// By number; the last one is written to.
    pub segments: BTreeMap<u64, Segment>,
    /// Found when the log was opened, and not trimmed since.
    pub damage: Vec<Damage>,
}

impl State {
    /// Next offsets.
    pub fn ends(&self) -> Vec<u64> {
        self.partitions.iter().map(|partition| partition.end).collect()
    }

    /// Bytes of all segments.
    pub fn bytes(&self) -> u64 {
        self.segments.values().map(|segment| segment.bytes).sum()
    }
}

/// Shared by the handle, its readers and the writer.
pub struct Core {
    /// Settings.
    pub config: Config,
    /// The file system.
    pub disk: Arc<dyn Disk>,
    /// Of the log.
    pub epoch: String,
    /// What is where.
    pub state: RwLock<State>,
    /// Ends of the partitions, for those who wait.
    pub ends: Vec<watch::Sender<u64>>,
    /// Appends that were refused for want of room.
    pub refused: AtomicU64,
    /// Batches made durable.
    pub commits: AtomicU64,
    /// The last failure of the file system.
    pub trouble: RwLock<Option<String>>,
}

impl Core {
    /// Path of a segment.
    pub fn path(&self, segment: u64) -> PathBuf {
        self.config.dir.join(super::open::name(segment))
    }

    /// For an operator.
    pub fn status(&self) -> Json {
        let state = self.state.read();
        let partitions: Vec<Json> = state
            .partitions
            .iter()
            .map(|partition| json!({"first": partition.first, "end": partition.end, "holes": partition.holes.len()}))
            .collect();
        let damage: Vec<Json> = state
            .damage
            .iter()
            .map(|damage| json!({"file": damage.file, "byte": damage.byte, "reason": damage.reason}))
            .collect();
        json!({
            "engine": "embedded",
            "epoch": self.epoch,
            "dir": self.config.dir.display().to_string(),
            "segments": state.segments.len(),
            "bytes": state.bytes(),
            "max_bytes": self.config.max_bytes,
            "reserve_bytes": self.config.reserve_bytes,
            "disk_free_bytes": self.disk.free(&self.config.dir).ok(),
            "partitions": partitions,
            "damage": damage,
            "refused_for_room": self.refused.load(Ordering::Relaxed),
            "commits": self.commits.load(Ordering::Relaxed),
            "trouble": *self.trouble.read(),
        })
    }
}
