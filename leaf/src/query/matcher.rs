//! Walks the matching documents of one segment, in document order, one step at a time.
//!
//! Why not the engine's scorers: they can't be stopped (an exact phrase of two common words that never meet scans all
//! its postings inside one call), they sum in single precision in an order that depends on the segment, and the
//! engine counts sloppy phrases by a rule that depends on which word is rarer in the segment. Rule here: every step in
//! a leaf asks the [`Ticker`]; once it says stop, every matcher ends.

use serde_json::Value;
use tantivy::{DocId, TERMINATED};

use super::{
    anyof, boolean,
    numbers::TextNumbers,
    phrase,
    plan::{Node, Plan},
    range, term,
};
use crate::{error::Result, stop::Ticker, view::Segment};

/// A walk over the matching documents of a segment.
pub trait Matcher {
    /// The document it stands on; [`TERMINATED`] at the end.
    fn doc(&self) -> DocId;
    /// Goes to the next.
    fn advance(&mut self) -> DocId;
    /// Goes to the first that is not before `target`; `target` is not before [`Matcher::doc`].
    fn seek(&mut self, target: DocId) -> DocId;
    /// About how many steps the whole walk is.
    fn cost(&self) -> u64;
    /// Adds the scores of the leaves that match the document it stands on, in order.
    fn score(&mut self, sum: &mut f64);
    /// Takes the document it stands on and those that follow, as many as a batch holds, with their sums, and goes behind
    /// them. One call instead of two a document.
    fn fill(&mut self, batch: &mut Batch) {
        batch.clear();
        let mut doc = self.doc();
        while doc != TERMINATED && !batch.full() {
            let mut sum = 0.0;
            if batch.scoring {
                self.score(&mut sum);
            }
            batch.push(doc, sum);
            doc = self.advance();
        }
    }
    /// The same parts as [`Matcher::score`] adds, in the same order, in words.
    fn explain(&mut self, parts: &mut Vec<Part>);
}

/// Documents that a batch holds.
const BATCH: usize = 64;

/// Some documents with their sums.
pub struct Batch {
    docs: [DocId; BATCH],
    sums: [f64; BATCH],
    len: usize,
    scoring: bool,
}

impl Batch {
    /// An empty batch.
    pub fn new(scoring: bool) -> Self {
        Self { docs: [0; BATCH], sums: [0.0; BATCH], len: 0, scoring }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.len = 0;
    }

    /// Whether no more fits.
    #[inline]
    pub fn full(&self) -> bool {
        self.len == BATCH
    }

    /// Adds a document; a full batch drops it.
    #[inline]
    pub fn push(&mut self, doc: DocId, sum: f64) {
        if let (Some(to), Some(of)) = (self.docs.get_mut(self.len), self.sums.get_mut(self.len)) {
            (*to, *of) = (doc, sum);
            self.len += 1;
        }
    }

    /// The documents.
    pub fn docs(&self) -> &[DocId] {
        &self.docs[..self.len]
    }

    /// The documents with their sums.
    pub fn iter(&self) -> impl Iterator<Item = (DocId, f64)> + '_ {
        self.docs().iter().copied().zip(self.sums.iter().copied())
    }
}

/// One summand of a score.
pub struct Part {
    /// Where it comes from.
    pub what: Value,
    /// How much it is.
    pub value: f64,
}

/// A boxed walk.
pub type Walk<'a> = Box<dyn Matcher + 'a>;

/// What the walks of one segment share.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    /// The segment.
    pub segment: &'a Segment,
    /// Text fields of the plan.
    pub fields: &'a [TextNumbers],
    /// The clock.
    pub ticker: &'a Ticker<'a>,
    /// Whether anybody will ask for scores.
    pub scoring: bool,
    /// Whether nothing else adds to a document's sum before this walk, so that it may add several parts at once.
    pub first: bool,
    /// The segment is of an overlay, so it may have words that the statistics do not know.
    pub overlay: bool,
}

impl<'a> Context<'a> {
    /// A context for the walk of a plan over a segment.
    pub fn new(plan: &'a Plan, segment: &'a Segment, ticker: &'a Ticker<'a>, scoring: bool) -> Self {
        Self { segment, fields: &plan.fields, ticker, scoring, first: true, overlay: false }
    }

    /// The same for a segment of the overlay, if it is one.
    pub fn in_overlay(self, overlay: bool) -> Self {
        Self { overlay, ..self }
    }

    /// The same without scores.
    pub fn unscored(self) -> Self {
        Self { scoring: false, ..self }
    }

    /// The same with every leaf adding its own part.
    pub fn in_parts(self) -> Self {
        Self { first: false, ..self }
    }

    /// Whether unions of terms may be summed up window by window.
    pub fn in_windows(self) -> bool {
        self.first || !self.scoring
    }
}

/// Opens the walk of a node; `None` when nothing in the segment matches (or the ticker said stop).
pub fn open<'a>(context: Context<'a>, node: &'a Node) -> Result<Option<Walk<'a>>> {
    match node {
        Node::Nothing => Ok(None),
        Node::All => Ok(All::open(context)),
        Node::Terms(leaves) => term::open(context, leaves),
        Node::Phrases(phrases) => phrase::open(context, phrases),
        Node::AnyOf(any) => anyof::open(context, any),
        Node::Range(range) => range::open(context, range),
        Node::Bool(bool) => boolean::open(context, bool),
    }
}

/// Every document of the segment.
struct All<'a> {
    doc: DocId,
    end: DocId,
    ticker: &'a Ticker<'a>,
}

impl<'a> All<'a> {
    fn open(context: Context<'a>) -> Option<Walk<'a>> {
        let end = context.segment.documents();
        (end > 0).then(|| Box::new(All { doc: 0, end, ticker: context.ticker }) as Walk<'a>)
    }
}

impl Matcher for All<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        self.seek(self.doc.saturating_add(1))
    }

    fn seek(&mut self, target: DocId) -> DocId {
        self.doc = if target < self.end && self.ticker.tick(1) { target } else { TERMINATED };
        self.doc
    }

    fn cost(&self) -> u64 {
        self.end.into()
    }

    fn score(&mut self, _: &mut f64) {}

    fn explain(&mut self, _: &mut Vec<Part>) {}
}
