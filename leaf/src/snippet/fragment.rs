//! Chooses the part of a text that shows most of the query: one window, or two halves when the words stand far apart.
//!
//! Windows are scored by the weight of the distinct words they hold, whole phrases counting extra; the earliest of
//! equals wins, so the same text always gives the same snippet. Edges fall on sentences where one is near, else
//! between words, and always between graphemes. Units: `visible` characters, a run of white space being one; bytes for
//! positions.

use std::ops::Range;

use unicode_segmentation::GraphemeCursor;

use super::{scan::Match, terms::Terms};

/// What a word that another fragment already shows is still worth.
const AGAIN: f32 = 0.1;
/// Longest grapheme that is kept whole, bytes; a longer one (a letter under a thousand accents) may be cut.
const MAX_GRAPHEME: usize = 128;

struct Window {
    first: usize,
    last: usize,
    score: f32,
    words: Vec<u32>,
}

/// The fragments to show of `text`, in order, at most `budget` visible characters together; `all` when they hold every
/// word of the query.
pub struct Chosen {
    /// Byte ranges.
    pub fragments: Vec<Range<usize>>,
    /// Every word is shown.
    pub all: bool,
}

/// Chooses. Without matches: the beginning of the text.
pub fn choose(text: &str, matches: &[Match], terms: &Terms, budget: usize) -> Chosen {
    let words = terms.weights().len();
    let phrases = phrase_ends(matches, terms);
    let mut seen = vec![false; words];
    let Some(one) = best(matches, &phrases, terms.weights(), &seen, budget, None) else {
        return Chosen { fragments: vec![around(text, 0..0, budget)], all: words == 0 };
    };
    let span = |window: &Window| matches[window.first].start..matches[window.last].end;
    let single = Chosen { fragments: vec![around(text, span(&one), budget)], all: one.words.len() == words };
    let found = distinct(matches, words);
    if one.words.len() == found || budget < 60 {
        return single;
    }
    let half = (budget - 3) / 2;
    let Some(left) = best(matches, &phrases, terms.weights(), &seen, half, None) else { return single };
    left.words.iter().for_each(|word| seen[*word as usize] = true);
    let left_range = around(text, span(&left), half);
    let right = best(matches, &phrases, terms.weights(), &seen, half, Some(&left_range));
    let Some(right) = right.filter(|right| right.words.iter().any(|word| !seen[*word as usize])) else {
        return single;
    };
    let right_range = around(text, span(&right), half);
    right.words.iter().for_each(|word| seen[*word as usize] = true);
    let together = seen.iter().filter(|seen| **seen).count();
    let apart = left_range.end <= right_range.start || right_range.end <= left_range.start;
    if together <= one.words.len() || !apart {
        return single;
    }
    let mut fragments = vec![left_range, right_range];
    fragments.sort_by_key(|range| range.start);
    Chosen { fragments, all: together == words }
}

fn distinct(matches: &[Match], words: usize) -> usize {
    let mut seen = vec![false; words];
    for found in matches {
        seen[found.form.word as usize] = true;
    }
    seen.into_iter().filter(|seen| *seen).count()
}

/// For each match that begins a whole phrase: the match that ends it.
fn phrase_ends(matches: &[Match], terms: &Terms) -> Vec<Option<usize>> {
    let mut ends = vec![None; matches.len()];
    for phrase in terms.phrases() {
        for (first, end) in ends.iter_mut().enumerate() {
            let start = &matches[first];
            if start.form.token != phrase[0].0 {
                continue;
            }
            let mut at = first;
            let whole = phrase[1..].iter().all(|(token, place)| {
                let wanted = start.position.saturating_add(place.saturating_sub(phrase[0].1));
                let next = (at..matches.len())
                    .take_while(|next| matches[*next].position <= wanted)
                    .find(|next| matches[*next].position == wanted && matches[*next].form.token == *token);
                at = next.unwrap_or(at);
                next.is_some()
            });
            if whole {
                *end = Some(at);
            }
        }
    }
    ends
}

/// The best window of at most `budget` characters, outside of `avoid`; `seen` words count less.
fn best(
    matches: &[Match],
    phrases: &[Option<usize>],
    weights: &[f32],
    seen: &[bool],
    budget: usize,
    avoid: Option<&Range<usize>>,
) -> Option<Window> {
    let mut best: Option<Window> = None;
    let mut stamp = vec![usize::MAX; weights.len()];
    for first in 0..matches.len() {
        let (mut score, mut words, mut last) = (0.0, Vec::new(), first);
        for (at, found) in matches.iter().enumerate().skip(first) {
            let wide = found.visible_end - matches[first].visible_start > budget;
            let hidden = avoid.is_some_and(|avoid| found.start < avoid.end && avoid.start < found.end);
            if hidden || (wide && at > first) {
                break;
            }
            last = at;
            let word = found.form.word as usize;
            if stamp[word] == first {
                score += weights[word] * 0.01;
            } else {
                stamp[word] = first;
                words.push(found.form.word);
                score += weights[word] * if seen[word] { AGAIN } else { 1.0 };
            }
        }
        let whole = (first..=last).filter_map(|at| phrases[at]).filter(|end| *end <= last).count();
        score += whole.min(3) as f32 * 0.5;
        if !words.is_empty() && best.as_ref().is_none_or(|best| score > best.score) {
            best = Some(Window { first, last, score, words });
        }
    }
    best
}

/// Grows a span to `budget` characters with what stands around it.
fn around(text: &str, span: Range<usize>, budget: usize) -> Range<usize> {
    let inside = visible(&text[span.clone()]);
    let spare = budget.saturating_sub(inside);
    let start = begin(text, span.start, spare);
    let end = finish(text, start, span.end, budget);
    if end < text.len() {
        return start..end;
    }
    let left = budget.saturating_sub(visible(&text[start..end]));
    if left == 0 || start == 0 {
        return start..end;
    }
    word_start(text, back(text, start, left), start)..end
}

/// Where the fragment begins: at the sentence of `at` if it is near, else a third of the spare before it.
fn begin(text: &str, at: usize, spare: usize) -> usize {
    let reach = back(text, at, spare * 2 / 3);
    let mut next = None;
    for (index, c) in text[reach..at].char_indices().rev() {
        let after = reach + index + c.len_utf8();
        let ends = match c {
            '。' | '！' | '？' | '\n' => true,
            '.' | '!' | '?' | '…' => next.is_some_and(char::is_whitespace),
            _ => false,
        };
        if ends {
            let rest = &text[after..at];
            return after + (rest.len() - rest.trim_start().len());
        }
        next = Some(c);
    }
    if reach == 0 {
        return 0;
    }
    word_start(text, back(text, at, spare / 3), at)
}

/// The first place between words in `from..limit`; else the nearest place between graphemes.
fn word_start(text: &str, from: usize, limit: usize) -> usize {
    if from == 0 || from >= limit {
        return from.min(limit);
    }
    if text[..from].ends_with(char::is_whitespace) {
        return from;
    }
    if let Some(space) = text[from..limit].find(char::is_whitespace) {
        let rest = &text[from + space..limit];
        return from + space + (rest.len() - rest.trim_start().len());
    }
    boundary(text, from, 0).min(limit)
}

/// Where the fragment ends: `budget` characters after `start`, moved back to the end of a word after `least`.
fn finish(text: &str, start: usize, least: usize, budget: usize) -> usize {
    let end = forward(text, start, budget).max(least);
    if end >= text.len() || text[end..].starts_with(char::is_whitespace) {
        return end;
    }
    let least = least.max(start);
    match text[least..end].rfind(char::is_whitespace) {
        Some(space) if visible(&text[least + space..end]) < 30 => least + space,
        _ => boundary(text, end, least),
    }
}

/// The last place between graphemes at or before `at`, not before `least`.
fn boundary(text: &str, at: usize, least: usize) -> usize {
    let mut cursor = GraphemeCursor::new(at, text.len(), true);
    if cursor.is_boundary(text, 0).unwrap_or(true) {
        return at;
    }
    match cursor.prev_boundary(text, 0) {
        Ok(Some(before)) if before >= least && at - before <= MAX_GRAPHEME => before,
        _ => at,
    }
}

/// Grows a byte range so that it cuts no grapheme.
pub fn whole_graphemes(text: &str, range: Range<usize>) -> Range<usize> {
    let start = boundary(text, range.start, 0);
    let mut cursor = GraphemeCursor::new(range.end, text.len(), true);
    let end = if cursor.is_boundary(text, 0).unwrap_or(true) {
        range.end
    } else {
        match cursor.next_boundary(text, 0) {
            Ok(Some(after)) if after - range.end <= MAX_GRAPHEME => after,
            _ => range.end,
        }
    };
    start..end
}

/// Characters of a text as a reader counts them: a run of white space is one.
pub fn visible(text: &str) -> usize {
    let mut count = 0;
    let mut space = false;
    for c in text.chars() {
        let white = c.is_whitespace();
        count += usize::from(!(white && space));
        space = white;
    }
    count
}

fn forward(text: &str, from: usize, visible: usize) -> usize {
    let (mut left, mut space) = (visible, false);
    for (index, c) in text[from..].char_indices() {
        let white = c.is_whitespace();
        if !(white && space) {
            if left == 0 {
                return from + index;
            }
            left -= 1;
        }
        space = white;
    }
    text.len()
}

fn back(text: &str, from: usize, visible: usize) -> usize {
    let (mut left, mut space) = (visible, false);
    for (index, c) in text[..from].char_indices().rev() {
        let white = c.is_whitespace();
        if !(white && space) {
            if left == 0 {
                return index + c.len_utf8();
            }
            left -= 1;
        }
        space = white;
    }
    0
}
