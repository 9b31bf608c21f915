//! The consistent-hash ring: who comes first from a place. One home for its hash, because two rings stand on it: slots to shards
//! (layouts of versions) and shards to leaves (placement).
//!
//! Names and places are hashed as explicit bytes with xxh3-64, the points of a node as its name and then the point's number as 8
//! bytes, little-endian. The default of the ring's crate hashes what the language may frame differently tomorrow, and then every
//! slot and every shard of a fleet would move. The tests of both users pin the result for ever.

use std::hash::{Hash, Hasher};

use consistent_hash::{Node, RingHash, StaticHashRing};
use xxhash_rust::xxh3::Xxh3Default;

/// A ring of nodes that are known by a value.
pub struct Ring<V>(StaticHashRing<'static, Name, V, Xxh3>)
where
    V: 'static;

impl<V: Copy + 'static> Ring<V> {
    /// Of nodes: name, value, number of points.
    pub fn new(nodes: impl Iterator<Item = (Vec<u8>, V, usize)>) -> Self {
        let nodes = nodes.map(|(name, value, quantity)| Node { key: Name(name), value, quantity });
        Self(StaticHashRing::new(Xxh3, nodes))
    }

    /// Nodes in the order of the ring from a place, each once.
    pub fn from<'a>(&'a self, place: &[u8]) -> impl Iterator<Item = V> + use<'a, V> {
        let place = Name(place.to_vec());
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_a_ring_never_changes() {
        let ring = Ring::new((0..5_u8).map(|n| (vec![b'n', n], n, 16)));
        let order: Vec<Vec<u8>> =
            [b"a".as_slice(), b"b", b"c"].iter().map(|place| ring.from(place).collect()).collect();
        assert_eq!(order, [[0, 2, 4, 1, 3], [3, 2, 4, 0, 1], [3, 0, 2, 1, 4]]);
        assert!(order.iter().all(|order| order.len() == 5), "each once");
    }
}
