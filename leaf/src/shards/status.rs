//! What became of every shard that this leaf should hold: one line each, always all of them, whether idle, opening or
//! broken. For the status page, for the reasons in refusals, and for readiness. Never on the query path of a shard
//! that is served.

use std::collections::BTreeMap;

use canopy_common::ids::{ShardId, Version};
use canopy_format::store::PassedOver;
use parking_lot::Mutex;

/// Where a shard is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Should be held; nothing was done yet, or its version is not known yet.
    Wanted,
    /// Files are compared with the manifest.
    Verifying,
    /// The engine opens it.
    Opening,
    /// Its first queries run.
    Warming,
    /// Answers.
    Serving,
    /// Damaged; not read any more.
    Quarantined,
    /// Can't be held: wrong format, not in the version, no room.
    Failed,
}

impl State {
    /// Every state.
    pub const ALL: [Self; 7] = [
        Self::Wanted,
        Self::Verifying,
        Self::Opening,
        Self::Warming,
        Self::Serving,
        Self::Quarantined,
        Self::Failed,
    ];

    /// The word in status and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Wanted => "wanted",
            Self::Verifying => "verifying",
            Self::Opening => "opening",
            Self::Warming => "warming",
            Self::Serving => "serving",
            Self::Quarantined => "quarantined",
            Self::Failed => "failed",
        }
    }

    /// Nothing will change by itself.
    pub fn settled(self) -> bool {
        matches!(self, Self::Serving | Self::Quarantined | Self::Failed)
    }
}

/// One shard's line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Where it is.
    pub state: State,
    /// The version it should have; `None`: not known yet.
    pub wanted: Option<Version>,
    /// The version it answers from.
    pub serving: Option<Version>,
    /// Documents, by the manifest.
    pub documents: u64,
    /// Bytes of its files.
    pub bytes: u64,
    /// Bytes verified so far.
    pub verified: u64,
    /// The last thing that went wrong; empty: nothing.
    pub last_error: String,
}

/// All lines, by corpus and shard, and the versions that no shard is opened from though they are the newest.
#[derive(Default)]
pub struct Board {
    lines: Mutex<BTreeMap<(String, ShardId), Line>>,
    passed_over: Mutex<BTreeMap<String, Vec<PassedOver>>>,
}

impl Board {
    /// Adds a shard that should be held.
    pub fn want(&self, corpus: &str, shard: &ShardId, wanted: Option<Version>) {
        let line = Line {
            state: State::Wanted,
            wanted,
            serving: None,
            documents: 0,
            bytes: 0,
            verified: 0,
            last_error: String::new(),
        };
        self.lines.lock().insert((corpus.to_owned(), shard.clone()), line);
    }

    /// Changes a shard's line.
    pub fn update(&self, corpus: &str, shard: &ShardId, change: impl FnOnce(&mut Line)) {
        if let Some(line) = self.lines.lock().get_mut(&(corpus.to_owned(), shard.clone())) {
            change(line);
        }
    }

    /// One shard's line.
    pub fn line(&self, corpus: &str, shard: &ShardId) -> Option<Line> {
        self.lines.lock().get(&(corpus.to_owned(), shard.clone())).cloned()
    }

    /// Shards in each state.
    pub fn counts(&self) -> BTreeMap<State, usize> {
        let mut counts = BTreeMap::new();
        for line in self.lines.lock().values() {
            *counts.entry(line.state).or_default() += 1;
        }
        counts
    }

    /// Whether every shard that should be held has come to an end, good or bad. False when there is none.
    pub fn settled(&self) -> bool {
        let lines = self.lines.lock();
        !lines.is_empty() && lines.values().all(|line| line.state.settled())
    }

    /// Newer versions of a corpus than the one that is opened, which can't be served.
    pub fn pass_over(&self, corpus: &str, versions: Vec<PassedOver>) {
        self.passed_over.lock().insert(corpus.to_owned(), versions);
    }

    /// All of them, for the status page.
    pub fn passed_over(&self) -> Vec<serde_json::Value> {
        let passed_over = self.passed_over.lock();
        let each = passed_over.iter().flat_map(|(corpus, versions)| {
            versions.iter().map(move |passed| {
                serde_json::json!({ "corpus": corpus, "version": passed.version, "reason": passed.reason })
            })
        });
        each.collect()
    }

    /// For the status page.
    pub fn to_json(&self) -> serde_json::Value {
        let lines = self.lines.lock();
        let shards = lines.iter().map(|((corpus, shard), line)| {
            serde_json::json!({
                "corpus": corpus,
                "shard": shard.to_string(),
                "wanted": line.wanted.map(|version| version.0),
                "serving": line.serving.map(|version| version.0),
                "state": line.state.as_str(),
                "documents": line.documents.to_string(),
                "bytes": line.bytes.to_string(),
                "verified_bytes": line.verified.to_string(),
                "last_error": line.last_error,
            })
        });
        shards.collect()
    }
}
