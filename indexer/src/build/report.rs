//! What a build did, for people and for `--json`.

use std::collections::BTreeMap;

use canopy_common::ids::{ShardId, Version};
use canopy_format::{manifest::BuildCounts, store::PassedOver};
use serde::Serialize;

use super::{progress::Stage, reject::RejectLine};

/// The outcome of a build that published a version.
#[derive(Debug, Clone, Serialize)]
pub struct BuildReport {
    /// The corpus.
    pub corpus: String,
    /// The new version.
    pub version: Version,
    /// The newest version before it.
    pub parent: Option<Version>,
    /// Documents of the version.
    pub documents: u64,
    /// Bytes of the version.
    pub bytes: u64,
    /// Shards, by number.
    pub shards: Vec<ShardReport>,
    /// What was read, rejected, replaced and dropped.
    pub counts: BuildCounts,
    /// Link texts that were added to their target's document.
    pub anchors: u64,
    /// The first rejected records.
    pub rejects: Vec<RejectLine>,
    /// Documents by language.
    pub languages: BTreeMap<String, u64>,
    /// Seconds by stage.
    pub seconds: BTreeMap<Stage, f64>,
    /// Seconds of the whole build.
    pub total_seconds: f64,
    /// Bytes of spill files written.
    pub spilled_bytes: u64,
    /// Engine segments written before merging; more than one for each shard means that more memory would be faster.
    pub segments: usize,
    /// Unpublished versions of earlier builds that died: `cleaned` ones were removed, others belong to someone else.
    pub leftovers: Vec<Leftover>,
    /// Newer versions than the parent that could not be read; they are left as they are.
    pub passed_over: Vec<PassedOver>,
}

/// One shard of a report.
#[derive(Debug, Clone, Serialize)]
pub struct ShardReport {
    /// Which.
    pub shard: ShardId,
    /// Documents.
    pub documents: u64,
    /// Bytes.
    pub bytes: u64,
}

/// A version that was claimed and never published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Leftover {
    /// Its number.
    pub version: Version,
    /// Its files were removed. Otherwise its build is still running, or runs elsewhere.
    pub cleaned: bool,
}
