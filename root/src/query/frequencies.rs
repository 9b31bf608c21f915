//! The corpus numbers that a query is scored with: read off the finished message, so that they are of exactly its
//! terms.
//!
//! Rule: all forms of one word get one document frequency, the sum of theirs (at most the number of documents, at
//! least 1), so that a rare spelling is not worth more than the word. Where two words share a form, the larger.

use std::collections::{BTreeMap, BTreeSet};

use canopy_format::statistics::Statistics;
use canopy_proto::v1::{self, FieldStatistics, PhraseQuery, Query, TermStatistics, query::Node};

/// Frequencies of the terms of `query`.
pub fn of(query: &Query, statistics: &Statistics) -> v1::Statistics {
    let mut gathered = Gathered { statistics, terms: BTreeMap::new(), fields: BTreeSet::new() };
    let mut open = vec![query];
    while let Some(query) = open.pop() {
        match &query.node {
            Some(Node::Bool(b)) => {
                open.extend([&b.must, &b.should, &b.must_not, &b.filter].into_iter().flatten());
            }
            Some(Node::Term(term)) => gathered.word(&term.field, &term.tokens.iter().collect()),
            Some(Node::Phrase(phrase)) => gathered.phrase(phrase),
            _ => {}
        }
    }
    let tokens = statistics.tokens();
    let fields = gathered.fields.iter().map(|field| FieldStatistics {
        field: (*field).to_owned(),
        tokens: tokens.get(*field).copied().unwrap_or(0),
    });
    let terms = gathered.terms.iter().map(|((field, token), documents)| TermStatistics {
        field: (*field).to_owned(),
        token: (*token).to_owned(),
        documents: *documents,
    });
    v1::Statistics {
        id: statistics.id().to_owned(),
        documents: statistics.documents(),
        fields: fields.collect(),
        terms: terms.collect(),
    }
}

struct Gathered<'q> {
    statistics: &'q Statistics,
    terms: BTreeMap<(&'q str, &'q str), u64>,
    fields: BTreeSet<&'q str>,
}

impl<'q> Gathered<'q> {
    /// One word in its forms.
    fn word(&mut self, field: &'q str, forms: &BTreeSet<&'q String>) {
        let known = |form: &&String| self.statistics.document_frequency(field, form).unwrap_or(0);
        let sum = forms.iter().map(known).fold(0_u64, u64::saturating_add);
        let documents = sum.min(self.statistics.documents()).max(1);
        self.fields.insert(field);
        for form in forms {
            let entry = self.terms.entry((field, form)).or_insert(documents);
            *entry = documents.max(*entry);
        }
    }

    /// The words of a phrase: what its alternatives have at one place.
    fn phrase(&mut self, phrase: &'q PhraseQuery) {
        let places = phrase.alternatives.iter().map(|each| each.tokens.len()).max().unwrap_or(0);
        for place in 0..places {
            let tokens = phrase.alternatives.iter().filter_map(|each| each.tokens.get(place));
            self.word(&phrase.field, &tokens.collect());
        }
    }
}
