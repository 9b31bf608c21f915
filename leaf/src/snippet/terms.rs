//! What a query would like to see highlighted: its tokens on given fields, grouped by the word they are forms of, and
//! its phrases. What must not match is left out, as are ranges and exact values.
//!
//! Words, not tokens, count: a word that travels with one form per stemming language, or with all the terms that a
//! prefix was expanded to, is seen once whichever of them the text has. An expansion that was cut at the root highlights
//! what it has and never fails here. Units: weights are in idf when the request carries statistics, else all 1.

use std::collections::BTreeMap;

use canopy_proto::v1::{PhraseTokens, Query, Statistics, query::Node};

/// A token's number within [`Terms`], and the word it is a form of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Form {
    /// Number of the token.
    pub token: u32,
    /// Number of the word.
    pub word: u32,
}

/// Tokens, words and phrases to look for.
#[derive(Debug, Default)]
pub struct Terms {
    forms: BTreeMap<String, Form>,
    weights: Vec<f32>,
    phrases: Vec<Vec<(u32, u32)>>,
}

impl Terms {
    /// Those of `query` on any of `fields`. The query's bounds were checked when it came in.
    pub fn of(query: &Query, fields: &[&str], statistics: Option<&Statistics>) -> Self {
        let mut terms = Self::default();
        let mut open = vec![query];
        while let Some(query) = open.pop() {
            match &query.node {
                Some(Node::Bool(b)) => {
                    open.extend(b.filter.iter().chain(&b.should).chain(&b.must).rev());
                }
                Some(Node::Term(term)) if fields.contains(&term.field.as_str()) => {
                    terms.word(&term.tokens, weight(statistics, &term.field, &term.tokens));
                }
                Some(Node::Expanded(expanded)) if fields.contains(&expanded.field.as_str()) => {
                    terms.word(&expanded.tokens, 1.0);
                }
                Some(Node::Phrase(phrase)) if fields.contains(&phrase.field.as_str()) => {
                    for alternative in &phrase.alternatives {
                        terms.phrase(alternative, |token| {
                            weight(statistics, &phrase.field, std::slice::from_ref(token))
                        });
                    }
                }
                _ => {}
            }
        }
        terms
    }

    fn word(&mut self, tokens: &[String], weight: f32) {
        let known = tokens.iter().find_map(|token| self.forms.get(token)).map(|form| form.word);
        let word = known.unwrap_or_else(|| {
            self.weights.push(weight);
            self.weights.len() as u32 - 1
        });
        for token in tokens {
            let token_number = self.forms.len() as u32;
            self.forms.entry(token.clone()).or_insert(Form { token: token_number, word });
        }
    }

    fn phrase(&mut self, phrase: &PhraseTokens, weight: impl Fn(&String) -> f32) {
        for token in &phrase.tokens {
            self.word(std::slice::from_ref(token), weight(token));
        }
        let places = phrase.tokens.iter().zip(&phrase.positions);
        let numbered = places.filter_map(|(token, at)| Some((self.forms.get(token)?.token, *at))).collect();
        self.phrases.push(numbered);
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }

    /// The form that `token` is, if any.
    pub fn find(&self, token: &str) -> Option<Form> {
        self.forms.get(token).copied()
    }

    /// Weight of each word.
    pub fn weights(&self) -> &[f32] {
        &self.weights
    }

    /// Phrases of two tokens and more: (token, relative position).
    pub fn phrases(&self) -> impl Iterator<Item = &[(u32, u32)]> {
        self.phrases.iter().map(Vec::as_slice).filter(|phrase| phrase.len() > 1)
    }
}

/// Rarity of a word: the idf of the frequencies that its forms have together.
fn weight(statistics: Option<&Statistics>, field: &str, tokens: &[String]) -> f32 {
    let Some(statistics) = statistics else { return 1.0 };
    let terms = statistics.terms.iter().filter(|term| term.field == field && tokens.contains(&term.token));
    let all = statistics.documents.max(1) as f64;
    let with = (terms.map(|term| term.documents).max().unwrap_or(1) as f64).clamp(1.0, all);
    ((1.0 + (all - with + 0.5) / (with + 0.5)).ln() as f32).max(0.1)
}

#[cfg(test)]
pub(crate) mod tests {
    use canopy_proto::v1::{BoolQuery, ExpandedQuery, PhraseQuery, TermQuery};

    use super::*;

    /// A query for one word of the search field.
    pub fn term(tokens: &[&str]) -> Query {
        let tokens = tokens.iter().map(|token| (*token).to_owned()).collect();
        Query { node: Some(Node::Term(TermQuery { field: "text".into(), tokens, boost: 0.0 })) }
    }

    /// Any of several queries.
    pub fn any(should: Vec<Query>) -> Query {
        Query { node: Some(Node::Bool(BoolQuery { should, ..Default::default() })) }
    }

    /// A phrase of the search field.
    pub fn phrase(tokens: &[&str]) -> Query {
        let alternatives = vec![PhraseTokens {
            tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
            positions: (0..tokens.len() as u32).collect(),
        }];
        let node = PhraseQuery { field: "text".into(), alternatives, slop: 0, boost: 0.0 };
        Query { node: Some(Node::Phrase(node)) }
    }

    #[test]
    fn forms_of_one_word_count_once_and_what_must_not_match_is_left_out() {
        let not = Query {
            node: Some(Node::Bool(BoolQuery {
                must: vec![term(&["run", "running"])],
                must_not: vec![term(&["secret"])],
                ..Default::default()
            })),
        };
        let other =
            Query { node: Some(Node::Term(TermQuery { field: "title".into(), ..Default::default() })) };
        let terms = Terms::of(&any(vec![not, other, phrase(&["red", "run"])]), &["text"], None);
        assert_eq!(terms.weights().len(), 2);
        assert_eq!(terms.find("run").map(|form| form.word), terms.find("running").map(|form| form.word));
        assert!(terms.find("secret").is_none());
        assert_eq!(terms.phrases().count(), 1);
    }

    #[test]
    fn an_expansion_is_one_word() {
        let tokens = (0..2000).map(|n| format!("comp{n}")).collect();
        let node = ExpandedQuery { field: "text".into(), tokens, truncated: true, ..Default::default() };
        let terms = Terms::of(&Query { node: Some(Node::Expanded(node)) }, &["text"], None);
        assert_eq!((terms.weights().len(), terms.find("comp1999").is_some()), (1, true));
    }
}
