//! What a search teaches whoever limits how many run at once.
//!
//! Only what was searched tells how long searching takes, and quick because nodes refused is not quick: too many that
//! were refused below are a reason to take on less. What this node withheld itself, because a node had refused too much, is
//! such a reason too: a query that lacks shards for it has cost the others their work.

use canopy_proto::v1;

use super::Gathered;

/// Of the shards of a query, the share whose refusal says that the leaves are overloaded and not one of them.
const MANY: f64 = 0.05;

/// What its limit may learn from a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lesson {
    /// It ended by itself: its time counts.
    Ended,
    /// It lacks what nodes below refused, because they have too much to do.
    Cut,
    /// Nothing.
    Nothing,
}

impl Gathered {
    /// What it teaches.
    pub fn lesson(&self) -> Lesson {
        let shed = |reply: &&v1::ShardReply| reply.outcome == v1::Outcome::Shed as i32;
        let shed = self.shards.iter().filter(shed).count();
        match shed as f64 > self.shards.len() as f64 * MANY {
            true => Lesson::Cut,
            false if self.steps.is_empty() => Lesson::Nothing,
            false => Lesson::Ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gather::attempt::{Fate, Step};

    #[test]
    fn what_was_refused_below_is_no_quick_answer() {
        let gathered = |shed: usize, asked: usize| {
            let outcome = |at| if at < shed { v1::Outcome::Shed } else { v1::Outcome::Answered };
            let shard = |at| v1::ShardReply { outcome: outcome(at) as i32, ..Default::default() };
            let step = Step {
                node: "a".into(),
                attempt: 1,
                kind: "first",
                fate: Fate::Won,
                shard: 0,
                shards: 1,
                start_us: 0,
                duration_us: 1,
            };
            let shards = (0..20).map(shard).collect();
            Gathered { shards, steps: vec![step; asked], ..Default::default() }
        };
        for (shed, asked, lesson) in [
            (0, 20, Lesson::Ended),
            (1, 20, Lesson::Ended),
            (2, 20, Lesson::Cut),
            (20, 0, Lesson::Cut),
            (0, 0, Lesson::Nothing),
        ] {
            assert_eq!(gathered(shed, asked).lesson(), lesson, "{shed} {asked}");
        }
    }
}
