//! All that can happen to a search: a closed list, so that a reader of the loop has read every case.

use std::sync::Arc;

use canopy_topology::routing::RoutingSnapshot;
use tokio::sync::oneshot;

use super::attempt::{Call, Said};

/// Something happened.
pub enum Event {
    /// A call said something.
    Call(Call, Said),
    /// The caller no longer wants some shards (empty: any); the sender wants to know how many were open.
    Withdrawn(Vec<u32>, oneshot::Sender<u32>),
    /// A routing snapshot came that shards wait for.
    Newer(Arc<RoutingSnapshot>),
    /// The instant came that the loop waited for: completion, flush, a hedge or the end.
    Due,
    /// The caller left.
    CallerGone,
}
