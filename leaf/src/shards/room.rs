//! Whether a shard fits, before anything is brought or opened: memory by the manifest's estimate. A leaf that took on more
//! than it has would be killed, and with it everything it serves; refused, the old version goes on serving.
//!
//! Rule: what is held and opened already, and the new shard, stay within the configured memory; without a configured one, the
//! new shard fits into what the machine (or its control group) says is available. Units: bytes.

use canopy_common::memory;
use canopy_format::manifest::ShardEntry;

use crate::error::{Error, Result};

/// Checks one shard; `held`: what everything else here is said to need; `limit`: 0 = what the machine has.
pub fn check(held: u64, entry: &ShardEntry, limit: u64) -> Result<()> {
    let need = entry.resident_bytes;
    let free = match limit {
        0 => memory::available(),
        limit => Some(limit.saturating_sub(held)),
    };
    match free {
        Some(free) if need > free => {
            Err(Error::NoRoom { what: "memory", shard: entry.shard.clone(), need, free })
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::ShardId;

    use super::*;

    #[test]
    fn what_does_not_fit_is_refused_with_both_numbers() {
        let entry = ShardEntry {
            shard: ShardId::new("main", 3),
            documents: 1,
            files: Vec::new(),
            bytes: 900,
            tokens: [].into(),
            resident_bytes: 600,
        };
        assert!(check(400, &entry, 1000).is_ok());
        let error = check(401, &entry, 1000).unwrap_err().to_string();
        assert!(error.contains("main/3") && error.contains("600") && error.contains("599"), "{error}");
        assert!(check(u64::MAX, &entry, 0).is_ok(), "600 bytes are there");
    }
}
