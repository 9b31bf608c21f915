//! The log of a corpus: operations in a durable order, in partitions that have nothing to do with any version's layout
//! (partition = slot mod P), so that layouts may change between versions. One interface, two engines: [`embedded`] in the
//! process of the ingest, [`jetstream`] for clusters. An offset counts the records of its partition from 0 and is never given
//! twice under one epoch; a log that was made anew has another epoch, so that old offsets are refused and never misread.
//! Units: offsets, bytes, microseconds since 1970 UTC.

pub mod embedded;
pub mod error;
mod interface;
pub mod jetstream;
pub mod record;
mod slots;

pub use error::{Error, Result};
pub use interface::{Append, Chunk, Entry, Log, Range, Shared};
pub use slots::Slots;
