//! How long searching a shard takes here, as seen lately: a floor below which no search has ended, and a mean.
//!
//! The floor lets a leaf refuse at once what it can't possibly answer in time (the caller may still ask another
//! replica); the mean makes the hint of how long to stay away. Rule: the floor is the smallest time of the last one to
//! two windows of 10 s, so one lucky search does not hold it down for ever; unknown is zero, which refuses nothing.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

const WINDOW: Duration = Duration::from_secs(10);
const NONE: u64 = u64::MAX;

/// Times of finished searches. All methods take `&self`; a lost race costs one sample.
pub struct ServiceTimes {
    begun: Instant,
    window: AtomicU64,
    current_us: AtomicU64,
    previous_us: AtomicU64,
    mean_us: AtomicU64,
}

impl Default for ServiceTimes {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            window: AtomicU64::new(0),
            current_us: AtomicU64::new(NONE),
            previous_us: AtomicU64::new(NONE),
            mean_us: AtomicU64::new(0),
        }
    }
}

impl ServiceTimes {
    fn turn_window(&self) {
        let now = self.begun.elapsed().as_secs() / WINDOW.as_secs();
        let seen = self.window.load(Ordering::Relaxed);
        let swap = self.window.compare_exchange(seen, now, Ordering::Relaxed, Ordering::Relaxed);
        if now > seen && swap.is_ok() {
            let last = self.current_us.swap(NONE, Ordering::Relaxed);
            self.previous_us.store(if now == seen + 1 { last } else { NONE }, Ordering::Relaxed);
        }
    }

    /// One search of a shard ended by itself after `took`.
    pub fn record(&self, took: Duration) {
        self.turn_window();
        let us = took.as_micros() as u64;
        self.current_us.fetch_min(us, Ordering::Relaxed);
        let mean = self.mean_us.load(Ordering::Relaxed);
        let next = if mean == 0 { us } else { mean - mean / 16 + us / 16 };
        self.mean_us.store(next, Ordering::Relaxed);
    }

    /// No search of the last window was faster; zero when there was none.
    pub fn floor(&self) -> Duration {
        self.turn_window();
        let floor = self.current_us.load(Ordering::Relaxed).min(self.previous_us.load(Ordering::Relaxed));
        if floor == NONE { Duration::ZERO } else { Duration::from_micros(floor) }
    }

    /// Smoothed time of one search; zero when there was none.
    pub fn mean(&self) -> Duration {
        Duration::from_micros(self.mean_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_floor_is_of_the_last_windows_only() {
        let times = ServiceTimes::default();
        assert_eq!((times.floor(), times.mean()), (Duration::ZERO, Duration::ZERO));
        times.record(Duration::from_millis(2));
        times.record(Duration::from_millis(9));
        assert_eq!(times.floor(), Duration::from_millis(2));
        tokio::time::advance(WINDOW).await;
        times.record(Duration::from_millis(5));
        assert_eq!(times.floor(), Duration::from_millis(2));
        tokio::time::advance(WINDOW).await;
        assert_eq!(times.floor(), Duration::from_millis(5));
        tokio::time::advance(WINDOW * 3).await;
        assert_eq!(times.floor(), Duration::ZERO);
        assert!(times.mean() > Duration::from_millis(2) && times.mean() < Duration::from_millis(9));
    }
}
