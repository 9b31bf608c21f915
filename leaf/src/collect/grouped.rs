//! The first k places of one segment with at most one document per value of the collapse field.
//!
//! Memory is k entries: a value whose best place fell off the end may be forgotten, because a later document of that
//! value that comes before the end is its best place again. The first k groups of every shard are enough for the first
//! k groups of all: what stands before a document in its shard's list stands before it in the whole list too.

use std::collections::BTreeMap;

use tantivy::DocId;

use super::top::{Entry, Place};

/// Keeps the first k groups.
#[derive(Debug)]
pub struct Grouped {
    k: usize,
    places: BTreeMap<Place, (DocId, f32, Option<u64>)>,
    groups: BTreeMap<u64, Place>,
}

impl Grouped {
    /// Keeps at most `k`, at least 1.
    pub fn new(k: usize) -> Self {
        Self { k: k.max(1), places: BTreeMap::new(), groups: BTreeMap::new() }
    }

    /// The last place that counts, once k are held.
    pub fn worst(&self) -> Option<&Place> {
        if self.places.len() < self.k { None } else { self.places.last_key_value().map(|(place, _)| place) }
    }

    /// Offers an entry of a group; `None` is a group of its own.
    pub fn push(&mut self, entry: Entry, group: Option<u64>) {
        if self.worst().is_some_and(|worst| *worst <= entry.place) {
            return;
        }
        if let Some(group) = group {
            if let Some(best) = self.groups.get(&group) {
                if *best <= entry.place {
                    return;
                }
                self.places.remove(best);
            }
            self.groups.insert(group, entry.place.clone());
        }
        self.places.insert(entry.place, (entry.doc, entry.score, group));
        if self.places.len() > self.k
            && let Some((_, (_, _, Some(group)))) = self.places.pop_last()
        {
            self.groups.remove(&group);
        }
    }

    /// First comes first, with the group.
    pub fn into_sorted(self) -> Vec<(Entry, Option<u64>)> {
        let entries = self.places.into_iter();
        entries.map(|(place, (doc, score, group))| (Entry { place, doc, score }, group)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_common::ids::KeyHash;

    #[test]
    fn equals_a_full_sort_for_any_order_and_k() {
        for k in [1, 2, 3, 10, 1000] {
            for step in [1_u32, 7, 31, 77] {
                let rows: Vec<(u128, Option<u64>)> = (0..200_u32)
                    .map(|n| (n * step) % 199)
                    .map(|n| (u128::from(n), (n % 5 != 0).then_some(u64::from(n * n % 23))))
                    .collect();
                let mut grouped = Grouped::new(k);
                let mut all = Vec::new();
                for (at, (first, group)) in rows.iter().enumerate() {
                    let place = Place { first: *first, rest: None, key: KeyHash(at as u128) };
                    grouped.push(Entry { place: place.clone(), doc: at as u32, score: 0.0 }, *group);
                    all.push((place, at as u32, *group));
                }
                all.sort();
                let mut seen = std::collections::BTreeSet::new();
                all.retain(|row| row.2.is_none_or(|group| seen.insert(group)));
                all.truncate(k);
                let got: Vec<u32> = grouped.into_sorted().into_iter().map(|entry| entry.0.doc).collect();
                let expected: Vec<u32> = all.into_iter().map(|row| row.1).collect();
                assert_eq!(got, expected, "k {k} step {step}");
            }
        }
    }
}
