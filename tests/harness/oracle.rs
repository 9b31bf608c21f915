//! What a search must answer, by looking at every document: no index, no engine, none of the searcher's code.
//!
//! It takes the query as it travels and the documents as they were generated, counts its own statistics, and keeps the
//! contract of scores: one sum in double precision over the scoring leaves in the order of the query, rounded once. Of
//! the product it uses the analysis of text, the hash of keys and the message types; nothing that scores, filters,
//! sorts, counts or merges.

use std::{
    cmp::Ordering,
    collections::{BTreeMap, BTreeSet},
};

use canopy_format::{analysis::Analyzer, schema::Schema};
use canopy_proto::v1::{self, query::Node};

use crate::corpus::Page;

mod text;
mod values;

use text::Texts;
use values::{Stored, Values};

const K1: f64 = 1.2;
const B: f64 = 0.75;

/// A document as the oracle sees it.
struct Document {
    key: String,
    hash: u128,
    texts: Texts,
    values: Values,
}

/// All documents of a corpus.
pub struct Oracle {
    documents: Vec<Document>,
    /// Tokens by field.
    tokens: BTreeMap<String, u64>,
    /// Documents by field and token.
    frequencies: BTreeMap<String, BTreeMap<String, u64>>,
    /// By token the words as written, in any field.
    spellings: BTreeMap<String, BTreeSet<String>>,
}

/// What is asked beside the query.
#[derive(Debug, Clone, Default)]
pub struct Asked {
    /// The query.
    pub query: v1::Query,
    /// Order; empty: by score.
    pub sort: Vec<v1::SortBy>,
    /// What is counted.
    pub facets: Vec<v1::FacetBy>,
    /// Field of which each value is shown once; empty: none.
    pub collapse: String,
    /// Weight of the static rank.
    pub prior_weight: f32,
}

/// All of an answer: every hit, not a page.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    /// Key and bits of the score, in order.
    pub hits: Vec<(String, u32)>,
    /// Matches.
    pub total: u64,
    /// By field: values with their counts, most frequent first, then by value.
    pub facets: BTreeMap<String, Vec<(String, u64)>>,
}

/// Numbers of the corpus that a query is scored with.
struct Numbers<'a> {
    oracle: &'a Oracle,
    /// Documents by field and token, words with all their forms.
    words: BTreeMap<(String, String), u64>,
}

impl Oracle {
    /// Of these pages; of several with one key the last counts.
    pub fn new(schema: &Schema, pages: &[Page]) -> Self {
        let analyzer = Analyzer::new();
        let last: BTreeMap<&str, &Page> = pages.iter().map(|page| (page.key.as_str(), page)).collect();
        let (tokens, frequencies, spellings) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        let mut oracle = Self { documents: Vec::new(), tokens, frequencies, spellings };
        for page in last.values() {
            let texts = Texts::of(schema, page, &analyzer);
            for (field, text) in texts.fields() {
                *oracle.tokens.entry(field.clone()).or_default() += text.length();
                let counts = oracle.frequencies.entry(field.clone()).or_default();
                for token in text.tokens() {
                    *counts.entry(token.clone()).or_default() += 1;
                }
            }
            for (token, spelling) in texts.spellings() {
                oracle.spellings.entry(token.clone()).or_default().insert(spelling.clone());
            }
            let (key, hash) = (page.key.clone(), page.hash().0);
            oracle.documents.push(Document { key, hash, texts, values: Values::of(page) });
        }
        oracle
    }

    /// Documents.
    pub fn documents(&self) -> u64 {
        self.documents.len() as u64
    }

    /// Tokens of a field over all documents.
    pub fn tokens(&self, field: &str) -> u64 {
        self.tokens.get(field).copied().unwrap_or(0)
    }

    /// Documents with a token in a field.
    pub fn frequency(&self, field: &str, token: &str) -> u64 {
        self.frequencies.get(field).and_then(|counts| counts.get(token)).copied().unwrap_or(0)
    }

    /// All tokens of a field, in order.
    pub fn vocabulary(&self, field: &str) -> impl Iterator<Item = &str> {
        self.frequencies.get(field).into_iter().flat_map(|counts| counts.keys().map(String::as_str))
    }

    /// Words of the corpus as documents write them, of which a token is one.
    pub fn spellings(&self, token: &str) -> impl Iterator<Item = &str> {
        self.spellings.get(token).into_iter().flatten().map(String::as_str)
    }

    /// Answers a query.
    pub fn answer(&self, asked: &Asked) -> Expected {
        let numbers = Numbers::of(self, &asked.query);
        let mut found: Vec<(&Document, f32)> = Vec::new();
        for document in self.documents.iter().filter(|document| matches(&asked.query, document)) {
            let mut sum = 0.0;
            numbers.add(&asked.query, document, &mut sum);
            sum += f64::from(asked.prior_weight) * document.values.static_rank();
            found.push((document, sum as f32));
        }
        let facets = asked.facets.iter().map(|by| (by.field.clone(), counts(&found, &by.field)));
        let (facets, total) = (facets.collect(), found.len() as u64);
        sort(&mut found, &asked.sort);
        let mut shown = BTreeSet::new();
        found.retain(|(document, _)| match document.values.first_text(&asked.collapse) {
            Some(value) if !asked.collapse.is_empty() => shown.insert(value.to_owned()),
            _ => true,
        });
        let hits = found.iter().map(|(document, score)| (document.key.clone(), score.to_bits())).collect();
        Expected { hits, total, facets }
    }
}

fn sort(found: &mut [(&Document, f32)], by: &[v1::SortBy]) {
    let place = |(document, score): (&Document, f32), by: &v1::SortBy| match by.field.as_str() {
        "_score" => Some(Stored::Float(score.into())),
        field => document.values.sorted_by(field, by.descending),
    };
    found.sort_by(|a, b| {
        let mut order = if by.is_empty() { b.1.total_cmp(&a.1) } else { Ordering::Equal };
        for by in by {
            order = order.then_with(|| {
                values::directed(place(*a, by).as_ref(), place(*b, by).as_ref(), by.descending)
            });
        }
        order.then_with(|| a.0.hash.cmp(&b.0.hash))
    });
}

fn counts(found: &[(&Document, f32)], field: &str) -> Vec<(String, u64)> {
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    for (document, _) in found {
        let shown: BTreeSet<String> = document.values.get(field).iter().map(Stored::shown).collect();
        for value in shown {
            *counts.entry(value).or_default() += 1;
        }
    }
    let mut counts: Vec<(String, u64)> = counts.into_iter().collect();
    counts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    counts
}

/// Whether a document matches.
fn matches(query: &v1::Query, document: &Document) -> bool {
    match query.node.as_ref().expect("a node") {
        Node::All(_) => true,
        Node::None(_) => false,
        Node::Term(term) => term.tokens.iter().any(|token| document.texts.count(&term.field, token) > 0),
        Node::Phrase(phrase) => {
            let text = document.texts.field(&phrase.field);
            phrase
                .alternatives
                .iter()
                .any(|each| text.is_some_and(|text| text.phrases(each, phrase.slop) > 0))
        }
        Node::Expanded(expanded) => {
            expanded.tokens.iter().any(|token| document.texts.count(&expanded.field, token) > 0)
        }
        Node::Keyword(keyword) => document.values.equal_any(&keyword.field, &keyword.values),
        Node::Range(range) => document.values.within(range),
        Node::Bool(bool) => {
            let least = match bool.min_should_match {
                0 if bool.must.is_empty() && bool.filter.is_empty() => 1,
                least => least as usize,
            };
            bool.must.iter().chain(&bool.filter).all(|child| matches(child, document))
                && !bool.must_not.iter().any(|child| matches(child, document))
                && bool.should.iter().filter(|child| matches(child, document)).count() >= least
        }
    }
}

impl<'a> Numbers<'a> {
    /// One frequency for all forms of a word: their sum, within 1 and all documents; the larger where words share one.
    fn of(oracle: &'a Oracle, query: &v1::Query) -> Self {
        let mut numbers = Self { oracle, words: BTreeMap::new() };
        numbers.collect(query);
        numbers
    }

    fn collect(&mut self, query: &v1::Query) {
        match query.node.as_ref().expect("a node") {
            Node::Term(term) => self.word(&term.field, term.tokens.iter().collect()),
            Node::Phrase(phrase) => {
                let longest = phrase.alternatives.iter().map(|each| each.tokens.len()).max().unwrap_or(0);
                for place in 0..longest {
                    let forms =
                        phrase.alternatives.iter().filter_map(|each| each.tokens.get(place)).collect();
                    self.word(&phrase.field, forms);
                }
            }
            Node::Bool(bool) => {
                for child in bool.must.iter().chain(&bool.should).chain(&bool.must_not).chain(&bool.filter) {
                    self.collect(child);
                }
            }
            _ => {}
        }
    }

    fn word(&mut self, field: &str, forms: BTreeSet<&String>) {
        let sum: u64 = forms.iter().map(|form| self.oracle.frequency(field, form)).sum();
        let documents = sum.clamp(1, self.oracle.documents().max(1));
        for form in forms {
            let known = self.words.entry((field.to_owned(), form.clone())).or_default();
            *known = documents.max(*known);
        }
    }

    /// Adds the scores of the leaves that match, in the order of the query, to a sum that is rounded by the caller.
    fn add(&self, query: &v1::Query, document: &Document, sum: &mut f64) {
        match query.node.as_ref().expect("a node") {
            Node::Term(term) => {
                for token in &term.tokens {
                    let count = document.texts.count(&term.field, token);
                    if count > 0 {
                        let idf = self.idf(&term.field, token);
                        *sum += self.score(document, &term.field, idf, count, term.boost);
                    }
                }
            }
            Node::Phrase(phrase) => {
                let Some(text) = document.texts.field(&phrase.field) else { return };
                for each in &phrase.alternatives {
                    let count = text.phrases(each, phrase.slop);
                    if count > 0 {
                        let idf = each.tokens.iter().map(|token| self.idf(&phrase.field, token)).sum();
                        *sum += self.score(document, &phrase.field, idf, count, phrase.boost);
                    }
                }
            }
            Node::Expanded(expanded) if matches(query, document) => *sum += weight(expanded.boost),
            Node::Bool(bool) => {
                bool.must.iter().for_each(|child| self.add(child, document, sum));
                let should = bool.should.iter().filter(|child| matches(child, document));
                should.for_each(|child| self.add(child, document, sum));
            }
            _ => {}
        }
    }

    fn idf(&self, field: &str, token: &str) -> f64 {
        let known = self.words.get(&(field.to_owned(), token.to_owned()));
        let (df, all) = (known.copied().unwrap_or(1) as f64, self.oracle.documents() as f64);
        (1.0 + (all - df + 0.5) / (df + 0.5)).ln()
    }

    fn score(&self, document: &Document, field: &str, idf: f64, count: u64, boost: f32) -> f64 {
        let average = self.oracle.tokens(field) as f64 / self.oracle.documents() as f64;
        let length = document.texts.field(field).map_or(0, |text| text::quantised(text.length()));
        let norm = K1 * (1.0 - B + B * length as f64 / average);
        weight(boost) * idf * (K1 + 1.0) * count as f64 / (count as f64 + norm)
    }
}

fn weight(boost: f32) -> f64 {
    if boost == 0.0 { 1.0 } else { boost.into() }
}
