//! Deletes that a version remembers, where producers order their writes: an older put of the same key that comes later must
//! not bring the document back, also after the log that held the delete was cut off. One file in each shard's directory
//! that has any, so that whoever holds the shard has it.
//!
//! The file: `MAGIC`, then for each key, ascending, its hash (16 bytes), its slot (2) and the order of its delete (8), all
//! high byte first. A file that is not that is refused; its checksum is that of the shard's entry. 26 bytes a delete.

use std::path::Path;

use canopy_common::ids::KeyHash;

use crate::error::{Error, Result};

/// Name of the file in a shard's directory.
pub const FILE: &str = "graves";
/// First bytes of the file.
const MAGIC: &[u8; 8] = b"graves1\n";
/// Bytes of a delete.
const ENTRY: usize = 26;

/// A delete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Grave {
    /// Of which key.
    pub key: KeyHash,
    /// The slot of the key, which the hash does not tell.
    pub slot: u16,
    /// Its order.
    pub order: u64,
}

/// Deletes by key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Graves(Vec<Grave>);

impl Graves {
    /// Reads the file in a shard's directory; there are none where there is no file.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = directory.join(FILE);
        match std::fs::read(&path) {
            Ok(bytes) => Self::parse(&bytes)
                .map_err(|reason| Error::Damaged { file: path.display().to_string(), reason }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Self::default()),
            Err(error) => Err(Error::io(&path, error)),
        }
    }

    fn parse(bytes: &[u8]) -> std::result::Result<Self, String> {
        let entries = bytes.strip_prefix(MAGIC).ok_or("it does not begin as a file of deletes")?;
        let (entries, rest) = entries.as_chunks::<ENTRY>();
        if !rest.is_empty() {
            return Err("it ends within a delete".to_owned());
        }
        let graves: Vec<_> = entries.iter().filter_map(read).collect();
        if !graves.is_sorted_by(|a, b| a.key < b.key) {
            return Err("its keys are not in order, or one is there twice".to_owned());
        }
        Ok(Self(graves))
    }

    /// The bytes of the file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for grave in &self.0 {
            bytes.extend(grave.key.0.to_be_bytes());
            bytes.extend(grave.slot.to_be_bytes());
            bytes.extend(grave.order.to_be_bytes());
        }
        bytes
    }

    /// The order of the newest delete of a key.
    pub fn get(&self, key: KeyHash) -> Option<u64> {
        let at = self.0.binary_search_by_key(&key, |grave| grave.key).ok()?;
        self.0.get(at).map(|grave| grave.order)
    }

    /// All of them, by key.
    pub fn iter(&self) -> impl Iterator<Item = Grave> {
        self.0.iter().copied()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

fn read(entry: &[u8; ENTRY]) -> Option<Grave> {
    let (key, rest) = entry.split_first_chunk()?;
    let (slot, order) = rest.split_first_chunk()?;
    Some(Grave {
        key: KeyHash(u128::from_be_bytes(*key)),
        slot: u16::from_be_bytes(*slot),
        order: u64::from_be_bytes(*order.first_chunk()?),
    })
}

impl FromIterator<Grave> for Graves {
    /// In any order; of two of one key the newer stays.
    fn from_iter<I: IntoIterator<Item = Grave>>(graves: I) -> Self {
        let mut graves: Vec<_> = graves.into_iter().collect();
        graves.sort_unstable_by_key(|grave| (grave.key, std::cmp::Reverse(grave.order)));
        graves.dedup_by_key(|grave| grave.key);
        Self(graves)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletes_read_back_and_damage_is_named() {
        let directory = tempfile::tempdir().unwrap();
        assert!(Graves::open(directory.path()).unwrap().is_empty());
        let key = |n: u128| KeyHash(n << 64);
        let grave = |n: u128, order| Grave { key: key(n), slot: 4095 - n as u16, order };
        let graves: Graves =
            [grave(9, 3), grave(1, u64::MAX), grave(9, 7), grave(9, 5)].into_iter().collect();
        assert_eq!((graves.len(), graves.get(key(9)), graves.get(key(2))), (2, Some(7), None));
        let write = |bytes: &[u8]| std::fs::write(directory.path().join(FILE), bytes).unwrap();
        let bytes = graves.to_bytes();
        write(&bytes);
        assert_eq!(Graves::open(directory.path()).unwrap(), graves);
        let swapped = [&bytes[..8], &bytes[34..], &bytes[8..34]].concat();
        for damaged in [&bytes[1..], &bytes[..bytes.len() - 1], &swapped[..], b""] {
            write(damaged);
            assert!(matches!(Graves::open(directory.path()), Err(Error::Damaged { .. })));
        }
    }
}
