//! The only merge: hits by (shard, key hash) in one total order, totals and facets per shard summed once.

use canopy_proto::v1;

/// A facet summed over shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facet {
    /// (value, count, largest possible undercount), by count descending then value ascending, at most the size asked.
    pub values: Vec<(String, u64, u64)>,
    /// Some shard is missing or cut: counts are lower bounds.
    pub lower_bound: bool,
}

/// Sum of the shards' totals; true when it is a lower bound.
pub fn total(_shards: &[v1::ShardReply]) -> (u64, bool) {
    todo!()
}

/// Facets summed, one per `asked`.
pub fn facets(_asked: &[v1::FacetBy], _shards: &[v1::ShardReply]) -> Vec<Facet> {
    todo!()
}
