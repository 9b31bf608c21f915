//! What a version is, for people: its manifest in short, with the averages and the balance that one would otherwise
//! work out by hand.

use std::collections::BTreeMap;

use canopy_common::ids::{ShardId, Version};
use canopy_format::{
    manifest::{BuildCounts, Manifest},
    schema::Field,
    store::VersionStore,
};
use serde::Serialize;

use crate::error::Result;

/// A version in short.
#[derive(Debug, Clone, Serialize)]
pub struct Inspection {
    /// The corpus.
    pub corpus: String,
    /// The version.
    pub version: Version,
    /// The newest version before it.
    pub parent: Option<Version>,
    /// When it was built, RFC 3339.
    pub created: String,
    /// By what.
    pub builder: String,
    /// Manifest format.
    pub format: u32,
    /// Id of schema and analysis.
    pub schema_id: String,
    /// Analysis rules.
    pub analysis_id: String,
    /// Fields of the schema.
    pub fields: Vec<Field>,
    /// Documents.
    pub documents: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Estimate of memory that stays resident while serving, bytes.
    pub resident_bytes: u64,
    /// Distinct terms of all text fields.
    pub terms: u64,
    /// Average tokens of each text field.
    pub average_tokens: BTreeMap<String, f64>,
    /// Documents by language.
    pub languages: BTreeMap<String, u64>,
    /// What the build read.
    pub counts: BuildCounts,
    /// Log offsets inside the version.
    pub cut: BTreeMap<u32, u64>,
    /// Shards, by number.
    pub shards: Vec<ShardInspection>,
}

/// One shard in short.
#[derive(Debug, Clone, Serialize)]
pub struct ShardInspection {
    /// Which.
    pub shard: ShardId,
    /// Slots of the layout.
    pub slots: u32,
    /// Documents.
    pub documents: u64,
    /// Files.
    pub files: usize,
    /// Bytes.
    pub bytes: u64,
    /// Estimate of resident memory, bytes.
    pub resident_bytes: u64,
    /// Average tokens of the search field: a shard far from the others is searched without pruning.
    pub average_tokens: f64,
}

/// Inspects a version, the newest when none is named.
pub async fn inspect(store: &VersionStore, corpus: &str, version: Option<Version>) -> Result<Inspection> {
    let manifest = match version {
        Some(version) => store.manifest(corpus, version).await?,
        None => store.latest(corpus).await?,
    };
    Ok(Inspection::of(manifest))
}

impl Inspection {
    /// From a manifest.
    pub fn of(manifest: Manifest) -> Self {
        let documents = manifest.documents();
        let average = |(field, tokens): (&String, &u64)| (field.clone(), ratio(*tokens, documents));
        Self {
            documents,
            bytes: manifest.files().map(|file| file.bytes).sum(),
            resident_bytes: manifest.shards.iter().map(|shard| shard.resident_bytes).sum(),
            terms: manifest.statistics.terms,
            average_tokens: manifest.statistics.tokens.iter().map(average).collect(),
            shards: shards(&manifest),
            corpus: manifest.corpus,
            version: manifest.version,
            parent: manifest.parent,
            created: manifest.created,
            builder: manifest.builder,
            format: manifest.format,
            schema_id: manifest.schema_id,
            analysis_id: manifest.analysis_id,
            fields: manifest.schema.fields,
            languages: manifest.languages,
            counts: manifest.counts,
            cut: manifest.cut,
        }
    }
}

fn shards(manifest: &Manifest) -> Vec<ShardInspection> {
    let slots: BTreeMap<&str, Vec<u32>> =
        manifest.layouts.iter().map(|layout| (layout.group.as_str(), layout.slots())).collect();
    let one = |entry: &canopy_format::manifest::ShardEntry| ShardInspection {
        slots: slots
            .get(&*entry.shard.group)
            .and_then(|slots| slots.get(entry.shard.number as usize))
            .copied()
            .unwrap_or(0),
        shard: entry.shard.clone(),
        documents: entry.documents,
        files: entry.files.len(),
        bytes: entry.bytes,
        resident_bytes: entry.resident_bytes,
        average_tokens: ratio(
            entry.tokens.get(canopy_format::schema::SEARCH_FIELD).copied().unwrap_or(0),
            entry.documents,
        ),
    };
    manifest.shards.iter().map(one).collect()
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
