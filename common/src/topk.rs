//! The one order of hits, and the merge that keeps the best k.
//!
//! Order: ranking stage reached (descending), then the sort values or the score (descending), then the key hash
//! (ascending). It is total and the same on every node, so a page never depends on which replica answered or in what
//! order replies came in. Sort values that are missing come last in both directions. Scores are never NaN: a NaN
//! reads as negative infinity.

use std::cmp::Ordering;

use crate::ids::KeyHash;

/// A value a hit is sorted by.
#[derive(Debug, Clone, PartialEq)]
pub enum SortValue {
    /// The document has none.
    Missing,
    /// Keyword.
    Text(String),
    /// Signed integer, date in microseconds.
    I64(i64),
    /// Unsigned integer.
    U64(u64),
    /// Float, score.
    F64(f64),
    /// Boolean.
    Bool(bool),
}

impl SortValue {
    /// Ascending order of present values; different types (which one corpus never mixes) order by type.
    fn cmp_present(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => a.cmp(b),
            (Self::I64(a), Self::I64(b)) => a.cmp(b),
            (Self::U64(a), Self::U64(b)) => a.cmp(b),
            (Self::F64(a), Self::F64(b)) => a.total_cmp(b),
            (Self::Bool(a), Self::Bool(b)) => a.cmp(b),
            _ => self.rank().cmp(&other.rank()),
        }
    }

    fn rank(&self) -> u8 {
        match self {
            Self::Missing => 0,
            Self::Bool(_) => 1,
            Self::I64(_) => 2,
            Self::U64(_) => 3,
            Self::F64(_) => 4,
            Self::Text(_) => 5,
        }
    }

    /// Place in the result order: smaller comes first.
    pub fn cmp_directed(&self, other: &Self, descending: bool) -> Ordering {
        match (self, other) {
            (Self::Missing, Self::Missing) => Ordering::Equal,
            (Self::Missing, _) => Ordering::Greater,
            (_, Self::Missing) => Ordering::Less,
            _ if descending => other.cmp_present(self),
            _ => self.cmp_present(other),
        }
    }
}

/// Where a hit stands in the order.
#[derive(Debug, Clone, PartialEq)]
pub struct SortKey {
    /// Ranking stage reached.
    pub stage: u32,
    /// Values asked to sort by; empty: by score.
    pub values: Vec<SortValue>,
    /// Score.
    pub score: f32,
    /// Key hash.
    pub key: KeyHash,
}

/// Direction of each sort value; empty for the order by score.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Order {
    /// One entry per sort value: descending?
    pub descending: Vec<bool>,
}

impl Order {
    /// Compares two places: `Less` comes first on the page.
    pub fn cmp(&self, a: &SortKey, b: &SortKey) -> Ordering {
        let first = if self.descending.is_empty() {
            b.stage.cmp(&a.stage).then_with(|| real(b.score).total_cmp(&real(a.score)))
        } else {
            self.descending
                .iter()
                .zip(a.values.iter().zip(&b.values))
                .map(|(&descending, (x, y))| x.cmp_directed(y, descending))
                .find(|order| order.is_ne())
                .unwrap_or(Ordering::Equal)
        };
        first.then_with(|| a.key.cmp(&b.key))
    }
}

/// NaN can't rank; -0 and 0 are one score.
fn real(score: f32) -> f32 {
    if score.is_nan() { f32::NEG_INFINITY } else { score + 0.0 }
}

/// Keeps the best `k` of what is pushed. Memory is at most 2k entries, whatever `k` claims to be and however many
/// are pushed.
#[derive(Debug)]
pub struct TopK<T> {
    k: usize,
    order: Order,
    kept: Vec<(SortKey, T)>,
    sorted: bool,
}

impl<T> TopK<T> {
    /// An empty list of at most `k`.
    pub fn new(k: usize, order: Order) -> Self {
        Self { k, order, kept: Vec::new(), sorted: true }
    }

    /// Offers one entry.
    pub fn push(&mut self, key: SortKey, item: T) {
        if self.k == 0 {
            return;
        }
        self.kept.push((key, item));
        self.sorted = false;
        if self.kept.len() >= self.k.saturating_mul(2).max(16) {
            self.trim();
        }
    }

    fn trim(&mut self) {
        if !self.sorted {
            let order = &self.order;
            self.kept.sort_by(|a, b| order.cmp(&a.0, &b.0));
            self.sorted = true;
        }
        self.kept.truncate(self.k);
    }

    /// The last place that still counts, once `k` are held.
    pub fn worst(&mut self) -> Option<&SortKey> {
        self.trim();
        (self.kept.len() == self.k).then(|| self.kept.last().map(|entry| &entry.0)).flatten()
    }

    /// Best first.
    pub fn into_sorted(mut self) -> Vec<(SortKey, T)> {
        self.trim();
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(score: f32, hash: u128) -> SortKey {
        SortKey { stage: 0, values: vec![], score, key: KeyHash(hash) }
    }

    #[test]
    fn equal_scores_order_by_key_hash() {
        let mut top = TopK::new(2, Order::default());
        for (score, hash) in [(1.0, 9), (1.0, 2), (f32::NAN, 1), (0.5, 0), (1.0, 5)] {
            top.push(key(score, hash), hash);
        }
        let got: Vec<u128> = top.into_sorted().into_iter().map(|entry| entry.1).collect();
        assert_eq!(got, [2, 5]);
    }

    #[test]
    fn k_zero_and_k_huge_are_harmless() {
        let mut none = TopK::new(0, Order::default());
        none.push(key(1.0, 1), ());
        assert!(none.into_sorted().is_empty());
        let mut all = TopK::new(usize::MAX, Order::default());
        for n in 0..100 {
            all.push(key(n as f32, n), ());
        }
        assert_eq!(all.into_sorted().len(), 100);
    }

    #[test]
    fn missing_is_last_in_both_directions() {
        for descending in [false, true] {
            let missing = SortValue::Missing;
            assert_eq!(missing.cmp_directed(&SortValue::I64(1), descending), Ordering::Greater);
        }
    }
}
