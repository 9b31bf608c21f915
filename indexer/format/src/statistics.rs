//! Document frequencies of every term of every text field over the whole corpus: one finite-state map (fst), key =
//! field name, 0x1F, term; value = document frequency. The root holds it in memory and attaches a query's
//! numbers to the request, so that every shard and replica scores on one scale.
//!
//! In memory, not mapped: whoever copies a version over the one that is served cuts its files for a moment, and reading
//! a mapped page that a file no longer has ends the process. What was verified is what is read, until the process ends.
//!
//! The map also answers which terms a pattern means. An expansion walks the map by hand and asks the clock after
//! every few arcs, matching or not: the map's own search yields matches only, so that a pattern that matches nothing
//! in millions of terms could not be stopped.

mod expand;
mod merge;
mod pattern;

use std::{collections::BTreeMap, fs::File, io::Read, path::Path};

use canopy_common::deadline::Deadline;

pub use self::merge::write;
pub use self::pattern::MAX_FUZZY_CHARS;
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
}

/// What a pattern asks for. Words and patterns are folded as the terms are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Terms that begin so.
    Prefix(String),
    /// `*` any run, `?` any one character.
    Wildcard(String),
    /// Terms within an edit distance of 1 or 2. A word over [`MAX_FUZZY_CHARS`] finds only itself.
    Fuzzy {
        /// The word.
        word: String,
        /// Largest Levenshtein distance, 1 or 2.
        distance: u8,
    },
}

/// Terms found by an expansion, most frequent first.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expansion {
    /// (term, document frequency).
    pub terms: Vec<(String, u64)>,
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
        let terms = fst::Map::new(content).map_err(|error| damaged(error.to_string()))?;
        if terms.len() as u64 != entry.terms {
            return Err(damaged(format!("it has {} terms, the manifest says {}", terms.len(), entry.terms)));
        }
        if entry.id != merge::id(entry) {
            return Err(damaged(format!("their id {} does not belong to their content", entry.id)));
        }
        Ok(Self { entry: entry.clone(), terms })
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

    /// Expands a pattern; keeps the `limit` most frequent (then the first by byte order); asks the deadline after
    /// every 256 arcs of the map, so that it stops within a fraction of a millisecond whatever the pattern.
    pub fn expand(&self, field: &str, pattern: &Pattern, limit: usize, deadline: Deadline) -> Expansion {
        let mut expansion = expand::expand(self.terms.as_fst(), field, pattern, limit, || deadline.expired());
        for (_, frequency) in &mut expansion.terms {
            *frequency = (*frequency).min(self.entry.documents);
        }
        expansion
    }
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
