//! Document frequencies of every term of every text field over the whole corpus: one finite-state map (fst), key =
//! field name, 0x1F, term; value = document frequency. The root holds it in memory (mapped) and attaches a query's
//! numbers to the request, so that every shard and replica scores on one scale.

use std::{collections::BTreeMap, path::Path};

use canopy_common::deadline::Deadline;

use crate::{error::Result, manifest::StatisticsEntry};

/// Path of the file below a version's directory.
pub const FILE: &str = "statistics/terms.fst";

/// Statistics of one version, opened and verified. Cheap to share by `Arc`.
pub struct Statistics {
    entry: StatisticsEntry,
}

/// What a pattern asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// Terms that begin so.
    Prefix(String),
    /// `*` any run, `?` any one character.
    Wildcard(String),
    /// Terms within an edit distance of 1 or 2.
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
    /// Opens a file and checks length and checksum against its entry; memory-mapped.
    pub fn open(_path: &Path, _entry: &StatisticsEntry) -> Result<Self> {
        todo!()
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
    pub fn document_frequency(&self, _field: &str, _term: &str) -> Option<u64> {
        todo!()
    }

    /// Expands a pattern; keeps the `limit` most frequent; polls the deadline at least every 1024 terms.
    pub fn expand(&self, _field: &str, _pattern: &Pattern, _limit: usize, _deadline: Deadline) -> Expansion {
        todo!()
    }
}

/// Merges term counts of the shards into one statistics file. Input: per shard, terms in byte order of (field, 0x1F,
/// term) with their document frequency. Writes to `path`; returns id, length, checksum and counts as the entry.
pub fn write(
    _path: &Path,
    _documents: u64,
    _tokens: BTreeMap<String, u64>,
    _shards: Vec<Box<dyn Iterator<Item = Result<(Vec<u8>, u64)>> + Send>>,
) -> Result<StatisticsEntry> {
    todo!()
}
