//! Whether a queue stands, or only takes up a burst (after CoDel).
//!
//! A queue that was empty, or nearly so, at some moment of the last 100 ms is doing its work. One whose oldest entry was
//! never younger than 5 ms for that long delays everybody and helps nobody: then the newest goes first, because it alone
//! can still be in time. Rule: it is the age of the oldest entry that is judged, not of the one taken, so that taking
//! the newest first does not hide the queue. Units: time.

use std::time::Duration;

use tokio::time::Instant;

/// How long a queue has to stand.
pub const WINDOW: Duration = Duration::from_millis(100);
/// Age of the oldest entry above which it stands.
pub const TARGET: Duration = Duration::from_millis(5);

/// The judgement on one queue. A value: its owner tells it what was seen.
#[derive(Debug, Clone, Copy)]
pub struct Pressure {
    calm: Instant,
    under: bool,
}

impl Pressure {
    /// Of an empty queue.
    pub fn new(now: Instant) -> Self {
        Self { calm: now, under: false }
    }

    /// The oldest entry has waited so long (zero: the queue is empty); whether the queue stands. To be told before an
    /// entry comes and before one goes, so that no empty moment is missed.
    pub fn seen(&mut self, now: Instant, oldest: Duration) -> bool {
        if oldest <= TARGET {
            self.calm = now;
            self.under = false;
        } else if now.saturating_duration_since(self.calm) >= WINDOW {
            self.under = true;
        }
        self.under
    }

    /// What it said last.
    pub fn under(&self) -> bool {
        self.under
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_no_pressure_and_a_standing_queue_is() {
        let ms = Duration::from_millis;
        let start = Instant::now();
        let mut pressure = Pressure::new(start);
        // (time, age of the oldest, whether it stands)
        let table = [
            (0, 0, false),
            (20, 15, false),
            (90, 80, false),
            (100, 4, false), // the burst is over
            (110, 10, false),
            (160, 30, false),
            (199, 30, false),
            (200, 30, true),
            (285, 6, true), // not calm yet
            (290, 5, false),
            (389, 9, false),
            (390, 9, true),
        ];
        for (at, oldest, expected) in table {
            assert_eq!(pressure.seen(start + ms(at), ms(oldest)), expected, "at {at} ms");
        }
    }
}
