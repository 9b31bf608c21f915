//! Finds the query's words in a text with the analysis that indexed it, so that whatever matched is found again: same
//! folding, same stemming in the document's language.
//!
//! A text may be megabytes; it is read in blocks, not beyond a limit, and stops early once the fragments hold every
//! word, when told to stop, or after [`MAX_MATCHES`]. Units: bytes.

use std::ops::Range;

use canopy_format::analysis::Analyzer;

use super::{
    fragment::{self, Chosen, visible},
    markup,
    terms::{Form, Terms},
};

/// Bytes analysed at a time.
const BLOCK: usize = 16 << 10;
/// How far back the end of a block looks for a place between words.
const SEAM: usize = 1 << 10;
/// Matches kept at most.
pub const MAX_MATCHES: usize = 2000;

/// A word of the query in the text.
#[derive(Debug, Clone, Copy)]
pub struct Match {
    /// Byte range, whole graphemes.
    pub start: usize,
    /// End of the range.
    pub end: usize,
    /// Visible characters before it.
    pub visible_start: usize,
    /// Visible characters up to its end.
    pub visible_end: usize,
    /// Word position.
    pub position: u32,
    /// Which word.
    pub form: Form,
}

/// What to look for, where and how far.
pub struct Scan<'a> {
    /// The analysis of the index.
    pub analyzer: &'a Analyzer,
    /// What to look for.
    pub terms: &'a Terms,
    /// The document's language.
    pub language: &'a str,
    /// Visible characters to show.
    pub budget: usize,
    /// Bytes to look at.
    pub limit: usize,
}

impl Scan<'_> {
    /// Looks through `text`; the matches and the fragments to show.
    pub fn run(&self, text: &str, stop: &dyn Fn() -> bool) -> (Vec<Match>, Chosen) {
        let text = &text[..text.floor_char_boundary(self.limit)];
        let mut matches = Vec::new();
        let mut at = Place::default();
        while !self.terms.is_empty() && at.byte < text.len() && matches.len() < MAX_MATCHES && !stop() {
            let end = block_end(text, at.byte);
            self.block(text, at.byte..end, &mut at, &mut matches);
            if end < text.len() {
                let chosen = fragment::choose(text, &matches, self.terms, self.budget);
                let seen_whole = chosen.fragments.iter().all(|fragment| fragment.end <= end);
                if chosen.all && seen_whole {
                    return (matches, chosen);
                }
            }
        }
        let chosen = fragment::choose(text, &matches, self.terms, self.budget);
        (matches, chosen)
    }

    fn block(&self, text: &str, block: Range<usize>, at: &mut Place, matches: &mut Vec<Match>) {
        let marked_to = text.floor_char_boundary(block.end + 2048);
        let from = at.markup_end.max(block.start);
        let markup: Vec<_> = markup::places(&text[from.min(marked_to)..marked_to])
            .into_iter()
            .map(|range| range.start + from..range.end + from)
            .collect();
        let mut next_markup = 0;
        let before = at.markup_end;
        let first_position = at.position;
        self.analyzer.document_refs(&text[block.clone()], self.language, &mut |token| {
            let (start, end) = (block.start + token.start, block.start + token.end);
            let position = first_position + token.position;
            at.position = position + 1;
            while markup.get(next_markup).is_some_and(|range| range.end <= start) {
                next_markup += 1;
            }
            let hidden = start < before || markup.get(next_markup).is_some_and(|range| range.start < end);
            let Some(form) = self.terms.find(token.text).filter(|_| !hidden) else { return };
            if matches.len() >= MAX_MATCHES {
                return;
            }
            let range = fragment::whole_graphemes(text, start..end);
            let visible_start = match matches.last() {
                Some(last) if range.start <= last.start => return,
                // Pairs of letters overlap: both count, so that a word of three letters is marked whole.
                Some(last) if range.start < at.counted => {
                    last.visible_start + visible(&text[last.start..range.start])
                }
                _ => at.visible + visible(&text[at.counted..range.start]),
            };
            let visible_end = visible_start + visible(&text[range.clone()]);
            (at.counted, at.visible) = (range.end, visible_end);
            matches.push(Match {
                start: range.start,
                end: range.end,
                visible_start,
                visible_end,
                position,
                form,
            });
        });
        at.markup_end = markup
            .iter()
            .take_while(|range| range.start < block.end)
            .last()
            .map_or(before, |range| range.end);
        at.byte = block.end;
    }
}

/// How far the scan has come.
#[derive(Default)]
struct Place {
    byte: usize,
    position: u32,
    counted: usize,
    visible: usize,
    markup_end: usize,
}

/// End of the block that starts at `from`: between words where there is such a place near.
fn block_end(text: &str, from: usize) -> usize {
    let hard = text.floor_char_boundary(from + BLOCK);
    if hard >= text.len() {
        return text.len();
    }
    let seam = text.ceil_char_boundary(hard - SEAM);
    let between = |c: char| c.is_whitespace() || matches!(c, '。' | '、' | '，' | '！' | '？' | '；');
    let found = text[seam..hard].char_indices().rev().find(|(_, c)| between(*c));
    found.map_or(hard, |(index, c)| seam + index + c.len_utf8())
}
