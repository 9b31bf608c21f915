//! Cuts a text into pieces: words, characters of scripts without borders, dictionary words, emoji. Only borders are found
//! here; normal forms come later, so that each piece keeps its byte range of the original text.
//!
//! The rules follow UAX 29, with these choices for web and technical text. A border is decided by the neighbours of the
//! place alone, never by words further off: a query cut out of a document at its words falls into the same pieces, which
//! is what makes a phrase findable.
//! - Words end at hyphens, underscores, `&` and dots between letters (`node.js` is two words); the piece after one is
//!   `joined`, from which `nodejs`, `email` (of `e-mail`) and `wifi` are made.
//! - Digits keep their dots (`3.14`, `1.2.3`, `v1.2`) and thousands commas (`1,000`); other commas are borders.
//! - Single letters keep their dots (`U.S.A.`, `e.g.`).
//! - Apostrophes between letters stay inside the word.
//! - `++` after a word and `#` after a single letter belong to it (`C++`, `C#`, `F#`).
//! - A dot before a letter, after space or an opening sign, is remembered (`.NET`, `.bashrc`).
//! - Case changes are no borders: `JavaScript` is one word.

use std::collections::VecDeque;

use super::{
    class::{self, Class},
    dictionary,
};

/// What kind of piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// ASCII letters and digits only.
    Plain,
    /// Any other word.
    Word,
    /// One character of a script read by pairs, with its marks.
    Pair,
    /// A word found by dictionary.
    Dictionary,
    /// An emoji sequence.
    Emoji,
}

impl Kind {
    pub(super) fn is_word(self) -> bool {
        matches!(self, Self::Plain | Self::Word)
    }
}

/// One piece.
#[derive(Debug, Clone, Copy)]
pub(super) struct Piece {
    pub(super) kind: Kind,
    pub(super) start: usize,
    pub(super) end: usize,
    /// Makes a compound with the piece before: two words with one sign between, or neighbours in a run of pairs.
    pub(super) joined: bool,
    /// A dot that counts stands before `start`.
    pub(super) dotted: bool,
}

/// Longest acronym, letters; a longer chain of single letters is not one.
const MAX_ACRONYM: usize = 12;

/// Iterates over the pieces of a text.
pub(super) struct Scanner<'a> {
    text: &'a str,
    at: usize,
    last: Option<Piece>,
    segments: VecDeque<(usize, usize)>,
}

impl<'a> Scanner<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0, last: None, segments: VecDeque::new() }
    }

    fn char_at(&self, at: usize) -> Option<char> {
        self.text.get(at..)?.chars().next()
    }

    fn char_before(&self, at: usize) -> Option<char> {
        self.text.get(..at)?.chars().next_back()
    }

    fn class_at(&self, at: usize) -> Class {
        self.char_at(at).map_or(Class::Border, class::class)
    }

    fn byte(&self, at: usize) -> u8 {
        self.text.as_bytes().get(at).copied().unwrap_or(0)
    }

    fn piece(&mut self, kind: Kind, start: usize, end: usize) -> Piece {
        let joined = match self.last {
            Some(last) if kind.is_word() && last.kind.is_word() => self.joins(last.end, start),
            Some(last) if kind == Kind::Pair && last.kind == Kind::Pair => last.end == start,
            _ => false,
        };
        let dotted = kind.is_word() && start > 0 && self.byte(start - 1) == b'.' && self.dot_counts(start);
        let piece = Piece { kind, start, end, joined, dotted };
        self.last = Some(piece);
        self.at = end;
        piece
    }

    /// One joining sign, and nothing else, stands between two words.
    fn joins(&self, from: usize, to: usize) -> bool {
        match to - from {
            1 => matches!(self.byte(from), b'-' | b'_' | b'&' | b'.'),
            3 => matches!(self.char_at(from), Some('\u{2010}' | '\u{2011}')),
            _ => false,
        }
    }

    fn dot_counts(&self, start: usize) -> bool {
        self.char_at(start).is_some_and(char::is_alphabetic)
            && self.char_before(start - 1).is_none_or(|c| c.is_whitespace() || "([{<\"'/".contains(c))
    }

    fn word(&mut self, start: usize) -> Piece {
        let bytes = self.text.as_bytes();
        let first = self.char_at(start).map_or(1, char::len_utf8);
        let mut end = start + first;
        let mut plain = first == 1;
        loop {
            while bytes.get(end).is_some_and(u8::is_ascii_alphanumeric) {
                end += 1;
            }
            let Some(&byte) = bytes.get(end) else { break };
            let next = if byte.is_ascii() {
                if matches!(byte, b'+' | b'#') {
                    let suffix = self.suffix(start, end);
                    plain &= suffix == end;
                    end = suffix;
                    break;
                }
                if !matches!(byte, b'\'' | b'.' | b',' | b'"') {
                    break;
                }
                self.inside_sign(start, end)
            } else {
                self.inside_other(start, end)
            };
            if next == end {
                break;
            }
            plain = false;
            end = next;
        }
        self.piece(if plain { Kind::Plain } else { Kind::Word }, start, end)
    }

    /// End of the word after a non-ASCII character that belongs to it, else `end`.
    fn inside_other(&self, start: usize, end: usize) -> usize {
        let Some(c) = self.char_at(end) else { return end };
        match class::class(c) {
            _ if class::apostrophe(c) || matches!(c, '\u{b7}' | '\u{5f3}' | '\u{5f4}') => {
                self.inside_sign(start, end)
            }
            Class::Letter | Class::Attached => end + c.len_utf8(),
            _ => end,
        }
    }

    /// End of the word after a sign that stays inside it and before what follows, else `end`.
    fn inside_sign(&self, start: usize, end: usize) -> usize {
        let (Some(sign), Some(before)) = (self.char_at(end), self.char_before(end)) else { return end };
        let after_at = end + sign.len_utf8();
        let Some(after) = self.char_at(after_at) else { return end };
        if class::class(after) != Class::Letter {
            return end;
        }
        let letters = !before.is_numeric() && after.is_alphabetic();
        let keeps = match sign {
            '.' => before.is_ascii_digit() && after.is_ascii_digit() || self.acronym(start, end, after_at),
            ',' => self.thousands(start, end),
            '"' | '\u{5f3}' | '\u{5f4}' => class::hebrew(before) && class::hebrew(after),
            _ => letters,
        };
        if keeps { after_at } else { end }
    }

    /// A dot between single letters, each of which ends there.
    fn acronym(&self, start: usize, dot: usize, after: usize) -> bool {
        let Some(next) = self.char_at(after).filter(|c| c.is_alphabetic()) else { return false };
        let behind = after + next.len_utf8();
        let goes_on = match self.char_at(behind) {
            Some(c) if class::apostrophe(c) => self.class_at(behind + c.len_utf8()) == Class::Letter,
            _ => matches!(self.class_at(behind), Class::Letter | Class::Attached),
        };
        let chain = || self.text[start..dot].chars().take(2 * MAX_ACRONYM).enumerate();
        !goes_on
            && chain().all(|(i, c)| if i % 2 == 0 { c.is_alphabetic() } else { c == '.' })
            && chain().count() % 2 == 1
    }

    /// A comma after one to three digits and before exactly three.
    fn thousands(&self, start: usize, comma: usize) -> bool {
        let digits = |from: usize| (from..from + 4).take_while(|&i| self.byte(i).is_ascii_digit()).count();
        let before = &self.text.as_bytes()[start..comma];
        let group = before.iter().rev().take(4).take_while(|b| b.is_ascii_digit()).count();
        let starts = before.len() == group || before[before.len() - group - 1] == b',';
        (1..=3).contains(&group) && starts && before.len() < 16 && digits(comma + 1) == 3
    }

    /// End of the word after `++` or `#` that belong to it.
    fn suffix(&self, start: usize, end: usize) -> usize {
        match self.byte(end) {
            b'+' if self.byte(end + 1) == b'+' && self.byte(end + 2) != b'+' => end + 2,
            b'#' if end - start == 1
                && self.byte(start).is_ascii_alphabetic()
                && self.byte(end + 1) != b'#'
                && self.class_at(end + 1) != Class::Letter =>
            {
                end + 1
            }
            _ => end,
        }
    }

    fn attached_end(&self, mut end: usize) -> usize {
        while let Some(c) = self.char_at(end).filter(|&c| class::class(c) == Class::Attached) {
            end += c.len_utf8();
        }
        end
    }

    /// End of an emoji: selectors, skin tones, keycaps and tags belong to it; a joiner adds the next picture; a flag
    /// is two halves.
    fn emoji_end(&self, start: usize, first: char) -> usize {
        let mut end = start + first.len_utf8();
        if class::flag_half(first as u32) {
            if let Some(second) = self.char_at(end).filter(|&c| class::flag_half(c as u32)) {
                end += second.len_utf8();
            }
            return self.attached_end(end);
        }
        while let Some(c) = self.char_at(end) {
            let joined = self.char_before(end) == Some('\u{200d}') && class::emoji(c as u32);
            if !joined && !class::skin_tone(c as u32) && class::class(c) != Class::Attached {
                break;
            }
            end += c.len_utf8();
        }
        end
    }

    /// Cuts a run of a script with a dictionary; its words wait in `segments`.
    fn dictionary_run(&mut self, start: usize) {
        let mut end = start;
        while let Some(c) = self.char_at(end).filter(|&c| class::class(c) == Class::Dictionary) {
            end += c.len_utf8();
        }
        dictionary::cut(&self.text[start..end], |from, to| {
            self.segments.push_back((start + from, start + to));
        });
        self.at = end;
    }
}

impl Iterator for Scanner<'_> {
    type Item = Piece;

    fn next(&mut self) -> Option<Piece> {
        loop {
            if let Some((start, end)) = self.segments.pop_front() {
                let resume = self.at;
                let piece = self.piece(Kind::Dictionary, start, end);
                self.at = resume;
                return Some(piece);
            }
            let &byte = self.text.as_bytes().get(self.at)?;
            if byte.is_ascii() {
                if byte.is_ascii_alphanumeric() {
                    return Some(self.word(self.at));
                }
                self.at += 1;
                continue;
            }
            let (start, c) = (self.at, self.char_at(self.at)?);
            match class::class(c) {
                Class::Letter => return Some(self.word(start)),
                Class::Pair => {
                    let end = self.attached_end(start + c.len_utf8());
                    return Some(self.piece(Kind::Pair, start, end));
                }
                Class::Emoji => {
                    let end = self.emoji_end(start, c);
                    return Some(self.piece(Kind::Emoji, start, end));
                }
                Class::Dictionary => self.dictionary_run(start),
                Class::Attached | Class::Border => self.at += c.len_utf8(),
            }
        }
    }
}
