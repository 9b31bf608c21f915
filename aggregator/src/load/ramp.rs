//! Slow start. A replica that nobody has measured has no queue and no failures, so it looks like the best of all and
//! draws every query at the very moment its caches are cold; so does one that comes back after it was ejected.
//!
//! Rule: in its first 10 s a replica is chosen at most as often as its fair share of the choices it stood in, times a
//! weight that grows from `from` to 1. Counted, not drawn by lot, so that the bound holds in the first second too.

use std::time::Duration;

use tokio::time::Instant;

/// How long it lasts.
pub const RAMP: Duration = Duration::from_secs(10);
/// Weight that a new replica begins with.
pub const FRESH: f64 = 0.5;
/// Weight that a replica begins with after it was ejected.
pub const RETURNING: f64 = 0.1;

/// The slow start of one replica.
#[derive(Debug, Clone, Copy)]
pub struct Ramp {
    since: Instant,
    from: f64,
    fair: f64,
    taken: f64,
}

impl Ramp {
    /// One that begins now.
    pub fn new(from: f64, now: Instant) -> Self {
        Self { since: now, from, fair: 0.0, taken: 0.0 }
    }

    /// Share of its fair share that it may have now; `None`: it is over.
    pub fn weight(&self, now: Instant) -> Option<f64> {
        let age = now.saturating_duration_since(self.since);
        (age < RAMP).then(|| self.from + (1.0 - self.from) * age.as_secs_f64() / RAMP.as_secs_f64())
    }

    /// It stands in a choice of `among` replicas; true when it may be chosen.
    pub fn stands(&mut self, among: usize, now: Instant) -> bool {
        let Some(weight) = self.weight(now) else { return true };
        self.fair += weight / among.max(1) as f64;
        self.taken < self.fair
    }

    /// It was chosen.
    pub fn chosen(&mut self) {
        self.taken += 1.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_replica_that_would_always_win_gets_its_share_and_no_more() {
        for (from, share) in [(FRESH, 0.525), (RETURNING, 0.145)] {
            let mut ramp = Ramp::new(from, Instant::now());
            let mut chosen = 0.0;
            for _ in 0..1000 {
                tokio::time::advance(Duration::from_millis(1)).await;
                if ramp.stands(4, Instant::now()) {
                    ramp.chosen();
                    chosen += 1.0;
                }
            }
            assert!(chosen <= 250.0 * share + 1.0 && chosen >= 250.0 * share - 2.0, "{from}: {chosen}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends() {
        let mut ramp = Ramp::new(RETURNING, Instant::now());
        (0..50).for_each(|_| ramp.chosen());
        assert!(!ramp.stands(2, Instant::now()));
        tokio::time::advance(RAMP).await;
        assert!(ramp.stands(2, Instant::now()));
        assert_eq!(ramp.weight(Instant::now()), None);
    }
}
