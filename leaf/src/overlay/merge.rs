//! Keeps the parts of an overlay few: each costs every query a little. Which are merged is a value of their sizes.
//!
//! Rules. Parts of about one size are merged, ten at a time at most, so that a document is written again a few times
//! only, a logarithm of the size of the overlay. A part of which much is hidden is written anew without it; so is one with
//! deleted documents after a while, since their text must not stay in memory and checkpoints for ever.
//!
//! A merge runs beside the applying of further records, which may hide documents that the merge still copies. Hidden
//! bits by position would lose these, and a deleted document would come back. So when a merge ends, every document of
//! the new part is looked up by its key: the live one is where the key's entry says that it is, in one of the parts that
//! were merged; any other is hidden from the beginning ([`settle`]).

use canopy_common::ids::ShardId;
use canopy_indexer::index_schema::IndexSchema;
use roaring::RoaringBitmap;
use tantivy::{
    BitSet, Index, Segment,
    directory::{OwnedBytes, RamDirectory},
    fastfield::{AliveBitSet, write_alive_bitset},
    indexer::merge_filtered_segments,
};
use tokio::time::Instant;

use super::{
    part::Part,
    state::{Keys, Spot},
};
use crate::error::{Error, Result};

/// Parts of one size that are left alone.
const WIDTH: usize = 3;
/// Each size is so many times the one below.
const STEP: u64 = 8;
/// Documents below which all parts are of one size.
const SMALLEST: u64 = 500;
/// Most parts merged at once.
const MOST: usize = 10;

/// A part, as far as the policy looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Which.
    pub number: u32,
    /// Documents, hidden ones too.
    pub documents: u64,
    /// Hidden ones.
    pub hidden: u64,
    /// Whether it has deleted documents for longer than they may stay.
    pub unclean: bool,
}

impl Shape {
    fn size(self) -> u32 {
        let live = (self.documents - self.hidden.min(self.documents)).max(1);
        live.div_ceil(SMALLEST).ilog(STEP) + u32::from(live > SMALLEST)
    }

    /// Whether writing it anew is worth it for itself.
    fn worn(self) -> bool {
        self.unclean || self.hidden * 2 > self.documents
    }
}

/// Which parts to merge next; `None`: all is well.
pub fn plan(shapes: &[Shape]) -> Option<Vec<u32>> {
    let mut sizes: Vec<u32> = shapes.iter().map(|shape| shape.size()).collect();
    sizes.sort_unstable();
    sizes.dedup();
    // The smallest size first: it grows fastest and costs least. What a merge of it makes is seen by the next look.
    for size in sizes {
        let of_size: Vec<&Shape> = shapes.iter().filter(|shape| shape.size() == size).collect();
        if of_size.len() > WIDTH {
            let mut chosen: Vec<&Shape> = of_size;
            chosen.sort_by_key(|shape| (shape.documents, shape.number));
            return Some(chosen.into_iter().take(MOST).map(|shape| shape.number).collect());
        }
    }
    let worn = shapes.iter().filter(|shape| shape.worn()).min_by_key(|shape| shape.documents);
    worn.map(|shape| vec![shape.number])
}

/// What a merge reads: the parts as they were when it began.
pub struct Job {
    /// Number of the part that it makes.
    pub number: u32,
    /// Numbers of the parts.
    pub of: Vec<u32>,
    sources: Vec<(Index, RoaringBitmap, u32)>,
}

impl Job {
    /// Of these parts.
    pub fn new(number: u32, parts: &[&Part]) -> Self {
        let source = |part: &&Part| (part.index.clone(), (*part.hidden).clone(), part.documents());
        Self {
            number,
            of: parts.iter().map(|part| part.number).collect(),
            sources: parts.iter().map(source).collect(),
        }
    }

    /// Merges them; `None`: nothing in them is to be seen.
    pub fn run(&self, shard: &ShardId, schema: &IndexSchema) -> Result<Option<Part>> {
        let mut segments: Vec<Segment> = Vec::new();
        let mut alive = Vec::new();
        for (index, hidden, documents) in &self.sources {
            if hidden.len() == u64::from(*documents) {
                continue;
            }
            segments.extend(index.searchable_segments().map_err(Error::engine("merge overlay"))?);
            alive.push((!hidden.is_empty()).then(|| alive_set(hidden, *documents)).transpose()?);
        }
        if segments.is_empty() {
            return Ok(None);
        }
        let files = RamDirectory::create();
        let settings = IndexSchema::settings();
        let index = merge_filtered_segments(&segments, settings, alive, files.clone())
            .map_err(Error::engine("merge overlay"))?;
        Part::open(self.number, index, files, shard, schema)
    }
}

fn alive_set(hidden: &RoaringBitmap, documents: u32) -> Result<AliveBitSet> {
    let mut alive = BitSet::with_max_value_and_full(documents);
    hidden.iter().for_each(|doc| alive.remove(doc));
    let mut bytes = Vec::new();
    write_alive_bitset(&alive, &mut bytes)
        .map_err(|source| Error::Io { path: "overlay".to_owned(), source })?;
    Ok(AliveBitSet::open(OwnedBytes::new(bytes)))
}

/// A merge of the parts `of` has ended with `part`: keys whose live document was in one of them are told where it is now;
/// whatever else it holds was deleted or replaced meanwhile, and is hidden.
pub fn settle(part: &mut Part, of: &[u32], keys: &mut Keys) {
    let docs: Vec<u32> = (0..part.documents()).collect();
    let mut hidden = RoaringBitmap::new();
    let mut deleted = None;
    for (doc, key) in docs.iter().copied().zip(part.segment.keys(&docs)) {
        let spot = keys.get(key).map(|known| known.spot);
        match spot {
            Some(Spot::Part { part: at, .. }) if of.contains(&at) => {
                keys.moved(key, Spot::Part { part: part.number, doc });
            }
            other => {
                hidden.insert(doc);
                if !matches!(other, Some(Spot::Part { .. })) {
                    deleted = Some(Instant::now());
                }
            }
        }
    }
    part.hidden = hidden.into();
    part.deleted = deleted;
}

#[cfg(test)]
mod tests {
    use canopy_common::rng::Dice;

    use super::*;

    fn shape(number: u32, documents: u64, hidden: u64) -> Shape {
        Shape { number, documents, hidden, unclean: false }
    }

    #[test]
    fn parts_stay_few_and_a_document_is_written_again_a_few_times_only() {
        for seed in 0..20 {
            let dice = Dice::seeded(seed);
            let (mut shapes, mut next): (Vec<Shape>, u32) = (Vec::new(), 0);
            let (mut written, mut added) = (0_u64, 0_u64);
            for _ in 0..20_000 {
                let documents = 1 + dice.below(400);
                shapes.push(shape(next, documents, 0));
                (next, added) = (next + 1, added + documents);
                if let Some(of) = plan(&shapes) {
                    assert!(of.len() <= MOST);
                    let gone = shapes.extract_if(.., |shape| of.contains(&shape.number));
                    let documents = gone.map(|shape| shape.documents).sum::<u64>();
                    written += documents;
                    shapes.push(shape(next, documents, 0));
                    next += 1;
                }
                assert!(shapes.len() <= 5 * (WIDTH + 1), "seed {seed}: {} parts", shapes.len());
            }
            assert!(shapes.len() <= 16, "seed {seed}: {} parts", shapes.len());
            assert!(written < added * 8, "seed {seed}: {written} of {added}");
        }
    }

    #[test]
    fn what_is_hidden_does_not_stay_for_ever() {
        assert_eq!(plan(&[shape(1, 100, 50), shape(2, 10, 0)]), None);
        assert_eq!(plan(&[shape(1, 100, 51), shape(2, 10, 0)]), Some(vec![1]));
        assert_eq!(plan(&[shape(1, 100, 100)]), Some(vec![1]));
        let unclean = Shape { unclean: true, ..shape(3, 1000, 1) };
        assert_eq!(plan(&[shape(1, 100, 50), unclean]), Some(vec![3]));
        assert_eq!(plan(&[]), None);
    }
}
