//! The clock that the engine's own memory keeps: how long a slow start lasts, how fast what was seen fades, when a class
//! is looked at again. In production it is the clock of the runtime.
//!
//! A lab runs the engine on stretched time, because timers have a grain of one millisecond and a shard takes eight. Times
//! in settings grow with it; the times that are no settings would not, so that a slow start of ten seconds lasted half a
//! second of the model, and each figure depended on how finely it was measured. So whatever compares with such a time
//! reads this clock, which a lab makes as many times slower as it stretches the rest.
//!
//! Instants of it compare only with each other; they are never given to a timer.

use std::time::Duration;

use tokio::time::Instant;

/// How many times slower than the runtime's a clock runs; 1 outside of labs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace(u32);

impl Default for Pace {
    fn default() -> Self {
        Self(1)
    }
}

impl Pace {
    /// So many times slower; at least 1.
    pub fn slower(times: u32) -> Self {
        Self(times.max(1))
    }
}

/// A clock of that pace.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    origin: Instant,
    pace: Pace,
}

impl Clock {
    /// One that begins now.
    pub fn new(pace: Pace) -> Self {
        Self { origin: Instant::now(), pace }
    }

    /// What it shows.
    pub fn now(&self) -> Instant {
        let now = Instant::now();
        match self.pace.0 {
            1 => now,
            times => self.origin + now.saturating_duration_since(self.origin) / times,
        }
    }

    /// A time of the runtime, by this clock.
    pub fn span(&self, time: Duration) -> Duration {
        time / self.pace.0
    }

    /// A time by this clock, of the runtime.
    pub fn unscaled(&self, time: Duration) -> Duration {
        time.saturating_mul(self.pace.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_shows_the_time_of_the_runtime_or_a_part_of_it() {
        let (plain, slow) = (Clock::new(Pace::default()), Clock::new(Pace::slower(20)));
        let began = [plain.now(), slow.now()];
        tokio::time::advance(Duration::from_secs(40)).await;
        assert_eq!(plain.now(), Instant::now());
        let passed = [plain.now() - began[0], slow.now() - began[1]].map(|passed| passed.as_secs());
        assert_eq!(passed, [40, 2]);
        let second = Duration::from_secs(1);
        assert_eq!(slow.unscaled(slow.span(20 * second)), 20 * second);
        assert_eq!(plain.span(second), second);
    }
}
