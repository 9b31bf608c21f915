//! Documents of the log on their way into a part: analysed as they come, in one segment that is closed at its budget or
//! when it is to be seen. Closing a segment takes about two milliseconds however small it is, so what comes within one
//! refresh goes into one.
//!
//! The engine can't read a segment that is being written. The records are kept beside it until it is closed, so that a
//! patch of a document that came a moment ago finds it. Units: bytes.

use bytes::Bytes;
use canopy_common::ids::ShardId;
use canopy_indexer::index_schema::{IndexDocument, IndexSchema};
use roaring::RoaringBitmap;
use tantivy::{SingleSegmentIndexWriter, directory::RamDirectory};
use tokio::time::Instant;

use super::part::Part;
use crate::error::{Error, Result};

/// Budget of a segment that is closed at the next refresh: the engine sizes its table by it, which is to be made each time.
pub const SMALL: usize = 4 << 20;
/// Budget of a segment while much is to be replayed. Larger ones are merged less often.
pub const LARGE: usize = 96 << 20;
/// No segment is closed below: the engine takes some of its memory before the first document.
const LEAST: usize = 24 << 20;

/// A part that is being written.
pub struct Pending {
    number: u32,
    writer: SingleSegmentIndexWriter<IndexDocument>,
    files: RamDirectory,
    budget: usize,
    /// Each document as the log, or a patch, has it.
    whole: Vec<Bytes>,
    kept: usize,
    hidden: RoaringBitmap,
    deleted: Option<Instant>,
}

impl Pending {
    /// An empty one that is full at `budget`.
    pub fn new(number: u32, schema: &IndexSchema, budget: usize) -> Result<Self> {
        let files = RamDirectory::create();
        let writer = schema.builder().single_segment_index_writer(files.clone(), budget);
        let writer = writer.map_err(Error::engine("create overlay segment"))?;
        let hidden = RoaringBitmap::new();
        Ok(Self { number, writer, files, budget, whole: Vec::new(), kept: 0, hidden, deleted: None })
    }

    /// Number of the part that it becomes.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Adds a document; its number in the part. `whole`: the same as JSON of every field.
    pub fn add(&mut self, document: IndexDocument, whole: Bytes) -> Result<u32> {
        self.writer.add_document(document).map_err(Error::engine("add document to the overlay"))?;
        self.kept += whole.len();
        self.whole.push(whole);
        Ok(self.whole.len() as u32 - 1)
    }

    /// A document is no more; `deleted`: when nothing took its place.
    pub fn hide(&mut self, doc: u32, deleted: Option<Instant>) {
        self.hidden.insert(doc);
        self.deleted = self.deleted.or(deleted);
    }

    /// A document as JSON of every field.
    pub fn whole(&self, doc: u32) -> Option<Bytes> {
        self.whole.get(doc as usize).cloned()
    }

    /// Whether it is to be closed. The engine's own numbers stay below 2^31 documents by far.
    pub fn full(&self) -> bool {
        self.writer.mem_usage() + self.kept >= self.budget.max(LEAST)
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> u64 {
        (self.writer.mem_usage() + self.kept + self.files.total_mem_usage()) as u64
    }

    /// Closes it; `None`: nothing in it is to be seen.
    pub fn close(self, shard: &ShardId, schema: &IndexSchema) -> Result<Option<Part>> {
        if self.hidden.len() == self.whole.len() as u64 {
            return Ok(None);
        }
        let index = self.writer.finalize().map_err(Error::engine("close overlay segment"))?;
        let part = Part::open(self.number, index, self.files, shard, schema)?;
        Ok(part.map(|part| Part { hidden: self.hidden.into(), deleted: self.deleted, ..part }))
    }
}
