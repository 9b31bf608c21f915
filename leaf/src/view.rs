//! What one query on one shard sees: one version and one state of the overlay. Immutable: a query takes it once and
//! nothing changes under it; a new state is a new view over the same base.
//!
//! Opening a fast field costs microseconds, a search sometimes less, so the base opens every column once. Base
//! documents have numbers: those of the first segment from 0, then those of the next. Overlay and tombstones are
//! empty until there is a log, but the collectors always ask the mask.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{KeyHash, ShardId, Version};
use canopy_indexer::index_schema::IndexSchema;
use roaring::RoaringBitmap;
use tantivy::{DocAddress, DocId, Searcher};

use crate::error::{Error, Result};

mod column;
mod segment;

pub use column::{FieldColumn, rank_of};
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

/// Documents written after the version's cut. Empty until there is a log.
#[derive(Debug, Clone, Default)]
pub struct Overlay {}

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
    pub overlay: Overlay,
    /// Numbers of base documents that are deleted or replaced.
    pub tombstones: Arc<RoaringBitmap>,
    /// Next offset of each log partition that this state holds.
    pub offsets: Arc<BTreeMap<u32, u64>>,
}

impl ShardView {
    /// A view of a version alone.
    pub fn new(shard: ShardId, version: Version, base: Arc<Base>) -> Self {
        Self {
            shard,
            version,
            base,
            overlay: Overlay::default(),
            tombstones: Arc::new(RoaringBitmap::new()),
            offsets: Arc::new(BTreeMap::new()),
        }
    }

    /// The same base with other documents hidden.
    pub fn with_tombstones(&self, tombstones: RoaringBitmap) -> Self {
        Self { tombstones: Arc::new(tombstones), ..self.clone() }
    }

    /// Base documents, hidden ones too: what the manifest counts.
    pub fn documents(&self) -> u64 {
        self.base.documents
    }

    /// Finds a key; `None` when no visible document has it.
    pub fn find(&self, key: KeyHash) -> Result<Option<DocAddress>> {
        let term = self.base.schema.key_term(key);
        for (ord, segment) in self.base.segments.iter().enumerate() {
            if let Some(doc) = segment.first_posting(&term)?
                && !self.tombstones.contains(segment.start + doc)
            {
                return Ok(Some(DocAddress::new(ord as u32, doc)));
            }
        }
        Ok(None)
    }

    /// The key at an address that [`ShardView::unpack`] gave.
    pub fn key_at(&self, address: DocAddress) -> Option<KeyHash> {
        let segment = self.base.segments.get(address.segment_ord as usize)?;
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
