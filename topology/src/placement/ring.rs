//! The order in which a replica looks for a leaf: the consistent-hash ring, with points by capacity. A golden test pins the
//! order: another one would move every shard of the fleet.

use canopy_common::{ids::NodeId, ring};

use super::desired::CorpusShard;

/// Points of a leaf of mean capacity.
const POINTS: f64 = 128.0;

/// The ring of some leaves, which are known by their number.
pub struct Ring(ring::Ring<usize>);

impl Ring {
    /// Of leaves with their names and shares (1: the mean).
    pub fn new<'a>(leaves: impl Iterator<Item = (usize, &'a NodeId, f64)>) -> Self {
        Self(ring::Ring::new(leaves.map(|(number, id, share)| {
            let points = (POINTS * share).round().clamp(1.0, POINTS * 16.0) as usize;
            (id.0.as_bytes().to_vec(), number, points)
        })))
    }

    /// Leaves in the order of the ring from the place of a shard's replica.
    pub fn from(&self, shard: &CorpusShard, replica: usize) -> impl Iterator<Item = usize> + '_ {
        self.0.from(format!("{shard}#{replica}").as_bytes())
    }
}
