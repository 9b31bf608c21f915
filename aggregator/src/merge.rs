//! The only merge: hits by (shard, key hash) in one total order, totals and facets per shard summed once. Every level
//! and every retry goes through it, so the outcome cannot depend on which replica answered, on the shape of the tree or
//! on the order in which replies came.
//!
//! One replica's answer settles a shard, whole, so two states of a shard never meet here: a document that one replica has in a newer
//! form, or deleted, can't stand beside the form that another one has.
//!
//! It is right for any subset of replies, none included: what is missing makes totals and facets lower bounds, never
//! wrong numbers.

mod facets;
mod hits;

use canopy_common::coverage::{Cut, Outcome};
use canopy_proto::{convert, v1};

pub use facets::{Facet, facets};
pub use hits::HitMerge;

/// Sum of the shards' totals; true when it is a lower bound: a shard is missing, was cut, or counted to its limit only.
pub fn total(shards: &[v1::ShardReply]) -> (u64, bool) {
    let mut sum = (0_u64, false);
    for shard in shards {
        let Counted { whole, any } = counted(shard);
        if any {
            sum.0 = sum.0.saturating_add(shard.total);
        }
        sum.1 |= !whole || shard.total_is_lower_bound;
    }
    sum
}

/// What a shard's counts are worth.
struct Counted {
    /// They are the whole truth.
    whole: bool,
    /// They are there.
    any: bool,
}

fn counted(shard: &v1::ShardReply) -> Counted {
    match convert::outcome(shard) {
        // Fewer hits kept than asked does not touch what was counted.
        Outcome::Answered { cut: Cut::None | Cut::Hits, .. } => Counted { whole: true, any: true },
        Outcome::Answered { .. } => Counted { whole: false, any: true },
        _ => Counted { whole: false, any: false },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(outcome: v1::Outcome, cut: v1::Cut, total: u64, bound: bool) -> v1::ShardReply {
        v1::ShardReply {
            outcome: outcome as i32,
            cut: cut as i32,
            total,
            total_is_lower_bound: bound,
            ..Default::default()
        }
    }

    #[test]
    fn totals_say_when_they_are_lower_bounds() {
        use v1::{Cut, Outcome};
        let whole = reply(Outcome::Answered, Cut::None, 5, false);
        let cases = [
            (vec![], (0, false)),
            (vec![whole.clone(), reply(Outcome::Answered, Cut::Hits, 2, false)], (7, false)),
            (vec![whole.clone(), reply(Outcome::Answered, Cut::Deadline, 2, false)], (7, true)),
            (vec![whole.clone(), reply(Outcome::Answered, Cut::None, 2, true)], (7, true)),
            (vec![whole.clone(), reply(Outcome::Failed, Cut::None, 99, false)], (5, true)),
            (vec![whole.clone(), reply(Outcome::Unspecified, Cut::None, 99, false)], (5, true)),
            (vec![whole, reply(Outcome::Answered, Cut::None, u64::MAX, false)], (u64::MAX, false)),
        ];
        for (shards, expected) in cases {
            assert_eq!(total(&shards), expected);
        }
    }
}
