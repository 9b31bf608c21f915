//! What a log is to whoever uses it, whichever engine keeps it: writes are durable when they are answered, reads name what is
//! gone instead of going on behind a hole. Units: offsets, bytes, microseconds since 1970 UTC.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use canopy_common::ids::KeyHash;
use futures::future::BoxFuture;

use crate::{error::Result, slots::Slots};

/// One record to be written.
#[derive(Debug, Clone)]
pub struct Append {
    /// Where to.
    pub partition: u32,
    /// The slot of its key.
    pub slot: u16,
    /// Of its key.
    pub key: KeyHash,
    /// Whether it deletes: such records may use the reserve.
    pub delete: bool,
    /// Of this write, not of its content: the same id again within minutes is the same write and gets the same offset, so that
    /// a write whose answer was lost can be repeated. 0: none.
    pub id: u128,
    /// When it was accepted.
    pub at_us: i64,
    /// A [`crate::record`].
    pub record: Bytes,
}

/// One record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it is.
    pub offset: u64,
    /// The slot of its key.
    pub slot: u16,
    /// When it was accepted.
    pub at_us: i64,
    /// A [`crate::record`].
    pub record: Bytes,
}

/// What a partition holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Range {
    /// The oldest offset that is kept.
    pub first: u64,
    /// The next one to be written.
    pub end: u64,
}

/// What a read found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chunk {
    /// Records of the wanted slots, ascending; those whose text was erased are left out.
    pub entries: Vec<Entry>,
    /// Everything below was looked at: where to read on.
    pub next: u64,
    /// End of the partition.
    pub end: u64,
    /// When the first record at or above `next` was accepted, of any slot; 0: there is none.
    pub oldest_us: i64,
}

/// A log that is shared.
pub type Shared = Arc<dyn Log>;

/// A partitioned, ordered, durable log.
pub trait Log: Send + Sync + 'static {
    /// Which log this is.
    fn epoch(&self) -> String;

    /// How many partitions it has; fixed when it is made.
    fn partitions(&self) -> u32;

    /// Writes records; resolves when they are durable. The answers are in the order of the batch, and so are the offsets of each
    /// partition. One that failed was not written, unless the error is [`crate::Error::Away`]: then repeat it with its id.
    fn append(&self, batch: Vec<Append>) -> BoxFuture<'_, Vec<Result<u64>>>;

    /// Records of the wanted slots from an offset on, of about `max_bytes`, but at least one where there is one. An offset that is
    /// trimmed or beyond the end is [`crate::Error::Lost`]; one in a damaged place is [`crate::Error::Damaged`], and what is before it is given.
    fn read(&self, partition: u32, from: u64, slots: Slots, max_bytes: usize)
    -> BoxFuture<'_, Result<Chunk>>;

    /// Until the partition's end is above `end`.
    fn wait(&self, partition: u32, end: u64) -> BoxFuture<'_, ()>;

    /// What each partition holds.
    fn ranges(&self) -> BoxFuture<'_, Result<Vec<Range>>>;

    /// Lets go of records below the given offsets; a partition that is not named keeps all. May keep more than it must.
    fn trim(&self, before: BTreeMap<u32, u64>) -> BoxFuture<'_, Result<()>>;

    /// Removes the text of a key's records that are older than its newest delete; how many. Offsets stay as they are.
    fn erase(&self, partition: u32, key: KeyHash) -> BoxFuture<'_, Result<u64>>;

    /// What an operator wants to see.
    fn status(&self) -> serde_json::Value;
}
