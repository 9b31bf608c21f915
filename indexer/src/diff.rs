//! What changed between two versions of a corpus: schema, layout, statistics, and, in a local store, which documents
//! were added, removed or changed.
//!
//! Documents lie in the order of their key hash within a shard, so both versions are read once, side by side, whatever
//! their layouts; a document changed when its stored source did. Nothing is held but one document of each shard.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::{ShardId, Version};
use canopy_format::{
    manifest::Manifest,
    schema::{Field, Schema},
    store::VersionStore,
};
use serde::Serialize;

use crate::error::{Error, Result};

mod display;
mod documents;

pub use documents::DocumentChanges;

/// A number before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Change {
    /// In the first version.
    pub from: u64,
    /// In the second.
    pub to: u64,
}

/// What changed.
#[derive(Debug, Clone, Serialize)]
pub struct DiffReport {
    /// The corpus.
    pub corpus: String,
    /// The first version.
    pub from: Version,
    /// The second.
    pub to: Version,
    /// Documents.
    pub documents: Change,
    /// Bytes.
    pub bytes: Change,
    /// Distinct terms.
    pub terms: Change,
    /// Tokens by text field.
    pub tokens: BTreeMap<String, Change>,
    /// Documents by language, where the number changed.
    pub languages: BTreeMap<String, Change>,
    /// Fields only in the second version.
    pub fields_added: Vec<String>,
    /// Fields only in the first.
    pub fields_removed: Vec<String>,
    /// Fields that differ.
    pub fields_changed: Vec<String>,
    /// The analysis rules differ.
    pub analysis_changed: bool,
    /// Slots that another shard holds.
    pub slots_moved: usize,
    /// Documents of each shard, where the number changed.
    pub shards: BTreeMap<ShardId, Change>,
    /// The documents, when both versions could be read.
    pub changes: Option<DocumentChanges>,
}

/// Compares two versions. In a local store all documents of both are read, which takes as long as reading their stored
/// sources from disk; elsewhere the documents are not compared one by one.
pub async fn versions(store: &VersionStore, corpus: &str, from: Version, to: Version) -> Result<DiffReport> {
    let (from, to) = (store.manifest(corpus, from).await?, store.manifest(corpus, to).await?);
    let mut report = compare(&from, &to);
    let directory = |manifest: &Manifest| store.version_dir(corpus, manifest.version);
    if let (Some(a), Some(b)) = (directory(&from), directory(&to)) {
        let read = move || documents::compare((&from, &a), (&to, &b));
        report.changes = Some(tokio::task::spawn_blocking(read).await.map_err(|_| Error::Panicked)??);
    }
    Ok(report)
}

fn compare(from: &Manifest, to: &Manifest) -> DiffReport {
    let shards = |manifest: &Manifest| -> BTreeMap<ShardId, u64> {
        manifest.shards.iter().map(|entry| (entry.shard.clone(), entry.documents)).collect()
    };
    let bytes = |manifest: &Manifest| manifest.files().map(|file| file.bytes).sum();
    let (fields_added, fields_removed, fields_changed) = fields(&from.schema, &to.schema);
    DiffReport {
        corpus: to.corpus.clone(),
        from: from.version,
        to: to.version,
        documents: Change { from: from.documents(), to: to.documents() },
        bytes: Change { from: bytes(from), to: bytes(to) },
        terms: Change { from: from.statistics.terms, to: to.statistics.terms },
        tokens: changes(&from.statistics.tokens, &to.statistics.tokens),
        languages: changes(&from.languages, &to.languages),
        fields_added,
        fields_removed,
        fields_changed,
        analysis_changed: from.analysis_id != to.analysis_id,
        slots_moved: slots_moved(from, to),
        shards: changes(&shards(from), &shards(to)),
        changes: None,
    }
}

/// Entries whose number differs; a missing one counts as 0.
fn changes<K: Ord + Clone>(from: &BTreeMap<K, u64>, to: &BTreeMap<K, u64>) -> BTreeMap<K, Change> {
    let keys: BTreeSet<&K> = from.keys().chain(to.keys()).collect();
    let number = |map: &BTreeMap<K, u64>, key| map.get(key).copied().unwrap_or(0);
    keys.into_iter()
        .map(|key| (key.clone(), Change { from: number(from, key), to: number(to, key) }))
        .filter(|(_, change)| change.from != change.to)
        .collect()
}

fn fields(from: &Schema, to: &Schema) -> (Vec<String>, Vec<String>, Vec<String>) {
    let by_name = |schema: &Schema| -> BTreeMap<String, Field> {
        schema.fields.iter().map(|field| (field.name.clone(), field.clone())).collect()
    };
    let (from, to) = (by_name(from), by_name(to));
    let only = |a: &BTreeMap<String, Field>, b: &BTreeMap<String, Field>| {
        a.keys().filter(|name| !b.contains_key(*name)).cloned().collect()
    };
    let differs = |(name, field): &(&String, &Field)| from.get(*name).is_some_and(|before| before != *field);
    let changed = to.iter().filter(differs).map(|(name, _)| name.clone()).collect();
    (only(&to, &from), only(&from, &to), changed)
}

fn slots_moved(from: &Manifest, to: &Manifest) -> usize {
    let moved = |layout: &canopy_format::layout::Layout| {
        let before = from.layouts.iter().find(|before| before.group == layout.group);
        before.map_or(layout.table.len(), |before| {
            before.table.iter().zip(&layout.table).filter(|(before, after)| before != after).count()
        })
    };
    to.layouts.iter().map(moved).sum()
}
