//! How text becomes terms; one library for build, overlay and query, so that what is indexed can be found.
//!
//! Steps: NFKC, lower case, accents folded (Latin, Greek, Cyrillic; never Hangul or Indic marks), words by UAX 29 with
//! dictionary segmentation for Chinese, Japanese, Thai (and Khmer, Lao, Burmese), emoji kept as words, stemming by
//! language, words over [`MAX_TOKEN_BYTES`] dropped and counted.

/// Longest token, bytes of UTF-8. Longer ones are dropped and counted; they keep their position.
pub const MAX_TOKEN_BYTES: usize = 255;

/// One term of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The term as indexed.
    pub text: String,
    /// Word position, from 0.
    pub position: u32,
    /// Byte range of the word in the original text (not in its normalised form), at character borders.
    pub start: usize,
    /// End of the range.
    pub end: usize,
}

/// A word of a query: its forms under each stemming language asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Word {
    /// Distinct terms, the first under the first language.
    pub forms: Vec<String>,
    /// The term under each language asked for, same order (for phrases).
    pub by_language: Vec<String>,
    /// Word position, from 0.
    pub position: u32,
    /// A stop word in one of the languages asked for.
    pub stop: bool,
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
    pub fn document(&self, _text: &str, _language: &str, _each: &mut dyn FnMut(Token)) -> u64 {
        todo!()
    }

    /// Words of a query text under the given stemming languages (never empty).
    pub fn query(&self, _text: &str, _languages: &[&str]) -> Vec<Word> {
        todo!()
    }

    /// Normal form of a keyword-like word without stemming (prefix and wildcard patterns).
    pub fn fold(&self, _text: &str) -> String {
        todo!()
    }

    /// Language of a text: by script where the script decides, else by detection when it is reliable.
    pub fn detect(&self, _text: &str) -> Option<&'static str> {
        todo!()
    }
}
