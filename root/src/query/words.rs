//! Words to the terms that documents have. The analysis gives every word its form in each language of the query; the
//! statistics say which of them any document has, and only those travel; beside them those that only documents newer than the
//! version may have (see [`Newer`]).
//!
//! One account is kept for the whole query, filters included: words, nodes and tokens stay below what the validator
//! allows, so that a leaf never refuses what the root made. Over it, a lenient query loses its last words, with a
//! warning; the strict reader and the filters answer an error.

use canopy_common::{deadline::Deadline, error::Failure};
use canopy_format::analysis::Word;
use canopy_proto::{
    v1::{PhraseQuery, PhraseTokens, Query, TermQuery, query::Node},
    validate::MAX_NODES,
};

use super::{MAX_TERMS, Newer, QueryContext, Warning, warnings::Warnings};

/// Nodes that the frame around the clauses takes (root, filters, their wrapper).
const FRAME_NODES: usize = 16;
/// Bounds of a boost once those of groups are multiplied in.
const BOOSTS: std::ops::RangeInclusive<f32> = 1e-6..=1e6;

/// Makes terms and keeps the account.
pub struct Words<'c> {
    /// What the query is read against.
    pub context: &'c QueryContext<'c>,
    /// What was read otherwise.
    pub warnings: Warnings,
    pub(super) expand_by: Deadline,
    pub(super) patterns: usize,
    pub(super) expanded: usize,
    pub(super) truncated: bool,
    /// Languages of its filters, not of the context.
    more: Vec<String>,
    terms: usize,
    nodes: usize,
    full: bool,
    unknown: bool,
}

/// A word that stands plain: one clause.
#[derive(Debug, Clone, PartialEq)]
pub struct Plain {
    /// The clause.
    pub query: Query,
    /// Common and without meaning of its own: dropped when another word remains.
    pub stop: bool,
    /// Only helps ranking (a single Han character beside its pairs): no count includes it.
    pub extra: bool,
}

impl Plain {
    /// A clause that is neither common nor extra.
    pub fn new(query: Query) -> Self {
        Self { query, stop: false, extra: false }
    }
}

impl<'c> Words<'c> {
    /// An account for one query, read in the context's languages and those that it filters by.
    pub fn new(context: &'c QueryContext<'c>, asked: Vec<String>, warnings: Warnings) -> Self {
        let mut more = asked;
        more.retain(|code| !context.languages.contains(code));
        Self {
            context,
            warnings,
            expand_by: Deadline::after(context.deadline.remaining() / 4),
            patterns: 0,
            expanded: 0,
            truncated: false,
            more,
            terms: 0,
            nodes: FRAME_NODES,
            full: false,
            unknown: false,
        }
    }

    /// The languages it reads in, but for those that scripts bring.
    pub fn languages(&self) -> Vec<String> {
        self.more.iter().chain(&self.context.languages).cloned().collect()
    }

    /// Whether an expansion was cut.
    pub fn truncated(&self) -> bool {
        self.truncated
    }

    /// Whether some word is one that no document has.
    pub fn unknown(&self) -> bool {
        self.unknown
    }

    /// Ends the account.
    pub fn into_warnings(self) -> Vec<Warning> {
        self.warnings.into_list()
    }

    /// Tokens that still fit, less one for the node that may hold them.
    pub(super) fn room(&self) -> usize {
        (MAX_NODES - self.nodes).saturating_sub(1)
    }

    /// Takes the room of one clause of `tokens` tokens, and of a node above it: every group holds two clauses or more,
    /// so there are fewer groups than clauses.
    pub fn charge(&mut self, tokens: usize) -> bool {
        if self.terms >= MAX_TERMS || tokens > self.room() {
            self.full = true;
            let message = format!("only the first part was searched: a query has at most {MAX_TERMS} words");
            self.warnings.add("too_many_terms", message);
            return false;
        }
        self.terms += 1;
        self.nodes += tokens + 1;
        true
    }

    /// An error when something found no room.
    pub fn check_room(&self, field: &str) -> Result<(), Failure> {
        if !self.full {
            return Ok(());
        }
        let message = format!("the query has more than {MAX_TERMS} clauses or {MAX_NODES} terms; send fewer");
        Err(Failure::invalid(field, message).with_limit(MAX_TERMS as u64))
    }

    /// The words of a text.
    pub fn analyse(&self, text: &str) -> Vec<Word> {
        let mut languages: Vec<&str> = self.context.languages.iter().map(String::as_str).collect();
        super::languages::widen(&mut languages, text);
        if self.more.is_empty() {
            return self.context.analyzer.query(text, &languages);
        }
        let all = self.more.iter().map(String::as_str).chain(languages.iter().copied());
        let mut words = self.context.analyzer.query(text, &all.collect::<Vec<_>>());
        // What a filter adds are forms: a word that only its language calls common must not be dropped for it.
        let without = self.context.analyzer.query(text, &languages);
        for word in &mut words {
            let place = |word: &Word| (word.position, word.extra);
            let at = without.binary_search_by_key(&place(word), place);
            word.stop = at.map_or(word.stop, |at| without[at].stop);
        }
        words
    }

    /// The words of a text without those that only help ranking.
    pub fn whole_words(&self, text: &str) -> Vec<Word> {
        let mut words = self.analyse(text);
        words.retain(|word| !word.extra);
        words
    }

    /// Every word of a text as a clause of its own.
    pub fn plain(&mut self, field: &str, text: &str, boost: f32) -> Vec<Plain> {
        let words = self.analyse(text);
        let mut found = Vec::with_capacity(words.len());
        for word in &words {
            let Some(query) = self.term(field, word, boost) else { break };
            let stop = word.stop && self.common(field, &query);
            found.push(Plain { query, stop, extra: word.extra });
        }
        found
    }

    /// One word: the forms that the corpus has, or its first form when it has none, and those that newer documents may have.
    pub fn term(&mut self, field: &str, word: &Word, boost: f32) -> Option<Query> {
        let (mut tokens, absent): (Vec<String>, Vec<String>) =
            word.forms.iter().cloned().partition(|form| self.known(field, form));
        self.unknown |= tokens.is_empty();
        let kept = self.absent(tokens.is_empty(), absent.len());
        tokens.extend(absent.into_iter().take(kept));
        if tokens.is_empty() || !self.charge(tokens.len()) {
            return None;
        }
        let term = TermQuery { field: field.to_owned(), tokens, boost: bounded(boost) };
        Some(Query { node: Some(Node::Term(term)) })
    }

    /// The words of a text in a row; a single word is a term. `None` when there are none or no room.
    pub fn phrase(&mut self, field: &str, text: &str, slop: u32, boost: f32) -> Option<Query> {
        let words = self.whole_words(text);
        match words.as_slice() {
            [] => None,
            [one] => self.term(field, one, boost),
            _ => self.row(field, &words, slop, boost),
        }
    }

    fn row(&mut self, field: &str, words: &[Word], slop: u32, boost: f32) -> Option<Query> {
        let first = words.first()?.position;
        let positions: Vec<u32> = words.iter().map(|word| word.position.saturating_sub(first)).collect();
        let mut alternatives: Vec<Vec<String>> = Vec::new();
        let languages = words.iter().map(|word| word.by_language.len()).max().unwrap_or(0);
        for language in 0..languages {
            let of = |word: &Word| word.by_language.get(language).or(word.forms.first()).cloned();
            let tokens: Vec<String> = words.iter().filter_map(of).collect();
            if tokens.len() == words.len() && !alternatives.contains(&tokens) {
                alternatives.push(tokens);
            }
        }
        let (mut kept, absent): (Vec<_>, Vec<_>) =
            alternatives.into_iter().partition(|tokens| tokens.iter().all(|token| self.known(field, token)));
        self.unknown |= kept.is_empty();
        let more = self.absent(kept.is_empty(), absent.len());
        kept.extend(absent.into_iter().take(more));
        kept.truncate((self.room() / words.len()).max(1));
        if kept.is_empty() || !self.charge(kept.len() * words.len()) {
            return None;
        }
        let alternatives =
            kept.into_iter().map(|tokens| PhraseTokens { tokens, positions: positions.clone() }).collect();
        let phrase = PhraseQuery { field: field.to_owned(), alternatives, slop, boost: bounded(boost) };
        Some(Query { node: Some(Node::Phrase(phrase)) })
    }

    /// How many of the forms that no document of the version has are looked for; `alone`: it has none of the others either.
    fn absent(&self, alone: bool, forms: usize) -> usize {
        match (self.context.newer, alone) {
            (Newer::Are, _) | (Newer::May, true) => forms,
            (Newer::None, true) => 1,
            (Newer::None | Newer::May, false) => 0,
        }
    }

    pub(super) fn known(&self, field: &str, token: &str) -> bool {
        self.context.statistics.document_frequency(field, token).is_some()
    }

    /// Whether a stop word is common here. A stop word of one language is a word of another (`die hard`), so among
    /// several languages only one that 2 % of the documents have counts as a stop word.
    fn common(&self, field: &str, query: &Query) -> bool {
        let Some(Node::Term(term)) = &query.node else { return false };
        let statistics = self.context.statistics;
        let of = |token| u128::from(statistics.document_frequency(field, token).unwrap_or(0));
        let documents: u128 = term.tokens.iter().map(|token| of(token)).sum();
        self.context.languages.len() < 2 || documents * 50 >= u128::from(statistics.documents())
    }
}

/// A boost that neither vanishes nor overflows.
pub fn bounded(boost: f32) -> f32 {
    boost.clamp(*BOOSTS.start(), *BOOSTS.end())
}
