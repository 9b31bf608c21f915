//! The first k places of one segment. Memory is k entries, however many documents match and whatever k claims to be.

use std::collections::BinaryHeap;

use canopy_common::ids::KeyHash;
use tantivy::DocId;

/// Where a document stands within its segment: smaller comes first. The key hash makes it total.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// By the first criterion.
    pub first: u128,
    /// By the others.
    pub rest: Option<Box<[u128]>>,
    /// Among equals.
    pub key: KeyHash,
}

/// A document in its place.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Where.
    pub place: Place,
    /// Which.
    pub doc: DocId,
    /// Its score.
    pub score: f32,
}

impl PartialEq for Entry {
    fn eq(&self, other: &Self) -> bool {
        self.place == other.place
    }
}
impl Eq for Entry {}
impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Entry {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.place.cmp(&other.place)
    }
}

/// Keeps the first k.
#[derive(Debug)]
pub struct Top {
    k: usize,
    heap: BinaryHeap<Entry>,
}

impl Top {
    /// Keeps at most `k`, at least 1.
    pub fn new(k: usize) -> Self {
        Self { k: k.max(1), heap: BinaryHeap::new() }
    }

    /// The last place that counts, once k are held.
    #[inline]
    pub fn worst(&self) -> Option<&Place> {
        self.worst_entry().map(|entry| &entry.place)
    }

    /// The last entry that counts, once k are held.
    #[inline]
    pub fn worst_entry(&self) -> Option<&Entry> {
        if self.heap.len() < self.k { None } else { self.heap.peek() }
    }

    /// Offers an entry.
    pub fn push(&mut self, entry: Entry) {
        if self.heap.len() < self.k {
            self.heap.push(entry);
        } else if let Some(mut worst) = self.heap.peek_mut()
            && entry < *worst
        {
            *worst = entry;
        }
    }

    /// First comes first.
    pub fn into_sorted(self) -> Vec<Entry> {
        self.heap.into_sorted_vec()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_first_k_whatever_the_order() {
        let entry = |n: u32| Entry {
            place: Place { first: u128::from(n % 7), rest: None, key: KeyHash(u128::from(n)) },
            doc: n,
            score: 0.0,
        };
        let mut top = Top::new(5);
        (0..100).map(|n| (n * 37) % 100).for_each(|n| top.push(entry(n)));
        assert!(top.worst().is_some());
        let docs: Vec<u32> = top.into_sorted().into_iter().map(|entry| entry.doc).collect();
        assert_eq!(docs, [0, 7, 14, 21, 28]);
        assert!(Top::new(usize::MAX).worst().is_none());
    }
}
