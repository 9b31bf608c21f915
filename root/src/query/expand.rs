//! Prefix, wildcard and fuzzy words to the terms of the corpus that they stand for, once, at the root, against the
//! pinned statistics.
//!
//! Why here and not in the engine: its automaton queries cannot be stopped, and every replica would expand on its own.
//! Bounds: a quarter of the time that is left for all patterns of a query together, a limit per pattern (the most
//! frequent terms stay), one over all patterns, and a number of patterns. Whatever is cut says `expansion_truncated`.
//! Found terms match with one constant score; they have no frequency of their own in the score.

use canopy_format::statistics::Pattern;
use canopy_proto::v1::{BoolQuery, ExpandedQuery, Query, query::Node};

use super::{
    MAX_EXPANDED, MAX_PATTERNS,
    target::short,
    words::{Words, bounded},
};

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
        let terms = self.expand(field, &[pattern])?;
        self.expanded_query(field, terms, typed, boost)
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
        let mut spellings = vec![word.forms.first()?.clone(), self.context.analyzer.fold(typed)];
        spellings.dedup();
        let patterns: Vec<Pattern> =
            spellings.into_iter().map(|word| Pattern::Fuzzy { word, distance }).collect();
        let terms = self.expand(field, &patterns)?;
        if !word.forms.iter().any(|form| self.known(field, form)) {
            return self.expanded_query(field, terms, typed, boost);
        }
        let exact = self.term(field, word, boost)?;
        let others = terms.into_iter().filter(|term| !word.forms.contains(term)).collect();
        let Some(near) = self.expanded_query(field, others, typed, boost) else { return Some(exact) };
        let either = BoolQuery { should: vec![exact, near], ..BoolQuery::default() };
        Some(Query { node: Some(Node::Bool(either)) })
    }

    fn expanded_query(&mut self, field: &str, terms: Vec<String>, typed: &str, boost: f32) -> Option<Query> {
        if terms.is_empty() || !self.charge(terms.len()) {
            return None;
        }
        self.expanded += terms.len();
        let expanded = ExpandedQuery {
            field: field.to_owned(),
            tokens: terms,
            boost: bounded(boost),
            truncated: self.truncated,
            prefix: typed.to_owned(),
        };
        Some(Query { node: Some(Node::Expanded(expanded)) })
    }

    /// The most frequent terms of any of the patterns. `None` when no more patterns fit.
    fn expand(&mut self, field: &str, patterns: &[Pattern]) -> Option<Vec<String>> {
        let limit = self.context.max_expansions.min(MAX_EXPANDED - self.expanded).min(self.room());
        if self.patterns >= MAX_PATTERNS || limit == 0 {
            let message = format!("a query has at most {MAX_PATTERNS} patterns; the rest was read as words");
            self.warnings.add("too_many_patterns", message);
            return None;
        }
        self.patterns += 1;
        let mut found: Vec<(String, u64)> = Vec::new();
        let mut cut = false;
        for pattern in patterns {
            if self.expand_by.expired() {
                cut = true;
                break;
            }
            let expansion = self.context.statistics.expand(field, pattern, limit, self.expand_by);
            cut |= expansion.truncated;
            found.extend(expansion.terms);
        }
        if patterns.len() > 1 {
            found.sort_unstable_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
            found.dedup();
        }
        cut |= found.len() > limit;
        found.truncate(limit);
        if cut {
            self.truncated = true;
            let message = "a pattern stands for more terms than were searched; the most frequent were kept";
            self.warnings.add("expansion_truncated", message);
        }
        Some(found.into_iter().map(|(term, _)| term).collect())
    }

    /// Says that a pattern stood for nothing.
    pub fn no_expansion(&mut self, typed: &str) {
        let message = format!("no term looks like {:?}; it was read as words", short(typed));
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
