//! A small base in memory, records over it, and what is shown of both.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{ShardId, Version};
use canopy_format::{
    analysis::Analyzer, document::Document, graves::Graves, layout::slot, operation::Given, schema::Schema,
    store::Ordering,
};
use canopy_indexer::index_schema::{IndexDocument, IndexSchema, Place};
use canopy_log::Slots;
use prost::Message;
use serde_json::{Map, Value as Json, json};
use tantivy::{
    SegmentReader, TantivyDocument,
    directory::RamDirectory,
    schema::document::{Document as _, Value as _},
};

use crate::{
    overlay::{
        apply::{Applied, Incoming},
        config::OverlayConfig,
        ground::Ground,
        write::SMALL,
    },
    view::{Base, ShardView},
};

/// Partitions of the tests' logs.
pub const PARTITIONS: u32 = 2;

/// The partition of a key.
pub fn partition(key: &str) -> u32 {
    u32::from(slot(key)) % PARTITIONS
}

/// A document of the `web` schema.
pub fn document(fields: &Json) -> Document {
    Document::from_json(&Schema::web(), fields.as_object().unwrap().clone()).unwrap()
}

/// A base of documents with their orders.
pub fn ground(documents: &[(Json, u64)], ordering: Ordering, whole: bool) -> Arc<Ground> {
    ground_with(documents, ordering, whole, Graves::default())
}

/// The same, with deletes that its version remembers.
pub fn ground_with(
    documents: &[(Json, u64)],
    ordering: Ordering,
    whole: bool,
    graves: Graves,
) -> Arc<Ground> {
    let schema = IndexSchema::of(&Schema::web(), whole).unwrap();
    let files = RamDirectory::create();
    let writer = schema.builder().single_segment_index_writer::<IndexDocument>(files, 15 << 20);
    let mut writer = writer.unwrap();
    for (fields, order) in documents {
        let place = Place { order: *order, offset: 0 };
        writer.add_document(schema.document(&document(fields), &Analyzer::new(), place)).unwrap();
    }
    let searcher = writer.finalize().unwrap().reader().unwrap().searcher();
    let shard = ShardId::new("main", 0);
    let base = Base::open(&shard, searcher, schema).unwrap();
    let view = ShardView::new(shard, Version(1), Arc::new(base));
    Arc::new(Ground::new(view, ordering, Slots::all(), graves).unwrap())
}

/// An overlay with nothing in it.
pub fn empty(ground: &Arc<Ground>, config: &OverlayConfig) -> Applied {
    let cut = (0..PARTITIONS).map(|partition| (partition, 0)).collect();
    Applied::new(ground.clone(), config, cut)
}

/// A line of NDJSON as the record of a log.
pub fn record(line: &Json, ordering: Ordering) -> Vec<u8> {
    let given = Given::from_line(line.to_string().as_bytes()).unwrap();
    let operation = given.check(&Schema::web(), ordering).unwrap();
    canopy_log::record::encode(&operation, &Schema::web(), 1_000_000).encode_to_vec()
}

/// The lines at consecutive offsets of their partitions, from `next` on.
pub fn incoming(lines: &[Json], ordering: Ordering, next: &mut BTreeMap<u32, u64>) -> Vec<Incoming> {
    let each = lines.iter().map(|line| {
        let partition = partition(line["key"].as_str().unwrap());
        let at = next.entry(partition).or_default();
        *at += 1;
        Incoming { partition, offset: *at - 1, record: record(line, ordering).into() }
    });
    each.collect()
}

/// Applies lines and shows them; the reasons of dead letters.
pub fn write(applied: &mut Applied, lines: &[Json]) -> Vec<String> {
    let mut next = applied.offsets().clone();
    let records = incoming(lines, applied.ground.ordering, &mut next);
    let mut letters = Vec::new();
    applied.apply(&records, &next, SMALL, &mut letters).unwrap();
    applied.close().unwrap();
    letters.into_iter().map(|letter| format!("{}: {}", letter.key, letter.reason)).collect()
}

/// A put of a title.
pub fn put(key: &str, title: &str) -> Json {
    json!({ "op": "put", "key": key, "document": { "title": title, "lang": "en" } })
}

/// A delete.
pub fn delete(key: &str) -> Json {
    json!({ "op": "delete", "key": key })
}

/// A patch of a title.
pub fn patch(key: &str, title: &str) -> Json {
    json!({ "op": "patch", "key": key, "document": { "title": title } })
}

/// Every document that a search could find: key -> all that is stored of it. A key that is there twice fails.
pub fn shown(view: &ShardView) -> BTreeMap<String, Map<String, Json>> {
    let mut all = BTreeMap::new();
    let mut add = |reader: &SegmentReader, doc: u32| {
        let stored: TantivyDocument = reader.get_store_reader(1).unwrap().get(doc).unwrap();
        let schema = &view.base.schema;
        let bytes = |wanted| {
            let mut fields = stored.iter_fields_and_values().filter(move |(field, _)| Some(*field) == wanted);
            fields.next().map(|(_, value)| value.as_bytes().unwrap().to_vec()).unwrap_or_default()
        };
        let (document, _) = schema.whole_document(&bytes(Some(schema.source)), &bytes(schema.rest)).unwrap();
        let whole = serde_json::from_slice(&document.to_whole(&Schema::web())).unwrap();
        assert_eq!(all.insert(document.key.clone(), whole), None, "{} is there twice", document.key);
    };
    for segment in &view.base.segments {
        let docs = (0..segment.documents()).filter(|doc| !view.tombstones.contains(segment.start + doc));
        docs.for_each(|doc| add(&segment.reader, doc));
    }
    for part in &view.overlay.parts {
        let docs = (0..part.segment.documents()).filter(|doc| !part.hidden.contains(*doc));
        docs.for_each(|doc| add(&part.segment.reader, doc));
    }
    let overlay: u64 = view.overlay.parts.iter().map(crate::view::Part::live).sum();
    assert_eq!(view.overlay.documents, overlay);
    all
}

/// Titles by key.
pub fn titles(view: &ShardView) -> BTreeMap<String, String> {
    let title = |(key, fields): (String, Map<String, Json>)| {
        (key, fields.get("title").and_then(Json::as_str).unwrap_or_default().to_owned())
    };
    shown(view).into_iter().map(title).collect()
}

/// The same as literals.
pub fn expect(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(key, title)| ((*key).to_owned(), (*title).to_owned())).collect()
}

/// Base documents of a title.
pub fn base(pairs: &[(&str, &str)]) -> Vec<(Json, u64)> {
    let one = |(key, title): &(&str, &str)| (json!({ "url": key, "title": title, "lang": "en" }), 0);
    pairs.iter().map(one).collect()
}
