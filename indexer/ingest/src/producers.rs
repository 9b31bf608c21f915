//! The newest order of each key, in corpora whose producers order the writes: what is older is told so at once, and not written.
//!
//! The failure this prevents: a writer that lost a race is told "applied" and never learns that its document is not shown (an
//! order that is silently dropped). Rules: only a put or a delete makes older writes stale, since a patch sets some fields only;
//! an equal order is not stale, because the same write may come again and the leaves decide between different ones. The table is
//! of the log that is kept: what was trimmed is in a version, where leaves know its order. It is a courtesy to writers; what is shown is
//! decided by the leaves alone.

use canopy_common::{collections::HashMap, ids::KeyHash};

/// The table of a corpus. About 80 bytes a key that the log holds.
#[derive(Debug, Default)]
pub struct Producers {
    partitions: Vec<HashMap<u128, Newest>>,
}

#[derive(Debug, Clone, Copy)]
struct Newest {
    order: u64,
    offset: u64,
}

impl Producers {
    /// For a log.
    pub fn new(partitions: u32) -> Self {
        Self { partitions: (0..partitions).map(|_| HashMap::default()).collect() }
    }

    /// A put or delete that is durable.
    pub fn note(&mut self, partition: u32, key: KeyHash, order: u64, offset: u64) {
        let Some(keys) = self.partitions.get_mut(partition as usize) else { return };
        let newest = keys.entry(key.0).or_insert(Newest { order, offset });
        if order >= newest.order {
            *newest = Newest { order, offset: newest.offset.max(offset) };
        }
    }

    /// The newest order of a key.
    pub fn newest(&self, partition: u32, key: KeyHash) -> Option<u64> {
        Some(self.partitions.get(partition as usize)?.get(&key.0)?.order)
    }

    /// What was trimmed is let go.
    pub fn trimmed(&mut self, partition: u32, first: u64) {
        if let Some(keys) = self.partitions.get_mut(partition as usize) {
            keys.retain(|_, newest| newest.offset >= first);
        }
    }

    /// Keys known.
    pub fn len(&self) -> usize {
        self.partitions.iter().map(HashMap::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_order_is_kept_until_its_record_is_trimmed() {
        let (mut table, key) = (Producers::new(2), KeyHash::of("k"));
        assert_eq!(table.newest(1, key), None);
        table.note(1, key, 9, 4);
        table.note(1, key, 8, 5);
        table.note(7, key, 99, 0);
        assert_eq!((table.newest(1, key), table.newest(0, key), table.len()), (Some(9), None, 1));
        table.trimmed(1, 4);
        assert_eq!(table.newest(1, key), Some(9));
        table.trimmed(1, 5);
        assert_eq!(table.newest(1, key), None);
    }
}
