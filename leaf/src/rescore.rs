//! Canonical scores of documents that the engine selected.
//!
//! The engine's sums depend on the history of its cursors, so the same document may score differently on two replicas
//! or in two shards. Selected documents are therefore scored again, clause by clause in the order of the query, in
//! double precision, and rounded once: that number orders the page, travels, is explained and goes into the cursor.
//! Cost: one seek per document and clause, for little more than k documents.

use tantivy::{
    DocId, DocSet, TERMINATED,
    postings::{Postings, SegmentPostings, TermInfo},
    schema::IndexRecordOption,
};

use crate::{
    error::{Error, Result},
    query::{Leaf, Plan, term::saturate},
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
