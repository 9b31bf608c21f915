//! The union of plain terms, a window of documents at a time.
//!
//! Moving a heap of cursors for every document costs several times as much as decoding the postings. So each term in
//! turn runs through a window of documents, adds its part to the sum of each and marks it; then the marked documents
//! are walked. Terms add in the order of the query, so the sum of a document is the canonical one, if nothing was added
//! before: the union must be the first thing that scores ([`Context::first`]). After a jump the window is small and
//! grows again, so that a selective partner in an intersection does not pay for documents it skips.

use serde_json::json;
use tantivy::{
    DocId, TERMINATED, fieldnorm::FieldNormReader, postings::BlockSegmentPostings, schema::IndexRecordOption,
};

use super::{
    matcher::{Batch, Context, Matcher, Part, Walk},
    plan::Leaf,
    term::saturate,
};
use crate::{
    error::{Error, Result},
    stop::Ticker,
};

const LARGEST: u32 = 2048;
const SMALLEST: u32 = 64;

/// One term's place in its postings.
struct Cursor<'a> {
    block: BlockSegmentPostings,
    at: usize,
    weight: f64,
    norms: &'a [f64; 256],
    lengths: &'a FieldNormReader,
}

struct Window<'a> {
    cursors: Vec<Cursor<'a>>,
    /// First document of the window.
    base: DocId,
    /// Behind its last.
    end: DocId,
    width: u32,
    /// Which documents of the window match and were not passed yet.
    marks: [u64; LARGEST as usize / 64],
    /// Sums of those; 0 for all others.
    sums: Vec<f64>,
    doc: DocId,
    cost: u64,
    ticker: &'a Ticker<'a>,
}

/// Opens the union of two terms or more; with scores only as the first thing that scores.
pub fn open<'a>(context: Context<'a>, leaves: &[&'a Leaf]) -> Result<Option<Walk<'a>>> {
    let record = if context.scoring { IndexRecordOption::WithFreqs } else { IndexRecordOption::Basic };
    let mut cursors = Vec::with_capacity(leaves.len());
    let mut cost = 0;
    for leaf in leaves {
        let numbers = &context.fields[leaf.field];
        let Some(text) = context.segment.text(numbers.field) else { continue };
        if !context.ticker.tick(32) {
            return Ok(None);
        }
        let block =
            text.postings.read_block_postings(&leaf.term, record).map_err(Error::engine("read postings"))?;
        let Some(block) = block else { continue };
        cost += u64::from(block.doc_freq());
        let (norms, lengths) = (numbers.norms(), &text.lengths);
        cursors.push(Cursor { block, at: 0, weight: leaf.weight, norms, lengths });
    }
    let sums = if context.scoring { vec![0.0; LARGEST as usize] } else { Vec::new() };
    let marks = [0; LARGEST as usize / 64];
    let ticker = context.ticker;
    let mut window = Window { cursors, base: 0, end: 0, width: LARGEST, marks, sums, doc: 0, cost, ticker };
    Ok((window.refill(0) != TERMINATED).then(|| Box::new(window) as Walk<'a>))
}

impl Cursor<'_> {
    /// First document that is not passed.
    fn doc(&self) -> DocId {
        self.block.docs().get(self.at).copied().unwrap_or(TERMINATED)
    }

    fn seek(&mut self, target: DocId) {
        if self.doc() < target {
            self.at = self.block.seek(target);
        }
    }

    /// Passes the documents before `end`, marking them and adding to their sums; false: stop.
    fn run(
        &mut self,
        base: DocId,
        end: DocId,
        marks: &mut [u64],
        sums: &mut [f64],
        ticker: &Ticker<'_>,
    ) -> bool {
        loop {
            let Self { block, at, weight, norms, lengths } = self;
            let docs = block.docs().get(*at..).unwrap_or_default();
            let count = docs.partition_point(|doc| *doc < end);
            if !ticker.tick(1 + count as u32 / 2) {
                return false;
            }
            if !sums.is_empty() {
                let freqs = block.freqs().get(*at..).unwrap_or_default();
                for (doc, freq) in docs[..count].iter().zip(freqs) {
                    let norm = norms[usize::from(lengths.fieldnorm_id(*doc))];
                    sums[(doc - base) as usize] += saturate(*weight, f64::from(*freq), norm);
                }
            }
            for doc in &docs[..count] {
                let place = doc - base;
                marks[(place / 64) as usize] |= 1 << (place % 64);
            }
            if docs.is_empty() || count < docs.len() {
                *at += count;
                return true;
            }
            block.advance();
            *at = 0;
        }
    }
}

impl Window<'_> {
    /// Fills windows from `target` on until one has a match, and goes to its first.
    fn refill(&mut self, target: DocId) -> DocId {
        let mut target = target;
        loop {
            let first = self.cursors.iter().map(Cursor::doc).min().unwrap_or(TERMINATED);
            target = target.max(first);
            if target == TERMINATED {
                self.doc = TERMINATED;
                return TERMINATED;
            }
            self.base = target;
            self.end = target.saturating_add(self.width).min(TERMINATED);
            for cursor in &mut self.cursors {
                if !cursor.run(self.base, self.end, &mut self.marks, &mut self.sums, self.ticker) {
                    self.doc = TERMINATED;
                    return TERMINATED;
                }
            }
            self.width = (self.width * 2).min(LARGEST);
            if self.find(0) != TERMINATED {
                return self.doc;
            }
            target = self.end;
        }
    }

    /// Goes to the first marked document at or behind a place in the window.
    fn find(&mut self, from: u32) -> DocId {
        let mut word = (from / 64) as usize;
        while let Some(marks) = self.marks.get(word) {
            if *marks != 0 {
                self.doc = self.base + word as u32 * 64 + marks.trailing_zeros();
                return self.doc;
            }
            word += 1;
        }
        self.doc = TERMINATED;
        TERMINATED
    }

    /// Unmarks the documents before `target`, which is in the window.
    fn pass(&mut self, target: DocId) {
        let (from, to) = (self.doc - self.base, target - self.base);
        if !self.sums.is_empty() {
            self.sums[from as usize..to as usize].fill(0.0);
        }
        let last = (to / 64) as usize;
        self.marks[(from / 64) as usize..last].fill(0);
        if let Some(marks) = self.marks.get_mut(last) {
            *marks &= u64::MAX << (to % 64);
        }
    }

    fn sum(&self) -> f64 {
        self.sums.get((self.doc - self.base) as usize).copied().unwrap_or(0.0)
    }
}

impl Matcher for Window<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        if self.doc == TERMINATED {
            return TERMINATED;
        }
        let at = self.doc - self.base;
        if let Some(sum) = self.sums.get_mut(at as usize) {
            *sum = 0.0;
        }
        self.marks[(at / 64) as usize] &= !(1 << (at % 64));
        if self.find(at) == TERMINATED { self.refill(self.end) } else { self.doc }
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc >= target {
            return self.doc;
        }
        if !self.ticker.tick(4) {
            self.doc = TERMINATED;
            return TERMINATED;
        }
        if target < self.end {
            self.pass(target);
            return if self.find(target - self.base) == TERMINATED {
                self.refill(self.end)
            } else {
                self.doc
            };
        }
        self.pass(self.end);
        // A jump of more than a window: small steps again.
        if target >= self.end.saturating_add(self.width) {
            self.width = SMALLEST;
        }
        self.cursors.iter_mut().for_each(|cursor| cursor.seek(target));
        self.refill(target)
    }

    fn cost(&self) -> u64 {
        self.cost
    }

    fn score(&mut self, sum: &mut f64) {
        *sum += self.sum();
    }

    fn fill(&mut self, batch: &mut Batch) {
        batch.clear();
        while self.doc != TERMINATED && !batch.full() {
            let word = ((self.doc - self.base) / 64) as usize;
            let Some(marks) = self.marks.get_mut(word) else { return };
            while *marks != 0 && !batch.full() {
                let at = word as u32 * 64 + marks.trailing_zeros();
                *marks &= *marks - 1;
                let sum = self.sums.get_mut(at as usize).map_or(0.0, std::mem::take);
                batch.push(self.base + at, sum);
            }
            if self.find(word as u32 * 64) == TERMINATED {
                self.refill(self.end);
            }
        }
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        // Only sums are held here; an explanation walks the terms instead (see `Context::in_parts`).
        let value = self.sum();
        parts.push(Part { what: json!({ "kind": "terms", "score": value }), value });
    }
}
