//! The log as an absorb needs it: its ends, and the operations between two offsets of a partition. Small, so that it is
//! read in the process of an ingest as well as over the wire.

use std::collections::BTreeMap;

use bytes::Bytes;
use canopy_format::newest::Kind;
use futures::future::BoxFuture;

use crate::error::Result;

/// What a partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// Oldest offset that is kept.
    pub first: u64,
    /// Next to be written.
    pub end: u64,
}

/// What the log holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ends {
    /// Which log.
    pub epoch: String,
    /// By partition, all of them.
    pub ranges: BTreeMap<u32, Range>,
}

/// An operation of the log, checked when it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Logged {
    /// Its place in the partition.
    pub offset: u64,
    /// What is done.
    pub kind: Kind,
    /// The key.
    pub key: String,
    /// The producer's order; 0 where the log decides.
    pub order: u64,
    /// JSON of every field (put), of the given ones (patch), or nothing.
    pub document: Bytes,
}

/// Operations that follow each other in a partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chunk {
    /// Ascending by offset. Erased ones are left out.
    pub operations: Vec<Logged>,
    /// Everything below it was looked at.
    pub next: u64,
}

/// A log that can be read.
pub trait Operations: Send + Sync + 'static {
    /// What it holds now.
    fn ends(&self) -> BoxFuture<'_, Result<Ends>>;

    /// Operations of a partition from `from` on, below `to`: as many as fit into some megabytes, and at least what lies at
    /// `from` when it is below `to`.
    fn read(&self, partition: u32, from: u64, to: u64) -> BoxFuture<'_, Result<Chunk>>;
}
