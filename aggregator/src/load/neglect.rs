//! Replicas that are in use and not asked. A replica that nobody asks has cold caches and sleeping threads; asked once in a
//! while it is slow because of that, and because it was slow it is not asked: of equal replicas one would stand idle for as
//! long as the others have no queues.
//!
//! Rule: one that was passed over in 16 choices in a row, or four for each replica of a larger set, gets a copy of a query that
//! nobody waits for, one at a time. The copies warm it and measure it; when it is as fast as the others it is asked again. When
//! it was not asked after 64 of them it is slow and not cold: from then on it gets one in 100 choices. So a slow replica costs
//! its set a sixteenth of the calls for a thousand queries, and a hundredth later.

use std::time::Duration;

use tokio::time::Instant;

/// Choices that it was passed over in: at least, and for each replica of the set.
const LEAST: u32 = 16;
const PER_REPLICA: u32 = 4;
/// Copies after which it is slow and not cold, and choices per copy from then on.
const COLD: u32 = 64;
const SLOW: u32 = 100;
/// A copy whose end was never told is given up.
const PATIENCE: Duration = Duration::from_mins(1);

/// How one replica is passed over.
#[derive(Debug, Clone, Copy, Default)]
pub struct Neglect {
    passed_over: u32,
    copies: u32,
    runs: Option<Instant>,
}

impl Neglect {
    /// It stands in a choice of `among`; true when a copy should go to it, unless it is chosen.
    pub fn stands(&mut self, among: usize, now: Instant) -> bool {
        self.passed_over = self.passed_over.saturating_add(1);
        let among = u32::try_from(among).unwrap_or(u32::MAX);
        let enough =
            if self.copies < COLD { among.saturating_mul(PER_REPLICA).clamp(LEAST, SLOW) } else { SLOW };
        let runs = self.runs.is_some_and(|begun| now.saturating_duration_since(begun) < PATIENCE);
        among > 1 && self.passed_over > enough && !runs
    }

    /// It was chosen.
    pub fn chosen(&mut self) {
        (self.passed_over, self.copies) = (0, 0);
    }

    /// A copy is sent to it.
    pub fn copied(&mut self, now: Instant) {
        (self.passed_over, self.copies, self.runs) = (0, self.copies.saturating_add(1), Some(now));
    }

    /// The copy ended.
    pub fn copy_ended(&mut self) {
        self.runs = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies in so many choices in which it is passed over.
    fn copies(neglect: &mut Neglect, choices: u32) -> u32 {
        let mut copies = 0;
        for _ in 0..choices {
            if neglect.stands(4, Instant::now()) {
                neglect.copied(Instant::now());
                neglect.copy_ended();
                copies += 1;
            }
        }
        copies
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_soon_then_one_in_a_hundred() {
        let mut neglect = Neglect::default();
        assert_eq!(copies(&mut neglect, LEAST), 0, "four rounds without it are chance");
        assert_eq!(copies(&mut neglect, (LEAST + 1) * COLD), COLD);
        assert!((95..=100).contains(&copies(&mut neglect, 10_000)), "then one in a hundred");
        neglect.chosen();
        assert_eq!(copies(&mut neglect, LEAST + 1), 1, "asked again, all begins anew");
    }

    #[tokio::test(start_paused = true)]
    async fn one_at_a_time_and_none_where_it_is_alone() {
        let mut neglect = Neglect::default();
        assert!((0..100).all(|_| !neglect.stands(1, Instant::now())));
        assert!(neglect.stands(4, Instant::now()));
        neglect.copied(Instant::now());
        assert!((0..1000).all(|_| !neglect.stands(4, Instant::now())), "the first still runs");
        tokio::time::advance(PATIENCE).await;
        assert!(neglect.stands(4, Instant::now()), "its end was lost");
    }
}
