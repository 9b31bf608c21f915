//! Documents written after the version's cut: a few small segments, each with a bitmap of its documents that are no
//! more. A segment never changes; what is replaced is hidden in the next view's bitmap.
//!
//! Rule: of one key at most one document is live in all parts, and then the base's document is a tombstone.

use std::sync::Arc;

use canopy_proto::v1::Freshness;
use roaring::RoaringBitmap;

use super::Segment;

/// One segment of the overlay.
#[derive(Clone)]
pub struct Part {
    /// Its documents; numbered from 0.
    pub segment: Arc<Segment>,
    /// Those of them that are no more.
    pub hidden: Arc<RoaringBitmap>,
    /// Within the bounds of the overlay: `freshness=indexed` sees it.
    pub optimised: bool,
}

impl Part {
    /// Whether a search of this freshness sees the part.
    pub fn seen_by(&self, freshness: Freshness) -> bool {
        match freshness {
            Freshness::Realtime => true,
            Freshness::Indexed => self.optimised,
            Freshness::Base => false,
        }
    }

    /// Live documents.
    pub fn live(&self) -> u64 {
        u64::from(self.segment.documents()).saturating_sub(self.hidden.len())
    }
}

/// All of them.
#[derive(Clone, Default)]
pub struct Overlay {
    /// Oldest first.
    pub parts: Vec<Part>,
    /// Live documents.
    pub documents: u64,
    /// Documents that are durable and not searchable (policy `defer`).
    pub deferred: u64,
}
