//! Whether a queue stands, or only takes up a burst (after CoDel).
//!
//! A queue that was empty, or nearly so, at some moment of the last 100 ms is doing its work. One whose oldest entry had
//! for that long waited more than it can bear delays everybody and helps nobody: then the newest goes first, because it
//! alone can still be in time. What a call can bear is a quarter of the time it came with, at least 5 ms and at most
//! 100 ms: a fixed and short time would let a busy tree of many shards, whose workers always have a little before them,
//! serve the newest first, so that each query is soon held up by the one leaf where it is not among the newest. Rule: it
//! is the age of the oldest entry that is judged, not of the one taken, so that taking the newest first does not hide the
//! queue. Units: time.

use std::time::Duration;

use tokio::time::Instant;

/// How long a queue has to stand.
pub const WINDOW: Duration = Duration::from_millis(100);
/// Part of the time of a call that it may wait.
const PART: u32 = 4;
/// Shortest and longest wait that is borne, whatever the time of a call.
const BORNE: [Duration; 2] = [Duration::from_millis(5), Duration::from_millis(100)];

/// Longest wait that a queue may cost a call which came with so much time.
pub fn bearable(own: Duration) -> Duration {
    (own / PART).clamp(BORNE[0], BORNE[1])
}

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

    /// The oldest entry has waited so long, of the time it came with (zero: the queue is empty); whether the queue
    /// stands. To be told before an entry comes and before one goes, so that no empty moment is missed.
    pub fn seen(&mut self, now: Instant, oldest: Duration, own: Duration) -> bool {
        if oldest <= bearable(own) {
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
        assert_eq!([0, 20, 200, 60_000].map(|own| bearable(ms(own))), [5, 5, 50, 100].map(ms));
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
            assert_eq!(pressure.seen(start + ms(at), ms(oldest), ms(20)), expected, "at {at} ms");
        }
    }
}
