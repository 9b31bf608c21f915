//! The corpus numbers a query is scored with. They come with the request, so every shard and replica scores on one
//! scale, whatever it holds itself.
//!
//! The engine's own statistics would make scores depend on the shard, and its idf panics when a term has more
//! documents than the corpus (a statistics file older than a segment). Rule: 1 <= df <= documents, always.

use std::{collections::BTreeMap, sync::OnceLock};

use canopy_proto::v1;
use tantivy::{Term, fieldnorm::FieldNormReader, query::Bm25StatisticsProvider, schema::Field};

use crate::error::{Error, Result};

/// BM25: how soon repetition stops to count.
pub const K1: f64 = 1.2;
/// BM25: how much length counts.
pub const B: f64 = 0.75;

/// Up to so many terms are searched one after the other.
const FEW: usize = 16;

/// Statistics of one request.
pub struct Numbers<'a> {
    /// Documents of the corpus; at least 1.
    pub documents: u64,
    fields: &'a [v1::FieldStatistics],
    terms: Terms<'a>,
}

enum Terms<'a> {
    Few(&'a [v1::TermStatistics]),
    Many(BTreeMap<(&'a str, &'a str), u64>),
}

impl<'a> Numbers<'a> {
    /// Reads the numbers of a request.
    pub fn new(statistics: &'a v1::Statistics) -> Self {
        let terms = if statistics.terms.len() <= FEW {
            Terms::Few(&statistics.terms)
        } else {
            let mut map = BTreeMap::new();
            for term in &statistics.terms {
                map.entry((term.field.as_str(), term.token.as_str())).or_insert(term.documents);
            }
            Terms::Many(map)
        };
        Self { documents: statistics.documents.max(1), fields: &statistics.fields, terms }
    }

    /// Document frequency of a token; 1 when the statistics do not know it.
    pub fn document_frequency(&self, field: &str, token: &str) -> u64 {
        let found = match &self.terms {
            Terms::Few(terms) => terms
                .iter()
                .find(|term| term.token == token && term.field == field)
                .map(|term| term.documents),
            Terms::Many(map) => map.get(&(field, token)).copied(),
        };
        found.unwrap_or(1).clamp(1, self.documents)
    }

    /// Numbers of a text field.
    pub fn field(&self, name: &str, field: Field) -> Result<TextNumbers> {
        let found = self.fields.iter().find(|numbers| numbers.field == name).ok_or_else(|| {
            Error::invalid("statistics", format!("the statistics have no token total of field {name:?}"))
        })?;
        Ok(TextNumbers::new(name, field, found.tokens, self.documents))
    }
}

/// `ln(1 + (N - df + 0.5) / (df + 0.5))`.
pub fn idf(document_frequency: u64, documents: u64) -> f64 {
    let (df, all) = (document_frequency as f64, documents as f64);
    (1.0 + (all - df + 0.5) / (df + 0.5)).ln()
}

/// One text field of a query.
pub struct TextNumbers {
    /// Its name.
    pub name: String,
    /// Its engine field.
    pub field: Field,
    /// Its tokens over the corpus; at least 1.
    pub tokens: u64,
    /// Documents of the corpus.
    pub documents: u64,
    /// Average length over the corpus.
    pub average: f64,
    by_length: OnceLock<Box<[f64; 256]>>,
}

impl TextNumbers {
    /// Numbers of a field.
    pub fn new(name: &str, field: Field, tokens: u64, documents: u64) -> Self {
        let (tokens, documents) = (tokens.max(1), documents.max(1));
        let average = tokens as f64 / documents as f64;
        Self { name: name.to_owned(), field, tokens, documents, average, by_length: OnceLock::new() }
    }

    /// `k1 * (1 - b + b * length / average)` for a length as the engine stores it.
    #[inline]
    pub fn norm(&self, length_id: u8) -> f64 {
        let length = f64::from(FieldNormReader::id_to_fieldnorm(length_id));
        K1 * (1.0 - B + B * length / self.average)
    }

    /// [`TextNumbers::norm`] of every length.
    pub fn norms(&self) -> &[f64; 256] {
        self.by_length.get_or_init(|| {
            let mut table = Box::new([0.0; 256]);
            for (id, norm) in table.iter_mut().enumerate() {
                *norm = self.norm(id as u8);
            }
            table
        })
    }
}

/// The numbers of one term in the form that the engine asks for.
pub struct EngineNumbers {
    /// Tokens of the field.
    pub tokens: u64,
    /// Documents of the corpus.
    pub documents: u64,
    /// Documents with the term.
    pub document_frequency: u64,
}

impl Bm25StatisticsProvider for EngineNumbers {
    fn total_num_tokens(&self, _: Field) -> tantivy::Result<u64> {
        Ok(self.tokens)
    }
    fn total_num_docs(&self) -> tantivy::Result<u64> {
        Ok(self.documents)
    }
    fn doc_freq(&self, _: &Term) -> tantivy::Result<u64> {
        Ok(self.document_frequency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn statistics(documents: u64, terms: usize) -> v1::Statistics {
        let term = |n: usize| v1::TermStatistics {
            field: "text".into(),
            token: format!("t{n}"),
            documents: n as u64 * 10,
        };
        let tokens = v1::FieldStatistics { field: "text".into(), tokens: 70 };
        v1::Statistics {
            documents,
            fields: vec![tokens],
            terms: (0..terms).map(term).collect(),
            id: "s".into(),
        }
    }

    #[test]
    fn frequencies_are_clamped_and_unknown_is_one() {
        for terms in [FEW, FEW + 1] {
            let statistics = statistics(100, terms);
            let numbers = Numbers::new(&statistics);
            let df = |token: &str| numbers.document_frequency("text", token);
            assert_eq!((df("t0"), df("t3"), df("t15"), df("other")), (1, 30, 100, 1));
            assert_eq!(numbers.document_frequency("title", "t3"), 1);
        }
        assert_eq!(Numbers::new(&statistics(0, 1)).documents, 1);
    }

    #[test]
    fn scores_stay_finite_at_the_edges() {
        assert!(idf(1, 1) > 0.0 && idf(u64::MAX, u64::MAX) >= 0.0 && idf(1, u64::MAX).is_finite());
        let empty = TextNumbers::new("text", Field::from_field_id(0), 0, 0);
        assert!(empty.norms().iter().all(|norm| norm.is_finite() && *norm > 0.0));
    }

    #[test]
    fn a_field_without_a_total_is_named() {
        let statistics = statistics(100, 1);
        let error = Numbers::new(&statistics).field("title", Field::from_field_id(0)).err();
        assert!(error.is_some_and(|error| error.to_string().contains("\"title\"")));
    }
}
