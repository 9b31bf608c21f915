//! Nodes that can be asked: by id, each a [`SearchNode`] with the load it last reported.

use std::sync::Arc;

use canopy_common::ids::NodeId;
use canopy_proto::SearchNode;

/// Finds the node to ask. Production dials lazily and keeps channels; tests hand in model leaves.
pub trait Endpoints: Send + Sync + 'static {
    /// The node, or `None` when it is not known.
    fn get(&self, node: &NodeId) -> Option<Arc<dyn SearchNode>>;
}
