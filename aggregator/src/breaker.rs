//! The breaker of one replica, at its caller: a replica that fails is not asked for a while.
//!
//! A retry hides one failure of one query; without a breaker every query goes on paying for the same dead replica, and
//! with R = 2 one of two first tries is wasted for as long as the replica is away.
//!
//! Rule: **closed** until 5 calls in a row were lost (it is **gone**), until of 5 in a row nothing came back, lost or late, or
//! until half of at least 20 calls within 10 s failed or were late (it is **failing**). Then **open** for 1 s, twice as long
//! after each failed probe, at most 5 s, drawn between 75 and 125 % so that callers do not all come back in one instant. Then
//! **half open**: one call at a time is let through as a probe; its success closes the breaker, its failure opens it again.
//! While open, only what was begun after it opened counts: late news of an old call decide nothing. After a minute of quiet the
//! next opening begins with 1 s again.
//!
//! What counts is chosen by the caller of [`Breaker::take`]: refusals because of load are no failures (ejecting a busy
//! replica makes the others busier), nor is anything that was refused here.

pub mod probation;
pub mod standing;

use std::time::Duration;

use tokio::time::Instant;

use crate::load::window::Window;

/// Lost calls in a row that open it, and lost or late ones.
const IN_A_ROW: u32 = 5;
/// Least calls of which a share is taken.
const LEAST: u32 = 20;
/// Share of failed and late calls that opens it.
const SHARE: f64 = 0.5;
/// First time it stays open, and longest.
const OPEN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(5));
/// Quiet after which earlier openings are forgotten.
const QUIET: Duration = Duration::from_mins(1);
/// A probe whose end was never told is given up.
const PROBE_PATIENCE: Duration = Duration::from_mins(1);

/// What the end of a call says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It answered.
    Good,
    /// It failed.
    Bad,
    /// Nothing came back in the time it had.
    Late,
    /// It could not be reached, or the connection broke.
    Lost,
}

/// Why it is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It can't be reached.
    Gone,
    /// Too many of its calls fail.
    Failing,
}

/// What it lets through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Position {
    /// Everything.
    Closed,
    /// Nothing until then.
    Open(Fault, Instant),
    /// One probe.
    HalfOpen(Fault),
}

#[derive(Debug, Clone, Copy)]
struct Opened {
    fault: Fault,
    at: Instant,
    until: Instant,
    probe: Option<Instant>,
}

/// The breaker of one replica.
#[derive(Debug, Clone, Default)]
pub struct Breaker {
    lost_in_a_row: u32,
    silent_in_a_row: u32,
    /// Calls, and failed ones.
    window: Window,
    opened: Option<Opened>,
    openings: u32,
    closed_at: Option<Instant>,
}

impl Breaker {
    /// What it lets through now.
    pub fn position(&self, now: Instant) -> Position {
        match self.opened {
            None => Position::Closed,
            Some(opened) if now < opened.until => Position::Open(opened.fault, opened.until),
            Some(opened) => Position::HalfOpen(opened.fault),
        }
    }

    /// Takes the place of the one probe; false when there is none to take.
    pub fn take_probe(&mut self, now: Instant) -> bool {
        let Some(opened) = &mut self.opened else { return false };
        let running = opened.probe.is_some_and(|began| now < began + PROBE_PATIENCE);
        if now < opened.until || running {
            return false;
        }
        opened.probe = Some(now);
        true
    }

    /// The probe ended, whatever came of it.
    pub fn probe_ended(&mut self) {
        if let Some(opened) = &mut self.opened {
            opened.probe = None;
        }
    }

    /// A call that began then ended with this sign. `lot` in 0..1 jitters how long it stays open. True when it changed.
    pub fn take(&mut self, sign: Sign, began: Instant, now: Instant, lot: f64) -> bool {
        if let Some(opened) = self.opened {
            return began >= opened.at && self.while_open(opened, sign, now, lot);
        }
        let one_more = |count: u32, counts: bool| if counts { count.saturating_add(1) } else { 0 };
        self.lost_in_a_row = one_more(self.lost_in_a_row, sign == Sign::Lost);
        self.silent_in_a_row = one_more(self.silent_in_a_row, matches!(sign, Sign::Lost | Sign::Late));
        self.window.add(1, u32::from(sign != Sign::Good), now);
        let (calls, failed) = self.window.sums(now);
        let failing = calls >= LEAST && f64::from(failed) >= SHARE * f64::from(calls);
        let fault = if self.lost_in_a_row >= IN_A_ROW {
            Fault::Gone
        } else if failing || self.silent_in_a_row >= IN_A_ROW {
            Fault::Failing
        } else {
            return false;
        };
        if self.closed_at.is_some_and(|closed| now.saturating_duration_since(closed) > QUIET) {
            self.openings = 0;
        }
        self.open(fault, now, lot);
        true
    }

    fn while_open(&mut self, opened: Opened, sign: Sign, now: Instant, lot: f64) -> bool {
        if sign == Sign::Good {
            *self = Self { openings: self.openings, closed_at: Some(now), ..Self::default() };
            return true;
        }
        // What is tried in panic while it is open is no probe: it must not keep the replica away for longer.
        if now >= opened.until {
            self.open(if sign == Sign::Lost { Fault::Gone } else { opened.fault }, now, lot);
        }
        false
    }

    fn open(&mut self, fault: Fault, now: Instant, lot: f64) {
        let length = OPEN.0.saturating_mul(1 << self.openings.min(8)).min(OPEN.1).mul_f64(0.75 + lot / 2.0);
        self.openings = self.openings.saturating_add(1);
        self.opened = Some(Opened { fault, at: now, until: now + length, probe: None });
    }
}

#[cfg(test)]
mod tests;
