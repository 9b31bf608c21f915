//! Latency probation: a replica that is far slower than the others of its set is used by shadows only.
//!
//! Time is what a call took over what such calls usually take, so that a replica that serves the dear ones is not slow.
//!
//! It neither fails nor is late, so no breaker opens; the choice by cost keeps most queries away from it, but with wide
//! fan-outs even a few per cent of slow branches set the latency of every query.
//!
//! Rule, from windows of at least 1 s and 10 answers: three windows in a row whose median is above 3 x that of the
//! others, and 5 ms above it, put it on probation. There it gets copies of queries that nobody waits for: one at a time,
//! one per 100 queries it was passed over in, and one per 5 s in any case. Three windows in a row with a median below
//! 1.5 x the others' bring it back, by slow start; six, twelve, twenty-four when it was there before within the last ten
//! minutes. The gap between 3 x and 1.5 x, and the counting in a row, keep a replica near a bound from going in and out.
//!
//! When the others have queues, nobody is put on probation: what it serves would only make them slower.

use std::time::Duration;

use tokio::time::Instant;

/// Least length of a window.
const WINDOW: Duration = Duration::from_secs(1);
/// Least answers in a window of a replica in use, and of one on probation.
const LEAST: (usize, usize) = (10, 1);
/// Most answers that are kept of a window.
const MOST: usize = 32;
/// How many times the others' median is far above it, and is near it.
const FAR: f64 = 3.0;
const NEAR: f64 = 1.5;
/// Differences below this are noise, microseconds.
const NOISE_US: f64 = 5000.0;
/// Windows in a row that decide.
const IN_A_ROW: u32 = 3;
/// Most times that the way back is doubled.
const DOUBLED: u32 = 3;
/// Quiet after which earlier probations are forgotten.
const QUIET: Duration = Duration::from_mins(10);
/// Queries passed over per shadow.
const PASSED_OVER: u32 = 100;
/// A shadow comes at least that often, if there are queries at all.
const SHADOW_AT_LEAST: Duration = Duration::from_secs(5);
/// A shadow whose end was never told is given up.
const SHADOW_PATIENCE: Duration = Duration::from_mins(1);

/// How the others of its set do.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Others {
    /// Their median time over what is usual for each call.
    pub relative: f64,
    /// Their median response time, microseconds.
    pub response: f64,
    /// They have no queues to speak of.
    pub calm: bool,
}

/// What a review decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It stays as it is.
    Stays,
    /// It goes on probation.
    Goes,
    /// It comes back.
    Returns,
}

/// The probation of one replica.
#[derive(Debug, Clone, Default)]
pub struct Probation {
    answers: Vec<f64>,
    count: usize,
    began: Option<Instant>,
    in_a_row: u32,
    out: bool,
    times: u32,
    back_at: Option<Instant>,
    passed_over: u32,
    shadow: Option<Instant>,
    shadow_runs: bool,
}

impl Probation {
    /// Whether it is on probation.
    pub fn out(&self) -> bool {
        self.out
    }

    /// An answer took so many times as long as usual.
    pub fn answered(&mut self, relative: f64, now: Instant) {
        self.began.get_or_insert(now);
        if self.answers.len() < MOST {
            self.answers.push(relative);
        } else {
            self.answers[self.count % MOST] = relative;
        }
        self.count += 1;
    }

    /// It was given up after so many times what is usual, because another replica was faster. What it would have taken is not
    /// known; that it counts as twice the time lets hedges not hide a slow replica, and copies sent at once not blame a good
    /// one.
    pub fn outlasted(&mut self, relative: f64, now: Instant) {
        self.answered(2.0 * relative, now);
    }

    /// Whether a window is full and waits for a review.
    pub fn due(&self, now: Instant) -> bool {
        let least = if self.out { LEAST.1 } else { LEAST.0 };
        self.answers.len() >= least
            && self.began.is_some_and(|began| now.saturating_duration_since(began) >= WINDOW)
    }

    /// Judges a full window against the others; a window without others to compare with decides nothing.
    pub fn review(&mut self, others: Option<Others>, now: Instant) -> Verdict {
        self.answers.sort_by(f64::total_cmp);
        let median = self.answers.get(self.answers.len() / 2).copied().unwrap_or(0.0);
        self.answers.clear();
        (self.count, self.began) = (0, None);
        let Some(others) = others else { return Verdict::Stays };
        let later_us = (median - others.relative) * others.response / others.relative.max(f64::MIN_POSITIVE);
        let above = |times: f64| median > times * others.relative && later_us > NOISE_US;
        let counts = if self.out { !above(NEAR) } else { above(FAR) && others.calm };
        self.in_a_row = if counts { self.in_a_row + 1 } else { 0 };
        let needed = if self.out { IN_A_ROW << self.times.saturating_sub(1).min(DOUBLED) } else { IN_A_ROW };
        if self.in_a_row < needed {
            return Verdict::Stays;
        }
        self.in_a_row = 0;
        self.out = !self.out;
        if !self.out {
            self.back_at = Some(now);
            return Verdict::Returns;
        }
        if self.back_at.is_some_and(|back| now.saturating_duration_since(back) > QUIET) {
            self.times = 0;
        }
        self.times += 1;
        (self.passed_over, self.shadow, self.shadow_runs) = (0, Some(now), false);
        Verdict::Goes
    }

    /// A query passes it over; true when a shadow of that query should go to it, which then counts as running.
    pub fn passed_over(&mut self, now: Instant) -> bool {
        if !self.out {
            return false;
        }
        self.passed_over = self.passed_over.saturating_add(1);
        let since = self.shadow.map_or(Duration::MAX, |last| now.saturating_duration_since(last));
        let earned = self.passed_over >= PASSED_OVER || since >= SHADOW_AT_LEAST;
        if !earned || self.shadow_runs && since < SHADOW_PATIENCE {
            return false;
        }
        (self.passed_over, self.shadow, self.shadow_runs) = (0, Some(now), true);
        true
    }

    /// The shadow ended.
    pub fn shadow_ended(&mut self) {
        self.shadow_runs = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CALM: Option<Others> = Some(Others { relative: 1.0, response: 10_000.0, calm: true });

    /// A window of answers of `ms` each where 10 are usual, and what it decides.
    async fn window(probation: &mut Probation, ms: u64, others: Option<Others>) -> Verdict {
        for _ in 0..10 {
            probation.answered(ms as f64 / 10.0, Instant::now());
        }
        tokio::time::advance(WINDOW).await;
        assert!(probation.due(Instant::now()));
        probation.review(others, Instant::now())
    }

    async fn windows(probation: &mut Probation, ms: &[u64]) -> Vec<Verdict> {
        let mut all = Vec::new();
        for ms in ms {
            all.push(window(probation, *ms, CALM).await);
        }
        all
    }

    use Verdict::{Goes, Returns, Stays};

    #[tokio::test(start_paused = true)]
    async fn three_bad_windows_in_a_row_and_three_good_ones_back() {
        let mut probation = Probation::default();
        assert_eq!(windows(&mut probation, &[31, 31, 30, 31, 31]).await, [Stays; 5]);
        assert_eq!(windows(&mut probation, &[31]).await, [Goes]);
        assert!(probation.out());
        assert_eq!(windows(&mut probation, &[15, 15, 16, 15, 15, 15]).await[5], Returns);
        assert!(!probation.out());
    }

    #[tokio::test(start_paused = true)]
    async fn alternating_around_a_bound_changes_nothing() {
        let mut probation = Probation::default();
        let alternating: Vec<u64> = (0..200).map(|n| if n % 2 == 0 { 29 } else { 33 }).collect();
        assert!(windows(&mut probation, &alternating).await.iter().all(|verdict| *verdict == Stays));
        assert!(windows(&mut probation, &[40, 40, 40]).await.contains(&Goes));
        let alternating: Vec<u64> = (0..200).map(|n| if n % 2 == 0 { 14 } else { 17 }).collect();
        assert!(windows(&mut probation, &alternating).await.iter().all(|verdict| *verdict == Stays));
    }

    #[tokio::test(start_paused = true)]
    async fn each_time_the_way_back_is_longer() {
        let mut probation = Probation::default();
        for good in [3, 6, 12, 24, 24] {
            assert_eq!(windows(&mut probation, &[90; 3]).await[2], Goes);
            let back = windows(&mut probation, &vec![10; good]).await;
            assert_eq!(back.iter().position(|verdict| *verdict == Returns), Some(good - 1));
        }
        tokio::time::advance(QUIET + WINDOW).await;
        assert_eq!(windows(&mut probation, &[90; 3]).await[2], Goes);
        assert_eq!(windows(&mut probation, &[10; 3]).await[2], Returns);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_is_sent_away_while_the_others_queue_or_for_noise() {
        let mut probation = Probation::default();
        let busy = Some(Others { relative: 1.0, response: 10_000.0, calm: false });
        let fast = Some(Others { relative: 0.02, response: 200.0, calm: true });
        for _ in 0..10 {
            assert_eq!(window(&mut probation, 90, busy).await, Stays);
            assert_eq!(window(&mut probation, 5, fast).await, Stays);
            assert_eq!(window(&mut probation, 90, None).await, Stays);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn shadows_come_one_at_a_time_and_few() {
        let mut probation = Probation::default();
        assert!((0..1000).all(|_| !probation.passed_over(Instant::now())), "not while it is in use");
        windows(&mut probation, &[90; 3]).await;
        let shadows = |probation: &mut Probation, queries: u32| {
            (0..queries).filter(|_| probation.passed_over(Instant::now())).count()
        };
        assert_eq!(shadows(&mut probation, 99), 0);
        assert_eq!(shadows(&mut probation, 1000), 1, "the first still runs");
        probation.shadow_ended();
        assert_eq!(shadows(&mut probation, 1), 1);
        probation.shadow_ended();
        tokio::time::advance(SHADOW_AT_LEAST).await;
        assert_eq!(shadows(&mut probation, 2), 1, "a quiet client probes too");
    }
}
