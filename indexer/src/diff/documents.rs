//! Reads the documents of two versions side by side.

use std::{cmp::Reverse, collections::BinaryHeap, path::Path};

use canopy_common::ids::KeyHash;
use canopy_format::manifest::Manifest;
use serde::Serialize;
use tantivy::{SegmentReader, TantivyDocument, columnar::Column, schema::Value, store::StoreReader};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    error::{Error, Result},
    index_schema::IndexSchema,
    read_back,
};

/// Keys named of each kind of change.
const SAMPLES: usize = 10;

/// Documents by what happened to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DocumentChanges {
    /// Only in the second version.
    pub added: u64,
    /// Only in the first.
    pub removed: u64,
    /// In both, with another stored source.
    pub changed: u64,
    /// In both, the same.
    pub unchanged: u64,
    /// Keys of some added documents.
    pub added_keys: Vec<String>,
    /// Keys of some removed documents.
    pub removed_keys: Vec<String>,
    /// Keys of some changed documents.
    pub changed_keys: Vec<String>,
}

/// Compares all documents of two versions in local directories.
pub(super) fn compare(from: (&Manifest, &Path), to: (&Manifest, &Path)) -> Result<DocumentChanges> {
    let (mut from, mut to) = (Documents::open(from.0, from.1)?, Documents::open(to.0, to.1)?);
    let mut changes = DocumentChanges::default();
    let (mut a, mut b) = (from.next()?, to.next()?);
    loop {
        match (a.take(), b.take()) {
            (None, None) => return Ok(changes),
            (Some(old), new) if new.as_ref().is_none_or(|new| old.key < new.key) => {
                changes.removed += 1;
                sample(&mut changes.removed_keys, &from, &old)?;
                (a, b) = (from.next()?, new);
            }
            (old, Some(new)) if old.as_ref().is_none_or(|old| new.key < old.key) => {
                changes.added += 1;
                sample(&mut changes.added_keys, &to, &new)?;
                (a, b) = (old, to.next()?);
            }
            (old, new) => {
                if let (Some(old), Some(new)) = (old, new) {
                    if old.source == new.source {
                        changes.unchanged += 1;
                    } else {
                        changes.changed += 1;
                        sample(&mut changes.changed_keys, &to, &new)?;
                    }
                }
                (a, b) = (from.next()?, to.next()?);
            }
        }
    }
}

fn sample(keys: &mut Vec<String>, documents: &Documents, entry: &Entry) -> Result<()> {
    if keys.len() < SAMPLES {
        keys.push(documents.key(entry)?);
    }
    Ok(())
}

/// One document.
struct Entry {
    key: KeyHash,
    /// Hash of the stored source.
    source: u128,
    segment: usize,
    document: u32,
}

/// The documents of a version by key hash.
struct Documents {
    schema: IndexSchema,
    segments: Vec<Segment>,
    heap: BinaryHeap<Reverse<(u128, usize)>>,
}

struct Segment {
    high: Column<u64>,
    low: Column<u64>,
    store: StoreReader,
    next: u32,
    documents: u32,
}

impl Documents {
    fn open(manifest: &Manifest, directory: &Path) -> Result<Self> {
        let mut segments = vec![];
        for entry in &manifest.shards {
            let name = entry.shard.to_string();
            let index = read_back::index(&directory.join(Manifest::shard_dir(&entry.shard)), &name)?;
            for segment in index.searchable_segments().map_err(Error::engine(&name))? {
                let reader = SegmentReader::open(&segment).map_err(Error::engine(&name))?;
                let column = |field| reader.fast_fields().u64(field).map_err(Error::engine(&name));
                segments.push(Segment {
                    high: column("_key_high")?,
                    low: column("_key_low")?,
                    store: reader.get_store_reader(1).map_err(Error::io(&name))?,
                    next: 0,
                    documents: reader.max_doc(),
                });
            }
        }
        let schema = IndexSchema::of(&manifest.schema, manifest.whole)?;
        let mut documents = Self { schema, segments, heap: BinaryHeap::new() };
        for segment in 0..documents.segments.len() {
            documents.refill(segment);
        }
        Ok(documents)
    }

    fn refill(&mut self, number: usize) {
        let segment = &self.segments[number];
        let parts = segment.high.first(segment.next).zip(segment.low.first(segment.next));
        if let Some((high, low)) = parts.filter(|_| segment.next < segment.documents) {
            self.heap.push(Reverse((KeyHash::from_parts(high, low).0, number)));
        }
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        let Some(Reverse((key, segment))) = self.heap.pop() else { return Ok(None) };
        let from = &mut self.segments[segment];
        let document = from.next;
        // only the source is stored, so the stored bytes are compared without reading them apart
        let bytes = from.store.get_document_bytes(document).map_err(Error::engine("read document"))?;
        from.next += 1;
        self.refill(segment);
        Ok(Some(Entry { key: KeyHash(key), source: xxh3_128(&bytes), segment, document }))
    }

    fn key(&self, entry: &Entry) -> Result<String> {
        let stored = self.segments[entry.segment].store.get::<TantivyDocument>(entry.document);
        let stored = stored.map_err(Error::engine("read document"))?;
        let bytes =
            stored.get_first(self.schema.source).and_then(|value| value.as_bytes()).unwrap_or_default();
        let source: serde_json::Value = serde_json::from_slice(bytes).unwrap_or_default();
        let key = source.get(&self.schema.schema.key).and_then(serde_json::Value::as_str);
        Ok(key.map_or_else(|| format!("key hash {:?}", entry.key), str::to_owned))
    }
}
