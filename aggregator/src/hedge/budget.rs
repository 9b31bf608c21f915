//! What extra work may cost: a token bucket for hedges and counted retries, and a fuse for transparent retries.
//!
//! Without a bound, extra attempts answer slowness with load, and load with more extra attempts, until all the work is
//! extra. One token is one shard asked once more. Every shard dispatched for the first time earns `ratio` tokens (5 %),
//! a few more come with time so that a quiet client may hedge at all, and no more than a burst is kept. The delay of a
//! hedge is chosen so that the bucket stays full; an empty bucket means "no extra attempt", never "wait".
//!
//! A transparent retry repeats what provably never began, so it is free of the bucket; but when everything refuses
//! it would still double the calls, so at most a quarter of the branches of the last second are retried that way.
//!
//! In a tree each level pays from its own bucket, and only from its part of the ratio: a level above aggregators keeps
//! [`SUBTREE_PART`] of it and passes on the rest, so that the leaves see the ratio once and not once per level.

use std::time::Duration;

use tokio::time::Instant;

/// Part of the ratio that a level above aggregators keeps for itself.
pub const SUBTREE_PART: f64 = 0.2;
/// Branches of one second that may be retried transparently.
const FUSE_SHARE: f64 = 0.25;
/// That many may be, however few branches there were.
const FUSE_FLOOR: f64 = 50.0;
const FUSE_WINDOW: Duration = Duration::from_secs(1);

/// Limits of a bucket.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Tokens that come with each second.
    pub per_second: f64,
    /// Most tokens kept.
    pub burst: f64,
}

/// A token bucket; starts full.
#[derive(Debug, Clone)]
pub struct Bucket {
    tokens: f64,
    filled: Instant,
}

impl Bucket {
    /// A full one.
    pub fn new(now: Instant, limits: Limits) -> Self {
        Self { tokens: limits.burst, filled: now }
    }

    fn fill(&mut self, now: Instant, limits: Limits, tokens: f64) {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.filled = self.filled.max(now);
        self.tokens = (self.tokens + tokens + passed * limits.per_second).min(limits.burst);
    }

    /// Shards were dispatched that earn this many tokens.
    pub fn earn(&mut self, now: Instant, limits: Limits, tokens: f64) {
        self.fill(now, limits, tokens);
    }

    /// Takes tokens; false, and nothing taken, when there are too few.
    pub fn spend(&mut self, now: Instant, limits: Limits, tokens: f64) -> bool {
        self.fill(now, limits, 0.0);
        let enough = self.tokens >= tokens;
        if enough {
            self.tokens -= tokens;
        }
        enough
    }

    /// Takes tokens that are left over: false, and nothing taken, unless it is at least half full.
    pub fn spare(&mut self, now: Instant, limits: Limits, tokens: f64) -> bool {
        self.fill(now, limits, 0.0);
        let spare = 2.0 * self.tokens >= limits.burst;
        if spare {
            self.charge(now, limits, tokens);
        }
        spare
    }

    /// Takes tokens that it may not hold; owes a full bucket at most.
    pub fn charge(&mut self, now: Instant, limits: Limits, tokens: f64) {
        self.fill(now, limits, 0.0);
        self.tokens = (self.tokens - tokens).max(-limits.burst);
    }

    /// Tokens it holds.
    pub fn level(&self) -> f64 {
        self.tokens
    }
}

/// How many branches were asked, and how many of them again because nothing had begun; over one to two windows.
#[derive(Debug, Clone)]
pub struct Fuse {
    since: Instant,
    now: (f64, f64),
    before: (f64, f64),
}

impl Fuse {
    /// Nothing yet.
    pub fn new(now: Instant) -> Self {
        Self { since: now, now: (0.0, 0.0), before: (0.0, 0.0) }
    }

    fn turn(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.since);
        if passed >= FUSE_WINDOW {
            self.before = if passed < 2 * FUSE_WINDOW { self.now } else { (0.0, 0.0) };
            self.now = (0.0, 0.0);
            self.since = now;
        }
    }

    /// A branch was asked for the first time.
    pub fn asked(&mut self, now: Instant) {
        self.turn(now);
        self.now.0 += 1.0;
    }

    /// Whether one more branch may be asked again; counts it when it may.
    pub fn retry(&mut self, now: Instant) -> bool {
        self.turn(now);
        // The window before counts by the part of it that is less than one window ago.
        let passed = now.saturating_duration_since(self.since).as_secs_f64() / FUSE_WINDOW.as_secs_f64();
        let old = 1.0 - passed.min(1.0);
        let (asked, again) = (self.now.0 + old * self.before.0, self.now.1 + old * self.before.1);
        let may = again + 1.0 <= (asked * FUSE_SHARE).max(FUSE_FLOOR);
        if may {
            self.now.1 += 1.0;
        }
        may
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { per_second: 10.0, burst: 100.0 };

    fn after(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_spent_is_at_most_the_burst_and_the_ratio_and_the_floor() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start, LIMITS);
        let mut spent = 0.0;
        // 100,000 shards in 10 s, and a caller that always wants more.
        for n in 0..10_000 {
            let now = after(start, n);
            bucket.earn(now, LIMITS, 10.0 * 0.05);
            while bucket.spend(now, LIMITS, 1.0) {
                spent += 1.0;
            }
        }
        assert!((5190.0..=5200.0).contains(&spent), "{spent}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_client_earns_with_time_but_never_more_than_the_burst() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start, LIMITS);
        assert!(bucket.spend(start, LIMITS, 100.0) && !bucket.spend(start, LIMITS, 0.5));
        assert!(
            bucket.spend(after(start, 100), LIMITS, 1.0) && !bucket.spend(after(start, 100), LIMITS, 0.5)
        );
        assert!(bucket.spend(after(start, 3_600_000), LIMITS, 100.0));
        assert!(!bucket.spend(after(start, 3_600_000), LIMITS, 1.0));
        // Time never runs backwards for it.
        assert!(!bucket.spend(start, LIMITS, 1.0));
        assert!(bucket.level() < 1.0);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_too_dear_takes_nothing() {
        let start = Instant::now();
        let mut bucket = Bucket::new(start, LIMITS);
        assert!(!bucket.spend(start, LIMITS, 101.0));
        assert!((bucket.level() - 100.0).abs() < 1e-9);
        bucket.charge(start, LIMITS, 150.0);
        assert!((bucket.level() + 50.0).abs() < 1e-9 && !bucket.spend(start, LIMITS, 1.0));
        bucket.charge(start, LIMITS, 1e9);
        assert!((bucket.level() + 100.0).abs() < 1e-9);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quarter_of_the_branches_of_a_second_are_retried_and_a_few_always() {
        let start = Instant::now();
        let mut fuse = Fuse::new(start);
        assert_eq!((0..200).filter(|_| fuse.retry(start)).count(), FUSE_FLOOR as usize);
        let mut fuse = Fuse::new(start);
        let mut again = 0;
        for n in 0..10_000_u64 {
            let now = after(start, n);
            fuse.asked(now);
            again += u64::from(fuse.retry(now));
        }
        assert!((2400..=2600).contains(&again), "{again}");
        // After a silence nothing of it counts any more.
        let later = after(start, 60_000);
        assert_eq!((0..200).filter(|_| fuse.retry(later)).count(), FUSE_FLOOR as usize);
    }
}
