//! Two counts over the last 10 s, in parts of 1 s: what is older is forgotten, and no event is stored.

use std::time::Duration;

use tokio::time::Instant;

/// Parts of the window.
const PARTS: usize = 10;
/// Length of one part.
const PART: Duration = Duration::from_secs(1);

/// The counts.
#[derive(Debug, Clone, Default)]
pub struct Window {
    epoch: Option<Instant>,
    /// (part of time, first count, second count), by part modulo their number.
    parts: [(u64, u32, u32); PARTS],
}

impl Window {
    fn part(&self, now: Instant) -> u64 {
        let age = self.epoch.map_or(Duration::ZERO, |epoch| now.saturating_duration_since(epoch));
        (age.as_micros() / PART.as_micros()) as u64
    }

    /// Adds to both counts.
    pub fn add(&mut self, first: u32, second: u32, now: Instant) {
        self.epoch.get_or_insert(now);
        let part = self.part(now);
        let slot = &mut self.parts[part as usize % PARTS];
        if slot.0 != part {
            *slot = (part, 0, 0);
        }
        slot.1 = slot.1.saturating_add(first);
        slot.2 = slot.2.saturating_add(second);
    }

    /// Both counts now.
    pub fn sums(&self, now: Instant) -> (u32, u32) {
        self.sums_since(PARTS as u64, now)
    }

    /// Both counts of so many seconds, the one that runs included.
    pub fn sums_since(&self, seconds: u64, now: Instant) -> (u32, u32) {
        let part = self.part(now);
        let recent = self.parts.iter().filter(|slot| slot.0 + seconds.min(PARTS as u64) > part);
        recent.fold((0, 0), |sum, slot| (sum.0.saturating_add(slot.1), sum.1.saturating_add(slot.2)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(PARTS as u64);

    #[tokio::test(start_paused = true)]
    async fn what_is_older_than_the_window_is_forgotten() {
        let mut window = Window::default();
        assert_eq!(window.sums(Instant::now()), (0, 0));
        for _ in 0..30 {
            window.add(2, 1, Instant::now());
            tokio::time::advance(PART).await;
        }
        assert_eq!(window.sums(Instant::now()), (18, 9), "nine whole parts and the one that begins");
        assert_eq!(window.sums_since(2, Instant::now()), (2, 1));
        tokio::time::advance(WINDOW).await;
        assert_eq!(window.sums(Instant::now()), (0, 0));
        window.add(u32::MAX, 0, Instant::now());
        window.add(1, 0, Instant::now());
        assert_eq!(window.sums(Instant::now()), (u32::MAX, 0));
    }
}
