//! Maps whose order does not change from run to run. The standard maps hash with random keys: iterating one makes two
//! runs of the same seed differ. Keys that clients choose freely belong into a `BTreeMap`.

use std::hash::{BuildHasherDefault, Hasher};

/// xxh3 with a fixed seed.
#[derive(Default)]
pub struct Fixed(xxhash_rust::xxh3::Xxh3Default);

impl Hasher for Fixed {
    fn finish(&self) -> u64 {
        self.0.digest()
    }
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }
}

/// A hash map with a fixed seed.
#[expect(clippy::disallowed_types, reason = "the one place that may name it")]
pub type HashMap<K, V> = std::collections::HashMap<K, V, BuildHasherDefault<Fixed>>;
/// A hash set with a fixed seed.
#[expect(clippy::disallowed_types, reason = "the one place that may name it")]
pub type HashSet<K> = std::collections::HashSet<K, BuildHasherDefault<Fixed>>;
