//! Collecting the documents of one shard that enter the page.
//!
//! [`pruned`] lets the engine skip what can't enter; [`exhaustive`] looks at every match, counts it for totals and
//! facets, and keeps the first k in any order. Both ask the mask of hidden documents, both stop when told, and both
//! say exactly how many documents were considered: those of the finished segments, and in the last one those up to
//! the last document that was looked at, because documents are visited in order.

pub mod exhaustive;
pub mod facets;
pub mod grouped;
pub mod keep;
pub mod page;
pub mod pruned;
pub mod sort;
pub mod top;

use canopy_common::{ids::KeyHash, topk::SortValue};
use roaring::RoaringBitmap;
use tantivy::DocId;

use crate::view::{Segment, ShardView};

/// A document on its way to the page.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Sort values, when the request sorts.
    pub values: Vec<SortValue>,
    /// Canonical score; 0 when nobody needs it.
    pub score: f32,
    /// Key hash.
    pub key: KeyHash,
    /// Segment.
    pub segment: u32,
    /// Document in the segment.
    pub doc: DocId,
    /// Value of the collapse field; empty: not collapsed.
    pub collapse: String,
}

/// Hidden documents of one segment.
#[derive(Clone, Copy)]
pub struct Mask<'a> {
    tombstones: Option<&'a RoaringBitmap>,
    start: u32,
}

impl<'a> Mask<'a> {
    /// The mask of a segment.
    pub fn of(view: &'a ShardView, segment: &Segment) -> Self {
        let tombstones = &*view.tombstones;
        Self { tombstones: (!tombstones.is_empty()).then_some(tombstones), start: segment.start }
    }

    /// Whether a document is hidden.
    #[inline]
    pub fn hides(&self, doc: DocId) -> bool {
        self.tombstones.is_some_and(|tombstones| tombstones.contains(self.start + doc))
    }
}
