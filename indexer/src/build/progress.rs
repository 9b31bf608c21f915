//! How far a build is, for a progress bar or a log. The build tells; whoever listens decides how to show it.

use std::{fmt, time::Duration};

use serde::Serialize;

/// A step that takes time, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stage {
    /// Reading, validating and partitioning the input. Bytes: of the input files as they are on disk.
    Read,
    /// Sorting, analysing and writing shards. Documents: written.
    Write,
    /// Merging the shards' terms.
    Statistics,
    /// Storing and re-reading every file. Bytes: of the version.
    Verify,
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Statistics => "statistics",
            Self::Verify => "verify",
        })
    }
}

/// Work done or to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Amount {
    /// Records or documents.
    pub documents: u64,
    /// Bytes.
    pub bytes: u64,
}

/// Listens to a build. Called from several threads, a few times a second each; must not block.
pub trait Progress: Send + Sync {
    /// A stage begins. `total` is 0 where it is not known.
    fn begin(&self, stage: Stage, total: Amount) {
        let _ = (stage, total);
    }
    /// More of the stage is done.
    fn advance(&self, stage: Stage, more: Amount) {
        let _ = (stage, more);
    }
    /// The stage is over.
    fn end(&self, stage: Stage, took: Duration) {
        let _ = (stage, took);
    }
}

/// Nobody listens.
#[derive(Debug, Clone, Copy, Default)]
pub struct Silent;

impl Progress for Silent {}
