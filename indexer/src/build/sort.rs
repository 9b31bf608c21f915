//! The documents of one shard in the order of their keys: merges what is in memory with the runs on disk, lets the
//! last record of a key win (where producers order their writes: the one of the highest order, of equal ones the last), joins the texts of links to their target, and refuses two keys with one hash.
//!
//! Rule: rows sort by (key hash, documents before link texts, place in the input). So one pass sees all that belongs
//! to a key together, whatever the size of the shard; nothing but the winning document and its capped link texts is
//! held.

use std::{cmp::Reverse, collections::BinaryHeap};

use canopy_common::ids::KeyHash;
use canopy_format::document::{Document, Value};

use super::{
    partition::Bucket,
    row::{Codec, Row, Written},
    spill::{RunReader, Spill},
};
use crate::error::{Error, Result};

/// Most runs merged at once; more are merged in passes.
pub(crate) const FAN_IN: usize = 64;
/// Field that takes the texts of links.
pub(crate) const ANCHORS: &str = "anchors";
/// Most distinct link texts of a document.
const MAX_ANCHORS: usize = 100;
/// Most bytes of all link texts of a document.
const MAX_ANCHOR_BYTES: usize = 16 << 10;

enum Source {
    Memory(std::vec::IntoIter<Row>),
    Run(RunReader),
}

impl Source {
    fn next(&mut self) -> Result<Option<Row>> {
        match self {
            Self::Memory(rows) => Ok(rows.next()),
            Self::Run(run) => run.next(),
        }
    }
}

/// Merges sorted sources into one order.
pub(crate) struct Merge {
    sources: Vec<Source>,
    heads: Vec<Option<Row>>,
    heap: BinaryHeap<Reverse<(u128, u64, usize)>>,
}

impl Merge {
    fn new(sources: Vec<Source>) -> Result<Self> {
        let mut merge = Self { heads: vec![], heap: BinaryHeap::new(), sources };
        for source in 0..merge.sources.len() {
            merge.heads.push(None);
            merge.refill(source)?;
        }
        Ok(merge)
    }

    fn refill(&mut self, source: usize) -> Result<()> {
        self.heads[source] = self.sources[source].next()?;
        if let Some(row) = &self.heads[source] {
            self.heap.push(Reverse((row.hash, row.order, source)));
        }
        Ok(())
    }

    /// Of what the partition kept of a shard; and its spill file, to be removed at the end.
    pub(crate) fn of(bucket: Bucket) -> Result<(Self, Spill)> {
        let spill = reduce(bucket.spill)?;
        let runs = spill.runs().iter().map(|run| RunReader::open(run).map(Source::Run));
        let sources: Result<Vec<_>> = runs.chain([Ok(Source::Memory(bucket.rows.into_iter()))]).collect();
        Ok((Self::new(sources?)?, spill))
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Result<Option<Row>> {
        let Some(Reverse((_, _, source))) = self.heap.pop() else { return Ok(None) };
        let row = self.heads[source].take();
        self.refill(source)?;
        Ok(row)
    }
}

/// Merges runs until at most [`FAN_IN`] are left.
fn reduce(mut spill: Spill) -> Result<Spill> {
    let mut pass = 0;
    while spill.runs().len() > FAN_IN {
        pass += 1;
        let mut next = Spill::new(spill.path().with_extension(format!("pass{pass}")));
        for runs in spill.runs().chunks(FAN_IN) {
            let sources: Result<_> = runs.iter().map(|run| RunReader::open(run).map(Source::Run)).collect();
            let mut merge = Merge::new(sources?)?;
            next.append(std::iter::from_fn(|| merge.next().transpose()))?;
        }
        spill.remove()?;
        spill = next;
    }
    Ok(spill)
}

/// What was seen while sorting.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SortCounts {
    /// Records that a later one of the same key replaced.
    pub superseded: u64,
    /// Link texts added to documents.
    pub anchors: u64,
}

/// Documents of a shard, by key hash.
pub(crate) struct Sorted<'a> {
    merge: Merge,
    codec: &'a Codec,
    ahead: Option<Row>,
    spill: Spill,
    pub(crate) counts: SortCounts,
}

impl<'a> Sorted<'a> {
    /// Starts on what the partition kept of a shard.
    pub(crate) fn new(bucket: Bucket, codec: &'a Codec) -> Result<Self> {
        let (mut merge, spill) = Merge::of(bucket)?;
        let ahead = merge.next()?;
        Ok(Self { merge, codec, ahead, spill, counts: SortCounts::default() })
    }

    /// The next document, which write it is, and its packed size, bytes.
    pub(crate) fn next(&mut self) -> Result<Option<(KeyHash, (Document, Written), usize)>> {
        while let Some(first) = self.ahead.take() {
            let hash = first.hash;
            let mut winner: Option<Row> = None;
            let mut anchors = Anchors::default();
            let mut row = Some(first);
            while let Some(current) = row.take_if(|row| row.hash == hash) {
                if current.is_anchor() {
                    if winner.is_some() {
                        anchors.add(&current);
                    }
                } else if let Some(earlier) = winner.take() {
                    check_same_key(&earlier, &current)?;
                    self.counts.superseded += 1;
                    // Without orders all are 0.
                    winner =
                        Some(if earlier.write_order() > current.write_order() { earlier } else { current });
                } else {
                    winner = Some(current);
                }
                row = self.merge.next()?;
            }
            self.ahead = row;
            if let Some(winner) = winner {
                return self.document(&winner, anchors).map(Some);
            }
        }
        Ok(None)
    }

    fn document(&mut self, row: &Row, anchors: Anchors) -> Result<(KeyHash, (Document, Written), usize)> {
        let damaged = || Error::Damaged {
            what: self.spill.path().display().to_string(),
            reason: "a spilled row can't be read back; check the disk and build again".into(),
        };
        let (mut document, written) = self.codec.unpack(&row.bytes).ok_or_else(damaged)?;
        self.counts.anchors += anchors.texts.len() as u64;
        if !anchors.texts.is_empty() {
            document.values.entry(ANCHORS.to_owned()).or_default().extend(anchors.texts);
        }
        Ok((KeyHash(row.hash), (document, written), row.bytes.len()))
    }

    /// Removes the spill file; what was counted.
    pub(crate) fn finish(self) -> Result<SortCounts> {
        drop(self.merge);
        self.spill.remove()?;
        Ok(self.counts)
    }
}

fn check_same_key(earlier: &Row, later: &Row) -> Result<()> {
    let (first, second) = (earlier.key(), later.key());
    if first == second && first.is_some() {
        return Ok(());
    }
    let name = |key: Option<&str>| key.unwrap_or("a damaged row").to_owned();
    Err(Error::KeyCollision { first: name(first), second: name(second) })
}

/// Distinct link texts of one document, in input order, up to the caps.
#[derive(Default)]
struct Anchors {
    texts: Vec<Value>,
    bytes: usize,
}

impl Anchors {
    fn add(&mut self, row: &Row) {
        let Ok(text) = std::str::from_utf8(&row.bytes) else { return };
        let full = self.texts.len() >= MAX_ANCHORS || self.bytes + text.len() > MAX_ANCHOR_BYTES;
        let known = || self.texts.iter().any(|value| matches!(value, Value::Text(known) if known == text));
        if !full && !known() {
            self.bytes += text.len();
            self.texts.push(Value::Text(text.to_owned()));
        }
    }
}
