//! Flat unions and intersections of terms on the engine's block-max path, and how far its numbers can be off.
//!
//! The engine skips a block of postings when the block's stored maximum can't beat the threshold. Three things make its
//! numbers differ from the canonical score, and each is answered by lowering the threshold by a proved bound, so that
//! no document of the page is ever skipped:
//! - **single precision**: sums of n clauses in an order that depends on the cursors, 4 ulp and more a clause, and an idf
//!   that loses all digits when nearly every document has the term ([`Slack::error`]);
//! - **average length**: a block's maximum was chosen under the segment's average length, the query scores under the
//!   corpus'. With the two a factor r apart, the true maximum is less than r times the computed one ([`Slack::of`]);
//! - **the ceiling of a term** is computed for an endless document of one word, whose length is stored rounded down:
//!   short averages let real documents pass it by up to (1 + 0.9/average) / (1 + 0.8/average).
//!
//! Shards whose average is outside 0.5..2 of the corpus' take the exhaustive path: there the bound costs more than it
//! saves. So do unions of very many terms, because the engine can't be stopped between two candidates.

use tantivy::{
    DocId, Score, SegmentReader,
    query::{BooleanWeight, EnableScoring, Explanation, Occur, Scorer, SumCombiner, TermQuery, Weight},
    schema::IndexRecordOption,
};

use super::{
    numbers::EngineNumbers,
    plan::{Flat, Leaf, Plan},
};
use crate::{
    error::{Error, Result},
    view::Segment,
};

/// Most clauses of a pruned query.
pub const MAX_CLAUSES: usize = 32;
/// Most postings that an intersection's rarest term may have: the engine may scan all of them in one go, which must
/// stay well below the 10 ms within which a leaf stops.
pub const MAX_LEAD: u64 = 500_000;
/// Most postings of a union, for the same reason.
pub const MAX_POSTINGS: u64 = 8_000_000;

/// The engine's weight of a flat query.
pub fn weight(
    searcher: &tantivy::Searcher,
    plan: &Plan,
    flat: Flat,
    leaves: &[&Leaf],
) -> Result<Box<dyn Weight>> {
    let step = "prepare query";
    let one = |leaf: &Leaf| -> Result<Box<dyn Weight>> {
        let field = &plan.fields[leaf.field];
        let numbers = EngineNumbers {
            tokens: field.tokens,
            documents: field.documents,
            document_frequency: leaf.document_frequency,
        };
        let query = TermQuery::new(leaf.term.clone(), IndexRecordOption::WithFreqs);
        let scoring = EnableScoring::enabled_from_statistics_provider(&numbers, searcher);
        let weight = Box::new(query.specialized_weight(scoring).map_err(Error::engine(step))?);
        if leaf.boost == 1.0 { Ok(weight) } else { Ok(Box::new(Boosted { weight, boost: leaf.boost })) }
    };
    if let [only] = leaves
        && only.boost == 1.0
    {
        return one(only);
    }
    let occur = if flat == Flat::And && leaves.len() > 1 { Occur::Must } else { Occur::Should };
    let clauses = leaves.iter().map(|leaf| Ok((occur, one(leaf)?))).collect::<Result<Vec<_>>>()?;
    let combiner = Box::new(SumCombiner::default);
    Ok(Box::new(BooleanWeight::with_minimum_number_should_match(clauses, 0, true, combiner)))
}

/// A term with a boost; the engine's own wrapper would need a query to be made first.
struct Boosted {
    weight: Box<dyn Weight>,
    boost: Score,
}

impl Weight for Boosted {
    fn scorer(&self, reader: &SegmentReader, boost: Score) -> tantivy::Result<Box<dyn Scorer>> {
        self.weight.scorer(reader, boost * self.boost)
    }

    fn explain(&self, reader: &SegmentReader, doc: DocId) -> tantivy::Result<Explanation> {
        self.weight.explain(reader, doc)
    }
}

/// How far the engine's numbers may be off in one segment.
#[derive(Debug, Clone, Copy)]
pub struct Slack {
    relative: f64,
    absolute: f64,
    /// One through the factor by which the engine's maxima may be too low.
    tight: f64,
    prior: f64,
}

impl Slack {
    /// For the leaves of a plan in a segment; `prior` is the most that the static prior can add there. `None`: the
    /// segment's lengths are too far from the corpus'.
    pub fn of(plan: &Plan, leaves: &[&Leaf], segment: &Segment, prior: f64) -> Option<Self> {
        let mut loose = 1.0_f64;
        for leaf in leaves {
            let numbers = &plan.fields[leaf.field];
            let own = segment.text(numbers.field).map_or(0.0, |text| text.average);
            if own <= 0.0 {
                continue; // no document has the field
            }
            let ratio = own / numbers.average;
            if !(0.5..=2.0).contains(&ratio) {
                return None;
            }
            let ceiling = (1.0 + 0.9 / numbers.average) / (1.0 + 0.8 / numbers.average);
            loose = loose.max(ratio.max(1.0 / ratio) * ceiling);
        }
        let ulp = f64::from(f32::EPSILON);
        let boosts: f64 = leaves.iter().map(|leaf| f64::from(leaf.boost)).sum();
        Some(Self {
            relative: ulp * (16 + 4 * leaves.len()) as f64,
            absolute: 1e-6 * boosts,
            tight: 1.0 / loose,
            prior,
        })
    }

    /// Largest difference between the engine's and the canonical score (without prior), either way.
    #[inline]
    pub fn error(&self, score: f64) -> f64 {
        score.abs() * self.relative + self.absolute
    }

    /// The engine threshold above which every document is reported whose canonical score may reach `floor`.
    #[inline]
    pub fn threshold(&self, floor: f64) -> Score {
        let floor = floor - self.prior;
        let floor = (floor - self.error(floor)) * self.tight;
        if floor > 0.0 { (floor as f32).next_down() } else { Score::MIN }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_threshold_is_below_the_floor_by_all_bounds() {
        let slack = Slack { relative: 1e-5, absolute: 1e-6, tight: 0.8, prior: 1.0 };
        let threshold = f64::from(slack.threshold(6.0));
        assert!(threshold < 4.0 && threshold > 3.999);
        assert_eq!(slack.threshold(f64::NEG_INFINITY), Score::MIN);
        assert_eq!(slack.threshold(0.5), Score::MIN);
    }
}
