//! Keeps work in the background to a share of one core: after each step it rests for as long as makes the step that
//! share of the whole. Reading, hashing and warming a new version beside a running one would else take the cores and the
//! caches from its queries.
//!
//! Rule: rest = step x (1 / share - 1), at least `GRAIN` at a time. Units: wall time of the step.

use std::time::Duration;

use tokio::time::Instant;

/// Rests are gathered until they are worth a wake-up.
const GRAIN: Duration = Duration::from_millis(2);

/// A share of one core.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Pace {
    share: f64,
}

impl Pace {
    /// As fast as it goes.
    pub const FULL: Self = Self { share: 1.0 };

    /// `percent` of a core; 100 and more: as fast as it goes.
    pub fn percent(percent: u32) -> Self {
        Self { share: f64::from(percent.clamp(1, 100)) / 100.0 }
    }

    /// How long to rest after a step.
    fn rest(self, step: Duration) -> Duration {
        step.mul_f64(1.0 / self.share - 1.0)
    }

    /// Work that begins now.
    pub fn steps(self) -> Steps {
        Steps { pace: self, begun: Instant::now(), owed: Duration::ZERO }
    }
}

/// Work in steps.
pub struct Steps {
    pace: Pace,
    begun: Instant,
    owed: Duration,
}

impl Steps {
    /// A step has ended; blocks the thread for its rest.
    pub fn rest(&mut self) {
        self.owed += self.pace.rest(self.begun.elapsed());
        if self.owed >= GRAIN {
            let until = Instant::now() + self.owed;
            while let Some(left) = until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            {
                // May wake early; nobody unparks a thread that opens shards.
                std::thread::park_timeout(left);
            }
            self.owed = Duration::ZERO;
        }
        self.begun = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenth_of_a_core_rests_nine_times_as_long_as_it_works() {
        let step = Duration::from_millis(3);
        assert_eq!(Pace::percent(10).rest(step).as_millis(), 27);
        assert_eq!(Pace::FULL.rest(step), Duration::ZERO);
        assert_eq!(Pace::percent(0), Pace::percent(1), "never still");
        assert_eq!(Pace::percent(250), Pace::FULL);
    }

    #[test]
    fn rests_are_taken() {
        let begun = Instant::now();
        let mut steps = Pace::percent(50).steps();
        let spin = || {
            let start = Instant::now();
            while start.elapsed() < Duration::from_millis(5) {}
        };
        spin();
        steps.rest();
        assert!(begun.elapsed() >= Duration::from_millis(10));
    }
}
