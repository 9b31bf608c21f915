//! Which words as written, with their terms, a shard has: most tokens of a text have been met before, and those cost one
//! hash and one look here. Each thread keeps a table of the pairs that it passed on last; it is direct-mapped and of
//! fixed size, so what it forgets is passed on again, and what it remembers was passed on for this shard.

use std::{
    cell::RefCell,
    sync::atomic::{AtomicU64, Ordering},
};

use canopy_format::statistics::SEPARATOR;
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Entries of a thread's table; a power of two. 8 bytes each: 256 KiB.
const ENTRIES: usize = 1 << 15;

thread_local! {
    static PASSED_ON: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// The gathering of one shard's spellings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gathering {
    /// No other shard of this process has it, so that what was passed on for another counts for nothing.
    number: u64,
}

impl Gathering {
    /// A new one.
    pub(crate) fn begin() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        Self { number: NEXT.fetch_add(1, Ordering::Relaxed) }
    }

    /// The pair as a key of the statistics, unless this thread has passed it on lately.
    pub(crate) fn unseen(self, spelling: &str, term: &str) -> Option<Vec<u8>> {
        if spelling.is_empty() {
            return None;
        }
        let hash = xxh3_64_with_seed(term.as_bytes(), self.number);
        // Never 0, which marks an empty entry.
        let hash = xxh3_64_with_seed(spelling.as_bytes(), hash) | 1;
        PASSED_ON.with_borrow_mut(|table| {
            table.resize(ENTRIES, 0);
            let entry = &mut table[(hash >> 1) as usize & (ENTRIES - 1)];
            if *entry == hash {
                return None;
            }
            *entry = hash;
            let mut key = Vec::with_capacity(spelling.len() + 1 + term.len());
            key.extend_from_slice(spelling.as_bytes());
            key.push(SEPARATOR);
            key.extend_from_slice(term.as_bytes());
            Some(key)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pair_is_passed_on_once_for_each_shard() {
        let (one, other) = (Gathering::begin(), Gathering::begin());
        for gathering in [one, other] {
            assert_eq!(gathering.unseen("memory", "memori").as_deref(), Some(&b"memory\x1fmemori"[..]));
            assert_eq!(gathering.unseen("memory", "memori"), None);
            assert_eq!(gathering.unseen("memory", "memory").as_deref(), Some(&b"memory\x1fmemory"[..]));
            assert_eq!(gathering.unseen("", "memory"), None);
        }
    }
}
