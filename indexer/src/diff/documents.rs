//! Reads the documents of two versions side by side, in the order of their keys: a build leaves them so, an absorb does not.

use std::{cmp::Reverse, collections::BinaryHeap, path::Path};

use canopy_common::ids::KeyHash;
use canopy_format::manifest::Manifest;
use serde::Serialize;
use tantivy::{
    SegmentReader, TantivyDocument,
    columnar::Column,
    schema::{Field, Value},
    store::StoreReader,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::{
    error::{Error, Result},
    index_schema::{IndexSchema, unshown},
    read_back,
};

/// Blocks of stored documents kept unpacked.
const CACHED_BLOCKS: usize = 8;
/// Keys named of each kind of change.
const SAMPLES: usize = 10;

/// Documents by what happened to them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DocumentChanges {
    /// Only in the second version.
    pub added: u64,
    /// Only in the first.
    pub removed: u64,
    /// In both, with other fields (what answers do not show only where both versions keep it).
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
    let whole = from.0.whole && to.0.whole;
    let (mut from, mut to) = (Documents::open(from.0, from.1, whole)?, Documents::open(to.0, to.1, whole)?);
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
    /// Hash of the fields.
    source: u128,
    segment: usize,
    document: u32,
}

/// The documents of a version by key hash.
struct Documents {
    schema: IndexSchema,
    segments: Vec<Segment>,
    /// Fields that are not shown count.
    whole: bool,
    heap: BinaryHeap<Reverse<(u128, usize)>>,
}

struct Segment {
    high: Column<u64>,
    low: Column<u64>,
    store: StoreReader,
    /// Documents by key, where they do not lie so.
    order: Option<Vec<u32>>,
    next: u32,
    documents: u32,
}

impl Segment {
    /// The next document.
    fn at(&self) -> Option<u32> {
        match &self.order {
            Some(order) => order.get(self.next as usize).copied(),
            None => (self.next < self.documents).then_some(self.next),
        }
    }
}

fn key(high: &Column<u64>, low: &Column<u64>, document: u32) -> Option<KeyHash> {
    Some(KeyHash::from_parts(high.first(document)?, low.first(document)?))
}

/// Documents by key; `None`: they lie so.
fn order(high: &Column<u64>, low: &Column<u64>, documents: u32) -> Option<Vec<u32>> {
    let of = |document: &u32| key(high, low, *document);
    if (0..documents).is_sorted_by_key(|document| of(&document)) {
        return None;
    }
    let mut order: Vec<u32> = (0..documents).collect();
    order.sort_by_cached_key(of);
    Some(order)
}

impl Documents {
    fn open(manifest: &Manifest, directory: &Path, whole: bool) -> Result<Self> {
        let mut segments = vec![];
        for entry in &manifest.shards {
            let name = entry.shard.to_string();
            let index = read_back::index(&directory.join(Manifest::shard_dir(&entry.shard)), &name)?;
            for segment in index.searchable_segments().map_err(Error::engine(&name))? {
                let reader = SegmentReader::open(&segment).map_err(Error::engine(&name))?;
                let column = |field| reader.fast_fields().u64(field).map_err(Error::engine(&name));
                let (high, low) = (column("_key_high")?, column("_key_low")?);
                segments.push(Segment {
                    order: order(&high, &low, reader.max_doc()),
                    high,
                    low,
                    store: reader.get_store_reader(CACHED_BLOCKS).map_err(Error::io(&name))?,
                    next: 0,
                    documents: reader.max_doc(),
                });
            }
        }
        let schema = IndexSchema::of(&manifest.schema, manifest.whole)?;
        let mut documents = Self { schema, segments, whole, heap: BinaryHeap::new() };
        for segment in 0..documents.segments.len() {
            documents.refill(segment);
        }
        Ok(documents)
    }

    fn refill(&mut self, number: usize) {
        let Some(segment) = self.segments.get(number) else { return };
        if let Some(key) = segment.at().and_then(|document| key(&segment.high, &segment.low, document)) {
            self.heap.push(Reverse((key.0, number)));
        }
    }

    fn next(&mut self) -> Result<Option<Entry>> {
        let Some(Reverse((key, number))) = self.heap.pop() else { return Ok(None) };
        let missing =
            || Error::Damaged { what: "a segment".to_owned(), reason: "a document is missing".to_owned() };
        let from = self.segments.get_mut(number).ok_or_else(missing)?;
        let document = from.at().ok_or_else(missing)?;
        from.next += 1;
        let stored: TantivyDocument = from.store.get(document).map_err(Error::engine("read document"))?;
        self.refill(number);
        let bytes = |field: Option<Field>| {
            field
                .and_then(|field| stored.get_first(field))
                .and_then(|value| value.as_bytes())
                .unwrap_or_default()
        };
        let mut hash = xxh3_128(bytes(Some(self.schema.source)));
        let rest = bytes(self.schema.rest.filter(|_| self.whole));
        let rest = if rest.is_empty() { vec![] } else { unshown(rest)? };
        if !rest.is_empty() {
            hash ^= xxh3_128(&rest).rotate_left(1);
        }
        Ok(Some(Entry { key: KeyHash(key), source: hash, segment: number, document }))
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
