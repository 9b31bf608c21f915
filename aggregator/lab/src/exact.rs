//! What a scatter over independent shards can be, exactly. These are the figures that stand beside the measured ones: a
//! measurement off them is a fault of the harness, a policy behind the optimum can be better, and one that beats the
//! optimum is measured wrongly.
//!
//! With F the distribution of one call, hedges sent with chance q at delay d after the first call leave a shard open at
//! t with `(1 - F(t)) * product of (1 - q F(t - d))`; all of S shards are done by t with that complement to the power
//! of S. Copies are independent here; copies that are slow for the same reason defeat hedging, which no formula shows.

use serde::{Deserialize, Serialize};

use crate::latency::Latency;

/// P(at least one of `shards` is slow), when each is with chance `q`.
pub fn any_slow(q: f64, shards: u32) -> f64 {
    1.0 - (1.0 - q).powi(shards as i32)
}

/// One more copy of a call.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Copy {
    /// Sent so long after the first call, when that is still open; ms.
    pub delay: f64,
    /// And then with this chance.
    pub chance: f64,
}

/// Calls of one distribution and the copies sent of each.
#[derive(Debug, Clone, PartialEq)]
pub struct Scatter {
    latency: Latency,
    copies: Vec<Copy>,
}

impl Scatter {
    /// No copies.
    pub fn unhedged(latency: Latency) -> Self {
        Self { latency, copies: Vec::new() }
    }

    /// Copies at these delays, earliest first.
    pub fn hedged(latency: Latency, copies: &[Copy]) -> Self {
        Self { latency, copies: copies.to_vec() }
    }

    /// One copy at the `quantile` of a single call, with this chance.
    pub fn at_quantile(latency: Latency, quantile: f64, chance: f64) -> Self {
        let delay = Self::unhedged(latency).quantile(quantile, 1);
        Self { latency, copies: vec![Copy { delay, chance }] }
    }

    /// `factor` calls at once.
    pub fn at_once(latency: Latency, factor: u32) -> Self {
        Self { latency, copies: vec![Copy { delay: 0.0, chance: 1.0 }; factor.saturating_sub(1) as usize] }
    }

    /// The delays.
    pub fn copies(&self) -> &[Copy] {
        &self.copies
    }

    fn open(&self, t: f64, copies: &[Copy]) -> f64 {
        let first = 1.0 - self.latency.cdf(t);
        copies.iter().fold(first, |open, copy| open * (1.0 - copy.chance * self.latency.cdf(t - copy.delay)))
    }

    /// P(one shard takes longer than t).
    pub fn slow(&self, t: f64) -> f64 {
        self.open(t, &self.copies)
    }

    /// Copies sent per call.
    pub fn extra(&self) -> f64 {
        let sent = |n: usize| {
            let copy = self.copies[n];
            // What is sent at once is sent whatever happens.
            copy.chance * if copy.delay > 0.0 { self.open(copy.delay, &self.copies[..n]) } else { 1.0 }
        };
        (0..self.copies.len()).map(sent).sum()
    }

    /// P(all of `shards` are done by t).
    pub fn done(&self, t: f64, shards: u32) -> f64 {
        (1.0 - self.slow(t)).powi(shards as i32)
    }

    /// P(all but at most `missing` of `shards` are done by t).
    pub fn done_but(&self, t: f64, shards: u32, missing: u32) -> f64 {
        let slow = self.slow(t);
        let mut ways = 1.0;
        (0..=missing.min(shards))
            .map(|open| {
                if open > 0 {
                    ways *= f64::from(shards - open + 1) / f64::from(open);
                }
                ways * slow.powi(open as i32) * (1.0 - slow).powi((shards - open) as i32)
            })
            .sum()
    }

    /// The time by which all but `missing` of `shards` are done with chance `p`.
    pub fn quantile_but(&self, p: f64, shards: u32, missing: u32) -> f64 {
        smallest(|t| self.done_but(t, shards, missing) >= p)
    }

    /// The time by which all of `shards` are done with chance `p`.
    pub fn quantile(&self, p: f64, shards: u32) -> f64 {
        smallest(|t| self.done(t, shards) >= p)
    }
}

/// The smallest t for which `enough` holds, for a condition that stays true once it is.
fn smallest(enough: impl Fn(f64) -> bool) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while !enough(high) && high < 1e9 {
        low = high;
        high *= 2.0;
    }
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if enough(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    high
}

/// The best that `hedges` copies (1 or 2) can do for the `p` quantile of a root over `shards`, sending at most `budget`
/// copies per call: one at a delay, with a chance below 1 where that is better; or two at the delays that use the
/// budget up.
pub fn optimum(latency: Latency, shards: u32, p: f64, budget: f64, hedges: u32) -> Scatter {
    let plain = Scatter::unhedged(latency);
    let end = plain.quantile(0.9999, 1);
    let mut best = (plain.quantile(p, shards), plain.clone());
    let mut offer = |scatter: Scatter| {
        let time = scatter.quantile(p, shards);
        if time < best.0 {
            best = (time, scatter);
        }
    };
    const STEPS: u32 = 600;
    for step in 0..STEPS {
        // Closer steps where calls are short.
        let delay = end * (f64::from(step) / f64::from(STEPS)).powi(3);
        let chance = (budget / plain.slow(delay)).min(1.0);
        let one = Copy { delay, chance };
        offer(Scatter::hedged(latency, &[one]));
        if hedges > 1 && chance == 1.0 {
            let two = |second: f64| Scatter::hedged(latency, &[one, Copy { delay: second, chance: 1.0 }]);
            let second = smallest(|second| second >= delay && two(second).extra() <= budget);
            offer(two(second));
        }
    }
    best.1
}

/// Waiting for all but one of `shards`, and then for a share of the time that is left for the last one.
#[derive(Debug, Clone)]
pub struct Grace {
    /// What one shard takes.
    pub scatter: Scatter,
    /// Shards.
    pub shards: u32,
    /// When everything ends, ms.
    pub deadline: f64,
    /// Share of the time left that the last one gets.
    pub share: f64,
}

impl Grace {
    /// P(answered by t): all are done, or all but one were so long ago that the last one's time is over.
    pub fn done(&self, t: f64) -> f64 {
        if t >= self.deadline {
            return 1.0;
        }
        let all = self.scatter.done(t, self.shards);
        let begun = (t - self.share * self.deadline) / (1.0 - self.share);
        if begun <= 0.0 {
            return all;
        }
        let others = (1.0 - self.scatter.slow(begun)).powi(self.shards as i32 - 1);
        all + f64::from(self.shards) * others * self.scatter.slow(t)
    }

    /// The time by which an answer is out with chance `p`.
    pub fn quantile(&self, p: f64) -> f64 {
        smallest(|t| self.done(t) >= p)
    }

    /// Share of the answers that lack a shard.
    pub fn partial(&self) -> f64 {
        let n = f64::from(self.shards);
        let steps = 20_000;
        let at = |step: u32| self.deadline * f64::from(step) / f64::from(steps);
        let done = |t: f64| 1.0 - self.scatter.slow(t);
        let within: f64 = (0..steps)
            .map(|step| {
                let (from, to) = (at(step), at(step + 1));
                let middle = 0.5 * (from + to);
                let last_by = middle + self.share * (self.deadline - middle);
                let density =
                    n * (n - 1.0) * done(middle).powi(self.shards as i32 - 2) * (done(to) - done(from));
                density * self.scatter.slow(last_by)
            })
            .sum();
        // More than one open at the deadline.
        let slow = self.scatter.slow(self.deadline);
        let at_most_one =
            (1.0 - slow).powi(self.shards as i32) + n * slow * (1.0 - slow).powi(self.shards as i32 - 1);
        within + 1.0 - at_most_one
    }
}

/// Mean wait in the queue of one worker with random arrivals at `load`, ms (Pollaczek and Khinchine).
pub fn queue_wait(latency: &Latency, load: f64) -> f64 {
    load / latency.mean() * latency.mean_square() / (2.0 * (1.0 - load))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(value: f64, expected: f64, share: f64) {
        assert!((value / expected - 1.0).abs() <= share, "{value} where {expected} is right");
    }

    #[test]
    fn the_chance_that_any_of_many_is_slow() {
        for (q, shards, expected) in [(0.01, 100, 0.634), (0.001, 10, 0.00996), (0.01, 1, 0.01)] {
            near(any_slow(q, shards), expected, 0.001);
        }
    }

    #[test]
    fn an_unhedged_root_is_as_slow_as_its_slowest_shard() {
        let scatter = Scatter::unhedged(Latency::with_hiccups(0.005));
        for (shards, p50, p99, p999) in [
            (1, 7.1, 25.6, 212.0),
            (10, 15.2, 212.0, 219.0),
            (50, 23.1, 218.0, 220.0),
            (100, 30.0, 219.0, 220.0),
            (200, 192.0, 220.0, 220.0),
        ] {
            near(scatter.quantile(0.5, shards), p50, 0.01);
            near(scatter.quantile(0.99, shards), p99, 0.01);
            near(scatter.quantile(0.999, shards), p999, 0.01);
        }
    }

    #[test]
    fn a_copy_at_the_95th_percentile_costs_five_percent_and_saves_most() {
        let scatter = Scatter::at_quantile(Latency::with_hiccups(0.005), 0.95, 1.0);
        near(scatter.extra(), 0.05, 0.001);
        near(scatter.quantile(0.99, 100), 37.8, 0.01);
        near(scatter.quantile(0.99, 1), 22.4, 0.01);
        let twice = Scatter::at_once(Latency::with_hiccups(0.005), 2);
        near(twice.extra(), 1.0, 1e-9);
        near(twice.quantile(0.99, 100), 25.6, 0.01);
    }

    #[test]
    fn a_quorum_does_not_wait_for_the_last() {
        let plain = Scatter::unhedged(Latency::with_hiccups(0.005));
        near(plain.quantile_but(0.5, 100, 1), 21.9, 0.01);
        near(plain.quantile_but(0.99, 100, 5), 21.4, 0.01);
        near(plain.quantile_but(0.99, 100, 0), plain.quantile(0.99, 100), 1e-6);
    }

    #[test]
    fn two_copies_beat_hiccups_that_one_cannot() {
        let latency = Latency::with_hiccups(0.01);
        let one = optimum(latency, 200, 0.99, 0.05, 1);
        let two = optimum(latency, 200, 0.99, 0.05, 2);
        assert!(one.extra() <= 0.0501 && two.extra() <= 0.0501);
        assert!(one.quantile(0.99, 200) > 190.0);
        near(two.quantile(0.99, 200), 36.4, 0.02);
        let latency = Latency::with_hiccups(0.005);
        near(optimum(latency, 100, 0.99, 0.02, 1).quantile(0.99, 100), 42.1, 0.02);
        near(optimum(latency, 100, 0.99, 0.05, 1).quantile(0.99, 100), 37.9, 0.02);
        near(optimum(latency, 100, 0.999, 0.02, 2).quantile(0.999, 100), 43.0, 0.02);
    }

    #[test]
    fn a_little_grace_for_the_last_shard_completes_nearly_all() {
        let latency = Latency::with_hiccups(0.005);
        let grace = Grace {
            scatter: Scatter::at_quantile(latency, 0.95, 1.0),
            shards: 100,
            deadline: 250.0,
            share: 0.05,
        };
        near(grace.quantile(0.5), 23.4, 0.01);
        near(grace.quantile(0.99), 34.5, 0.01);
        near(grace.quantile(0.999), 38.8, 0.01);
        near(grace.partial(), 0.025, 0.08);
    }

    #[test]
    fn the_wait_in_a_queue_grows_with_its_load() {
        let latency =
            Latency { body: crate::latency::Body::Exponential { mean: 8.0 }, ..Latency::with_hiccups(0.0) };
        near(queue_wait(&latency, 0.5), 8.0, 1e-9);
        near(queue_wait(&latency, 0.8), 32.0, 1e-9);
    }
}
