//! How text becomes terms; one library for build, overlay and query, so that what is indexed can be found.
//!
//! A text is cut into pieces (`scan`), each piece gets its normal form (`normal`) and its terms under the document's
//! language (`forms`), and each term a position (`terms`). A query (`query`) goes the same way under every language
//! asked for. The promise, kept by a property test: the terms of a query cut out of a document at its words are terms of
//! that document. So nothing here looks further than a word's own neighbours, and no step asks who is calling.
//!
//! Steps: NFKC, lower case, accents folded (Latin, Greek, Cyrillic; never Hangul or Indic marks), words by UAX 29 with
//! choices for technical text, pairs of characters for Chinese, Japanese and Korean, dictionary words for Thai, Lao,
//! Khmer and Burmese, emoji kept as words, stemming by language, words over [`MAX_TOKEN_BYTES`] dropped and counted.

mod class;
mod dictionary;
mod forms;
mod language;
mod normal;
mod query;
mod scan;
mod stop;
mod terms;
#[cfg(test)]
mod tests;

pub use language::code as language_code;

/// Whether a character is a part of the letter before it: an accent, a vowel or tone sign, a joiner.
pub fn is_attached(c: char) -> bool {
    unicode_normalization::char::is_combining_mark(c) || class::attached_format(c as u32)
}

/// Longest token, bytes of UTF-8. Longer ones are dropped and counted; they keep their position.
pub const MAX_TOKEN_BYTES: usize = 255;

/// One term of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The term as indexed.
    pub text: String,
    /// The word as written, folded and not stemmed: what a pattern is held against. Empty where another term of the
    /// same place has it.
    pub spelling: String,
    /// Word position, from 0. Several terms may share one.
    pub position: u32,
    /// Byte range of the word in the original text (not in its normalised form), at character borders.
    pub start: usize,
    /// End of the range.
    pub end: usize,
}

/// One term of a text, lent for the time of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenRef<'a> {
    /// The term as indexed.
    pub text: &'a str,
    /// The word as written, folded and not stemmed; empty where another term of the same place has it.
    pub spelling: &'a str,
    /// Word position, from 0. Several terms may share one.
    pub position: u32,
    /// Byte range of the word in the original text, at character borders.
    pub start: usize,
    /// End of the range.
    pub end: usize,
}

/// A word of a query: its forms under each stemming language asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Distinct terms, the first under the first language. Any of them finds the word.
    pub forms: Vec<String>,
    /// The term under each language asked for, same order (for phrases).
    pub by_language: Vec<String>,
    /// Word position, from 0.
    pub position: u32,
    /// A stop word in one of the languages asked for.
    pub stop: bool,
    /// A single Han character beside the pairs that hold it: helps ranking, but phrases, required words and counts of
    /// words leave it out.
    pub extra: bool,
    /// Byte range in the original text.
    pub start: usize,
    /// End of the range.
    pub end: usize,
}

/// Turns text into terms. Cheap to clone, safe to share.
#[derive(Clone, Debug, Default)]
pub struct Analyzer {}

impl Analyzer {
    /// The analyzer of this build.
    pub fn new() -> Self {
        Self {}
    }

    /// Names the rules; part of the schema id. Changes whenever the same text may give other terms.
    pub fn id() -> &'static str {
        "a1"
    }

    /// Terms of a document's text in `language`, passed to `each`; the number of over-long words dropped.
    pub fn document(&self, text: &str, language: &str, each: &mut dyn FnMut(Token)) -> u64 {
        self.document_refs(text, language, &mut |token| {
            each(Token {
                text: token.text.to_owned(),
                spelling: token.spelling.to_owned(),
                position: token.position,
                start: token.start,
                end: token.end,
            });
        })
    }

    /// The same without an allocation per term. Positions and starts ascend.
    pub fn document_refs(&self, text: &str, language: &str, each: &mut dyn FnMut(TokenRef<'_>)) -> u64 {
        let language = language::resolve(language);
        forms::with(|forms| terms::document(forms, text, language, each))
    }

    /// Words of a query text under the given stemming languages (none reads as one without stemming).
    pub fn query(&self, text: &str, languages: &[&str]) -> Vec<Word> {
        let mut resolved: Vec<_> = languages.iter().map(|code| language::resolve(code)).collect();
        if resolved.is_empty() {
            resolved.push(language::resolve(""));
        }
        forms::with(|forms| query::words(forms, text, &resolved))
    }

    /// Normal form of a text without stemming, signs kept (prefix and wildcard patterns).
    pub fn fold(&self, text: &str) -> String {
        normal::text(text)
    }

    /// Language of a text: by script where the script decides, else by detection when it is reliable.
    pub fn detect(&self, text: &str) -> Option<&'static str> {
        language::detect(text)
    }
}
