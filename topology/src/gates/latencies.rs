//! Latencies of one arm, in constant memory: counts in buckets 0.1 to 0.2 % wide.
//!
//! A canary at 1 % of a busy corpus sees millions of queries; keeping them, or a sample drawn with dice, would make the
//! judgement depend on memory or luck. Counts do neither: those of several roots add up, the rank test needs only how
//! many of each arm are in each bucket (equal values are ties, which it knows), and the exceedance test needs only how
//! many lie above a bucket's edge. Memory: 8 bytes and a little for each bucket in use, at most 12,800 of them. Units: microseconds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Buckets of each doubling: 2 to this power.
const BITS: u32 = 9;
/// Longest time that is told apart: 71 minutes.
const LONGEST_US: u64 = u32::MAX as u64;

/// Counts of latencies.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Latencies {
    buckets: BTreeMap<u16, u64>,
}

/// Bucket of a latency.
fn bucket(us: u64) -> u16 {
    let us = us.min(LONGEST_US);
    let shift = (64 - us.leading_zeros()).saturating_sub(BITS + 1);
    ((shift << BITS) + (us >> shift) as u32) as u16
}

/// Least latency of a bucket.
pub(super) fn floor_us(bucket: u16) -> u64 {
    let shift = (u32::from(bucket) >> BITS).saturating_sub(1);
    u64::from(u32::from(bucket) - (shift << BITS)) << shift
}

impl Latencies {
    /// Counts one.
    pub fn record(&mut self, us: u64) {
        *self.buckets.entry(bucket(us)).or_default() += 1;
    }

    /// From buckets and their counts; what is no bucket is left out.
    pub fn from_buckets(buckets: impl IntoIterator<Item = (u32, u64)>) -> Self {
        let known =
            buckets.into_iter().filter(|(at, count)| *at <= u32::from(bucket(LONGEST_US)) && *count > 0);
        Self { buckets: known.map(|(bucket, count)| (bucket as u16, count)).collect() }
    }

    /// Adds those of another root.
    pub fn add(&mut self, other: &Self) {
        for (bucket, count) in &other.buckets {
            let sum = self.buckets.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// How many.
    pub fn len(&self) -> u64 {
        self.buckets.values().sum()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    /// Buckets in use and their counts, shortest first.
    pub fn buckets(&self) -> impl Iterator<Item = (u16, u64)> + '_ {
        self.buckets.iter().map(|(bucket, count)| (*bucket, *count))
    }

    /// The bucket of a quantile, 0 to 1.
    fn bucket_of(&self, quantile: f64) -> Option<(u16, f64)> {
        let wanted = quantile * self.len() as f64;
        let mut below = 0.0;
        for (bucket, count) in self.buckets() {
            let next = below + count as f64;
            if next >= wanted {
                return Some((bucket, ((wanted - below) / count as f64).clamp(0.0, 1.0)));
            }
            below = next;
        }
        self.buckets.keys().next_back().map(|bucket| (*bucket, 1.0))
    }

    /// A quantile, microseconds, as if a bucket's values were spread evenly; 0 when there is none.
    pub fn quantile_us(&self, quantile: f64) -> f64 {
        self.bucket_of(quantile).map_or(0.0, |(bucket, part)| {
            let (low, high) = (floor_us(bucket) as f64, floor_us(bucket + 1) as f64);
            low + part * (high - low)
        })
    }

    /// Least value above the bucket of a quantile: an edge that both arms are counted at alike.
    pub fn edge_us(&self, quantile: f64) -> u64 {
        self.bucket_of(quantile).map_or(0, |(bucket, _)| floor_us(bucket + 1))
    }

    /// How many are of `us` or more, `us` taken down to its bucket's edge.
    pub fn at_least(&self, us: u64) -> u64 {
        self.buckets.range(bucket(us)..).map(|(_, count)| count).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_narrow_and_in_order() {
        let mut before = 0;
        for us in
            (0..4_000_u64).chain((12..32).flat_map(|bit| [1 << bit, (1 << bit) + 1, (1 << bit) * 3 / 2]))
        {
            let at = bucket(us);
            assert!(
                floor_us(at) <= us && us < floor_us(at + 1),
                "{us}: {}..{}",
                floor_us(at),
                floor_us(at + 1)
            );
            let width = (floor_us(at + 1) - floor_us(at)) as f64;
            assert!(width <= 1.0 || width / us as f64 <= 0.00196, "{us}");
            assert!(us >= 4_000 || at >= before);
            before = at;
        }
        assert_eq!(bucket(u64::MAX), bucket(LONGEST_US));
        assert!(bucket(u64::MAX) < 12_800);
    }

    #[test]
    fn quantiles_and_counts_above_an_edge_agree() {
        let mut all = Latencies::default();
        (1..=10_000).for_each(|us| all.record(us));
        assert!((all.quantile_us(0.5) / 5_000.0 - 1.0).abs() < 0.005, "{}", all.quantile_us(0.5));
        let edge = all.edge_us(0.99);
        assert_eq!(all.at_least(edge), 10_001 - edge);
        assert!((60..=100).contains(&all.at_least(edge)), "{edge}");
        let mut twice = all.clone();
        twice.add(&all);
        assert_eq!((twice.len(), twice.at_least(edge)), (20_000, 2 * all.at_least(edge)));
        assert_eq!((Latencies::default().quantile_us(0.5), Latencies::default().edge_us(0.5)), (0.0, 0));
    }
}
