//! Canonical scores of documents that the engine selected.
//!
//! The engine's sums depend on the history of its cursors, so the same document may score differently on two replicas
//! or in two shards. Selected documents are therefore scored again, clause by clause in the order of the query, in
//! double precision, and rounded once: that number orders the page, travels, is explained and goes into the cursor.
//! Cost: one seek per document and clause, for little more than k documents.

use tantivy::{
    DocId, DocSet, Score, TERMINATED,
    postings::{Postings, SegmentPostings, TermInfo},
    query::Bm25Weight,
    schema::IndexRecordOption,
};

use crate::{
    error::{Error, Result},
    query::{Leaf, Plan, numbers::TextNumbers, term::saturate},
    view::Segment,
};

/// The one rounding of a score: never NaN, never minus zero.
#[inline]
pub fn round(sum: f64) -> f32 {
    sum as f32 + 0.0
}

/// What the static prior adds to a document.
#[inline]
pub fn prior(segment: &Segment, doc: DocId, weight: f64) -> f64 {
    if weight > 0.0 { weight * segment.rank(doc) } else { 0.0 }
}

/// Scores documents of one segment, in ascending order. The postings are opened when first needed.
pub struct Rescorer<'a> {
    /// The segment.
    pub segment: &'a Segment,
    plan: &'a Plan,
    leaves: &'a [&'a Leaf],
    terms: &'a [Option<TermInfo>],
    clauses: Option<Vec<Clause<'a>>>,
    prior_weight: f64,
}

struct Clause<'a> {
    leaf: &'a Leaf,
    postings: SegmentPostings,
}

impl<'a> Rescorer<'a> {
    /// Scores by these leaves; `terms` says where their postings are in the segment.
    pub fn new(
        plan: &'a Plan,
        leaves: &'a [&'a Leaf],
        terms: &'a [Option<TermInfo>],
        segment: &'a Segment,
        prior_weight: f64,
    ) -> Self {
        Self { segment, plan, leaves, terms, clauses: None, prior_weight }
    }

    fn open(&self) -> Result<Vec<Clause<'a>>> {
        let mut clauses = Vec::with_capacity(self.leaves.len());
        for (leaf, term) in self.leaves.iter().zip(self.terms) {
            let Some(text) = self.segment.text(self.plan.fields[leaf.field].field) else { continue };
            let Some(term) = term else { continue };
            let postings = text.postings.read_postings_from_terminfo(term, IndexRecordOption::WithFreqs);
            clauses.push(Clause { leaf, postings: postings.map_err(Error::engine("read postings"))? });
        }
        Ok(clauses)
    }

    /// The score of a document whose leaves sum up to `sum`.
    pub fn finish(&self, doc: DocId, sum: f64) -> f32 {
        round(sum + prior(self.segment, doc, self.prior_weight))
    }

    /// Scores documents that ascend, also from call to call.
    pub fn score(&mut self, docs: &[DocId], scores: &mut Vec<f32>) -> Result<()> {
        let mut clauses = match self.clauses.take() {
            Some(clauses) => clauses,
            None => self.open()?,
        };
        let mut sums = vec![0.0_f64; docs.len()];
        let mut norms = Vec::with_capacity(docs.len());
        let mut field = usize::MAX;
        for Clause { leaf, postings } in &mut clauses {
            if leaf.field != field {
                field = leaf.field;
                let numbers = &self.plan.fields[field];
                let Some(text) = self.segment.text(numbers.field) else { continue };
                norms.clear();
                norms.extend(docs.iter().map(|doc| numbers.norm(text.lengths.fieldnorm_id(*doc))));
            }
            let mut at = postings.doc();
            for ((doc, sum), norm) in docs.iter().zip(&mut sums).zip(&norms) {
                if at < *doc {
                    at = postings.seek(*doc);
                }
                if at == *doc {
                    *sum += saturate(leaf.weight, f64::from(postings.term_freq()), *norm);
                } else if at == TERMINATED {
                    break;
                }
            }
        }
        scores.clear();
        scores.extend(docs.iter().zip(sums).map(|(doc, sum)| self.finish(*doc, sum)));
        self.clauses = Some(clauses);
        Ok(())
    }
}

/// Canonical scores of a single term without its postings: the engine's score and the length give back how often the
/// term occurs, wherever no other number of occurrences has the same engine score.
pub struct Single<'a> {
    engine: Bm25Weight,
    leaf: &'a Leaf,
    numbers: &'a TextNumbers,
    rescorer: Rescorer<'a>,
}

impl<'a> Single<'a> {
    /// Scores by the one leaf; `rescorer` helps where the numbers leave a doubt.
    pub fn new(plan: &'a Plan, leaf: &'a Leaf, rescorer: Rescorer<'a>) -> Self {
        let numbers = &plan.fields[leaf.field];
        let average = numbers.tokens as f32 / numbers.documents as f32;
        let frequency = leaf.document_frequency;
        let engine = Bm25Weight::for_one_term_without_explain(frequency, numbers.documents, average);
        Self { engine: engine.boost_by(leaf.boost), leaf, numbers, rescorer }
    }

    /// Scores documents that ascend, with their engine scores.
    pub fn score(
        &mut self,
        candidates: impl Iterator<Item = (DocId, Score)>,
        scores: &mut Vec<f32>,
    ) -> Result<()> {
        let Some(text) = self.rescorer.segment.text(self.numbers.field) else { return Ok(()) };
        // Many documents are alike.
        let mut last = (Score::NAN, 0, None);
        for (doc, score) in candidates {
            let length = text.lengths.fieldnorm_id(doc);
            if (last.0, last.1) != (score, length) {
                last = (score, length, self.invert(length, score));
            }
            if let Some(sum) = last.2 {
                scores.push(self.rescorer.finish(doc, sum));
            } else {
                let mut one = Vec::with_capacity(1);
                self.rescorer.score(&[doc], &mut one)?;
                scores.extend(one);
            }
        }
        Ok(())
    }

    fn invert(&self, length: u8, score: Score) -> Option<f64> {
        let norm = self.numbers.norm(length);
        let sum = f64::from(score);
        let count = (norm * sum / (self.leaf.weight - sum) + 0.5) as u32;
        if !(1..1_000_000).contains(&count) {
            return None;
        }
        let engine = |tf: u32| self.engine.score(length, tf);
        let only = engine(count) == score && engine(count + 1) != score && engine(count - 1) != score;
        only.then(|| saturate(self.leaf.weight, f64::from(count), norm))
    }
}
