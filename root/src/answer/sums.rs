//! Totals, facets, versions and lag over all shards, as the answer prints them.
//!
//! Rule: a number that may be too small says so. `relation` is `eq` only when every document was searched and no
//! shard stopped counting; facets carry the largest possible undercount of each value.

use std::collections::BTreeMap;

use canopy_aggregator::merge;
use canopy_proto::v1;

use super::{Facet, FacetValue, Lag, Total, Versions};

/// A bounded total counts to here.
pub const BOUND: u64 = 1000;

/// The total. `seen`: hits known to exist (those of this page and the pages before); `complete`: nothing is missing.
pub fn total(mode: v1::TotalMode, shards: &[v1::ShardReply], seen: u64, complete: bool) -> Total {
    let (sum, mut lower_bound) = merge::total(shards);
    let value = match mode {
        v1::TotalMode::TotalNone => {
            lower_bound = true;
            seen
        }
        v1::TotalMode::TotalBounded => {
            // The bound holds for the sum too: the same corpus in more shards gives the same total.
            lower_bound |= sum > BOUND;
            sum.min(BOUND).max(seen)
        }
        v1::TotalMode::TotalExact => sum.max(seen),
    };
    lower_bound |= !complete;
    Total { value, relation: if lower_bound { "gte" } else { "eq" }, lower_bound }
}

/// Facets by field name.
pub fn facets(asked: &[v1::FacetBy], shards: &[v1::ShardReply], complete: bool) -> BTreeMap<String, Facet> {
    let sums = merge::facets(asked, shards);
    let named = asked.iter().zip(sums).map(|(by, sum)| {
        let values = sum.values.into_iter();
        let values = values.map(|(value, count, error_bound)| FacetValue { value, count, error_bound });
        let facet = Facet { values: values.collect(), lower_bound: sum.lower_bound || !complete };
        (by.field.clone(), facet)
    });
    named.collect()
}

fn answered(shards: &[v1::ShardReply]) -> impl Iterator<Item = &v1::ShardReply> {
    shards.iter().filter(|reply| reply.outcome == v1::Outcome::Answered as i32)
}

/// Versions that answered; the pinned one when none did.
pub fn versions(wanted: u64, shards: &[v1::ShardReply]) -> Versions {
    let versions = || answered(shards).map(|reply| reply.version);
    Versions { wanted, min: versions().min().unwrap_or(wanted), max: versions().max().unwrap_or(wanted) }
}

/// Lag of the overlays that answered.
pub fn lag(shards: &[v1::ShardReply]) -> Lag {
    let lags = || answered(shards).map(|reply| reply.lag_ms);
    Lag { min_lag_ms: lags().min().unwrap_or(0), max_lag_ms: lags().max().unwrap_or(0) }
}

/// Documents newer than the version that were searched beside it.
pub fn overlay(shards: &[v1::ShardReply]) -> u64 {
    answered(shards).fold(0, |sum, reply| sum.saturating_add(reply.documents_overlay))
}

/// Whether a shard lacks newer documents: it says so, or it was asked for offsets by one that knows of none.
pub fn stale(wanted: &[v1::PartitionOffset], shards: &[v1::ShardReply]) -> bool {
    answered(shards).any(|reply| reply.stale || !wanted.is_empty() && reply.offsets.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(total: u64, lower: bool) -> v1::ShardReply {
        let outcome = v1::Outcome::Answered as i32;
        v1::ShardReply { outcome, total, total_is_lower_bound: lower, version: 5, ..Default::default() }
    }

    #[test]
    fn a_total_says_when_it_is_a_lower_bound() {
        let bounded = v1::TotalMode::TotalBounded;
        let exact = |value| Total { value, relation: "eq", lower_bound: false };
        let least = |value| Total { value, relation: "gte", lower_bound: true };
        assert_eq!(total(bounded, &[reply(3, false), reply(4, false)], 7, true), exact(7));
        assert_eq!(total(bounded, &[reply(3, false), reply(4, false)], 7, false), least(7));
        assert_eq!(total(bounded, &[reply(700, false), reply(400, false)], 10, true), least(1000));
        assert_eq!(
            total(v1::TotalMode::TotalExact, &[reply(700, false), reply(400, false)], 10, true),
            exact(1100)
        );
        assert_eq!(total(v1::TotalMode::TotalNone, &[], 10, true), least(10));
    }

    #[test]
    fn versions_and_lag_count_only_who_answered() {
        let late = v1::ShardReply { version: 4, lag_ms: 9, ..reply(0, false) };
        let shed = v1::ShardReply { outcome: v1::Outcome::Shed as i32, version: 1, ..Default::default() };
        let shards = [reply(0, false), late, shed.clone()];
        assert_eq!(versions(5, &shards), Versions { wanted: 5, min: 4, max: 5 });
        assert_eq!(lag(&shards), Lag { min_lag_ms: 0, max_lag_ms: 9 });
        assert_eq!(versions(5, &[shed]), Versions { wanted: 5, min: 5, max: 5 });
    }

    #[test]
    fn newer_documents_and_their_lack_count_only_where_a_shard_answered() {
        let offset = v1::PartitionOffset { partition: 0, offset: 4 };
        let fresh = v1::ShardReply { documents_overlay: 3, offsets: vec![offset], ..reply(0, false) };
        let behind = v1::ShardReply { stale: true, ..fresh.clone() };
        let failed = v1::ShardReply {
            outcome: v1::Outcome::Failed as i32,
            stale: true,
            documents_overlay: 9,
            ..Default::default()
        };
        assert_eq!(overlay(&[fresh.clone(), fresh.clone(), failed.clone()]), 6);
        let boast = v1::ShardReply { documents_overlay: u64::MAX, ..fresh.clone() };
        assert_eq!(overlay(&[boast.clone(), boast]), u64::MAX);
        assert!(!stale(&[], &[fresh.clone(), failed.clone()]));
        assert!(!stale(&[offset], &[fresh.clone(), failed]));
        assert!(stale(&[], &[fresh.clone(), behind]));
        assert!(!stale(&[], &[reply(0, false)]), "a shard without a log");
        assert!(stale(&[offset], &[fresh, reply(0, false)]), "it does not know what was asked");
    }
}
