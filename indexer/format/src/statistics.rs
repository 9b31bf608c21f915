//! Document frequencies of every term of every text field over the whole corpus: one finite-state map (fst), key =
//! field name, 0x1F, term; value = document frequency. The root holds it in memory and attaches a query's
//! numbers to the request, so that every shard and replica scores on one scale.
//!
//! In memory, not mapped: whoever copies a version over the one that is served cuts its files for a moment, and reading
//! a mapped page that a file no longer has ends the process. What was verified is what is read, until the process ends.
//!
//! A second map holds the words as written and the terms that each is indexed as (`spellings.rs`); it answers which
//! terms a pattern means. A term found by one of its spellings finds all documents that have it, those with another
//! spelling too: `replicatio*` also finds a page that only says `replicated`. An expansion walks the map by hand and
//! asks the clock after every few steps, matching or not: the map's own search yields matches only, so that a pattern
//! that matches nothing in millions of words could not be stopped.

mod expand;
mod merge;
mod pattern;
mod spellings;

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use canopy_common::deadline::Deadline;

pub use self::merge::{Counts, write};
pub use self::pattern::MAX_FUZZY_CHARS;
use self::spellings::Spellings;
use crate::{
    error::{Error, Result},
    manifest::StatisticsEntry,
};

/// Path of the file below a version's directory.
pub const FILE: &str = "statistics/terms.fst";
/// Between field and term in a key.
pub const SEPARATOR: u8 = 0x1f;

/// Statistics of one version, opened and verified. Cheap to share by `Arc`.
pub struct Statistics {
    entry: StatisticsEntry,
    terms: fst::Map<Vec<u8>>,
    /// `None` in files of format 1.
    spellings: Option<Spellings>,
}

/// What a pattern asks of a word as written. Words and patterns are folded as the words are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Words that begin so.
    Prefix(String),
    /// `*` any run, `?` any one character.
    Wildcard(String),
    /// Words within 1 or 2 edits: a character left out, put in, replaced, or two neighbours swapped. A word over
    /// [`MAX_FUZZY_CHARS`] finds only itself.
    Fuzzy {
        /// The word.
        word: String,
        /// Most edits, 1 or 2.
        distance: u8,
    },
}

/// A term that a pattern stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// The term.
    pub term: String,
    /// Its document frequency in the field.
    pub documents: u64,
    /// Edits to its closest spelling; 0 unless the pattern is fuzzy.
    pub edits: u8,
    /// The spelling that it was found by: the closest, then the first by byte order.
    pub spelling: String,
}

/// What an expansion found: closest first, then most frequent, then by byte order of the terms. A term once.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expansion {
    /// The terms.
    pub terms: Vec<Found>,
    /// There were more than the limit, or time was up.
    pub truncated: bool,
}

impl Statistics {
    /// Opens a file and checks length and checksum against its entry.
    pub fn open(path: &Path, entry: &StatisticsEntry) -> Result<Self> {
        let io = |source| Error::io(path, source);
        let damaged = |reason| Error::Damaged { file: entry.file.path.clone(), reason };
        let file = File::open(path).map_err(io)?;
        let bytes = file.metadata().map_err(io)?.len();
        if bytes != entry.file.bytes {
            return Err(damaged(format!("it has {bytes} bytes, the manifest says {}", entry.file.bytes)));
        }
        let mut content = Vec::new();
        content.try_reserve_exact(bytes as usize).map_err(|error| io(error.into()))?;
        file.take(bytes).read_to_end(&mut content).map_err(io)?;
        entry.file.check_bytes(&content)?;
        let (content, rest) = if entry.spellings.is_some() {
            let (terms, rest) =
                split(content).ok_or_else(|| damaged("its parts do not fit its length".into()))?;
            (terms, Some(rest))
        } else {
            (content, None)
        };
        let terms = fst::Map::new(content).map_err(|error| damaged(error.to_string()))?;
        let spellings = rest.map(|(map, lists)| Spellings::open(map, &lists)).transpose().map_err(damaged)?;
        if terms.len() as u64 != entry.terms {
            return Err(damaged(format!("it has {} terms, the manifest says {}", terms.len(), entry.terms)));
        }
        let counts = (spellings.as_ref().map_or(0, Spellings::len) as u64, entry.spellings.unwrap_or(0));
        if counts.0 != counts.1 {
            return Err(damaged(format!("it has {} spellings, the manifest says {}", counts.0, counts.1)));
        }
        if entry.id != merge::id(entry) {
            return Err(damaged(format!("their id {} does not belong to their content", entry.id)));
        }
        Ok(Self { entry: entry.clone(), terms, spellings })
    }

    /// Id, as the manifest has it.
    pub fn id(&self) -> &str {
        &self.entry.id
    }

    /// Documents of the corpus.
    pub fn documents(&self) -> u64 {
        self.entry.documents
    }

    /// Total tokens of each text field.
    pub fn tokens(&self) -> &BTreeMap<String, u64> {
        &self.entry.tokens
    }

    /// Document frequency of a term; `None` when no document has it. Never above [`Statistics::documents`].
    pub fn document_frequency(&self, field: &str, term: &str) -> Option<u64> {
        Some(self.terms.get(key(field, term))?.min(self.entry.documents))
    }

    /// Expands a pattern to terms of a field: the `limit` closest, of equally close ones the most frequent. Asks the
    /// deadline every few hundred steps, so that it stops within a fraction of a millisecond whatever
    /// the pattern.
    pub fn expand(&self, field: &str, pattern: &Pattern, limit: usize, deadline: Deadline) -> Expansion {
        self.expand_until(field, pattern, limit, || deadline.expired())
    }

    /// Passes every word as written with each of its terms to `each`, in byte order; false: files of format 1 have none. Stops
    /// at an error.
    pub fn each_spelling<E>(
        &self,
        each: &mut dyn FnMut(&str, &str) -> std::result::Result<(), E>,
    ) -> std::result::Result<bool, E> {
        let Some(spellings) = &self.spellings else { return Ok(false) };
        spellings.each(each).map(|()| true)
    }

    fn expand_until(
        &self,
        field: &str,
        pattern: &Pattern,
        limit: usize,
        stop: impl FnMut() -> bool,
    ) -> Expansion {
        let mut best = expand::Best::new(limit);
        let Some(spellings) = &self.spellings else {
            let terms = self.terms.as_fst();
            let stopped = expand::walk(terms, &key(field, ""), pattern, stop, &mut |term, value, edits| {
                best.offer(term, value.min(self.entry.documents), edits, term);
                1
            });
            return best.finish(stopped);
        };
        let words = spellings.as_fst();
        let stopped = expand::walk(words, b"", pattern, stop, &mut |spelling, list, edits| {
            let mut steps = 0;
            spellings.terms(spelling, list, &mut |term| {
                steps += expand::STEPS_OF_A_TERM;
                if let Some(documents) = self.document_frequency(field, term) {
                    best.offer(term, documents, edits, spelling);
                }
            });
            steps
        });
        best.finish(stopped)
    }
}

/// The map of terms; the map of spellings and the lists behind it.
fn split(mut content: Vec<u8>) -> Option<(Vec<u8>, (Vec<u8>, Vec<u8>))> {
    let (rest, second) = content.split_last_chunk()?;
    let (rest, first) = rest.split_last_chunk()?;
    let (first, second) = (u64::from_le_bytes(*first), u64::from_le_bytes(*second));
    let (all, first) = (rest.len(), usize::try_from(first).ok()?);
    let end = first.checked_add(usize::try_from(second).ok()?).filter(|end| *end <= all)?;
    content.truncate(all);
    let lists = content.split_off(end);
    let map = content.split_off(first);
    content.shrink_to_fit();
    Some((content, (map, lists)))
}

/// The key of a field's term; a shard's counts are in the byte order of these.
pub fn key(field: &str, term: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(field.len() + 1 + term.len());
    key.extend_from_slice(field.as_bytes());
    key.push(SEPARATOR);
    key.extend_from_slice(term.as_bytes());
    key
}

#[cfg(test)]
mod tests;
