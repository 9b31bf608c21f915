//! How far a shard's views are behind the log: the event time of the oldest record that is not applied yet, and whether
//! the overlay lost its place in the log. Shared by all views of a shard, because it changes without news to publish.
//!
//! Rule: 0 means that nothing is waiting. Units: microseconds since 1970 UTC, lag in milliseconds.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

/// See the module.
#[derive(Debug, Default)]
pub struct Lag {
    oldest_us: AtomicI64,
    stale: AtomicBool,
}

impl Lag {
    /// The oldest record that waits to be applied is of this moment; 0: none waits.
    pub fn set(&self, oldest_us: i64) {
        self.oldest_us.store(oldest_us, Ordering::Relaxed);
    }

    /// The overlay can't go on (a gap in the log), or can again.
    pub fn set_stale(&self, stale: bool) {
        self.stale.store(stale, Ordering::Relaxed);
    }

    /// Now minus the event time of the oldest record that waits; 0 when none waits or its clock is ahead.
    pub fn ms(&self, now_us: i64) -> u64 {
        let oldest = self.oldest_us.load(Ordering::Relaxed);
        if oldest == 0 { 0 } else { now_us.saturating_sub(oldest).max(0) as u64 / 1000 }
    }

    /// Whether the shard serves an old state because of a gap.
    pub fn stale(&self) -> bool {
        self.stale.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::Lag;

    #[test]
    fn lag_counts_from_the_oldest_record_and_is_nothing_when_idle() {
        let lag = Lag::default();
        assert_eq!((lag.ms(5_000_000), lag.stale()), (0, false));
        lag.set(2_000_000);
        assert_eq!((lag.ms(5_000_999), lag.ms(1)), (3000, 0));
        lag.set_stale(true);
        lag.set(0);
        assert_eq!((lag.ms(5_000_000), lag.stale()), (0, true));
    }
}
