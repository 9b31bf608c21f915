//! Whether more may be taken, from what is known of the followers: a value in, a decision out.
//!
//! The failure this prevents: writers are told "applied" for hours while no leaf shows any of it, and the log grows until the disk
//! is full. Rules: only a follower that was once at the end counts, so that a new leaf which replays a day of operations stops
//! nobody; one that left counts with its queue until it is forgotten, and with no lag. Room on the disk is the log's own to judge,
//! since deletes are taken inside its reserve and it alone knows the batch.

use std::time::Duration;

/// When to come back, milliseconds.
pub const RETRY_AFTER_MS: u64 = 1000;

/// What the followers that count are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Behind {
    /// Operations behind the slowest one.
    pub operations: u64,
    /// Age of the oldest operation that the slowest connected one was not sent.
    pub lag: Duration,
}

/// The bounds.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// Most operations behind the slowest follower.
    pub queue: u64,
    /// Longest lag; zero: any.
    pub max_lag: Duration,
}

/// Why nothing is taken now; `None`: go on.
pub fn refuse(behind: Behind, bounds: Bounds) -> Option<String> {
    if behind.operations >= bounds.queue {
        let (behind, most) = (behind.operations, bounds.queue);
        return Some(format!(
            "{behind} operations wait for the slowest leaf, the limit is {most} (ingest.queue)"
        ));
    }
    if bounds.max_lag > Duration::ZERO && behind.lag > bounds.max_lag {
        let (lag, most) = (behind.lag.as_millis(), bounds.max_lag.as_millis());
        return Some(format!("the slowest leaf is {lag} ms behind, the limit is {most} ms (ingest.max_lag)"));
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bounds_refuse_and_name_themselves() {
        let bounds = Bounds { queue: 10, max_lag: Duration::from_secs(1) };
        let behind = |operations, ms| Behind { operations, lag: Duration::from_millis(ms) };
        assert_eq!(refuse(behind(9, 1000), bounds), None);
        assert!(refuse(behind(10, 0), bounds).unwrap().contains("ingest.queue"));
        assert!(refuse(behind(0, 1001), bounds).unwrap().contains("ingest.max_lag"));
        let any = Bounds { max_lag: Duration::ZERO, ..bounds };
        assert_eq!(refuse(behind(0, u64::from(u32::MAX)), any), None);
    }
}
