//! Has a share of queries grown: of errors, of partial answers, of answers without a hit?
//!
//! Such shares are small, and so are the counts of the first minute. Without a tolerance the test is therefore exact:
//! given all events of both arms, those of the new version are binomial when nothing has changed (Fisher's condition).
//! With a tolerance (the share may grow by so much) there is no such condition; then one event and one non-event are
//! added to each arm before the difference is taken (Agresti and Caffo, 2000), which keeps the test honest at counts of
//! nought. Both are one-sided: fewer is never a breach. Units: shares of 1.

use serde::{Deserialize, Serialize};

use super::normal::{binomial_at_least, upper_tail};

/// Events among queries.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Count {
    /// Queries with the event.
    pub events: u64,
    /// Queries.
    pub queries: u64,
}

impl Count {
    /// The share; 0 of none.
    pub fn share(&self) -> f64 {
        if self.queries == 0 { 0.0 } else { self.events as f64 / self.queries as f64 }
    }
}

/// Chance of so large a share of the new version, or a larger one, when its true share is the control's plus
/// `tolerance`.
pub fn grown(control: Count, treatment: Count, tolerance: f64) -> f64 {
    let (n, m) = (control.queries as f64, treatment.queries as f64);
    if control.queries == 0 || treatment.queries == 0 {
        return 1.0;
    }
    if tolerance <= 0.0 {
        let all = control.events.saturating_add(treatment.events);
        return binomial_at_least(treatment.events, all, m / (n + m));
    }
    let (old, new) = ((control.events as f64 + 1.0) / (n + 2.0), (treatment.events as f64 + 1.0) / (m + 2.0));
    let variance = old * (1.0 - old) / (n + 2.0) + new * (1.0 - new) / (m + 2.0);
    upper_tail((new - old - tolerance) / variance.sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(events: u64, queries: u64) -> Count {
        Count { events, queries }
    }

    #[test]
    fn small_counts_are_judged_exactly() {
        assert!((grown(count(0, 100), count(5, 100), 0.0) - 1.0 / 32.0).abs() < 1e-12);
        assert_eq!(grown(count(0, 100), count(0, 100), 0.0), 1.0);
        assert!(grown(count(9, 100), count(1, 100), 0.0) > 0.99, "fewer is no breach");
        assert!(grown(count(0, 300), count(5, 100), 0.0) < 1.0 / 512.0, "arms of unequal size");
        assert_eq!(grown(count(0, 0), count(5, 100), 0.0), 1.0);
    }

    #[test]
    fn a_tolerance_is_given() {
        let (old, new) = (count(200, 10_000), count(250, 10_000));
        assert!(grown(old, new, 0.0) < 0.02, "half a point is seen");
        assert!(grown(old, new, 0.005) > 0.4, "and tolerated");
        assert!(grown(count(0, 100), count(1, 100), 0.005) > 0.05, "one of a hundred is no proof");
        assert!(grown(count(2, 100), count(30, 100), 0.005) < 1e-6);
    }
}
