//! Whether a failure is asked again elsewhere. Per branch history: one **transparent** retry for what provably never
//! started (connection refused, shed before work): it costs no extra work; and one **counted** retry for any class
//! where another replica may do better. Never on bad input, never when time is up.
//!
//! A `CANCELLED` that nobody here asked for is a peer going away, so it counts as retryable.

use canopy_common::error::ErrorClass;

/// How a failure is asked again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Retry {
    /// The work never started: outside any budget.
    Transparent,
    /// Extra work.
    Counted,
}

/// What was tried for a set of shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// Candidates asked, by index in the branch.
    pub tried: Vec<u16>,
    /// Its transparent retry is used up.
    pub transparent: bool,
    /// Its counted retry is used up.
    pub counted: bool,
    /// Some candidate was there: it replied, or refused in its own words.
    pub reached: bool,
    /// Attempts sent.
    pub sent: u32,
}

impl History {
    /// The retry that is left for a failure of `class`; `started` when the replica had begun work on it.
    pub fn left(&self, class: ErrorClass, started: bool) -> Option<Retry> {
        if class.never_started() && !started && !self.transparent {
            return Some(Retry::Transparent);
        }
        let elsewhere = class.retryable() || class == ErrorClass::Cancelled;
        (elsewhere && !self.counted).then_some(Retry::Counted)
    }

    /// Both histories in one.
    pub fn join(&mut self, other: &Self) {
        for tried in &other.tried {
            if !self.tried.contains(tried) {
                self.tried.push(*tried);
            }
        }
        self.transparent |= other.transparent;
        self.counted |= other.counted;
        self.reached |= other.reached;
        self.sent += other.sent;
    }

    /// The history after `retry` was taken.
    pub fn with(&self, retry: Retry) -> Self {
        let mut next = self.clone();
        match retry {
            Retry::Transparent => next.transparent = true,
            Retry::Counted => next.counted = true,
        }
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_gets_the_retries_it_may() {
        use ErrorClass::{
            Cancelled, DataLoss, DeadlineExceeded, Internal, InvalidArgument, NotFound, Overloaded, Quota,
            Unavailable,
        };
        let fresh = History::default();
        let table = [
            (Unavailable, false, Some(Retry::Transparent)),
            (Overloaded, false, Some(Retry::Transparent)),
            (Unavailable, true, Some(Retry::Counted)),
            (Internal, false, Some(Retry::Counted)),
            (DataLoss, true, Some(Retry::Counted)),
            (NotFound, false, Some(Retry::Counted)),
            (Cancelled, false, Some(Retry::Counted)),
            (InvalidArgument, false, None),
            (DeadlineExceeded, false, None),
            (Quota, false, None),
        ];
        for (class, started, expected) in table {
            assert_eq!(fresh.left(class, started), expected, "{class} {started}");
        }
        let once = fresh.with(Retry::Transparent);
        assert_eq!(once.left(Unavailable, false), Some(Retry::Counted));
        let twice = once.with(Retry::Counted);
        assert_eq!(twice.left(Unavailable, false), None);
        assert_eq!(fresh.with(Retry::Counted).left(Internal, false), None);
    }
}
