//! Dice. One seed feeds a process; every user gets a stream of its own by name, so that a new caller does not shift
//! the draws of the others and a simulation repeats from its seed.

use std::sync::Arc;

use parking_lot::Mutex;
use rand::{Rng, SeedableRng, TryRng};
use rand_chacha::ChaCha8Rng;

use crate::ids::QueryId;

/// A shared stream of random numbers.
#[derive(Clone)]
pub struct Dice(Arc<Mutex<ChaCha8Rng>>);

impl Dice {
    /// The same numbers for the same seed.
    pub fn seeded(seed: u64) -> Self {
        Self(Arc::new(Mutex::new(ChaCha8Rng::seed_from_u64(seed))))
    }

    /// Seeded by the operating system.
    pub fn from_entropy() -> std::io::Result<Self> {
        let rng = ChaCha8Rng::try_from_rng(&mut rand::rngs::SysRng).map_err(std::io::Error::other)?;
        Ok(Self(Arc::new(Mutex::new(rng))))
    }

    /// An own stream for `name`.
    pub fn stream(&self, name: &str) -> Self {
        Self::seeded(self.next_u64() ^ xxhash_rust::xxh3::xxh3_64(name.as_bytes()))
    }

    /// 64 random bits.
    pub fn next_u64(&self) -> u64 {
        self.0.lock().next_u64()
    }

    /// A number below `bound` (0 when `bound` is 0).
    pub fn below(&self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in 0..1.
    pub fn unit(&self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Random bytes from the operating system, for a key: they are in no stream and repeat in no simulation.
    pub fn key() -> std::io::Result<[u8; 32]> {
        let mut key = [0; 32];
        rand::rngs::SysRng.try_fill_bytes(&mut key).map_err(std::io::Error::other)?;
        Ok(key)
    }

    /// A fresh query id.
    pub fn query_id(&self) -> QueryId {
        let mut bytes = [0; 16];
        self.0.lock().fill_bytes(&mut bytes);
        QueryId(bytes)
    }
}
