//! How alike two answers to one query are, and how good one is.
//!
//! * **overlap@k**: of the first k hits, the part that both have.
//! * **rank-biased overlap** (Webber, Moffat and Zobel, 2010): overlap at every depth, weighted by how likely a reader gets
//!   there (from each hit to the next with chance 0.9), extrapolated beyond the end of the lists. It sees an exchange of
//!   first and tenth, which overlap@10 does not.
//! * **nDCG@k**: gain of the judged hits, discounted by place, over that of the best order.
//!
//! Two versions of an index differ on purpose, so the first two have floors, not tests of equality. Units: 0 to 1.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

/// Chance that a reader goes on to the next hit.
const PERSISTENCE: f64 = 0.9;
/// Deepest hit that is looked at; bounds the work whatever lists come.
pub const DEPTH: usize = 10;

/// Part of the first `k` hits that both have; 1 when both are empty.
pub fn overlap<T: Ord>(a: &[T], b: &[T], k: usize) -> f64 {
    let (a, b) = (&a[..a.len().min(k)], &b[..b.len().min(k)]);
    let most = a.len().max(b.len());
    if most == 0 {
        return 1.0;
    }
    let first: BTreeSet<&T> = a.iter().collect();
    let second: BTreeSet<&T> = b.iter().collect();
    first.intersection(&second).count() as f64 / most as f64
}

/// Rank-biased overlap of the first [`DEPTH`] hits, extrapolated (their equation 32); 1 when both are empty.
pub fn rank_biased_overlap<T: Ord>(a: &[T], b: &[T]) -> f64 {
    let (a, b) = (&a[..a.len().min(DEPTH)], &b[..b.len().min(DEPTH)]);
    let (short, long) = if a.len() <= b.len() { (a, b) } else { (b, a) };
    let (s, l) = (short.len(), long.len());
    if l == 0 {
        return 1.0;
    }
    if s == 0 {
        return 0.0;
    }
    let (mut in_short, mut in_long) = (BTreeSet::new(), BTreeSet::new());
    let (mut common, mut at_short, mut sum) = (0.0, 0.0, 0.0);
    for depth in 1..=l {
        let next_long = &long[depth - 1];
        in_long.insert(next_long);
        if let Some(next_short) = short.get(depth - 1) {
            in_short.insert(next_short);
            common += f64::from(u8::from(in_long.contains(next_short)));
            common += f64::from(u8::from(next_short != next_long && in_short.contains(next_long)));
        } else {
            common += f64::from(u8::from(in_short.contains(next_long)));
        }
        if depth == s {
            at_short = common;
        }
        let weight = PERSISTENCE.powi(depth as i32);
        sum += common / depth as f64 * weight;
        if depth > s {
            sum += at_short * (depth - s) as f64 / (s * depth) as f64 * weight;
        }
    }
    let rest = ((common - at_short) / l as f64 + at_short / s as f64) * PERSISTENCE.powi(l as i32);
    ((1.0 - PERSISTENCE) / PERSISTENCE * sum + rest).clamp(0.0, 1.0)
}

/// nDCG of the first `k` hits, gains as judged, discounted by log2(place + 1): `gains` of the hits in their order (0: not
/// judged), `ideal` of all judged documents. `None`: nothing that is judged is any good, so no order is better than another.
pub fn ndcg(gains: &[u32], ideal: &[u32], k: usize) -> Option<f64> {
    let sum = |gains: &[u32]| {
        let of = |(at, gain): (usize, &u32)| f64::from(*gain) / (at as f64 + 2.0).log2();
        gains.iter().take(k).enumerate().map(of).sum::<f64>()
    };
    let mut best = ideal.to_vec();
    best.sort_unstable_by(|a, b| b.cmp(a));
    let best = sum(&best);
    (best > 0.0).then(|| (sum(gains) / best).min(1.0))
}

/// Sums of a measure over queries, from which its mean and error follow.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Mean {
    /// How many.
    pub queries: u64,
    /// Their sum.
    pub sum: f64,
    /// Sum of their squares.
    pub squares: f64,
}

impl Mean {
    /// Adds one value of -1 to 1; what is no number counts as nothing.
    pub fn record(&mut self, value: f64) {
        if value.is_finite() {
            self.queries += 1;
            self.sum += value;
            self.squares += value * value;
        }
    }

    /// Adds those of another root.
    pub fn add(&mut self, other: &Self) {
        self.queries = self.queries.saturating_add(other.queries);
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// The mean; 0 of none.
    pub fn mean(&self) -> f64 {
        if self.queries == 0 { 0.0 } else { self.sum / self.queries as f64 }
    }

    /// Standard error of the mean.
    pub fn error(&self) -> f64 {
        let (n, mean) = (self.queries as f64, self.mean());
        if n < 2.0 { f64::INFINITY } else { ((self.squares / n - mean * mean).max(0.0) / (n - 1.0)).sqrt() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_counts_what_both_have() {
        assert_eq!(overlap(&[1, 2, 3], &[3, 2, 1], 10), 1.0);
        assert_eq!(overlap(&[1, 2, 3, 4], &[1, 2, 5, 6], 2), 1.0);
        assert_eq!(overlap(&[1, 2], &[3, 4], 10), 0.0);
        assert_eq!(overlap(&[1, 2, 3, 4], &[1], 10), 0.25);
        assert_eq!(overlap::<u8>(&[], &[], 10), 1.0);
        assert_eq!(overlap(&[1], &[], 10), 0.0);
    }

    #[test]
    fn rank_biased_overlap_weighs_the_top() {
        let straight: Vec<u8> = (0..10).collect();
        let swapped = |a: usize, b: usize| {
            let mut list = straight.clone();
            list.swap(a, b);
            list
        };
        let rbo = |list: &[u8]| rank_biased_overlap(&straight, list);
        assert!((rbo(&straight) - 1.0).abs() < 1e-12);
        assert!(rbo(&swapped(0, 9)) < rbo(&swapped(8, 9)) && rbo(&swapped(8, 9)) < 1.0);
        assert!(rbo(&[20, 21, 22]).abs() < 1e-12);
        // By hand, p = 0.9: agreement 0, 1 at depths 1, 2; rest 1.
        let expected = 0.1 / 0.9 * (0.0 * 0.9 + 1.0 * 0.81) + 0.81;
        assert!((rank_biased_overlap(&[1, 2], &[2, 1]) - expected).abs() < 1e-12);
        // A list that is the start of the other agrees as far as it goes.
        assert!((rank_biased_overlap(&[1, 2], &[1, 2, 3, 4]) - 1.0).abs() < 1e-12);
        assert_eq!(
            rank_biased_overlap(&straight, &straight[..3]),
            rank_biased_overlap(&straight[..3], &straight)
        );
        assert_eq!((rank_biased_overlap::<u8>(&[], &[]), rank_biased_overlap(&[1], &[])), (1.0, 0.0));
        assert!((0.0..=1.0).contains(&rank_biased_overlap(&[1, 1, 1], &[1, 2])));
    }

    #[test]
    fn ndcg_is_one_for_the_best_order() {
        assert_eq!(ndcg(&[3, 2, 0, 1], &[1, 2, 3], 2), Some(1.0));
        assert!(ndcg(&[0, 3], &[3], 10).unwrap() < 1.0);
        assert_eq!(ndcg(&[0, 0], &[3], 10), Some(0.0));
        assert_eq!(ndcg(&[1], &[0, 0], 10), None);
        assert!((ndcg(&[0, 1], &[1], 10).unwrap() - 1.0 / 3.0_f64.log2()).abs() < 1e-12);
    }

    #[test]
    fn means_know_their_error() {
        let (mut all, mut half) = (Mean::default(), Mean::default());
        for at in 0..100 {
            all.record(f64::from(at % 2));
            half.record(0.5);
        }
        all.record(f64::NAN);
        assert!((all.mean() - 0.5).abs() < 1e-12 && (all.error() - 0.5 / 99.0_f64.sqrt()).abs() < 1e-12);
        assert_eq!((half.error(), Mean::default().error()), (0.0, f64::INFINITY));
        let mut both = all;
        both.add(&half);
        assert_eq!(both.queries, 200);
    }
}
