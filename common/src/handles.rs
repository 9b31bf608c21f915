//! How many more files and sockets this process may open, and how many more files it may map. Where they run out a listener can't
//! accept and a shard can't be opened, long after the start; so whoever needs many asks first.
//!
//! Rule: what the system's soft limit leaves; a part of it is the listeners' ([`RESERVED`]). `None`: the system does not say.

use std::fs;

/// Handles that are left to listeners, connections and logs.
pub const RESERVED: u64 = 64;
/// Mappings that are left to threads, libraries and memory.
const OTHER_MAPPINGS: u64 = 4096;

/// Files and sockets that may still be opened beyond [`RESERVED`].
pub fn free() -> Option<u64> {
    let limit = soft_limit(&fs::read_to_string("/proc/self/limits").ok()?)?;
    let open = fs::read_dir("/proc/self/fd").ok()?.count() as u64;
    Some(limit.saturating_sub(open + RESERVED))
}

/// Files that may be mapped in all.
pub fn mappings() -> Option<u64> {
    let most: u64 = fs::read_to_string("/proc/sys/vm/max_map_count").ok()?.trim().parse().ok()?;
    Some(most.saturating_sub(OTHER_MAPPINGS))
}

/// The soft limit in `/proc/self/limits`.
fn soft_limit(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    match line.split_whitespace().next()? {
        "unlimited" => None,
        number => number.parse().ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_soft_limit_counts() {
        let text =
            "Limit  Soft Limit  Hard Limit  Units\nMax open files            1024       524288   files\n";
        assert_eq!(soft_limit(text), Some(1024));
        assert_eq!(soft_limit("Max open files unlimited unlimited files"), None);
        assert_eq!(soft_limit(""), None);
        assert!(free().is_none_or(|free| free > 0) && mappings().is_none_or(|most| most > 0));
    }
}
