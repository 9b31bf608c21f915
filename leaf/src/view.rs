//! What one query on one shard sees: one version and one state of the overlay. Immutable: a query takes it once and
//! nothing changes under it; a new state is a new view over the same base.
//!
//! Opening a fast field costs microseconds, a search sometimes less, so every column is opened once. Base documents have
//! numbers: those of the first segment from 0, then those of the next. Segments are numbered base first, then the parts
//! of the overlay. A base document that was replaced or deleted is a tombstone, and no search sees it again, whatever
//! freshness it asks for: who deletes a page wants it gone, and an old text next to a new one would be two hits of one
//! key.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{KeyHash, ShardId, Version};
use canopy_indexer::index_schema::IndexSchema;
use canopy_proto::v1::PartitionOffset;
use roaring::RoaringBitmap;
use tantivy::{DocAddress, DocId, Searcher};

use crate::error::{Error, Result};

mod column;
mod lag;
mod overlay;
mod segment;

pub use column::{FieldColumn, rank_of};
pub use lag::Lag;
pub use overlay::{Overlay, Part};
pub use segment::Segment;

/// The documents of the version, opened.
pub struct Base {
    /// The engine's searcher; keeps the files alive.
    pub searcher: Searcher,
    /// Fields.
    pub schema: IndexSchema,
    /// Segments with their columns, in order.
    pub segments: Vec<Segment>,
    /// Documents.
    pub documents: u64,
}

impl Base {
    /// Opens the columns of a shard. Errors: a column that every shard has is missing.
    pub fn open(shard: &ShardId, searcher: Searcher, schema: IndexSchema) -> Result<Self> {
        let mut segments = Vec::with_capacity(searcher.segment_readers().len());
        let mut start = 0_u64;
        for reader in searcher.segment_readers() {
            let segment = Segment::open(shard, reader.clone(), &schema, start as u32)?;
            start += u64::from(segment.documents());
            segments.push(segment);
        }
        if start > u64::from(u32::MAX) {
            let reason = format!("{start} documents; the limit is {}", u32::MAX);
            return Err(Error::Damaged { shard: shard.clone(), reason });
        }
        Ok(Self { searcher, schema, segments, documents: start })
    }
}

/// One state of one shard. Cheap to clone.
#[derive(Clone)]
pub struct ShardView {
    /// The shard.
    pub shard: ShardId,
    /// The version.
    pub version: Version,
    /// Its documents.
    pub base: Arc<Base>,
    /// Newer documents.
    pub overlay: Arc<Overlay>,
    /// Numbers of base documents that are deleted or replaced.
    pub tombstones: Arc<RoaringBitmap>,
    /// Next offset of each log partition that this state holds.
    pub offsets: Arc<BTreeMap<u32, u64>>,
    /// How far behind the log; shared with the shard's other views.
    pub lag: Arc<Lag>,
}

impl ShardView {
    /// A view of a version alone.
    pub fn new(shard: ShardId, version: Version, base: Arc<Base>) -> Self {
        Self {
            shard,
            version,
            base,
            overlay: Arc::default(),
            tombstones: Arc::new(RoaringBitmap::new()),
            offsets: Arc::new(BTreeMap::new()),
            lag: Arc::default(),
        }
    }

    /// The same base with other documents hidden.
    pub fn with_tombstones(&self, tombstones: RoaringBitmap) -> Self {
        Self { tombstones: Arc::new(tombstones), ..self.clone() }
    }

    /// The same base with this overlay.
    pub fn with_overlay(
        &self,
        overlay: Overlay,
        tombstones: RoaringBitmap,
        offsets: BTreeMap<u32, u64>,
    ) -> Self {
        Self {
            overlay: Arc::new(overlay),
            tombstones: Arc::new(tombstones),
            offsets: Arc::new(offsets),
            ..self.clone()
        }
    }

    /// A segment by its number.
    pub fn segment(&self, ord: u32) -> Option<&Segment> {
        let ord = ord as usize;
        let part = || self.overlay.parts.get(ord - self.base.segments.len());
        self.base.segments.get(ord).or_else(|| part().map(|part| &*part.segment))
    }

    /// Whether this state holds everything before these offsets. An overlay names all partitions that the shard's slots are in, so
    /// one that it does not name has nothing for it; a view without an overlay has reached nothing.
    pub fn reached(&self, wanted: &[PartitionOffset]) -> bool {
        let followed = !self.offsets.is_empty();
        wanted.iter().all(|one| match self.offsets.get(&one.partition) {
            Some(offset) => *offset >= one.offset,
            None => followed || one.offset == 0,
        })
    }

    /// Whether an address is in the overlay.
    pub fn is_overlay(&self, address: DocAddress) -> bool {
        address.segment_ord as usize >= self.base.segments.len()
    }

    /// Whether the document at an address is no more.
    pub fn hides(&self, address: DocAddress) -> bool {
        let ord = address.segment_ord as usize;
        if let Some(segment) = self.base.segments.get(ord) {
            return self.tombstones.contains(segment.start + address.doc_id);
        }
        let part = self.overlay.parts.get(ord - self.base.segments.len());
        part.is_none_or(|part| part.hidden.contains(address.doc_id))
    }

    /// Base documents, hidden ones too: what the manifest counts.
    pub fn documents(&self) -> u64 {
        self.base.documents
    }

    /// Finds a key, in the overlay first; `None` when no live document has it.
    pub fn find(&self, key: KeyHash) -> Result<Option<DocAddress>> {
        let term = self.base.schema.key_term(key);
        let base = self.base.segments.len();
        for (at, part) in self.overlay.parts.iter().enumerate().rev() {
            if let Some(doc) = part.segment.posting(&term, |doc| !part.hidden.contains(doc))? {
                return Ok(Some(DocAddress::new((base + at) as u32, doc)));
            }
        }
        for (ord, segment) in self.base.segments.iter().enumerate() {
            let live = |doc| !self.tombstones.contains(segment.start + doc);
            if let Some(doc) = segment.posting(&term, live)? {
                return Ok(Some(DocAddress::new(ord as u32, doc)));
            }
        }
        Ok(None)
    }

    /// The key at an address that [`ShardView::unpack`] gave.
    pub fn key_at(&self, address: DocAddress) -> Option<KeyHash> {
        let segment = self.segment(address.segment_ord)?;
        (address.doc_id < segment.documents()).then(|| segment.key(address.doc_id))
    }

    /// An address as it travels in `Hit.address`.
    pub fn pack(segment: u32, doc: DocId) -> u64 {
        (u64::from(segment) << 32) | u64::from(doc)
    }

    /// The document of a `Hit.address`; `None` when this view has no such document.
    pub fn unpack(&self, address: u64) -> Option<DocAddress> {
        let address = DocAddress::new((address >> 32) as u32, address as u32);
        self.key_at(address).map(|_| address)
    }
}
