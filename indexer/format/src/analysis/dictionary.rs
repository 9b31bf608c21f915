//! Words of Thai, Lao, Khmer and Burmese, which put no borders between them: the longest dictionary word from each place
//! on. Longest-first needs no knowledge of what stands before, so a query cut out of a document falls into the same
//! words; the neural models of the same library read the whole sentence and do not keep that promise (and measured
//! worse: nDCG@10 .953 against .967 on Thai questions).

use std::sync::LazyLock;

use icu_segmenter::{WordSegmenter, WordSegmenterBorrowed, options::WordBreakInvariantOptions};

static SEGMENTER: LazyLock<WordSegmenterBorrowed<'static>> =
    LazyLock::new(|| WordSegmenter::new_dictionary(WordBreakInvariantOptions::default()));

/// A rare letter of the run's script. At the end of a text the library takes an unfinished word for a whole one; with
/// a letter behind it that goes on with no word, the end of a query is read like the middle of a document.
fn stop_letter(run: &str) -> char {
    match run.chars().next().map_or(0, u32::from) {
        0xe00..=0xe7f => '\u{e26}',
        0xe80..=0xeff => '\u{edf}',
        0x1780..=0x17ff | 0x19e0..=0x19ff => '\u{17a3}',
        _ => '\u{1050}',
    }
}

/// Calls `each` with the byte range of every word of the run.
pub(super) fn cut(run: &str, mut each: impl FnMut(usize, usize)) {
    let mut text = String::with_capacity(run.len() + 4);
    text.push_str(run);
    text.push(stop_letter(run));
    let mut from = 0;
    for border in SEGMENTER.segment_str(&text) {
        let to = border.min(run.len());
        if to > from && run.is_char_boundary(to) {
            each(from, to);
            from = to;
        }
    }
    if from < run.len() {
        each(from, run.len());
    }
}
