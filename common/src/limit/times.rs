//! How long calls take here, as seen lately: mean and 90th percentile.
//!
//! What has less time left than most calls take is refused at once; the mean would serve the almost expired, half of
//! which miss. Rules: a percentile of few calls is unknown, and unknown is zero, which refuses nothing; the counts halve
//! every 5 s, so that a slow minute is forgotten; the percentile is read from the lower edge of its bucket, so that
//! nothing is refused by a rounding. Buckets are a quarter of an octave wide (19 %). Units: microseconds.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

use tokio::time::Instant;

/// Time in which a sample loses half its weight.
const HALF_LIFE: Duration = Duration::from_secs(5);
/// Buckets: up to 2^25 us, some 33 s.
const BUCKETS: usize = 100;
/// Samples below which nothing is known.
const FEWEST: u64 = 16;
/// Each sample counts so much, so that halving does not lose single ones at once.
const UNIT: u32 = 16;

/// Times of calls of one class. All methods take `&self`; a lost race costs one sample.
pub struct Times {
    begun: Instant,
    halved: AtomicU64,
    mean_us: AtomicU64,
    counts: [AtomicU32; BUCKETS],
}

impl Default for Times {
    fn default() -> Self {
        Self {
            begun: Instant::now(),
            halved: AtomicU64::new(0),
            mean_us: AtomicU64::new(0),
            counts: [const { AtomicU32::new(0) }; BUCKETS],
        }
    }
}

fn bucket(us: u64) -> usize {
    (4.0 * (us.max(1) as f64).log2()) as usize
}

fn lower_edge(bucket: usize) -> Duration {
    Duration::from_micros((bucket as f64 / 4.0).exp2() as u64)
}

impl Times {
    fn halve(&self) {
        let due = self.begun.elapsed().as_millis() as u64 / HALF_LIFE.as_millis() as u64;
        let seen = self.halved.load(Ordering::Relaxed);
        let mine = self.halved.compare_exchange(seen, due, Ordering::Relaxed, Ordering::Relaxed);
        if due > seen && mine.is_ok() {
            let times = (due - seen).min(31) as u32;
            for count in &self.counts {
                count.store(count.load(Ordering::Relaxed) >> times, Ordering::Relaxed);
            }
        }
    }

    /// A call ended by itself after `took`.
    pub fn record(&self, took: Duration) {
        self.halve();
        let us = took.as_micros() as u64;
        let count = &self.counts[bucket(us).min(BUCKETS - 1)];
        count.store(count.load(Ordering::Relaxed).saturating_add(UNIT), Ordering::Relaxed);
        let mean = self.mean_us.load(Ordering::Relaxed);
        let next = if mean == 0 { us } else { mean - mean / 16 + us / 16 };
        self.mean_us.store(next, Ordering::Relaxed);
    }

    /// Nine of ten calls took no longer; zero when that is unknown.
    pub fn p90(&self) -> Duration {
        self.halve();
        let counts = self.counts.each_ref().map(|count| u64::from(count.load(Ordering::Relaxed)));
        let all: u64 = counts.iter().sum();
        if all < FEWEST * u64::from(UNIT) {
            return Duration::ZERO;
        }
        let mut seen = 0;
        let at = counts.iter().position(|count| {
            seen += count;
            seen * 10 >= all * 9
        });
        at.map_or(Duration::ZERO, lower_edge)
    }

    /// Smoothed time of one call; zero when there was none.
    pub fn mean(&self) -> Duration {
        Duration::from_micros(self.mean_us.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_percentile_is_of_lately_and_needs_some_calls() {
        let times = Times::default();
        assert_eq!((times.p90(), times.mean()), (Duration::ZERO, Duration::ZERO));
        (1..FEWEST).for_each(|_| times.record(Duration::from_millis(8)));
        assert_eq!(times.p90(), Duration::ZERO, "too few to tell");
        (0..85).for_each(|_| times.record(Duration::from_millis(8)));
        let p90 = times.p90().as_micros();
        assert!((6700..=8000).contains(&p90), "{p90}");
        (0..20).for_each(|_| times.record(Duration::from_millis(200)));
        let p90 = times.p90().as_millis();
        assert!((165..=200).contains(&p90), "{p90}");
        tokio::time::advance(HALF_LIFE * 2).await;
        (0..100).for_each(|_| times.record(Duration::from_millis(2)));
        let p90 = times.p90().as_millis();
        assert!((6..=8).contains(&p90), "a quarter of the old ones count: {p90}");
        tokio::time::advance(HALF_LIFE * 40).await;
        assert_eq!(times.p90(), Duration::ZERO, "forgotten");
    }

    #[test]
    fn any_time_has_its_bucket() {
        for us in [0, 1, 2, 1000, u64::MAX] {
            let times = Times::default();
            (0..FEWEST).for_each(|_| times.record(Duration::from_micros(us)));
            assert!(times.p90() <= Duration::from_micros(us.max(1)), "{us}");
        }
    }
}
