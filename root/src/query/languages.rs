//! Which stemming languages a query's words are read in. Documents are indexed under the language of each; a query
//! word must have the form that it has there, so it is read in every language that matters, and no more: each costs a
//! term where its form differs.
//!
//! Rule: the client's hint; else the corpus' languages with at least 1 % of its documents, most first, at most eight.
//! Letters of another script than theirs bring the languages that stem that script ([`widen`]): else an Arabic word
//! would find nothing where one document in a thousand is Arabic. A positive `lang:` filter adds its languages in front
//! and takes none away: it narrows the documents, never what a word matches, so that a facet's count holds when it is
//! clicked. A language that no document is in is said so, with those there are; as a hint it decides nothing.

use std::collections::BTreeMap;

use canopy_common::error::Failure;

use super::{target::short, values::language, warnings::Warnings};

/// Most stemming languages of a query, beside as many that its filters bring.
pub const MAX_LANGUAGES: usize = 8;
/// Most languages named in a warning.
const MAX_NAMED: usize = 40;

/// The languages of a query without a `lang:` filter. `documents` counts documents by language (the manifest's);
/// `hint` is the `lang` parameter, empty when absent. Never empty.
pub fn choose(
    documents: &BTreeMap<String, u64>,
    hint: &str,
    default_language: &str,
) -> Result<Vec<String>, Failure> {
    if !hint.is_empty() {
        let bad = || format!("{:?} is no language; write a code such as en or de", short(hint));
        let code = language(hint).ok_or_else(|| Failure::invalid("lang", bad()))?;
        if documents.is_empty() || documents.contains_key(&code) {
            return Ok(vec![code]);
        }
    }
    let total: u128 = documents.values().map(|&count| u128::from(count)).sum();
    let common = |&(_, &count): &(&String, &u64)| count > 0 && u128::from(count) * 100 >= total;
    let mut found: Vec<_> = documents.iter().filter(common).collect();
    found.sort_by_key(|&(language, &count)| (std::cmp::Reverse(count), language));
    found.truncate(MAX_LANGUAGES);
    if found.is_empty() {
        return Ok(vec![default_language.to_owned()]);
    }
    Ok(found.into_iter().map(|(language, _)| language.clone()).collect())
}

/// Says that no document is in a language, and which there are.
pub fn check(code: &str, documents: &BTreeMap<String, u64>, warnings: &mut Warnings) {
    if documents.is_empty() || documents.contains_key(code) {
        return;
    }
    let mut known: Vec<_> = documents.iter().collect();
    known.sort_by_key(|&(language, &count)| (std::cmp::Reverse(count), language));
    let known: Vec<&str> = known.iter().map(|(language, _)| language.as_str()).take(MAX_NAMED).collect();
    let message = format!("no document is in language {:?}; there are: {}", short(code), known.join(", "));
    warnings.add("unknown_language", message);
}

/// Adds the stemming languages of the scripts that `text` is written in, in place of the least common others.
pub fn widen<'a>(languages: &mut Vec<&'a str>, text: &str) {
    let mut added: Vec<&'a str> = Vec::new();
    for code in text.chars().filter(|c| !c.is_ascii()).flat_map(of_script) {
        if !added.contains(code) && !languages.contains(code) {
            added.push(code);
        }
    }
    added.truncate(MAX_LANGUAGES / 2);
    languages.truncate(MAX_LANGUAGES - added.len());
    languages.extend(added);
}

/// Languages whose words a stemmer shortens, by script, beside Latin.
fn of_script(c: char) -> &'static [&'static str] {
    match c as u32 {
        0x0370..=0x03FF | 0x1F00..=0x1FFF => &["el"],
        0x0400..=0x052F => &["ru", "sr"],
        0x0530..=0x058F => &["hy"],
        0x0590..=0x05FF => &["yi"],
        0x0600..=0x06FF | 0x0750..=0x077F | 0xFB50..=0xFDFF | 0xFE70..=0xFEFF => &["ar", "fa"],
        0x0900..=0x097F => &["hi", "ne"],
        0x0B80..=0x0BFF => &["ta"],
        _ => &[],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(list: &[(&str, u64)]) -> BTreeMap<String, u64> {
        list.iter().map(|&(language, count)| (language.to_owned(), count)).collect()
    }

    #[test]
    fn the_hint_goes_before_what_the_corpus_holds() {
        let corpus = counts(&[("en", 900), ("de", 89), ("fr", 11), ("th", 9)]);
        assert_eq!(choose(&corpus, "", "en").unwrap(), ["en", "de", "fr"]);
        assert_eq!(choose(&corpus, "de-AT", "en").unwrap(), ["de"]);
        assert_eq!(choose(&corpus, "th", "en").unwrap(), ["th"]);
        assert_eq!(choose(&corpus, "pt-BR", "en").unwrap(), ["en", "de", "fr"], "no document is in it");
        assert_eq!(choose(&counts(&[]), "pt", "en").unwrap(), ["pt"]);
        assert_eq!(choose(&corpus, "klingon", "en").unwrap_err().field.as_deref(), Some("lang"));
        assert_eq!(choose(&counts(&[]), "", "sv").unwrap(), ["sv"]);
        assert_eq!(choose(&counts(&[("en", 0)]), "", "sv").unwrap(), ["sv"]);
    }

    #[test]
    fn another_script_brings_its_languages() {
        let widened = |languages: &[&str], text: &str| {
            let mut list = languages.to_vec();
            widen(&mut list, text);
            list.join(" ")
        };
        assert_eq!(widened(&["en", "de"], "rust Häuser 日本"), "en de");
        assert_eq!(widened(&["en"], "مرحبا rust"), "en ar fa");
        assert_eq!(widened(&["ru"], "привет"), "ru sr");
        let eight = ["en", "de", "fr", "es", "it", "pt", "nl", "sv"];
        assert_eq!(widened(&eight, "Ελλάδα"), "en de fr es it pt nl el");
        assert_eq!(widened(&eight, "Ελλάδα привет مرحبا नमस्ते").split(' ').count(), MAX_LANGUAGES);
    }

    #[test]
    fn equal_counts_are_in_order_of_their_code_and_eight_at_most() {
        let all: Vec<String> = ('a'..='t').map(|c| format!("{c}{c}")).collect();
        let corpus = all.iter().map(|language| (language.clone(), u64::MAX)).collect();
        assert_eq!(choose(&corpus, "", "en").unwrap(), all[..8]);
    }
}
