//! Many failures of one cause, said once. When a leaf dies, hundreds of shards fail with the same words but for a number
//! or two; a person needs the cause, how many shards it took, and one shard to look at.
//!
//! Two reasons are one cause when they are equal but for runs of digits. Causes are listed most shards first; what does
//! not fit the limit is summed in a last entry, so that the counts always add up.

use std::collections::BTreeMap;

use canopy_common::{coverage::Outcome, error::ErrorClass};
use canopy_proto::{convert, v1};

/// Shards that are missing for the same cause.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// The outcome's word; `various` in the entry that sums the rest.
    pub outcome: &'static str,
    /// The class, when failed.
    pub class: Option<ErrorClass>,
    /// In words, of the sample.
    pub reason: String,
    /// How many shards.
    pub shards: u32,
    /// One of them.
    pub sample: String,
}

/// At most `limit` causes of the shards that did not answer. `asked` and `replies` are in the same order.
pub fn causes(asked: &[v1::ShardRequest], replies: &[v1::ShardReply], limit: usize) -> Vec<Cause> {
    let mut groups: BTreeMap<(&'static str, u32, String), Cause> = BTreeMap::new();
    for (shard, reply) in asked.iter().zip(replies) {
        let outcome = convert::outcome(reply);
        if matches!(outcome, Outcome::Answered { .. }) {
            continue;
        }
        let class = match outcome {
            Outcome::Failed(class) => Some(class),
            _ => None,
        };
        let key = (outcome.as_str(), class.map_or(0, |class| class as u32), without_digits(&reply.reason));
        let cause = groups.entry(key).or_insert_with(|| Cause {
            outcome: outcome.as_str(),
            class,
            reason: reply.reason.clone(),
            shards: 0,
            sample: shard.shard.clone(),
        });
        cause.shards += 1;
    }
    let mut causes: Vec<Cause> = groups.into_values().collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.shards));
    if causes.len() > limit && limit > 0 {
        let rest = causes.split_off(limit - 1);
        let shards = rest.iter().map(|cause| cause.shards).sum();
        let sample = rest.into_iter().next().map_or_else(String::new, |cause| cause.sample);
        let reason = "other causes".to_owned();
        causes.push(Cause { outcome: "various", class: None, reason, shards, sample });
    }
    causes
}

fn without_digits(reason: &str) -> String {
    let mut bare = String::with_capacity(reason.len());
    for letter in reason.chars() {
        let letter = if letter.is_ascii_digit() { '#' } else { letter };
        if letter != '#' || !bare.ends_with('#') {
            bare.push(letter);
        }
    }
    bare
}

#[cfg(test)]
mod tests {
    use super::*;

    fn many(reasons: impl Iterator<Item = String>) -> (Vec<v1::ShardRequest>, Vec<v1::ShardReply>) {
        let pair = |(number, reason)| {
            let shard = v1::ShardRequest { shard: format!("main/{number}"), ..Default::default() };
            let outcome = v1::Outcome::Failed as i32;
            (shard, v1::ShardReply { outcome, error_class: 9, reason, ..Default::default() })
        };
        reasons.enumerate().map(pair).unzip()
    }

    #[test]
    fn a_thousand_failures_of_one_cause_are_one_entry() {
        let (asked, replies) =
            many((0..1000).map(|n| format!("leaf-{}: INTERNAL: block {n} is torn", n % 40)));
        let found = causes(&asked, &replies, 8);
        assert_eq!(found.len(), 1);
        assert_eq!((found[0].shards, found[0].sample.as_str()), (1000, "main/0"));
        assert_eq!(found[0].class, Some(ErrorClass::Internal));
    }

    #[test]
    fn what_exceeds_the_limit_is_summed_and_counts_add_up() {
        let (asked, replies) = many((0..100_u32).map(|n| "x".repeat(1 + (n % 20) as usize)));
        let found = causes(&asked, &replies, 8);
        assert_eq!(found.len(), 8);
        assert_eq!(found.iter().map(|cause| cause.shards).sum::<u32>(), 100);
        assert_eq!(found[7].outcome, "various");
    }

    #[test]
    fn answered_shards_have_no_cause() {
        let (asked, mut replies) = many(std::iter::once(String::new()));
        replies[0].outcome = v1::Outcome::Answered as i32;
        assert!(causes(&asked, &replies, 8).is_empty());
    }
}
