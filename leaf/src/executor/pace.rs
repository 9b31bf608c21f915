//! How long a task keeps a thread of late, and so how long one that comes now will wait.
//!
//! Of all tasks, because all of them stand in the same queue: what a search of a shard takes ([`super::ServiceTimes`]) says
//! nothing of a call for ten shards. Unknown is zero, which refuses nothing. Units: microseconds.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

/// A new task counts one part in so many.
const NEW: u64 = 16;

/// The pace of the threads. A lost race costs one sample.
#[derive(Debug, Default)]
pub struct Pace {
    task_us: AtomicU64,
}

impl Pace {
    /// A task kept its thread for so long.
    pub fn ran(&self, took: Duration) {
        let us = took.as_micros() as u64;
        let before = self.task_us.load(Ordering::Relaxed);
        let next = if before == 0 { us } else { before - before / NEW + us / NEW };
        self.task_us.store(next, Ordering::Relaxed);
    }

    /// How long the one behind `ahead` others waits for one of `threads`.
    pub fn wait(&self, ahead: usize, threads: usize) -> Duration {
        let turns = (ahead / threads.max(1)) as u64;
        Duration::from_micros(self.task_us.load(Ordering::Relaxed).saturating_mul(turns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_whole_rounds_of_all_threads() {
        let pace = Pace::default();
        assert_eq!(pace.wait(1000, 1), Duration::ZERO, "nothing is known");
        pace.ran(Duration::from_millis(8));
        pace.ran(Duration::from_millis(24));
        let times = [(0, 4), (3, 4), (4, 4), (11, 4), (2, 0)]
            .map(|(ahead, threads)| pace.wait(ahead, threads).as_millis());
        assert_eq!(times, [0, 0, 9, 18, 18]);
        pace.ran(Duration::MAX);
        assert!(pace.wait(usize::MAX, 1) > Duration::from_secs(1));
    }
}
