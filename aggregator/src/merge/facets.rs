//! Facets summed over shards, with what each count may be short of.
//!
//! A shard sends its most frequent values and the largest count that it left out (`omitted_max`). A value that a shard
//! did not list may have up to that many documents there, so a value's undercount is at most the sum of `omitted_max`
//! over the shards that do not list it: 0 when every shard sent everything.

use canopy_proto::v1;
use xxhash_rust::xxh3::xxh3_64;

use super::counted;

/// A facet summed over shards.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Facet {
    /// (value, count, largest possible undercount), by count descending then value ascending, at most the size asked.
    pub values: Vec<(String, u64, u64)>,
    /// Some shard is missing or cut: counts are lower bounds.
    pub lower_bound: bool,
}

/// Facets summed, one per `asked`.
pub fn facets(asked: &[v1::FacetBy], shards: &[v1::ShardReply]) -> Vec<Facet> {
    let lower_bound = shards.iter().any(|shard| !counted(shard).whole);
    let sums = asked.iter().enumerate().map(|(index, by)| {
        let mut sums = Sums::default();
        let answered = shards.iter().filter(|shard| counted(shard).any);
        for facet in answered.flat_map(|shard| &shard.facets).filter(|facet| facet.facet as usize == index) {
            sums.add(facet);
        }
        Facet { values: sums.largest(by.size as usize), lower_bound }
    });
    sums.collect()
}

/// One value's sum.
struct Sum<'a> {
    value: &'a str,
    hash: u64,
    count: u64,
    /// Sum of `omitted_max` of the shards that list it.
    listed: u64,
}

/// Sums by value: open addressing over one allocation, because a page with facets sums thousands of values.
#[derive(Default)]
struct Sums<'a> {
    all: Vec<Sum<'a>>,
    slots: Vec<u32>,
    omitted: u64,
}

/// An empty slot.
const FREE: u32 = u32::MAX;

impl<'a> Sums<'a> {
    fn add(&mut self, facet: &'a v1::FacetCounts) {
        self.omitted = self.omitted.saturating_add(facet.omitted_max);
        for (value, count) in facet.values.iter().zip(&facet.counts) {
            let sum = self.sum(value);
            sum.count = sum.count.saturating_add(*count);
            sum.listed = sum.listed.saturating_add(facet.omitted_max);
        }
    }

    fn sum(&mut self, value: &'a str) -> &mut Sum<'a> {
        if self.all.len() * 2 >= self.slots.len() {
            self.grow();
        }
        let hash = xxh3_64(value.as_bytes());
        let mask = self.slots.len() - 1;
        let mut at = hash as usize & mask;
        loop {
            let slot = self.slots[at];
            if slot == FREE {
                self.slots[at] = self.all.len() as u32;
                self.all.push(Sum { value, hash, count: 0, listed: 0 });
                let last = self.all.len() - 1;
                return &mut self.all[last];
            }
            let found = &self.all[slot as usize];
            if found.hash == hash && found.value == value {
                return &mut self.all[slot as usize];
            }
            at = (at + 1) & mask;
        }
    }

    fn grow(&mut self) {
        let size = (self.slots.len() * 2).max(64);
        self.slots = vec![FREE; size];
        for (index, sum) in self.all.iter().enumerate() {
            let mut at = sum.hash as usize & (size - 1);
            while self.slots[at] != FREE {
                at = (at + 1) & (size - 1);
            }
            self.slots[at] = index as u32;
        }
    }

    /// The `size` largest, by count descending then value ascending.
    fn largest(mut self, size: usize) -> Vec<(String, u64, u64)> {
        let order = |a: &Sum<'_>, b: &Sum<'_>| b.count.cmp(&a.count).then_with(|| a.value.cmp(b.value));
        if size < self.all.len() && size > 0 {
            self.all.select_nth_unstable_by(size - 1, order);
        }
        self.all.truncate(size);
        self.all.sort_unstable_by(order);
        let omitted = self.omitted;
        self.all
            .into_iter()
            .map(|sum| (sum.value.to_owned(), sum.count, omitted.saturating_sub(sum.listed)))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(values: &[(&str, u64)], omitted_max: u64) -> v1::ShardReply {
        let facet = v1::FacetCounts {
            facet: 0,
            values: values.iter().map(|entry| entry.0.to_owned()).collect(),
            counts: values.iter().map(|entry| entry.1).collect(),
            omitted_max,
        };
        v1::ShardReply { outcome: v1::Outcome::Answered as i32, facets: vec![facet], ..Default::default() }
    }

    fn by(size: u32) -> Vec<v1::FacetBy> {
        vec![v1::FacetBy { field: "host".into(), size, exact: false }]
    }

    fn entry(value: &str, count: u64, short: u64) -> (String, u64, u64) {
        (value.to_owned(), count, short)
    }

    #[test]
    fn an_undercount_is_bounded_by_the_shards_that_do_not_list_the_value() {
        let shards =
            [shard(&[("a", 9), ("b", 5)], 4), shard(&[("a", 7), ("c", 6)], 3), shard(&[("b", 1)], 0)];
        let found = facets(&by(10), &shards);
        let expected = [entry("a", 16, 0), entry("b", 6, 3), entry("c", 6, 4)];
        assert_eq!(found[0].values, expected);
        assert!(!found[0].lower_bound);
    }

    #[test]
    fn a_missing_shard_makes_counts_lower_bounds() {
        let failed = v1::ShardReply { outcome: v1::Outcome::Failed as i32, ..shard(&[("a", 99)], 0) };
        let found = facets(&by(10), &[shard(&[("a", 1)], 0), failed]);
        assert_eq!(found[0].values, [entry("a", 1, 0)]);
        assert!(found[0].lower_bound);
        assert_eq!(facets(&by(10), &[])[0], Facet::default());
    }

    #[test]
    fn thousands_of_values_are_summed_and_the_largest_kept() {
        let names: Vec<String> = (0..5000).map(|n| format!("value-{n:04}")).collect();
        let values: Vec<(&str, u64)> =
            names.iter().enumerate().map(|(n, v)| (v.as_str(), n as u64 / 2)).collect();
        let shards = vec![shard(&values, 0); 8];
        let found = facets(&by(3), &shards);
        let expected =
            [entry("value-4998", 19_992, 0), entry("value-4999", 19_992, 0), entry("value-4996", 19_984, 0)];
        assert_eq!(found[0].values, expected);
        assert!(facets(&by(0), &shards)[0].values.is_empty());
        assert_eq!(facets(&by(u32::MAX), &shards)[0].values.len(), 5000);
    }
}
