//! Documents with any of up to thousands of terms, with one constant score: an expanded prefix, a filter of values.
//!
//! A single term is its postings. Several are collected into a bitmap of the segment's documents first: one pass over
//! the postings, no heap of cursors, and the pass can be stopped. The engine's own queries of this kind can't be.
//! In the overlay a prefix also stands for the words that came with it, which no statistics know yet.

use serde_json::json;
use tantivy::{DocId, DocSet, TERMINATED, postings::SegmentPostings, schema::IndexRecordOption};

use super::{
    matcher::{Context, Matcher, Part, Walk},
    plan::AnyOf,
};
use crate::{
    error::{Error, Result},
    stop::Ticker,
};

/// Opens the walk.
pub fn open<'a>(context: Context<'a>, any: &'a AnyOf) -> Result<Option<Walk<'a>>> {
    let newer = context.overlay && !any.prefix.is_empty();
    if any.terms.is_empty() && !newer {
        return Ok(None);
    }
    let postings = context.segment.postings(any.on)?;
    let step = "read postings";
    let mut found = Vec::with_capacity(any.terms.len());
    for term in &any.terms {
        if !context.ticker.tick(64) {
            return Ok(None);
        }
        found.extend(postings.get_term_info(term).map_err(Error::engine(step))?);
    }
    if newer {
        // All of them, so that replicas that cut their overlays differently agree; the ticker bounds it.
        let terms = postings.terms().range().ge(any.prefix.as_bytes()).into_stream();
        let mut terms = terms.map_err(Error::engine(step))?;
        while terms.advance() && terms.key().starts_with(any.prefix.as_bytes()) {
            if !context.ticker.tick(64) {
                return Ok(None);
            }
            found.push(terms.value().clone());
        }
    }
    if let [only] = found.as_slice() {
        let postings = postings.read_postings_from_terminfo(only, IndexRecordOption::Basic);
        let postings = postings.map_err(Error::engine(step))?;
        return Ok(Some(Box::new(List { doc: postings.doc(), postings, any, ticker: context.ticker })));
    }
    let mut bits = Bits::new(context.segment.documents(), any, context.ticker);
    for info in &found {
        let block = postings.read_block_postings_from_terminfo(info, IndexRecordOption::Basic);
        let mut block = block.map_err(Error::engine(step))?;
        while !block.docs().is_empty() {
            if !context.ticker.tick(32) {
                return Ok(None);
            }
            bits.insert(block.docs());
            block.advance();
        }
    }
    bits.seek(0);
    Ok((bits.doc != TERMINATED).then(|| Box::new(bits) as Walk<'a>))
}

fn explain(any: &AnyOf, parts: &mut Vec<Part>) {
    if any.score > 0.0 {
        let value = f64::from(any.score);
        let what =
            json!({ "kind": "expanded", "field": any.field, "terms": any.terms.len(), "score": value });
        parts.push(Part { what, value });
    }
}

/// One term.
struct List<'a> {
    postings: SegmentPostings,
    doc: DocId,
    any: &'a AnyOf,
    ticker: &'a Ticker<'a>,
}

impl Matcher for List<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        self.doc = if self.ticker.tick(1) { self.postings.advance() } else { TERMINATED };
        self.doc
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc < target {
            self.doc = if self.ticker.tick(4) { self.postings.seek(target) } else { TERMINATED };
        }
        self.doc
    }

    fn cost(&self) -> u64 {
        self.postings.doc_freq().into()
    }

    fn score(&mut self, sum: &mut f64) {
        *sum += f64::from(self.any.score);
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        explain(self.any, parts);
    }
}

/// Several terms.
struct Bits<'a> {
    words: Vec<u64>,
    count: u64,
    doc: DocId,
    any: &'a AnyOf,
    ticker: &'a Ticker<'a>,
}

impl<'a> Bits<'a> {
    fn new(documents: u32, any: &'a AnyOf, ticker: &'a Ticker<'a>) -> Self {
        Self { words: vec![0; documents.div_ceil(64) as usize], count: 0, doc: 0, any, ticker }
    }

    fn insert(&mut self, docs: &[DocId]) {
        self.count += docs.len() as u64;
        for doc in docs {
            if let Some(word) = self.words.get_mut((doc / 64) as usize) {
                *word |= 1 << (doc % 64);
            }
        }
    }
}

impl Matcher for Bits<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        self.seek(self.doc.saturating_add(1))
    }

    fn seek(&mut self, target: DocId) -> DocId {
        self.doc = TERMINATED;
        let mut at = (target / 64) as usize;
        let Some(word) = self.words.get(at) else { return TERMINATED };
        let mut word = word & (u64::MAX << (target % 64));
        while word == 0 {
            at += 1;
            match self.words.get(at) {
                Some(next) if self.ticker.tick(1) => word = *next,
                _ => return TERMINATED,
            }
        }
        if self.ticker.tick(1) {
            self.doc = at as u32 * 64 + word.trailing_zeros();
        }
        self.doc
    }

    fn cost(&self) -> u64 {
        self.count.min(self.words.len() as u64 * 64)
    }

    fn score(&mut self, sum: &mut f64) {
        *sum += f64::from(self.any.score);
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        explain(self.any, parts);
    }
}
