//! The order in which a replica looks for a leaf: the consistent-hash ring, with points by capacity.
//!
//! Items and points are hashed as explicit bytes with xxh3 (names as they are, point numbers as 8 bytes, little-endian):
//! the default of the ring's crate hashes what the language may frame differently tomorrow, and then every shard of the
//! fleet would move. A golden test pins the order.

use std::hash::{Hash, Hasher};

use canopy_common::ids::NodeId;
use consistent_hash::{Node, RingHash, StaticHashRing};
use xxhash_rust::xxh3::Xxh3Default;

use super::desired::CorpusShard;

/// Points of a leaf of mean capacity.
const POINTS: f64 = 128.0;

/// The ring of some leaves, which are known by their number.
pub struct Ring(StaticHashRing<'static, Name, usize, Xxh3>);

impl Ring {
    /// Of leaves with their names and shares (1: the mean).
    pub fn new<'a>(leaves: impl Iterator<Item = (usize, &'a NodeId, f64)>) -> Self {
        let nodes = leaves.map(|(number, id, share)| Node {
            key: Name(id.0.as_bytes().to_vec()),
            value: number,
            quantity: (POINTS * share).round().clamp(1.0, POINTS * 16.0) as usize,
        });
        Self(StaticHashRing::new(Xxh3, nodes))
    }

    /// Leaves in the order of the ring from the place of a shard's replica.
    pub fn from(&self, shard: &CorpusShard, replica: usize) -> impl Iterator<Item = usize> + '_ {
        let place = Name(format!("{shard}#{replica}").into_bytes());
        self.0.calc_candidates(&place).map(|node| node.value)
    }
}

/// Bytes that are hashed as they are, without the framing that the language adds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Name(Vec<u8>);

impl Hash for Name {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

struct Xxh3;

impl RingHash for Xxh3 {
    fn hash_item<T: Hash>(&self, item: &T) -> u64 {
        let mut hasher = Xxh3Default::new();
        item.hash(&mut hasher);
        hasher.digest()
    }

    fn hash_vnode<K: Hash>(&self, key: &K, point: usize) -> u64 {
        let mut hasher = Xxh3Default::new();
        key.hash(&mut hasher);
        hasher.write(&(point as u64).to_le_bytes());
        hasher.digest()
    }
}
