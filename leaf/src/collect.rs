//! Collecting the documents of one shard that enter the page.
//!
//! [`pruned`] lets the engine skip what can't enter; [`exhaustive`] looks at every match, counts it for totals and
//! facets, and keeps the first k in any order. Both ask the mask of hidden documents, both stop when told, and both
//! say exactly how many documents were considered: those of the finished segments, and in the last one those up to
//! the last document that was looked at, because documents are visited in order.
//!
//! The overlay comes first and is always walked, since it is small and its lengths are not those that block maxima were
//! chosen for; what it gives raises the floor of the base. Base and overlay are scored by the request's numbers, so a
//! document has one score wherever it is, and the page does not depend on how a replica cut its overlay into parts.
//! Base documents and live overlay documents are counted apart.

pub mod exhaustive;
pub mod facets;
pub mod grouped;
pub mod keep;
pub mod page;
pub mod pruned;
pub mod sort;
pub mod top;

use canopy_common::{ids::KeyHash, topk::SortValue};
use canopy_proto::v1::Freshness;
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
    hidden: Option<&'a RoaringBitmap>,
    start: u32,
}

impl<'a> Mask<'a> {
    fn new(hidden: &'a RoaringBitmap, start: u32) -> Self {
        Self { hidden: (!hidden.is_empty()).then_some(hidden), start }
    }

    /// Whether a document is hidden.
    #[inline]
    pub fn hides(&self, doc: DocId) -> bool {
        self.hidden.is_some_and(|hidden| hidden.contains(self.start + doc))
    }

    /// Documents before `end` that are not hidden.
    pub fn live(&self, end: DocId) -> u64 {
        let hidden = self.hidden.map_or(0, |all| all.range_cardinality(self.start..self.start + end));
        u64::from(end).saturating_sub(hidden)
    }
}

/// A segment as a search sees it.
#[derive(Clone, Copy)]
pub struct Piece<'a> {
    /// Its number in the view.
    pub ord: u32,
    /// Its documents.
    pub segment: &'a Segment,
    /// Those that are no more.
    pub mask: Mask<'a>,
    /// Of the overlay, not the base.
    pub overlay: bool,
}

impl<'a> Piece<'a> {
    /// The segments of the base.
    pub fn base(view: &'a ShardView) -> impl Iterator<Item = Self> {
        let piece = move |(ord, segment): (usize, &'a Segment)| {
            let mask = Mask::new(&view.tombstones, segment.start);
            Self { ord: ord as u32, segment, mask, overlay: false }
        };
        view.base.segments.iter().enumerate().map(piece)
    }

    /// The parts of the overlay that a search of this freshness sees.
    pub fn overlay(view: &'a ShardView, freshness: Freshness) -> impl Iterator<Item = Self> {
        let parts = view.overlay.parts.iter().zip(view.base.segments.len() as u32..);
        parts.filter(move |(part, _)| part.seen_by(freshness)).map(|(part, ord)| Self {
            ord,
            segment: &part.segment,
            mask: Mask::new(&part.hidden, 0),
            overlay: true,
        })
    }

    /// Documents that are not hidden.
    pub fn live(&self) -> u64 {
        self.mask.live(self.segment.documents())
    }
}
