//! A version's table of contents, written last: a version is visible only through it. Everything else is checked
//! against it (length, BLAKE3) before use. JSON at `corpora/NAME/versions/0000001742/manifest.json`.
//!
//! A manifest is read by builds older and newer than its writer, so its format number is read before anything else.
//! Then its parts must agree with each other (documents, tokens, languages, layouts, paths): a leaf that trusts one
//! wrong number reports a wrong coverage for as long as the version lives.

mod check;

use std::collections::BTreeMap;

use canopy_common::ids::{ShardId, Version};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    layout::Layout,
    schema::Schema,
};

/// Newest manifest format this build reads and writes. 2: statistics hold spellings. 3: documents may be kept whole, in a
/// field that earlier builds would not know.
pub const FORMAT: u32 = 3;

/// Most warm-up queries of a version.
pub const MAX_WARMUP: usize = 32;

/// The manifest. `created` and `builder` are the only parts that differ between two builds of the same input.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format number; read before anything else.
    pub format: u32,
    /// Corpus.
    pub corpus: String,
    /// This version.
    pub version: Version,
    /// The version that was newest when this one was claimed.
    pub parent: Option<Version>,
    /// When, RFC 3339 UTC.
    pub created: String,
    /// By what: program version.
    pub builder: String,
    /// The schema, whole.
    pub schema: Schema,
    /// Its id, which includes the analysis id.
    pub schema_id: String,
    /// The analysis rules.
    pub analysis_id: String,
    /// Slot tables by group.
    pub layouts: Vec<Layout>,
    /// Log offsets inside this version: partition -> next offset. A partition that is not named is at 0.
    pub cut: BTreeMap<u32, u64>,
    /// Epoch of the log that the cut is of. Empty: the version was built without one, and holds nothing of any log.
    #[serde(default)]
    pub log: String,
    /// Documents are kept with every field, shown or not, so that they can be patched and the next version can be made of
    /// this one. Versions of before are not.
    #[serde(default)]
    pub whole: bool,
    /// The statistics.
    pub statistics: StatisticsEntry,
    /// Shards, by group and number.
    pub shards: Vec<ShardEntry>,
    /// Documents by language code.
    pub languages: BTreeMap<String, u64>,
    /// Build counts, for people.
    pub counts: BuildCounts,
    /// Queries to warm with, and the examples of the search page.
    #[serde(default)]
    pub warmup: Vec<String>,
}

/// One file of a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path below the version's directory.
    pub path: String,
    /// Length, bytes.
    pub bytes: u64,
    /// BLAKE3, hex.
    pub blake3: String,
}

/// The statistics of a version.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StatisticsEntry {
    /// Id: derived from the content.
    pub id: String,
    /// File.
    pub file: FileEntry,
    /// Documents of the corpus.
    pub documents: u64,
    /// Total tokens by text field.
    pub tokens: BTreeMap<String, u64>,
    /// Distinct terms over all fields.
    pub terms: u64,
    /// Distinct words as written, not stemmed; absent in format 1, whose patterns are held against terms.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spellings: Option<u64>,
}

/// One shard.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardEntry {
    /// Which.
    pub shard: ShardId,
    /// Documents.
    pub documents: u64,
    /// Files, sorted by path; they live in `shards/GROUP-0003/`.
    pub files: Vec<FileEntry>,
    /// Total bytes.
    pub bytes: u64,
    /// Total tokens by text field; average length = tokens / documents.
    pub tokens: BTreeMap<String, u64>,
    /// Estimate of memory that stays resident while serving, bytes.
    pub resident_bytes: u64,
}

/// What a build read.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BuildCounts {
    /// Records read.
    pub read: u64,
    /// Records rejected.
    pub rejected: u64,
    /// Earlier records of a key that a later one replaced.
    pub superseded: u64,
    /// Words dropped for their length.
    pub long_tokens: u64,
    /// Fields dropped on their own.
    pub dropped_fields: u64,
}

impl Manifest {
    /// Reads a manifest; a newer format, missing parts or counts that do not agree are refused by name. `path` is
    /// its place in the store, for messages.
    pub fn from_json(bytes: &[u8], path: &str) -> Result<Self> {
        let damaged = |reason: String| Error::Damaged { file: path.to_owned(), reason };
        let Format { format } = serde_json::from_slice(bytes)
            .map_err(|error| damaged(format!("it is not a manifest: {error}")))?;
        if format > FORMAT {
            return Err(Error::NewerFormat { file: path.to_owned(), found: format, known: FORMAT });
        }
        if format == 0 {
            return Err(damaged("format 0 does not exist".into()));
        }
        let manifest: Self = serde_json::from_slice(bytes).map_err(|error| damaged(error.to_string()))?;
        manifest.check().map_err(damaged)?;
        Ok(manifest)
    }

    /// As written to the store (pretty, stable order).
    pub fn to_json(&self) -> Vec<u8> {
        // Writing this type to memory cannot fail: all keys are strings or integers. Should it ever, the empty text is
        // refused by every reader.
        let mut json = serde_json::to_vec_pretty(self).unwrap_or_default();
        json.push(b'\n');
        json
    }

    /// Whether the parts agree with each other; else the first contradiction, in words.
    pub fn check(&self) -> std::result::Result<(), String> {
        check::manifest(self)
    }

    /// The files of the version, the statistics first, then by shard.
    pub fn files(&self) -> impl Iterator<Item = &FileEntry> {
        std::iter::once(&self.statistics.file).chain(self.shards.iter().flat_map(|shard| &shard.files))
    }

    /// Documents of all shards.
    pub fn documents(&self) -> u64 {
        self.shards.iter().map(|shard| shard.documents).sum()
    }

    /// One shard's entry.
    pub fn shard(&self, shard: &ShardId) -> Option<&ShardEntry> {
        self.shards.iter().find(|entry| entry.shard == *shard)
    }

    /// Directory of a shard's files below the version: `shards/main-0003`.
    pub fn shard_dir(shard: &ShardId) -> String {
        format!("shards/{}-{:04}", shard.group, shard.number)
    }
}

/// The only part of a manifest that every build understands.
#[derive(Deserialize)]
struct Format {
    format: u32,
}

/// Whether a path may name a file of a version: relative, components of `a-z A-Z 0-9 . - _`, none of them `..`.
pub fn valid_path(path: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    let part =
        |part: &str| !part.is_empty() && !part.bytes().all(|byte| byte == b'.') && part.bytes().all(letter);
    path.len() <= 512 && path.split('/').all(part)
}

#[cfg(test)]
pub(crate) mod tests;
