//! Whether a shard fits, before anything is brought or opened. A leaf that took on more than it has would be killed, and with it
//! everything it serves; refused, the old version goes on serving. The same check at a start, a swap and a rollback.
//!
//! Rules: memory by the manifest's estimates: all that is held or being opened, and the new shard, stay within the
//! configured memory, or within what the machine (or its control group) says is available; pages of mapped files are available
//! to it, so what is held counts here. Handles: the files of all shards that are being opened are open at a time, beside
//! what the listeners keep. Mappings: one for each file held. Several shards are opened at a time, so who is let in takes
//! his room at once ([`super::Board::reserve`]). Units: bytes; files.

use canopy_common::{handles, memory};
use canopy_format::manifest::ShardEntry;

use crate::error::{Error, Result};

/// An amount of each thing that may be lacking.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amounts {
    /// Memory, bytes.
    pub memory: u64,
    /// Files that are open at a time.
    pub handles: u64,
    /// Files that are mapped.
    pub mappings: u64,
}

impl Amounts {
    /// What a shard needs.
    pub fn of(entry: &ShardEntry) -> Self {
        let files = entry.files.len() as u64;
        Self { memory: entry.resident_bytes, handles: files, mappings: files }
    }

    /// What is there for all shards together; `memory`: the configured limit, 0: what the machine has.
    pub fn limits(memory: u64) -> Self {
        let machine = || memory::available().unwrap_or(u64::MAX);
        Self {
            memory: if memory == 0 { machine() } else { memory },
            handles: handles::free().unwrap_or(u64::MAX),
            mappings: handles::mappings().unwrap_or(u64::MAX),
        }
    }

    /// Whether a shard fits beside what is `held`, within these limits.
    pub fn admit(&self, held: Self, entry: &ShardEntry) -> Result<()> {
        let need = Self::of(entry);
        for (what, need, held, limit) in [
            ("memory", need.memory, held.memory, self.memory),
            ("file handles", need.handles, held.handles, self.handles),
            ("mapped files", need.mappings, held.mappings, self.mappings),
        ] {
            let free = limit.saturating_sub(held);
            if need > free {
                return Err(Error::NoRoom { what, shard: entry.shard.clone(), need, free });
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::ShardId;
    use canopy_format::manifest::FileEntry;

    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let file = |name: &str| FileEntry { path: name.into(), bytes: 450, blake3: String::new() };
        let entry = ShardEntry {
            shard: ShardId::new("main", 3),
            documents: 1,
            files: vec![file("a"), file("b")],
            bytes: 900,
            tokens: [].into(),
            resident_bytes: 600,
        };
        let limits = Amounts { memory: 1000, handles: 10, mappings: 20 };
        let held = |memory, handles, mappings| Amounts { memory, handles, mappings };
        assert!(limits.admit(held(400, 8, 18), &entry).is_ok());
        for (held, words) in [
            (held(401, 8, 18), "insufficient memory: shard main/3 needs 600 bytes and 599 bytes are free"),
            (held(400, 9, 18), "insufficient file handles: shard main/3 needs 2 and 1 are free"),
            (held(400, 8, 21), "insufficient mapped files: shard main/3 needs 2 and 0 are free"),
        ] {
            let error = limits.admit(held, &entry).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        assert!(Amounts::limits(0).admit(Amounts::default(), &entry).is_ok(), "600 bytes are there");
    }
}
