//! Key -> slot -> shard. A slot never changes; the table slot -> shard is explicit in the manifest, so that readers
//! never hash a layout. The first table comes from a consistent-hash ring and a balance pass to floor/ceil(4096/S)
//! slots a shard; the next is computed from the last, so that growth moves about its share.
//!
//! A ring alone leaves the fullest shard 10 to 20 % above the mean, and the fullest shard sets the speed of every
//! query. Rule of the balance pass: as few slots as possible change their shard (the targets with one more slot go to
//! the shards that are fullest already), and a slot that must move goes to the next shard on the ring with room.
//!
//! The ring hashes shards and slots as 2 bytes, little-endian. A golden test pins the result.

use canopy_common::{
    ids::{KeyHash, ShardId, valid_name},
    ring,
};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use crate::error::{Error, Result};

/// Hash buckets of the key space.
pub const SLOTS: u16 = 4096;
/// Most shards in a group.
pub const MAX_SHARDS: u32 = 1024;
/// Points of each shard on the ring.
const POINTS: usize = 512;

/// Slot of a key: xxh3-64(key) mod 4096.
pub fn slot(key: &str) -> u16 {
    (xxh3_64(key.as_bytes()) % u64::from(SLOTS)) as u16
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
    /// The first layout of a group. Errors: 0 or more than 1024 shards, a bad group name.
    pub fn first(group: &str, shards: u32) -> Result<Self> {
        check_names(group, shards)?;
        let ring = Ring::new(shards);
        let table = (0..SLOTS).map(|slot| ring.nearest(slot)).collect();
        let layout = Self { group: group.to_owned(), shards, table };
        Ok(layout.balanced(&ring))
    }

    /// The next layout with another number of shards, moving as few slots as balance allows.
    pub fn resize(&self, shards: u32) -> Result<Self> {
        self.check()?;
        check_names(&self.group, shards)?;
        let next = Self { group: self.group.clone(), shards, table: self.table.clone() };
        Ok(next.balanced(&Ring::new(shards)))
    }

    /// Shard of a key.
    pub fn shard(&self, key: &str) -> ShardId {
        ShardId::new(&self.group, u32::from(self.table[usize::from(slot(key))]))
    }

    /// Checks a table that was read: 4096 entries, all below `shards`, no shard without a slot.
    pub fn check(&self) -> Result<()> {
        check_names(&self.group, self.shards)?;
        if self.table.len() != usize::from(SLOTS) {
            return Err(invalid(format!("{} has {} slots, not {SLOTS}", self.group, self.table.len())));
        }
        if let Some(shard) = self.table.iter().find(|shard| u32::from(**shard) >= self.shards) {
            return Err(invalid(format!("{} names shard {shard} of {}", self.group, self.shards)));
        }
        if let Some(empty) = self.slots().iter().position(|slots| *slots == 0) {
            return Err(invalid(format!("{} gives shard {empty} no slot", self.group)));
        }
        Ok(())
    }

    /// Slots of each shard.
    pub fn slots(&self) -> Vec<u32> {
        let mut slots = vec![0; self.shards as usize];
        for shard in &self.table {
            if let Some(count) = slots.get_mut(usize::from(*shard)) {
                *count += 1;
            }
        }
        slots
    }

    /// Both hashes' work for a key. They are kept apart: slots use xxh3-64, the order of hits xxh3-128.
    pub fn of(&self, key: &str) -> (ShardId, KeyHash) {
        (self.shard(key), KeyHash::of(key))
    }

    /// Moves the slots that stand above their shard's target, or on a shard that is gone, to shards with room.
    fn balanced(mut self, ring: &Ring) -> Self {
        let mut room = targets(&self.slots());
        let mut homeless = Vec::new();
        for slot in 0..SLOTS {
            match room.get_mut(usize::from(self.table[usize::from(slot)])) {
                Some(left) if *left > 0 => *left -= 1,
                _ => homeless.push(slot),
            }
        }
        for slot in homeless {
            let shard = ring.nearest_with(slot, |shard| room[usize::from(shard)] > 0);
            room[usize::from(shard)] -= 1;
            self.table[usize::from(slot)] = shard;
        }
        self
    }
}

/// Slots each shard shall have: floor(4096/S), one more for the shards that are fullest now (then by number).
fn targets(slots: &[u32]) -> Vec<u32> {
    let (floor, more) = (u32::from(SLOTS) / slots.len() as u32, usize::from(SLOTS) % slots.len());
    let mut fullest: Vec<usize> = (0..slots.len()).collect();
    fullest.sort_by_key(|shard| std::cmp::Reverse(slots[*shard]));
    let mut targets = vec![floor; slots.len()];
    for shard in &fullest[..more] {
        targets[*shard] += 1;
    }
    targets
}

fn check_names(group: &str, shards: u32) -> Result<()> {
    if !valid_name(group) {
        return Err(invalid(format!("group {group:?} must be 1 to 64 of a-z, 0-9, - and _")));
    }
    if !(1..=MAX_SHARDS).contains(&shards) {
        return Err(Error::Invalid {
            field: "shards",
            reason: format!("{shards} is not within 1 to {MAX_SHARDS}; use more groups for more shards"),
        });
    }
    Ok(())
}

fn invalid(reason: String) -> Error {
    Error::Invalid { field: "layout", reason }
}

/// The ring of a number of shards.
struct Ring(ring::Ring<u16>);

impl Ring {
    fn new(shards: u32) -> Self {
        Self(ring::Ring::new((0..shards as u16).map(|shard| (shard.to_le_bytes().to_vec(), shard, POINTS))))
    }

    /// The first shard on the ring from the slot that is accepted; shard 0 when none is (there always is room).
    fn nearest_with(&self, slot: u16, accepted: impl Fn(u16) -> bool) -> u16 {
        self.0.from(&slot.to_le_bytes()).find(|shard| accepted(*shard)).unwrap_or(0)
    }

    fn nearest(&self, slot: u16) -> u16 {
        self.nearest_with(slot, |_| true)
    }
}

#[cfg(test)]
mod tests;
