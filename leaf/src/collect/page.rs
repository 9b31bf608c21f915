//! The page of a pruned search while it grows, and the floor below which nothing enters it.

use std::{cmp::Reverse, collections::BinaryHeap};

use super::Found;

/// The page so far, over all segments.
pub struct Page {
    k: usize,
    /// Scored canonically; sorted, at most k after each settling.
    pub kept: Vec<Found>,
    /// The k best lowest scores, as the bits of doubles that are not negative, which compare as the doubles do.
    lowest: BinaryHeap<Reverse<u64>>,
    /// The k-th of them; minus infinity while there are fewer.
    pub floor: f64,
}

impl Page {
    /// A page of at most `k`, of which some are known.
    pub fn new(k: usize, known: Vec<Found>) -> Self {
        let mut page = Self { k: k.max(1), kept: known, lowest: BinaryHeap::new(), floor: f64::NEG_INFINITY };
        page.trim();
        page
    }

    /// Counts a lowest score; whether the floor rose.
    pub fn push(&mut self, lowest: f64) -> bool {
        let bits = lowest.max(0.0).to_bits();
        if self.lowest.len() < self.k {
            self.lowest.push(Reverse(bits));
        } else if lowest <= self.floor {
            return false;
        } else if let Some(mut last) = self.lowest.peek_mut() {
            *last = Reverse(bits);
        }
        self.lift()
    }

    fn lift(&mut self) -> bool {
        let before = self.floor;
        if self.lowest.len() >= self.k {
            self.floor = self.lowest.peek().map_or(before, |low| f64::from_bits(low.0));
        }
        self.floor > before
    }

    /// Keeps the first k of what is scored, and takes the floor from them.
    pub fn trim(&mut self) {
        // Canonical scores are not negative.
        self.kept.sort_unstable_by_key(|hit| (Reverse(hit.score.to_bits()), hit.key));
        self.kept.truncate(self.k);
        self.lowest.clear();
        self.lowest.extend(self.kept.iter().map(|hit| Reverse(f64::from(hit.score).to_bits())));
        self.lift();
    }
}
