//! The best k hits of all replies seen so far.
//!
//! Memory is at most 2k hits, however many are pushed: when twice as many are held the list is sorted, doubles go and
//! the rest is dropped. Dropping is safe for doubles and for collapse alike: a later hit of a dropped (shard, key) or
//! of a dropped collapse value is either better than the k-th and comes back by itself, or worse than k others that
//! only get better. Ties are total (score, key hash, shard), so the order of pushes never shows.

use std::{cmp::Ordering, collections::BTreeSet};

use canopy_common::{
    ids::KeyHash,
    topk::{Order, SortKey},
};
use canopy_proto::{convert, v1};

/// Below this many hits sorting more often costs more than it saves.
const LEAST: usize = 64;

/// Merges hits incrementally.
#[derive(Debug)]
pub struct HitMerge {
    k: usize,
    order: Order,
    collapse: bool,
    held: Vec<(SortKey, v1::Hit)>,
    /// The k-th best, once k are known: what is behind it can't enter any more.
    floor: Option<(SortKey, u32)>,
}

impl HitMerge {
    /// For the best `k` in `order`; with `collapse`, of each collapse value only the best counts.
    pub fn new(k: usize, order: Order, collapse: bool) -> Self {
        Self { k, order, collapse, held: Vec::new(), floor: None }
    }

    /// Hits of `request` at the largest k it asks of a shard.
    pub fn of(request: &v1::SearchRequest) -> Self {
        let k = request.shards.iter().map(|shard| shard.k).max().unwrap_or(0);
        Self::new(k as usize, convert::order(&request.sort), !request.collapse.is_empty())
    }

    /// Hits asked for.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Estimated bytes held.
    pub fn bytes(&self) -> usize {
        self.held.len() * size_of::<(SortKey, v1::Hit)>()
    }

    /// Offers a hit.
    pub fn push(&mut self, hit: v1::Hit) {
        if self.k == 0 {
            return;
        }
        let key = convert::sort_key(&hit);
        if let Some(floor) = &self.floor
            && place(&self.order, (&key, hit.shard), (&floor.0, floor.1)).is_gt()
        {
            return;
        }
        self.held.push((key, hit));
        if self.held.len() >= self.k.saturating_mul(2).max(LEAST) {
            self.trim();
        }
    }

    fn trim(&mut self) {
        let order = &self.order;
        self.held.sort_unstable_by(|a, b| place(order, (&a.0, a.1.shard), (&b.0, b.1.shard)));
        let mut seen: BTreeSet<(u32, KeyHash)> = BTreeSet::new();
        self.held.retain(|(key, hit)| seen.insert((hit.shard, key.key)));
        if self.collapse {
            let mut values: BTreeSet<String> = BTreeSet::new();
            self.held.retain(|(_, hit)| hit.collapse.is_empty() || values.insert(hit.collapse.clone()));
        }
        self.held.truncate(self.k);
        if self.held.len() == self.k {
            self.floor = self.held.last().map(|(key, hit)| (key.clone(), hit.shard));
        }
    }

    /// Whether a hit at `place` is before the last of the page, so that others behind it may be, too.
    pub fn beats_the_last(&mut self, at: (&SortKey, u32)) -> bool {
        self.trim();
        self.floor.as_ref().is_none_or(|floor| place(&self.order, at, (&floor.0, floor.1)).is_lt())
    }

    /// Best first; empties the merge for the next batch.
    pub fn take(&mut self) -> Vec<v1::Hit> {
        self.trim();
        self.floor = None;
        self.held.drain(..).map(|(_, hit)| hit).collect()
    }
}

/// The order of the page, made total by the shard.
fn place(order: &Order, a: (&SortKey, u32), b: (&SortKey, u32)) -> Ordering {
    order.cmp(a.0, b.0).then(a.1.cmp(&b.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hit(shard: u32, key: u64, score: f32, collapse: &str) -> v1::Hit {
        v1::Hit { shard, key_low: key, score, collapse: collapse.into(), ..Default::default() }
    }

    fn keys(merge: &mut HitMerge) -> Vec<(u32, u64)> {
        merge.take().into_iter().map(|hit| (hit.shard, hit.key_low)).collect()
    }

    #[test]
    fn doubles_of_a_hedge_do_no_harm() {
        let mut merge = HitMerge::new(3, Order::default(), false);
        for _ in 0..50 {
            for (key, score) in [(1, 5.0), (2, 4.0), (3, 3.0), (4, 2.0)] {
                merge.push(hit(0, key, score, ""));
            }
        }
        assert_eq!(keys(&mut merge), [(0, 1), (0, 2), (0, 3)]);
    }

    #[test]
    fn the_best_hit_of_each_collapse_value_stays_whatever_the_order() {
        // 100 values, the best hit of value v has score 1000 - v and comes last.
        let mut hits: Vec<v1::Hit> = (0..100_u32)
            .flat_map(|value| {
                let copy = move |n: u32| {
                    let score = if n == 11 { 1000.0 - value as f32 } else { n as f32 };
                    hit(n, u64::from(value * 100 + n), score, &format!("v{value}"))
                };
                (0..12).map(copy)
            })
            .collect();
        let mut forward = HitMerge::new(10, Order::default(), true);
        for hit in &hits {
            forward.push(hit.clone());
        }
        hits.reverse();
        let mut backward = HitMerge::new(10, Order::default(), true);
        for hit in hits {
            backward.push(hit);
        }
        let expected: Vec<(u32, u64)> = (0..10).map(|value| (11, value * 100 + 11)).collect();
        assert_eq!(keys(&mut forward), expected);
        assert_eq!(keys(&mut backward), expected);
    }

    #[test]
    fn what_has_no_collapse_value_is_not_collapsed() {
        let mut merge = HitMerge::new(5, Order::default(), true);
        (0..4).for_each(|key| merge.push(hit(0, key, 1.0, "")));
        assert_eq!(keys(&mut merge).len(), 4);
    }

    #[test]
    fn memory_stays_within_twice_k_and_k_zero_holds_nothing() {
        let mut merge = HitMerge::new(100, Order::default(), false);
        for key in 0..100_000 {
            merge.push(hit(0, key, (key % 977) as f32, ""));
            assert!(merge.held.len() <= 200);
        }
        assert_eq!(keys(&mut merge).len(), 100);
        let mut none = HitMerge::new(0, Order::default(), false);
        none.push(hit(0, 1, 1.0, ""));
        assert!(none.take().is_empty());
    }

    #[test]
    fn a_nan_score_comes_last() {
        let mut merge = HitMerge::new(2, Order::default(), false);
        merge.push(hit(0, 1, f32::NAN, ""));
        merge.push(hit(0, 2, -1.0, ""));
        assert_eq!(keys(&mut merge), [(0, 2), (0, 1)]);
    }

    #[test]
    fn a_batch_does_not_limit_the_next() {
        let mut merge = HitMerge::new(1, Order::default(), false);
        merge.push(hit(0, 1, 9.0, ""));
        assert_eq!(keys(&mut merge), [(0, 1)]);
        merge.push(hit(1, 2, 1.0, ""));
        assert_eq!(keys(&mut merge), [(1, 2)]);
    }
}
