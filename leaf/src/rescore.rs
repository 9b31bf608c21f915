//! Canonical scores of documents that the engine selected.
//!
//! The engine's sums depend on the history of its cursors, so the same document may score differently on two replicas
//! or in two shards. Selected documents are therefore scored again, clause by clause in the order of the query, in
//! double precision, and rounded once: that number orders the page, travels, is explained and goes into the cursor.
//! Cost: one seek per document and clause, for little more than k documents.

use tantivy::{
    DocId, DocSet, TERMINATED,
    postings::{Postings, SegmentPostings},
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

/// Scores documents of one segment, in ascending order.
pub struct Rescorer<'a> {
    segment: &'a Segment,
    plan: &'a Plan,
    clauses: Vec<Clause<'a>>,
    prior_weight: f64,
    norms: Vec<f64>,
}

struct Clause<'a> {
    leaf: &'a Leaf,
    postings: SegmentPostings,
}

impl<'a> Rescorer<'a> {
    /// Opens the postings of the leaves.
    pub fn open(
        plan: &'a Plan,
        leaves: &[&'a Leaf],
        segment: &'a Segment,
        prior_weight: f64,
    ) -> Result<Self> {
        let mut clauses = Vec::with_capacity(leaves.len());
        for leaf in leaves {
            let Some(text) = segment.text(plan.fields[leaf.field].field) else { continue };
            let postings = text.postings.read_postings(&leaf.term, IndexRecordOption::WithFreqs);
            if let Some(postings) = postings.map_err(Error::engine("read postings"))? {
                clauses.push(Clause { leaf, postings });
            }
        }
        Ok(Self { segment, plan, clauses, prior_weight, norms: Vec::new() })
    }

    /// Scores documents that ascend, also from call to call.
    pub fn score(&mut self, docs: &[DocId], scores: &mut Vec<f32>) {
        let mut sums = vec![0.0_f64; docs.len()];
        let mut field = usize::MAX;
        for Clause { leaf, postings } in &mut self.clauses {
            if leaf.field != field {
                field = leaf.field;
                let numbers = &self.plan.fields[field];
                let Some(text) = self.segment.text(numbers.field) else { continue };
                self.norms.clear();
                self.norms.extend(docs.iter().map(|doc| numbers.norm(text.lengths.fieldnorm_id(*doc))));
            }
            let mut at = postings.doc();
            for ((doc, sum), norm) in docs.iter().zip(&mut sums).zip(&self.norms) {
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
        let sums = docs.iter().zip(sums);
        scores.extend(sums.map(|(doc, sum)| round(sum + prior(self.segment, *doc, self.prior_weight))));
    }
}
