//! The instants of one query at one node, and the deadline that an attempt carries.
//!
//! - `finish_at = deadline - reserve`: gathering ends here, whatever is missing. At the root the reserve is for merging
//!   and fetching the page: the configured time, at most a quarter of the budget. Below the root it is for merging and
//!   the way back: 1 % of the budget, 0.5 to 5 ms, at most a quarter.
//! - An attempt sent at `now` carries `finish_at - now - travel`, recomputed at each send, so that a retry carries less
//!   than the first try did; `travel` is 2 % of what is left, 0.5 to 5 ms, at most a quarter: a leaf that stops at its
//!   deadline and sends what it has is then still heard.
//!
//! Times are monotonic; on the wire they are microseconds left, so clocks of two machines never meet.

use std::time::Duration;

use canopy_common::deadline::Deadline;
use tokio::time::Instant;

/// Below this an attempt cannot do anything useful.
const LEAST: Duration = Duration::from_micros(200);

/// Instants of one query at one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// When the request arrived here.
    pub arrival: Instant,
    /// When the answer stops being of use.
    pub deadline: Instant,
    /// When gathering ends.
    pub finish_at: Instant,
}

impl Schedule {
    /// For a request that arrives now. `reserve` is the root's; `level` 0 is the root.
    pub fn new(deadline: Deadline, level: u32, reserve: Duration) -> Self {
        let arrival = Instant::now();
        let deadline = deadline.instant();
        let budget = deadline.saturating_duration_since(arrival);
        let reserve = if level == 0 { reserve } else { share(budget, 100) };
        let finish_at = deadline.checked_sub(reserve.min(budget / 4)).unwrap_or(arrival);
        Self { arrival, deadline, finish_at: finish_at.max(arrival) }
    }

    /// Deadline of an attempt sent at `now`; `None` when it is too late to ask anyone.
    pub fn attempt(&self, now: Instant) -> Option<Deadline> {
        let left = self.finish_at.saturating_duration_since(now);
        let left = left.saturating_sub(share(left, 50).min(left / 4));
        (left >= LEAST).then(|| Deadline::at(now + left))
    }
}

/// One part in `of`, 0.5 to 5 ms.
fn share(of: Duration, parts: u32) -> Duration {
    (of / parts).clamp(Duration::from_micros(500), Duration::from_millis(5))
}

#[cfg(test)]
mod tests {
    use super::*;

    const RESERVE: Duration = Duration::from_millis(40);

    fn us(deadline: Option<Deadline>) -> u128 {
        deadline.map_or(0, |deadline| deadline.remaining().as_micros())
    }

    #[tokio::test(start_paused = true)]
    async fn each_attempt_carries_what_is_left_when_it_is_sent() {
        let schedule = Schedule::new(Deadline::after(Duration::from_millis(250)), 0, RESERVE);
        assert_eq!(schedule.finish_at - schedule.arrival, Duration::from_millis(210));
        let mut carried = vec![];
        for _ in 0..5 {
            carried.push(us(schedule.attempt(Instant::now())));
            tokio::time::advance(Duration::from_millis(50)).await;
        }
        assert_eq!(carried, [205_800, 156_800, 107_800, 58_800, 9_500]);
        assert_eq!(schedule.attempt(Instant::now()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn the_reserve_is_never_more_than_a_quarter() {
        for (budget_us, level, finish_us) in [
            (20_000, 0, 15_000),
            (1000, 0, 750),
            (0, 0, 0),
            (350_000, 1, 346_500),
            (10_000, 1, 9_500),
            (1000, 3, 750),
        ] {
            let schedule = Schedule::new(Deadline::after(Duration::from_micros(budget_us)), level, RESERVE);
            assert_eq!((schedule.finish_at - schedule.arrival).as_micros(), finish_us, "{budget_us}");
            assert!(us(schedule.attempt(schedule.arrival)) < budget_us.max(1).into());
        }
    }
}
