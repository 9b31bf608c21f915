//! Documents with a token, or with any of the tokens of a word.

use serde_json::json;
use tantivy::{
    DocId, DocSet, TERMINATED,
    fieldnorm::FieldNormReader,
    postings::{Postings, SegmentPostings},
    schema::IndexRecordOption,
};

use super::{
    matcher::{Context, Matcher, Part, Walk},
    numbers::TextNumbers,
    plan::Leaf,
    sets::Union,
    window,
};
use crate::{
    error::{Error, Result},
    stop::Ticker,
};

/// The walk over one token's postings.
pub struct Term<'a> {
    postings: SegmentPostings,
    lengths: FieldNormReader,
    norms: &'a [f64; 256],
    leaf: &'a Leaf,
    numbers: &'a TextNumbers,
    ticker: &'a Ticker<'a>,
    doc: DocId,
}

/// Opens the walk of a word.
pub fn open<'a>(context: Context<'a>, leaves: &'a [Leaf]) -> Result<Option<Walk<'a>>> {
    if leaves.len() > 1 && context.in_windows() {
        return window::open(context, &leaves.iter().collect::<Vec<_>>());
    }
    let mut walks: Vec<Walk<'a>> = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        if let Some(term) = Term::open(context, leaf)? {
            walks.push(Box::new(term));
        }
    }
    Ok(Union::open(context.ticker, walks, 1))
}

impl<'a> Term<'a> {
    fn open(context: Context<'a>, leaf: &'a Leaf) -> Result<Option<Self>> {
        let numbers = &context.fields[leaf.field];
        let Some(text) = context.segment.text(numbers.field) else { return Ok(None) };
        let record = if context.scoring { IndexRecordOption::WithFreqs } else { IndexRecordOption::Basic };
        if !context.ticker.tick(32) {
            return Ok(None);
        }
        let postings =
            text.postings.read_postings(&leaf.term, record).map_err(Error::engine("read postings"))?;
        Ok(postings.map(|postings| Self {
            doc: postings.doc(),
            postings,
            lengths: text.lengths.clone(),
            norms: numbers.norms(),
            leaf,
            numbers,
            ticker: context.ticker,
        }))
    }

    #[inline]
    fn parts(&self) -> (f64, f64) {
        let norm = self.norms[usize::from(self.lengths.fieldnorm_id(self.doc))];
        (f64::from(self.postings.term_freq()), norm)
    }
}

/// `weight * tf / (tf + norm)`: the one formula of a leaf's score.
#[inline]
pub fn saturate(weight: f64, tf: f64, norm: f64) -> f64 {
    weight * tf / (tf + norm)
}

impl Matcher for Term<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        self.doc = if self.ticker.tick(1) { self.postings.advance() } else { TERMINATED };
        self.doc
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc < target {
            // Skipped blocks cost about a step each; a decoded block about as much as walking 16 postings.
            self.doc = if self.ticker.tick(4) { self.postings.seek(target) } else { TERMINATED };
        }
        self.doc
    }

    fn cost(&self) -> u64 {
        self.postings.doc_freq().into()
    }

    fn score(&mut self, sum: &mut f64) {
        let (tf, norm) = self.parts();
        *sum += saturate(self.leaf.weight, tf, norm);
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        let (tf, norm) = self.parts();
        let value = saturate(self.leaf.weight, tf, norm);
        let what = json!({
            "kind": "term",
            "field": self.numbers.name,
            "token": self.leaf.token(),
            "boost": self.leaf.boost,
            "document_frequency": self.leaf.document_frequency,
            "documents": self.numbers.documents,
            "idf": self.leaf.idf,
            "tf": tf,
            "length": self.lengths.fieldnorm(self.doc),
            "average_length": self.numbers.average,
            "score": value,
        });
        parts.push(Part { what, value });
    }
}
