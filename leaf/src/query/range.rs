//! Documents with a value of a fast field in an interval.
//!
//! There is no index of the order of values: finding the next match scans the column in blocks, asking the ticker once
//! a block. In an intersection the question is mostly "does this document match?", which is one look-up, so a seek
//! tries that first. Blocks grow while the walk goes straight on and shrink after a jump.

use tantivy::{DocId, TERMINATED, columnar::Column};

use super::{
    matcher::{Context, Matcher, Part, Walk},
    plan::Range,
    sets::Union,
};
use crate::{error::Result, stop::Ticker};

const FIRST_BLOCK: u32 = 128;
const LARGEST_BLOCK: u32 = 8192;

struct Scan<'a> {
    column: Column<u64>,
    low: u64,
    high: u64,
    documents: u32,
    /// Matches of the last block.
    found: Vec<DocId>,
    at: usize,
    /// Where the next block starts.
    next: DocId,
    block: u32,
    doc: DocId,
    ticker: &'a Ticker<'a>,
}

/// Opens the walk.
pub fn open<'a>(context: Context<'a>, range: &'a Range) -> Result<Option<Walk<'a>>> {
    let mut walks: Vec<Walk<'a>> = Vec::new();
    for column in context.segment.columns(&range.field.name)? {
        let Some((low, high)) = range.interval.of(&column)? else { continue };
        let mut scan = Scan {
            column: column.values,
            low,
            high,
            documents: context.segment.documents(),
            found: Vec::new(),
            at: 0,
            next: 0,
            block: FIRST_BLOCK,
            doc: 0,
            ticker: context.ticker,
        };
        if scan.low <= scan.column.max_value()
            && scan.high >= scan.column.min_value()
            && scan.scan() != TERMINATED
        {
            walks.push(Box::new(scan));
        }
    }
    Ok(Union::open(context.ticker, walks, 1))
}

impl Scan<'_> {
    /// Reads blocks from `next` on until one has a match.
    fn scan(&mut self) -> DocId {
        self.doc = TERMINATED;
        self.at = 0;
        self.found.clear();
        while self.next < self.documents && self.found.is_empty() {
            if !self.ticker.tick(self.block / 8) {
                return TERMINATED;
            }
            let end = self.next.saturating_add(self.block).min(self.documents);
            self.column.get_docids_for_value_range(self.low..=self.high, self.next..end, &mut self.found);
            self.next = end;
            self.block = (self.block * 2).min(LARGEST_BLOCK);
        }
        // A document with several values in the interval is found several times.
        self.found.dedup();
        self.doc = self.found.first().copied().unwrap_or(TERMINATED);
        self.doc
    }

    fn matches(&self, doc: DocId) -> bool {
        self.column.values_for_doc(doc).any(|value| (self.low..=self.high).contains(&value))
    }
}

impl Matcher for Scan<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        if self.doc == TERMINATED || !self.ticker.tick(1) {
            self.doc = TERMINATED;
            return TERMINATED;
        }
        self.at += 1;
        match self.found.get(self.at) {
            Some(doc) => self.doc = *doc,
            None => return self.scan(),
        }
        self.doc
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc >= target {
            return self.doc;
        }
        if target >= self.documents || !self.ticker.tick(2) {
            self.doc = TERMINATED;
            return TERMINATED;
        }
        if target < self.next {
            self.at += self.found[self.at..].partition_point(|doc| *doc < target);
            match self.found.get(self.at) {
                Some(doc) => self.doc = *doc,
                None => return self.scan(),
            }
            return self.doc;
        }
        self.block = FIRST_BLOCK;
        self.next = target + 1;
        if !self.matches(target) {
            return self.scan();
        }
        self.at = 0;
        self.found.clear();
        self.found.push(target);
        self.doc = target;
        target
    }

    fn cost(&self) -> u64 {
        // A value costs less than a posting, but all of them are looked at.
        u64::from(self.documents) * 3 / 4
    }

    fn score(&mut self, _: &mut f64) {}

    fn explain(&mut self, _: &mut Vec<Part>) {}
}
