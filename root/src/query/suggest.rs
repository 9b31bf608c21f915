//! What a misspelt text may have meant: each of its words that no document has is replaced by the closest word of the
//! corpus, as documents write it. A hint for people: it changes no result.
//!
//! Rules: only words and phrases of the search field that are not excluded; only words of letters, of `MIN_LETTERS`
//! at least (shorter ones are near to everything); within one edit up to five letters, else two; a swap of neighbours is
//! one. The closest wins, then the most frequent; it is in `MIN_DOCUMENTS` documents at least, so that one typing
//! error does not suggest another. Everything of the text that is not replaced stays as it was typed.
//!
//! Each word walks the dictionary, so all of it keeps to a tenth of the time that is left and is called where blocking is
//! allowed; out of time, nothing is suggested.

use canopy_common::deadline::Deadline;
use canopy_format::{
    schema::SEARCH_FIELD,
    statistics::{Found, Pattern},
};

use super::{
    QueryContext, Warning, lenient,
    lexer::{Ask, Sign},
    syntax::{Node, Tree},
    target::Target,
    warnings::Warnings,
    words::Words,
};

/// Shortest word that is corrected, characters.
const MIN_LETTERS: usize = 4;
/// Longest word that is corrected, characters.
const MAX_LETTERS: usize = 40;
/// Longest word that only one edit is tried for, characters.
const ONE_EDIT: usize = 5;
/// Fewest documents of a word that is suggested.
const MIN_DOCUMENTS: u64 = 3;
/// Most words of a text that are corrected.
const MAX_WORDS: usize = 4;

/// The warning `did_you_mean` for a text with an unknown word, when there is a better one.
pub fn suggest(text: &str, context: &QueryContext<'_>) -> Option<Warning> {
    let by = Deadline::after(context.deadline.remaining() / 10);
    let tree = lenient::read(text, context.schema, &mut Warnings::default());
    let words = Words::new(context, tree.languages(), Warnings::default());
    let mut corrected = String::with_capacity(text.len());
    let (mut end, mut replaced) = (0, 0);
    for part in parts(&tree) {
        let Some(start) = offset(part, text).filter(|start| *start >= end) else { continue };
        for word in words.whole_words(part) {
            let typed = part.get(word.start..word.end)?;
            if word.forms.iter().any(|form| words.known(SEARCH_FIELD, form)) || !correctable(typed) {
                continue;
            }
            let Some(found) = closest(typed, context, by) else { continue };
            corrected.push_str(text.get(end..start + word.start)?);
            corrected.push_str(&found.spelling);
            end = start + word.end;
            replaced += 1;
        }
        if replaced >= MAX_WORDS {
            break;
        }
    }
    if replaced == 0 || by.expired() {
        return None;
    }
    corrected.push_str(text.get(end..)?);
    let message = format!("did you mean {corrected:?}?");
    Some(Warning { code: "did_you_mean", message, query: corrected })
}

/// The words and phrases of the search field that are looked for, in the order of the text.
fn parts<'a>(tree: &Tree<'a>) -> Vec<&'a str> {
    let mut excluded = vec![false; tree.nodes.len()];
    let mut found = Vec::new();
    // Parents stand behind their children.
    for (at, node) in tree.nodes.iter().enumerate().rev() {
        match node {
            Node::List(clauses) | Node::Any(clauses) | Node::All(clauses) => {
                for clause in clauses {
                    if let Some(below) = excluded.get_mut(clause.node) {
                        *below = clause.sign == Sign::Not;
                    }
                    if excluded[at]
                        && let Some(below) = excluded.get_mut(clause.node)
                    {
                        *below = true;
                    }
                }
            }
            Node::Atom { atom, .. } => {
                let searched = atom.target.as_ref().is_none_or(|target| *target == Target::search());
                if let (Ask::Words(text) | Ask::Phrase(text, _), true, false) =
                    (&atom.ask, searched, excluded[at])
                {
                    found.push(*text);
                }
            }
        }
    }
    found.sort_by_key(|part| part.as_ptr() as usize);
    found
}

/// Where a part of a text begins in it; `None` for any other text.
fn offset(part: &str, whole: &str) -> Option<usize> {
    let at = (part.as_ptr() as usize).checked_sub(whole.as_ptr() as usize)?;
    (whole.get(at..at + part.len())? == part).then_some(at)
}

fn correctable(typed: &str) -> bool {
    let letters = typed.chars().count();
    (MIN_LETTERS..=MAX_LETTERS).contains(&letters) && typed.chars().all(char::is_alphabetic)
}

fn closest(typed: &str, context: &QueryContext<'_>, by: Deadline) -> Option<Found> {
    let distance = if typed.chars().count() <= ONE_EDIT { 1 } else { 2 };
    let pattern = Pattern::Fuzzy { word: context.analyzer.fold(typed), distance };
    let near = context.statistics.expand(SEARCH_FIELD, &pattern, 16, by).terms;
    near.into_iter().find(|found| found.documents >= MIN_DOCUMENTS && found.edits > 0)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::query::fixture::Fixture;

    fn fixture() -> Fixture {
        Fixture::with(&[("vacuum", 9), ("vacuuq", 1), ("valuum", 4), ("cluster", 5)])
    }

    fn meant(text: &str) -> Option<String> {
        let fixture = fixture();
        let found = suggest(text, &fixture.context())?;
        assert_eq!(found.message, format!("did you mean {:?}?", found.query));
        Some(found.query)
    }

    #[test]
    fn the_closest_word_replaces_one_that_no_document_has() {
        for (text, corrected) in [
            ("vaccum", "vacuum"),
            ("  VACCUM,  full", "  vacuum,  full"),
            ("\"the vaccum\" -clutser +clutser", "\"the vacuum\" -clutser +cluster"),
            ("(vaccum OR clutser) lang:de", "(vacuum OR cluster) lang:de"),
            ("text:vaccum", "text:vacuum"),
            ("vacuun", "vacuum"),
        ] {
            assert_eq!(meant(text).as_deref(), Some(corrected), "{text}");
        }
    }

    #[test]
    fn nothing_is_suggested_without_need_or_means() {
        for text in [
            "vacuum",
            "rust",
            "vac",
            "zyzzyvas",
            "vaccum1",
            "title:vaccum",
            "-vaccum",
            "vaccum*",
            "vaccum~",
            "",
            "日木",
        ] {
            assert_eq!(meant(text), None, "{text}");
        }
        let fixture = fixture();
        assert!(fixture.text("vaccum").unknown_word && fixture.text("\"rust vaccum\"").unknown_word);
        assert!(!fixture.text("vacuum rust").unknown_word);
        let context = QueryContext { deadline: Deadline::after(Duration::ZERO), ..fixture.context() };
        assert_eq!(suggest("vaccum", &context), None);
    }
}
