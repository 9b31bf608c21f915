//! One deadline per query. It is an instant on this node's monotonic clock; on the wire it is the time left, so clocks
//! of different machines never meet. Every hop takes a reserve off before it passes it on, so that a parent has time
//! to merge what its children sent at the last moment.
//!
//! Without this, per-hop timeouts add up and a leaf works for a caller that is gone. Rule: a deadline only ever
//! shrinks. Monotonic time is `tokio::time`, which tests move by hand.

use std::time::Duration;

use tokio::time::Instant;

/// The latest moment at which an answer is of use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Deadline(Instant);

impl Deadline {
    /// `budget` from now.
    pub fn after(budget: Duration) -> Self {
        Self(Instant::now() + budget)
    }

    /// At a given instant.
    pub fn at(instant: Instant) -> Self {
        Self(instant)
    }

    /// The instant.
    pub fn instant(self) -> Instant {
        self.0
    }

    /// Time left; zero when it has passed.
    pub fn remaining(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }

    /// Whether it has passed.
    pub fn expired(self) -> bool {
        Instant::now() >= self.0
    }

    /// The deadline for a child: earlier by `reserve`, never before now.
    pub fn child(self, reserve: Duration) -> Self {
        let now = Instant::now();
        Self(self.0.checked_sub(reserve).map_or(now, |at| at.max(now)))
    }

    /// The earlier of two.
    pub fn min(self, other: Self) -> Self {
        Self(self.0.min(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn child_shrinks_and_never_grows() {
        let parent = Deadline::after(Duration::from_millis(250));
        let child = parent.child(Duration::from_millis(20));
        assert_eq!(child.remaining(), Duration::from_millis(230));
        tokio::time::advance(Duration::from_millis(240)).await;
        assert!(child.expired() && !parent.expired());
        assert_eq!(parent.child(Duration::from_millis(20)).remaining(), Duration::ZERO);
        tokio::time::advance(Duration::from_millis(60)).await;
        assert_eq!(parent.remaining(), Duration::ZERO);
    }
}
