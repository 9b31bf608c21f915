//! Terms of a word under a language, with a cache. A word has one term, or two: the stem of its accentless form, by which
//! everyone finds it, and, where accents steer the stemmer to another stem (`generalite`, `general`), that one without
//! accents, too. Measured: stemming only the accentless form loses .01 nDCG@10 on Turkish and Polish; keeping only the
//! other loses every query typed without accents.
//!
//! Stemming costs more than all else, and texts repeat their words, so each thread keeps a table of recent words. It is
//! direct-mapped, of fixed size, and only saves time: what it forgets is computed again to the same result.

use std::cell::Cell;

use super::{
    MAX_TOKEN_BYTES,
    language::Language,
    normal::{self, Rules},
    scan::Kind,
};

/// Entries of a thread's table; a power of two. 128 bytes each: 1 MiB.
const ENTRIES: usize = 1 << 13;
/// Bytes of an entry for word and terms.
const ENTRY_BYTES: usize = 119;

/// One remembered word: its text, its term, the second term, and its spelling where that is not the text, one behind
/// the other.
#[derive(Clone, Copy)]
struct Entry {
    hash: u32,
    language: u8,
    word: u8,
    first: u8,
    second: u8,
    spelling: u8,
    bytes: [u8; ENTRY_BYTES],
}

const EMPTY: Entry =
    Entry { hash: 0, language: 0, word: 0, first: 0, second: 0, spelling: 0, bytes: [0; ENTRY_BYTES] };

/// A thread's working memory.
pub(super) struct Forms {
    table: Vec<Entry>,
    lower: String,
    folded: String,
    first: String,
    second: String,
}

thread_local! {
    static FORMS: Cell<Option<Box<Forms>>> = const { Cell::new(None) };
}

/// Runs with this thread's working memory. Taken out while in use: a call from inside gets a fresh one.
pub(super) fn with<R>(run: impl FnOnce(&mut Forms) -> R) -> R {
    let mut forms = FORMS.take().unwrap_or_default();
    let result = run(&mut forms);
    FORMS.set(Some(forms));
    result
}

impl Default for Forms {
    fn default() -> Self {
        Self {
            table: vec![EMPTY; ENTRIES],
            lower: String::new(),
            folded: String::new(),
            first: String::new(),
            second: String::new(),
        }
    }
}

/// The terms of one piece. Empty `first`: the piece has none.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a> {
    pub(super) first: &'a str,
    pub(super) second: Option<&'a str>,
    /// The folded word that they are of.
    pub(super) spelling: &'a str,
}

impl Forms {
    /// Terms of a word of ASCII letters and digits.
    pub(super) fn plain(&mut self, raw: &str, language: Language) -> Terms<'_> {
        self.lower.clear();
        self.lower.push_str(raw);
        self.lower.make_ascii_lowercase();
        let Some(stemmer) = language.stemmer.filter(|_| language.latin) else {
            return Terms { first: &self.lower, second: None, spelling: &self.lower };
        };
        let hash = hash(&self.lower, language);
        if self.table[slot(hash)].holds(hash, language.number, &self.lower) {
            return self.table[slot(hash)].terms();
        }
        self.first.clear();
        self.first.push_str(&stemmer.stem(&self.lower));
        if self.first.is_empty() {
            self.first.push_str(&self.lower);
        }
        self.second.clear();
        self.table[slot(hash)].remember(hash, language.number, &self.lower, [&self.first, "", ""]);
        Terms { first: &self.first, second: None, spelling: &self.lower }
    }

    /// Terms of any other word.
    pub(super) fn word(&mut self, raw: &str, language: Language) -> Terms<'_> {
        if raw.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return self.plain(raw, language);
        }
        let hash = hash(raw, language);
        if self.table[slot(hash)].holds(hash, language.number, raw) {
            return self.table[slot(hash)].terms();
        }
        self.compute(raw, language);
        let rest = [self.first.as_str(), &self.second, &self.folded];
        self.table[slot(hash)].remember(hash, language.number, raw, rest);
        let second = Some(self.second.as_str()).filter(|second| !second.is_empty());
        Terms { first: &self.first, second, spelling: &self.folded }
    }

    fn compute(&mut self, raw: &str, language: Language) {
        let rules = Rules { cut_at_apostrophe: language.cut_at_apostrophe };
        normal::word(raw, rules, &mut self.lower, &mut self.folded);
        self.first.clear();
        self.second.clear();
        match language.stemmer {
            None => {
                self.first.push_str(&self.folded);
                if language.tones {
                    self.second.push_str(&self.lower);
                }
            }
            Some(stemmer) => {
                self.first.push_str(&stemmer.stem(&self.folded));
                if self.first.is_empty() {
                    self.first.push_str(&self.folded);
                }
                if self.lower != self.folded {
                    normal::fold_into(&stemmer.stem(&self.lower), &mut self.second);
                }
            }
        }
        if self.first.is_empty() || self.first == self.second {
            self.second.clear();
        }
    }

    /// Accentless form of a word, not stemmed, as stop lists hold it.
    pub(super) fn bare(&mut self, raw: &str, language: Language) -> &str {
        let rules = Rules { cut_at_apostrophe: language.cut_at_apostrophe };
        normal::word(raw, rules, &mut self.lower, &mut self.folded);
        &self.folded
    }

    /// Term of a piece that is not stemmed; empty when it is over-long.
    pub(super) fn unstemmed(&mut self, kind: Kind, raw: &str) -> &str {
        self.folded.clear();
        if raw.len() <= MAX_TOKEN_BYTES {
            match kind {
                Kind::Pair => normal::pair(raw, &mut self.folded),
                Kind::Emoji => normal::emoji(raw, &mut self.folded),
                _ => normal::dictionary(raw, &mut self.folded),
            }
        }
        &self.folded
    }
}

impl Entry {
    fn holds(&self, hash: u32, language: u8, word: &str) -> bool {
        self.hash == hash
            && self.language == language
            && self.bytes.get(..usize::from(self.word)) == Some(word.as_bytes())
    }

    fn remember(&mut self, hash: u32, language: u8, word: &str, [first, second, spelling]: [&str; 3]) {
        let (a, b) = (word.len(), word.len() + first.len());
        let c = b + second.len();
        let end = c + spelling.len();
        if end > ENTRY_BYTES {
            return;
        }
        self.bytes[..a].copy_from_slice(word.as_bytes());
        self.bytes[a..b].copy_from_slice(first.as_bytes());
        self.bytes[b..c].copy_from_slice(second.as_bytes());
        self.bytes[c..end].copy_from_slice(spelling.as_bytes());
        (self.hash, self.language) = (hash, language);
        (self.word, self.first, self.second) = (a as u8, first.len() as u8, second.len() as u8);
        self.spelling = spelling.len() as u8;
    }

    fn terms(&self) -> Terms<'_> {
        let a = usize::from(self.word);
        let b = a + usize::from(self.first);
        let c = b + usize::from(self.second);
        let text =
            |from, to| self.bytes.get(from..to).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or("");
        let second = (self.second > 0).then(|| text(b, c));
        let spelling = if self.spelling == 0 { text(0, a) } else { text(c, c + usize::from(self.spelling)) };
        Terms { first: text(a, b), second, spelling }
    }
}

/// Never 0, which marks an empty entry.
fn hash(word: &str, language: Language) -> u32 {
    (xxhash_rust::xxh3::xxh3_64_with_seed(word.as_bytes(), u64::from(language.number)) as u32) | 1
}

fn slot(hash: u32) -> usize {
    (hash >> 1) as usize & (ENTRIES - 1)
}
