//! Which leaf should hold which shard: consistent hashing with bounded load (Mirrokni, Thorup and Zadimoghaddam, 2018),
//! computed from the last placement.
//!
//! A placement made anew moves everything when a node comes or goes; one that is only kept leaves new nodes empty and lost
//! zones crowded. So: what still fits stays; what is missing goes to the first leaf on the ring, from the shard's place, that
//! may hold it; then shards are moved from the fullest to the emptiest leaf until each is within 5 % of its share (or as near
//! as whole shards allow), and none could give one away and still have its share. A leaf's share goes by its capacity. A leaf
//! that joins gets about its share and nothing else moves; of one that leaves only what it held moves.
//!
//! Never two replicas of a shard on one leaf, nor more on a leaf than it can hold. Replicas are spread over zones as evenly
//! as can be; that goes before balance. What cannot be met is said, not hidden, and the rest is placed all the same.
//!
//! Units: bytes. A capacity is what one version may take; a rollout needs as much again beside it.

pub mod desired;
mod level;
mod loads;
mod place;
pub mod plan;
mod ring;
mod whole;

pub use desired::{Capacity, CorpusShard, Desired, Group, Leaf, ShardNeeds};
pub use place::{Placed, Placement, place};
pub use plan::{Move, Plan, PlanStep, plan};

#[cfg(test)]
mod tests;
