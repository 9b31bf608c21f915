//! Whether a reply keeps to the contract: a child may be wrong, of another release, or hostile, and nothing it sends
//! may corrupt the account or allocate by its numbers.
//!
//! Each asked shard appears in exactly one reply of an attempt; hits belong to shards of the same message and are at
//! most as many as were asked; facets name asked facets and have as many counts as values. A message that breaks this
//! is refused whole, and its attempt counts as failed from there on; what it settled before stays.

use canopy_proto::v1;

/// What was asked of an attempt.
#[derive(Debug, Clone, Copy)]
pub struct Asked<'a> {
    /// Shards that a reply settled already, by index in the attempt.
    pub replied: &'a [bool],
    /// Hits at most.
    pub k: usize,
    /// Facets asked.
    pub facets: usize,
}

/// What is wrong with a reply, in words.
pub fn reply(reply: &v1::SearchReply, asked: Asked<'_>) -> Result<(), String> {
    let mut here = vec![false; asked.replied.len()];
    for shard in &reply.shards {
        let index = shard.shard as usize;
        match asked.replied.get(index) {
            None => return Err(format!("reply for shard {index} of {} asked", asked.replied.len())),
            Some(true) => return Err(format!("second reply for shard {index}")),
            Some(false) if here[index] => return Err(format!("shard {index} is twice in one reply")),
            Some(false) => here[index] = true,
        }
        for facet in &shard.facets {
            if facet.facet as usize >= asked.facets || facet.values.len() != facet.counts.len() {
                return Err(format!("facet {} of shard {index} is not as asked", facet.facet));
            }
        }
    }
    if reply.hits.len() > asked.k {
        return Err(format!("{} hits where at most {} were asked", reply.hits.len(), asked.k));
    }
    match reply.hits.iter().find(|hit| !here.get(hit.shard as usize).copied().unwrap_or(false)) {
        Some(hit) => Err(format!("a hit of shard {}, which this reply does not settle", hit.shard)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shard(shard: u32) -> v1::ShardReply {
        v1::ShardReply { shard, ..Default::default() }
    }

    #[test]
    fn what_breaks_the_contract_is_named() {
        let hit = |shard| v1::Hit { shard, ..Default::default() };
        let facet = |facet, values: usize, counts: usize| v1::ShardReply {
            facets: vec![v1::FacetCounts {
                facet,
                values: vec![String::new(); values],
                counts: vec![0; counts],
                omitted_max: 0,
            }],
            ..shard(0)
        };
        let table: Vec<(Vec<v1::ShardReply>, Vec<v1::Hit>, &str)> = vec![
            (vec![shard(0), shard(2)], vec![hit(0), hit(2)], ""),
            (vec![], vec![], ""),
            (vec![shard(3)], vec![], "shard 3 of 3"),
            (vec![shard(u32::MAX)], vec![], "of 3 asked"),
            (vec![shard(1)], vec![], "second reply for shard 1"),
            (vec![shard(0), shard(0)], vec![], "twice"),
            (vec![shard(0)], vec![hit(0), hit(0), hit(0)], "at most 2"),
            (vec![shard(0)], vec![hit(2)], "does not settle"),
            (vec![shard(0)], vec![hit(u32::MAX)], "does not settle"),
            (vec![facet(0, 2, 2)], vec![], ""),
            (vec![facet(1, 2, 2)], vec![], "facet 1"),
            (vec![facet(0, 2, 3)], vec![], "facet 0"),
        ];
        for (shards, hits, expected) in table {
            let message = v1::SearchReply { shards, hits, ..Default::default() };
            let asked = Asked { replied: &[false, true, false], k: 2, facets: 1 };
            match reply(&message, asked) {
                Ok(()) => assert_eq!(expected, ""),
                Err(why) => assert!(!expected.is_empty() && why.contains(expected), "{why} / {expected}"),
            }
        }
    }
}
