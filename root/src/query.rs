//! The query language: what a person or a program asks becomes one bounded message, once, at the root. Leaves never
//! parse text.
//!
//! Why own: a search box must answer whatever is pasted into it. Parsers that people hang behind search boxes fail on
//! an inch mark, overflow the stack on parentheses, match everything on an empty query and expand `*a*` for minutes.
//! Rules here, each a test: no text of up to [`MAX_TEXT_BYTES`] is an error, what cannot be read becomes words and a
//! [`Warning`]; work is linear in the text (trees live in flat lists, nothing recurses on what a user typed); an empty
//! query finds nothing, never everything; the message always passes `canopy_proto::validate` and the decoder's own
//! recursion limit; expansion keeps to a share of the deadline.
//!
//! All functions are pure: no clock but the one in the context, no files.
//!
//! The steps of a lenient query, by file: [`lexer`] text to tokens, [`syntax`] tokens to a flat tree, [`lenient`] tree to
//! clauses, [`words`] and [`expand`] words to terms that the corpus knows, [`clauses`] clauses to one message, [`frequencies`]
//! the corpus numbers the message is scored with. [`suggest`] finds what a misspelt text may have meant. [`strict`] reads the
//! JSON form. [`filters`], [`sort`], [`facets`] and [`fields`] read the other parameters; [`dates`], [`values`] and [`target`]
//! type their values.
//!
//! # The lenient language
//!
//! | written | means |
//! |---|---|
//! | `rust search` | either word, best match first; `min_should_match` asks for more of them |
//! | `"to be or not"`, `"a b"~3` | these words in a row (at most 3 places apart); required |
//! | `+word`, `-word`, `NOT word` | required; excluded |
//! | `a OR b`, `a \| b`, `a AND b`, `( … )` | capitals only; NOT binds before AND, AND before OR, OR before a space |
//! | `title:word`, `title:"a b"`, `title:(a b)` | in that field; required |
//! | `host:example.org`, `published:2024-03`, `published:[2020 TO 2022}`, `price:>=5` | filters: exact values, ranges |
//! | `site:example.org` | that host, with or without `www.`; other subdomains are hosts of their own |
//! | `lang:de` | documents in that language; the words are read in it, too |
//! | `pre*`, `w*ld`, `w?ld` | any word of that shape, as documents write it |
//! | `word~`, `word~2` | words within 1 or 2 edits, a swap of neighbours being one; the closest first |
//! | `word^2` | counts twice |
//!
//! A piece of text without spaces that analysis splits (`state-of-the-art`, a run of Chinese) counts as its words when
//! it stands plain: single terms rank best and keep the fast path, and `min_should_match` counts each. Required with
//! `+` it is a phrase, except in Thai, Lao, Khmer and Burmese, where every word of the run is required in any order:
//! their words come from a dictionary, which may part a document's run otherwise. Excluded it is a phrase always.
//!
//! In a text all in capitals, operators are words; in one of ten loose words and more, quotes only cite: see
//! `lexer/prose.rs`.

use std::collections::BTreeMap;

use canopy_common::{deadline::Deadline, error::Failure};
use canopy_format::{analysis::Analyzer, schema::Schema, statistics::Statistics};
use canopy_proto::v1;
use jiff::tz::TimeZone;
use prost::Message;

pub mod clauses;
pub mod conditions;
pub mod dates;
pub mod expand;
pub mod facets;
pub mod fields;
pub mod filters;
#[cfg(test)]
mod fixture;
pub mod frequencies;
pub mod languages;
pub mod lenient;
pub mod lexer;
pub mod sort;
pub mod strict;
pub mod suggest;
pub mod syntax;
pub mod target;
pub mod values;
pub mod warnings;
pub mod words;

/// Longest user text, bytes.
pub const MAX_TEXT_BYTES: usize = 8 << 10;
/// Longest strict query, bytes of JSON.
pub const MAX_JSON_BYTES: usize = 64 << 10;
/// Words, phrases, patterns and field clauses of one query.
pub const MAX_TERMS: usize = 1024;
/// Deepest message. Below the validator's 64, because the decoder stops at 100 nested messages and a level of the tree
/// is two of them; a strict query must also fit the JSON reader's 128 levels at three a level.
pub const MAX_TREE_DEPTH: usize = 40;
/// Tokens of all expansions of one query.
pub const MAX_EXPANDED: usize = 1024;
/// Prefix, wildcard and fuzzy words of one query.
pub const MAX_PATTERNS: usize = 32;

/// What a query is read against. One per request.
#[derive(Clone)]
pub struct QueryContext<'a> {
    /// Fields of the pinned version.
    pub schema: &'a Schema,
    /// Statistics of the pinned version.
    pub statistics: &'a Statistics,
    /// The analysis of this build.
    pub analyzer: &'a Analyzer,
    /// Stemming languages, from [`languages::choose`]; a positive `lang:` in text or filter adds to them.
    pub languages: Vec<String>,
    /// The `lang` parameter, as sent.
    pub hint: &'a str,
    /// Documents by language.
    pub corpus_languages: &'a BTreeMap<String, u64>,
    /// When the whole answer is due; expansion takes at most a quarter of what is left.
    pub deadline: Deadline,
    /// Zone of dates that name none, from [`dates::time_zone`].
    pub time_zone: TimeZone,
    /// Wall time, microseconds since 1970 UTC, for `now`.
    pub now_us: i64,
    /// Terms that one pattern may become.
    pub max_expansions: usize,
    /// Which words the statistics may not know though documents have them.
    pub newer: Newer,
}

/// Documents that are newer than the version, as far as a query may find them. Their words are not in its statistics; a word that
/// is not gets the frequency 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Newer {
    /// There are none, or they are not asked for.
    None,
    /// There may be: what no document of the version has is looked for all the same, in all its forms.
    May,
    /// There are, because the version is of a log: forms that it does not have are looked for beside those that it has.
    Are,
}

/// The query as it came in.
#[derive(Debug, Clone, Copy)]
pub enum Source<'a> {
    /// `q`: lenient text.
    Text(&'a str),
    /// The strict form as text.
    Json(&'a str),
    /// The strict form, already read as JSON.
    Value(&'a serde_json::Value),
}

/// Something that was read otherwise than the user may have meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// For programs: `unbalanced_quote`.
    pub code: &'static str,
    /// For people.
    pub message: String,
    /// With `did_you_mean`: the whole text as it may have been meant; else empty.
    pub query: String,
}

/// A query ready to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// The message.
    pub query: v1::Query,
    /// The corpus numbers of exactly its terms.
    pub statistics: v1::Statistics,
    /// What was read otherwise; each once, in order of appearance, at most three of a code.
    pub warnings: Vec<Warning>,
    /// An expansion was cut by its limit or its time.
    pub expansion_truncated: bool,
    /// A word that no document has was looked for: [`suggest::suggest`] may know a better one.
    pub unknown_word: bool,
    /// The stemming languages that were used.
    pub languages: Vec<String>,
}

impl Parsed {
    /// The normal form: texts that mean the same have the same bytes. For cache keys, beside version and parameters.
    pub fn key(&self) -> Vec<u8> {
        self.query.encode_to_vec()
    }

    /// Whether the query can match nothing, so that no shard need be asked.
    pub fn finds_nothing(&self) -> bool {
        matches!(self.query.node, Some(v1::query::Node::None(_)) | None)
    }
}

/// Reads a query and the `filter` parameters that narrow it. Text is never an error within its length; strict queries
/// and filters are, by name.
pub fn parse(
    source: Source<'_>,
    filters: &[String],
    min_should_match: u32,
    context: &QueryContext<'_>,
) -> Result<Parsed, Failure> {
    let mut warnings = warnings::Warnings::default();
    let tree = match source {
        Source::Text(text) => {
            check_length("q", text, MAX_TEXT_BYTES)?;
            Some((lenient::read(text, context.schema, &mut warnings), text.trim().is_empty()))
        }
        _ => None,
    };
    let mut asked = filters::languages(filters, context.schema);
    let typed = tree.as_ref().map(|(tree, _)| tree.languages()).unwrap_or_default();
    asked.extend(typed.into_iter().filter(|code| !asked.contains(code)).collect::<Vec<_>>());
    asked.truncate(languages::MAX_LANGUAGES);
    if let Some(hint) = values::language(context.hint) {
        languages::check(&hint, context.corpus_languages, &mut warnings);
    }
    let mut words = words::Words::new(context, asked, warnings);
    let narrowed = filters::parse(filters, &mut words)?;
    let query = match (source, tree) {
        (Source::Json(text), _) => strict::parse_text(text, narrowed, &mut words)?,
        (Source::Value(value), _) => strict::parse(value, narrowed, &mut words)?,
        (Source::Text(_), tree) => {
            let (tree, blank) = tree.unwrap_or_default();
            lenient::compile(&tree, narrowed, min_should_match, blank, &mut words)
        }
    };
    Ok(Parsed {
        statistics: frequencies::of(&query, context.statistics),
        query,
        expansion_truncated: words.truncated(),
        unknown_word: words.unknown(),
        languages: words.languages(),
        warnings: words.into_warnings(),
    })
}

fn check_length(field: &str, text: &str, limit: usize) -> Result<(), Failure> {
    if text.len() <= limit {
        return Ok(());
    }
    let message = format!("{field} is {} bytes long; the limit is {limit}", text.len());
    Err(Failure::invalid(field, message).with_limit(limit as u64))
}

#[cfg(test)]
mod tests;
