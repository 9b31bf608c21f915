//! Whether the parts of a manifest agree. Sums are checked for overflow, since every number comes from a file.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::{ShardId, valid_name};

use super::{FileEntry, Manifest, ShardEntry, valid_path};
use crate::{
    schema::{Kind, SEARCH_FIELD},
    store::MAX_PARTITIONS,
};

type Check = Result<(), String>;

/// Everything, cheapest first.
pub(super) fn manifest(manifest: &Manifest) -> Check {
    names(manifest)?;
    layouts(manifest)?;
    file(&manifest.statistics.file)?;
    for shard in &manifest.shards {
        entry(shard).map_err(|problem| format!("shard {}: {problem}", shard.shard))?;
    }
    counts(manifest)
}

fn names(manifest: &Manifest) -> Check {
    let Manifest { corpus, version, parent, schema, schema_id, analysis_id, statistics, log, .. } = manifest;
    ensure(valid_name(corpus), || format!("corpus name {corpus:?} is not valid"))?;
    ensure(version.0 > 0, || "version 0 does not exist".into())?;
    ensure(parent.is_none_or(|parent| parent.0 > 0 && parent < *version), || {
        "its parent is not an earlier version".into()
    })?;
    schema.check().map_err(|error| error.to_string())?;
    let expected = schema.id_under(analysis_id);
    ensure(*schema_id == expected, || format!("schema id is {schema_id:?}, its schema gives {expected:?}"))?;
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
    ensure(log.len() <= 64 && log.bytes().all(letter), || format!("log {log:?} is no epoch of a log"))?;
    ensure(manifest.cut.keys().all(|partition| *partition < MAX_PARTITIONS), || {
        format!("its cut names a partition of {MAX_PARTITIONS} or above")
    })?;
    ensure(!statistics.id.is_empty(), || "the statistics have no id".into())?;
    ensure(statistics.spellings.is_some() == (manifest.format > 1), || {
        "only statistics from format 2 on have spellings".into()
    })?;
    ensure(!manifest.whole || manifest.format > 2, || {
        "only versions from format 3 on keep documents whole".into()
    })
}

/// The layouts are whole, and the shards are exactly theirs, in order.
fn layouts(manifest: &Manifest) -> Check {
    ensure(!manifest.layouts.is_empty(), || "it has no layout".into())?;
    let mut expected = BTreeSet::new();
    for layout in &manifest.layouts {
        layout.check().map_err(|error| error.to_string())?;
        let shards = (0..layout.shards).map(|number| ShardId::new(&layout.group, number));
        let before = expected.len();
        expected.extend(shards);
        ensure(expected.len() == before + layout.shards as usize, || {
            format!("group {} has two layouts", layout.group)
        })?;
    }
    ensure(manifest.shards.iter().map(|entry| &entry.shard).eq(&expected), || {
        "its shards are not those of its layouts, by group and number".into()
    })
}

fn entry(entry: &ShardEntry) -> Check {
    let directory = format!("{}/", Manifest::shard_dir(&entry.shard));
    ensure(!entry.files.is_empty(), || "no files".into())?;
    for one in &entry.files {
        file(one)?;
        ensure(one.path.starts_with(&directory), || format!("{} is not below {directory}", one.path))?;
    }
    ensure(entry.files.is_sorted_by(|a, b| a.path < b.path), || {
        "its files are not sorted, or one is there twice".into()
    })?;
    let bytes = sum(entry.files.iter().map(|file| file.bytes))?;
    ensure(entry.bytes == bytes, || format!("{} bytes, its files have {bytes}", entry.bytes))
}

fn file(file: &FileEntry) -> Check {
    ensure(valid_path(&file.path), || format!("path {:?} is not a plain relative path", file.path))?;
    let hex = file.blake3.len() == 64
        && file.blake3.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    ensure(hex, || format!("{}: BLAKE3 must be 64 lower-case hex digits", file.path))
}

fn counts(manifest: &Manifest) -> Check {
    let documents = manifest.statistics.documents;
    let held = sum(manifest.shards.iter().map(|shard| shard.documents))?;
    ensure(held == documents, || format!("its shards hold {held} documents, its statistics {documents}"))?;
    let spoken = sum(manifest.languages.values().copied())?;
    ensure(spoken == documents, || format!("its languages add up to {spoken} of {documents} documents"))?;
    let mut tokens: BTreeMap<&str, u64> = BTreeMap::new();
    for (field, count) in manifest.shards.iter().flat_map(|shard| &shard.tokens) {
        let total = tokens.entry(field).or_default();
        *total = sum([*total, *count])?;
    }
    for (field, count) in &manifest.statistics.tokens {
        let known = field == SEARCH_FIELD
            || manifest.schema.field(field).is_some_and(|known| known.kind == Kind::Text);
        ensure(known, || format!("its statistics count tokens of {field:?}, which is no text field"))?;
        let held = tokens.remove(field.as_str()).unwrap_or(0);
        ensure(held == *count, || {
            format!("its shards hold {held} tokens of {field}, its statistics {count}")
        })?;
    }
    ensure(tokens.values().all(|count| *count == 0), || {
        format!("its statistics lack the tokens of {:?}", tokens.keys().collect::<Vec<_>>())
    })
}

fn sum(numbers: impl IntoIterator<Item = u64>) -> Result<u64, String> {
    numbers
        .into_iter()
        .try_fold(0_u64, u64::checked_add)
        .ok_or_else(|| "its counts add up to more than a number can hold".into())
}

fn ensure(good: bool, problem: impl FnOnce() -> String) -> Check {
    if good { Ok(()) } else { Err(problem()) }
}
