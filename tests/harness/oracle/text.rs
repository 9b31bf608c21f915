//! Tokens of a document by field, with their positions, and how often phrases occur among them.

use std::collections::{BTreeMap, BTreeSet};

use canopy_format::{
    analysis::Analyzer,
    schema::{Kind, SEARCH_FIELD, Schema},
};
use canopy_proto::v1;

use crate::corpus::Page;

/// Positions between two parts of a field: further than any phrase reaches.
const GAP: u32 = 100_000;

/// One field.
#[derive(Debug, Default)]
pub struct Text {
    positions: BTreeMap<String, Vec<u32>>,
    length: u64,
    end: u32,
}

impl Text {
    fn add(&mut self, part: &[(String, u32)]) {
        let start = self.end + GAP;
        for (token, position) in part {
            self.positions.entry(token.clone()).or_default().push(start + position);
            self.end = self.end.max(start + position);
            self.length += 1;
        }
    }

    /// Tokens, repetitions counted.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Distinct tokens.
    pub fn tokens(&self) -> impl Iterator<Item = &String> {
        self.positions.keys()
    }

    fn positions(&self, token: &str) -> &[u32] {
        self.positions.get(token).map_or(&[], Vec::as_slice)
    }

    /// Occurrences of the first token that begin a phrase: one occurrence of each token can be chosen, no occurrence
    /// twice, such that the differences to the places in the phrase lie within `slop` of each other.
    pub fn phrases(&self, phrase: &v1::PhraseTokens, slop: u32) -> u64 {
        let Some(first) = phrase.tokens.first() else { return 0 };
        let begins = self.positions(first).iter().filter(|position| {
            let mut chosen = vec![**position];
            self.choose(phrase, i64::from(slop), &mut chosen)
        });
        begins.count() as u64
    }

    fn choose(&self, phrase: &v1::PhraseTokens, slop: i64, chosen: &mut Vec<u32>) -> bool {
        let next = chosen.len();
        let Some(token) = phrase.tokens.get(next) else { return true };
        let shift = |at: usize, position: u32| i64::from(position) - i64::from(phrase.positions[at]);
        for position in self.positions(token) {
            let taken =
                chosen.iter().enumerate().any(|(at, other)| other == position && phrase.tokens[at] == *token);
            let near =
                |(at, other): (usize, &u32)| (shift(next, *position) - shift(at, *other)).abs() <= slop;
            if !taken && chosen.iter().enumerate().all(near) {
                chosen.push(*position);
                if self.choose(phrase, slop, chosen) {
                    return true;
                }
                chosen.pop();
            }
        }
        false
    }
}

/// All text fields of a document.
pub struct Texts {
    fields: BTreeMap<String, Text>,
    /// Tokens with a word, as written, that is one.
    spellings: BTreeSet<(String, String)>,
}

impl Texts {
    /// Analyses a page: each text field with an index of its own, and the search field, in which every part counts as
    /// often as its field weighs.
    pub fn of(schema: &Schema, page: &Page, analyzer: &Analyzer) -> Self {
        let (mut texts, mut spellings) = (BTreeMap::new(), BTreeSet::new());
        for field in schema.fields.iter().filter(|field| field.kind == Kind::Text) {
            let parts: Vec<&String> = match field.name.as_str() {
                "title" => page.title.iter().collect(),
                "body" => page.body.iter().collect(),
                "anchors" => page.anchors.iter().collect(),
                other => panic!("pages have no text field {other}"),
            };
            for part in parts {
                let mut tokens = Vec::new();
                analyzer.document(part, &page.language, &mut |token| {
                    if !token.spelling.is_empty() {
                        spellings.insert((token.text.clone(), token.spelling));
                    }
                    tokens.push((token.text, token.position));
                });
                for _ in 0..field.weight {
                    texts.entry(SEARCH_FIELD.to_owned()).or_insert_with(Text::default).add(&tokens);
                }
                if field.query {
                    texts.entry(field.name.clone()).or_insert_with(Text::default).add(&tokens);
                }
            }
        }
        Self { fields: texts, spellings }
    }

    /// Tokens, each with a word, as written, that is one.
    pub fn spellings(&self) -> impl Iterator<Item = &(String, String)> {
        self.spellings.iter()
    }

    /// All fields.
    pub fn fields(&self) -> impl Iterator<Item = (&String, &Text)> {
        self.fields.iter()
    }

    /// One field.
    pub fn field(&self, name: &str) -> Option<&Text> {
        self.fields.get(name)
    }

    /// How often a token occurs.
    pub fn count(&self, field: &str, token: &str) -> u64 {
        self.field(field).map_or(0, |text| text.positions(token).len() as u64)
    }
}

/// A length as one byte holds it: exact below 40, then in steps that double every eight: the four highest bits of what
/// is above 24 are kept.
pub fn quantised(length: u64) -> u64 {
    const FREE: u64 = 24;
    let Some(above) = length.checked_sub(FREE) else { return length };
    let bits = u64::BITS - above.leading_zeros();
    let dropped = bits.saturating_sub(4);
    FREE + ((above >> dropped) << dropped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_kept_to_four_bits() {
        for exact in 0..=40 {
            assert_eq!(quantised(exact), exact);
        }
        let table =
            [(41, 40), (42, 42), (55, 54), (56, 56), (59, 56), (60, 60), (88, 88), (95, 88), (96, 96)];
        for (length, kept) in table {
            assert_eq!(quantised(length), kept, "{length}");
        }
    }

    #[test]
    fn phrases_are_counted_by_their_first_token() {
        let mut text = Text::default();
        let part: Vec<(String, u32)> = ["a", "b", "a", "c", "b"]
            .iter()
            .enumerate()
            .map(|(at, token)| ((*token).to_owned(), at as u32))
            .collect();
        text.add(&part);
        let phrase = |tokens: &[&str]| v1::PhraseTokens {
            tokens: tokens.iter().map(|token| (*token).to_owned()).collect(),
            positions: (0..tokens.len() as u32).collect(),
        };
        assert_eq!(text.phrases(&phrase(&["a", "b"]), 0), 1);
        assert_eq!(text.phrases(&phrase(&["a", "b"]), 1), 2);
        assert_eq!(text.phrases(&phrase(&["a", "a"]), 0), 0);
        assert_eq!(text.phrases(&phrase(&["a", "a"]), 1), 1);
        assert_eq!(text.phrases(&phrase(&["b", "c"]), 1), 1);
        text.add(&part);
        assert_eq!(text.phrases(&phrase(&["a", "b"]), 0), 2);
    }
}
