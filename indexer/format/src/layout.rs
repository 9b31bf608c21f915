//! Key -> slot -> shard. A slot never changes; the table slot -> shard is explicit in the manifest. The first table
//! comes from a consistent-hash ring and a balance pass to floor/ceil(4096/S) slots a shard; the next is computed from
//! the last, so that growth moves about its share.

use canopy_common::ids::{KeyHash, ShardId};
use serde::{Deserialize, Serialize};

use crate::error::Result;

/// Hash buckets of the key space.
pub const SLOTS: u16 = 4096;
/// Most shards in a group.
pub const MAX_SHARDS: u32 = 1024;

/// Slot of a key: xxh3-64(key) mod 4096.
pub fn slot(key: &str) -> u16 {
    (xxhash_rust::xxh3::xxh3_64(key.as_bytes()) % u64::from(SLOTS)) as u16
}

/// Which shard of the group holds each slot.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Layout {
    /// Group name.
    pub group: String,
    /// Number of shards.
    pub shards: u32,
    /// Shard number by slot; 4096 entries.
    pub table: Vec<u16>,
}

impl Layout {
    /// The first layout of a group. Errors: 0 or more than 1024 shards.
    pub fn first(_group: &str, _shards: u32) -> Result<Self> {
        todo!()
    }

    /// The next layout with another number of shards, moving as few slots as balance allows.
    pub fn resize(&self, _shards: u32) -> Result<Self> {
        todo!()
    }

    /// Shard of a key.
    pub fn shard(&self, key: &str) -> ShardId {
        ShardId::new(&self.group, u32::from(self.table[usize::from(slot(key))]))
    }

    /// Checks a table that was read: 4096 entries, all below `shards`.
    pub fn check(&self) -> Result<()> {
        todo!()
    }

    /// Unused key hash parameter keeps the two hashes apart in the reader's mind: slots use xxh3-64, order xxh3-128.
    pub fn of(&self, key: &str) -> (ShardId, KeyHash) {
        (self.shard(key), KeyHash::of(key))
    }
}
