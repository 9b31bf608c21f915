//! What the overlay of one shard knows of each key that the log named since its version's cut.
//!
//! What a write does is decided by [`canopy_format::newest`], for whoever absorbs the log too. Here is only where documents
//! are. Rule: of a key one document is live at most, and its entry says where; hidden bits and tombstones follow from
//! entries, never the other way round.

use std::hash::{BuildHasherDefault, Hasher};

use canopy_common::ids::KeyHash;
use canopy_format::newest;
pub use canopy_format::newest::{Decision, Fields, Kind, Stamp, Write, after, decide};

/// Where the live document of a key is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Spot {
    /// Nowhere: it was deleted.
    Gone,
    /// In the base still.
    Base(u32),
    /// In a part of the overlay.
    Part {
        /// The part's number.
        part: u32,
        /// The document's in it.
        doc: u32,
    },
    /// In the log only: the overlay is full, and it shows when a version has absorbed it.
    Deferred,
}

impl newest::Spot for Spot {
    fn gone() -> Self {
        Self::Gone
    }
    fn is_gone(&self) -> bool {
        *self == Self::Gone
    }
    fn is_base(&self) -> bool {
        matches!(self, Self::Base(_))
    }
}

/// What is known of a key.
pub type Known = newest::Known<Spot>;

/// A key is a hash of good quality already: half of it is taken as it is.
#[derive(Debug, Clone, Default)]
pub struct Half(u64);

impl Hasher for Half {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0 = bytes.iter().fold(self.0, |all, byte| all.rotate_left(8) ^ u64::from(*byte));
    }
    fn write_u128(&mut self, key: u128) {
        self.0 = key as u64;
    }
}

#[expect(clippy::disallowed_types, reason = "nothing depends on its order, which is fixed all the same")]
type Table = std::collections::HashMap<KeyHash, Known, BuildHasherDefault<Half>>;

/// Every key that the log named since the cut.
#[derive(Debug, Clone, Default)]
pub struct Keys {
    table: Table,
    patched: usize,
}

/// Memory of a key without patches, bytes, about: a slot of the table at its usual fill.
const KEY_BYTES: usize = 80;
/// Memory of the patches of a key, bytes, about.
const PATCHED_BYTES: usize = 300;

impl Keys {
    /// What is known of a key; `None`: only the base can say.
    pub fn get(&self, key: KeyHash) -> Option<&Known> {
        self.table.get(&key)
    }

    /// Says what is known of a key now.
    pub fn set(&mut self, key: KeyHash, known: Known) {
        self.patched += usize::from(known.fields.is_some());
        let before = self.table.insert(key, known);
        self.patched -= usize::from(before.is_some_and(|before| before.fields.is_some()));
    }

    /// Its document is somewhere else from now on, the same document.
    pub fn moved(&mut self, key: KeyHash, spot: Spot) {
        if let Some(known) = self.table.get_mut(&key) {
            known.spot = spot;
        }
    }

    /// Every key, in no order that means anything.
    pub fn all(&self) -> impl Iterator<Item = (KeyHash, &Known)> {
        self.table.iter().map(|(key, known)| (*key, known))
    }

    /// Keys.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// Memory, about.
    pub fn bytes(&self) -> u64 {
        (self.table.len() * KEY_BYTES + self.patched * PATCHED_BYTES) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_there_once_and_patches_count_while_they_matter() {
        let (key, stamp) = (KeyHash(7), Stamp::of_log(3));
        let mut keys = Keys::default();
        let fields = Fields::from([(1, Stamp::of_log(4))]);
        keys.set(key, Known::new(Spot::Base(1), stamp, fields));
        let patched = keys.bytes();
        keys.set(key, Known::new(Spot::Part { part: 2, doc: 0 }, stamp, Fields::new()));
        assert!(keys.len() == 1 && !keys.is_empty() && keys.bytes() < patched);
        keys.moved(key, Spot::Deferred);
        assert!(keys.get(key).is_some_and(|known| known.spot == Spot::Deferred && known.live()));
        keys.moved(KeyHash(8), Spot::Gone);
        assert_eq!(keys.all().count(), 1);
    }
}
