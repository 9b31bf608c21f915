//! Prefix, wildcard and fuzzy words to the terms of the corpus that they stand for, once, at the root, against the
//! pinned statistics: a pattern is held against the words as documents write them, and stands for the terms that those
//! are indexed as. A term brings all its words: where `replicated` and `replication` are one term, `replicatio*` finds
//! pages that say `replicated`, too, as the plain word does.
//!
//! Why here and not in the engine: its automaton queries cannot be stopped, and every replica would expand on its own.
//! Bounds: a quarter of the time that is left for all patterns of a query together, a limit per pattern (the most
//! frequent terms stay), one over all patterns, and a number of patterns. Whatever is cut says `expansion_truncated`.
//! Found terms match with a constant score; they have no frequency of their own in it. A fuzzy word's constant falls
//! with its edits: 1/2 for one, 1/3 for two, and the word itself scores like any word on top of 1/2. Each distance is
//! a clause that holds the closer terms, too, so that only a document's closest word counts, however many others it has.
//!
//! Words that only newer documents have are in no statistics. A pattern travels as it was typed, and the leaves hold a prefix
//! against the words of their newer documents, which are few; one that stands for nothing here travels alone. A wildcard or a
//! fuzzy word stands for words of the version only.

use canopy_format::statistics::{Found, Pattern};
use canopy_proto::v1::{BoolQuery, ExpandedQuery, Query, query::Node};

use super::{
    MAX_EXPANDED, MAX_PATTERNS, Newer,
    target::short,
    words::{Words, bounded},
};

/// What a match within two edits adds, and one within one edit on top.
const NEAR: [f32; 2] = [1.0 / 3.0, 1.0 / 2.0 - 1.0 / 3.0];
/// Longest word that one edit is the default for, characters; longer ones get two.
const ONE_EDIT: usize = 5;

impl Words<'_> {
    /// Terms of the shape of `typed` (`*` any run, `?` any one character). `None` when there are none.
    pub fn pattern(&mut self, field: &str, typed: &str, boost: f32) -> Option<Query> {
        let folded = self.fold_pattern(typed);
        let literal = folded.trim_end_matches('*');
        let pattern = if literal.len() + 1 == folded.len() && !literal.contains(['*', '?']) {
            Pattern::Prefix(literal.to_owned())
        } else {
            Pattern::Wildcard(folded)
        };
        let found = self.expand(field, &pattern)?;
        self.any_of(field, found.into_iter().map(|found| found.term).collect(), typed, boost)
    }

    /// Terms within `distance` edits of a word (0: by its length). The word itself, where the corpus has it, counts
    /// as the word it is, above its neighbours.
    pub fn fuzzy(&mut self, field: &str, typed: &str, distance: u8, boost: f32) -> Option<Query> {
        let letters = typed.chars().count();
        let distance = match distance {
            0 if letters <= ONE_EDIT => 1,
            0 => 2,
            asked => asked.min(2),
        };
        let words = self.whole_words(typed);
        let [word] = words.as_slice() else { return None };
        let folded = self.context.analyzer.fold(typed);
        let mut found = self.expand(field, &Pattern::Fuzzy { word: folded, distance })?;
        let known: Vec<String> = word.forms.iter().filter(|form| self.known(field, form)).cloned().collect();
        found.retain(|found| !known.contains(&found.term));
        let within = |edits| {
            let near = found.iter().filter(|found| found.edits <= edits).map(|found| found.term.clone());
            known.iter().cloned().chain(near).collect::<Vec<_>>()
        };
        let (one, two) = (within(1), within(2));
        let mut should = Vec::new();
        if !known.is_empty() {
            should.push(self.term(field, word, boost)?);
        }
        if !found.is_empty() {
            let far = two.len() > one.len();
            let weight = if far { NEAR[1] } else { NEAR[0] + NEAR[1] };
            should.extend(self.any_of(field, one, typed, boost * weight));
            should.extend(far.then(|| self.any_of(field, two, typed, boost * NEAR[0])).flatten());
        }
        if should.len() < 2 {
            return should.pop();
        }
        Some(Query { node: Some(Node::Bool(BoolQuery { should, ..BoolQuery::default() })) })
    }

    /// What a pattern that stands for no word of the version was read as, beside the newer words that it may stand for.
    pub fn or_newer(
        &mut self,
        field: &str,
        typed: &str,
        boost: f32,
        otherwise: Option<Query>,
    ) -> Option<Query> {
        let Some(newer) = self.newer(field, typed, boost) else { return otherwise };
        let Some(otherwise) = otherwise else { return Some(newer) };
        let should = vec![otherwise, newer];
        Some(Query { node: Some(Node::Bool(BoolQuery { should, ..BoolQuery::default() })) })
    }

    fn newer(&mut self, field: &str, typed: &str, boost: f32) -> Option<Query> {
        let literal = typed.strip_suffix('*').filter(|literal| !literal.contains(['*', '?']))?;
        let none = self.context.newer == Newer::None || self.patterns >= MAX_PATTERNS;
        if none || literal.is_empty() || !self.charge(1) {
            return None;
        }
        let prefix = typed.to_owned();
        let expanded =
            ExpandedQuery { field: field.to_owned(), boost: bounded(boost), prefix, ..Default::default() };
        Some(Query { node: Some(Node::Expanded(expanded)) })
    }

    fn any_of(&mut self, field: &str, tokens: Vec<String>, typed: &str, boost: f32) -> Option<Query> {
        if tokens.is_empty() || !self.charge(tokens.len()) {
            return None;
        }
        self.expanded += tokens.len();
        let expanded = ExpandedQuery {
            field: field.to_owned(),
            tokens,
            boost: bounded(boost),
            truncated: self.truncated,
            prefix: typed.to_owned(),
        };
        Some(Query { node: Some(Node::Expanded(expanded)) })
    }

    /// The terms of a pattern. `None` when no more patterns fit.
    fn expand(&mut self, field: &str, pattern: &Pattern) -> Option<Vec<Found>> {
        // A fuzzy word may send its terms twice.
        let times = if matches!(pattern, Pattern::Fuzzy { .. }) { 2 } else { 1 };
        let room = MAX_EXPANDED.saturating_sub(self.expanded).min(self.room()) / times;
        let limit = self.context.max_expansions.min(room);
        if self.patterns >= MAX_PATTERNS || limit == 0 {
            let message = format!("a query has at most {MAX_PATTERNS} patterns; the rest was read as words");
            self.warnings.add("too_many_patterns", message);
            return None;
        }
        self.patterns += 1;
        let found = self.context.statistics.expand(field, pattern, limit, self.expand_by);
        if found.truncated {
            self.truncated = true;
            let message = "a pattern stands for more terms than were searched; the most frequent were kept";
            self.warnings.add("expansion_truncated", message);
        }
        Some(found.terms)
    }

    /// Says that a pattern stood for nothing.
    pub fn no_expansion(&mut self, typed: &str) {
        let message = format!("no word looks like {:?}; it was read as words", short(typed));
        self.warnings.add("no_expansion", message);
    }

    /// A pattern with its letters in the form that terms have; wildcards stay, runs of `*` are one.
    fn fold_pattern(&self, typed: &str) -> String {
        let mut folded = String::with_capacity(typed.len());
        let mut literal = String::new();
        for c in typed.chars() {
            if c != '*' && c != '?' {
                literal.push(c);
                continue;
            }
            folded.push_str(&self.context.analyzer.fold(&std::mem::take(&mut literal)));
            if c == '?' || !folded.ends_with('*') {
                folded.push(c);
            }
        }
        folded.push_str(&self.context.analyzer.fold(&literal));
        folded
    }
}
