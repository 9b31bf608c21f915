//! How one word is spelled: plain, `pre*`, `w?ld`, `near~1`, `heavy^2`; and the parts of a range.

use canopy_format::analysis::is_attached;

use super::Ask;
use crate::query::warnings::Warnings;

/// Bounds of a boost: far enough apart for any use, near enough that no score leaves its type.
const BOOSTS: std::ops::RangeInclusive<f32> = 0.001..=1000.0;
/// Shortest word that may be fuzzy, characters: two edits make any two-letter word any other.
const MIN_FUZZY: usize = 3;

/// What a word asks for and how much it counts.
pub struct Spelling<'a> {
    /// What.
    pub ask: Ask<'a>,
    /// Weight.
    pub boost: f32,
}

/// Reads the spelling of a word.
pub fn spelling<'a>(word: &'a str, warnings: &mut Warnings) -> Spelling<'a> {
    let (word, boost) = match word.rsplit_once('^') {
        Some((base, number)) if is_number(number) && base.contains(char::is_alphanumeric) => {
            (base, boost(number, warnings))
        }
        _ => (word, 1.0),
    };
    let ask = fuzzy(word, warnings).or_else(|| pattern(word, warnings)).unwrap_or(Ask::Words(word));
    Spelling { ask, boost }
}

fn is_number(text: &str) -> bool {
    (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// A boost within its bounds.
pub fn boost(text: &str, warnings: &mut Warnings) -> f32 {
    match text.parse::<f32>() {
        Ok(boost) if BOOSTS.contains(&boost) => boost,
        _ => {
            let (low, high) = (BOOSTS.start(), BOOSTS.end());
            warnings.add("bad_boost", format!("a boost is a number from {low} to {high}; it was ignored"));
            1.0
        }
    }
}

fn fuzzy<'a>(word: &'a str, warnings: &mut Warnings) -> Option<Ask<'a>> {
    let (base, number) = word.rsplit_once('~')?;
    let plain = |c: char| c.is_alphanumeric() || c == '\'' || c == '’' || is_attached(c);
    let digit = number.is_empty() || (number.len() == 1 && number.as_bytes()[0].is_ascii_digit());
    if !digit || !base.chars().all(plain) || !base.contains(char::is_alphabetic) {
        return None;
    }
    let distance: u8 = number.parse().unwrap_or(u8::MAX);
    if base.chars().count() < MIN_FUZZY || distance == 0 {
        return Some(Ask::Words(base));
    }
    if (3..=9).contains(&distance) {
        warnings.add("fuzzy_limited", "a fuzzy word has at most 2 edits");
    }
    Some(Ask::Fuzzy(base, if distance == u8::MAX { 0 } else { distance.min(2) }))
}

/// `*` beside letters, `?` inside them. Anything else with a star is words.
fn pattern<'a>(word: &'a str, warnings: &mut Warnings) -> Option<Ask<'a>> {
    let inner = word.trim_matches('?');
    if !inner.contains(['*', '?']) {
        return None;
    }
    let literal = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '\'' | '’') || is_attached(c);
    if !inner.contains(char::is_alphanumeric) {
        if inner.contains('*') {
            warnings.add("pattern_too_short", "a pattern needs a letter or digit; `*` alone was ignored");
        }
        return None;
    }
    if inner.contains("**") || !inner.chars().all(|c| literal(c) || c == '*' || c == '?') {
        if inner.contains('*') {
            warnings.add(
                "pattern_ignored",
                "a pattern is one word of letters, digits, * and ?; it was read as words",
            );
        }
        return None;
    }
    Some(Ask::Pattern(inner))
}

/// `a TO b`, each `*` when open, maybe in quotes.
pub fn between(inside: &str) -> Option<(Option<&str>, Option<&str>)> {
    let mut parts = inside.split_whitespace();
    let (lower, to, upper) = (parts.next()?, parts.next()?, parts.next()?);
    if to != "TO" || parts.next().is_some() {
        return None;
    }
    let end = |part| {
        let part = str::trim_matches(part, '"');
        if part.is_empty() { None } else { Some((part != "*").then_some(part)) }
    };
    Some((end(lower)?, end(upper)?))
}

/// Scripts written without spaces: a run of letters is several words.
pub fn spaceless(c: char) -> bool {
    let pairs = matches!(c as u32, 0x2E80..=0x9FFF | 0xF900..=0xFAFF | 0xFF66..=0xFF9F | 0x2_0000..=0x3_FFFF);
    pairs || by_dictionary(c)
}

/// Those of them whose words only a dictionary tells apart: Thai, Lao, Burmese, Khmer.
pub fn by_dictionary(c: char) -> bool {
    matches!(c as u32, 0x0E00..=0x0EFF | 0x1000..=0x109F | 0x1780..=0x17FF)
}
