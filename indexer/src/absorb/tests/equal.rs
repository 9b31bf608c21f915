//! Whether two versions answer alike: documents, terms, frequencies, positions and lengths, of which scores are made.

use canopy_common::ids::KeyHash;
use tantivy::{
    DocSet, TERMINATED,
    postings::Postings,
    schema::{Field, FieldType, IndexRecordOption},
};

use super::*;
use crate::{absorb::base::Shard, index_schema::IndexSchema};

fn shards(place: &Place, manifest: &Manifest) -> Vec<Shard> {
    let schema = IndexSchema::of(&manifest.schema, manifest.whole).expect("schema");
    let open = |entry: &canopy_format::manifest::ShardEntry| {
        let directory = place.directory(manifest).join(Manifest::shard_dir(&entry.shard));
        Shard::open(&directory, &schema, "shard").expect("shard")
    };
    manifest.shards.iter().map(open).collect()
}

/// Every document as it reads back, by key.
pub(super) fn documents(shard: &Shard) -> BTreeMap<String, (Json, u64)> {
    let mut all = BTreeMap::new();
    for (number, segment) in shard.segments.iter().enumerate() {
        for document in 0..segment.documents() {
            let (document, written) = shard.whole((number, document)).expect("document");
            let whole = serde_json::from_slice(&document.to_whole(&shard.schema.schema)).expect("JSON");
            assert_eq!(shard.find(document.key_hash()).expect("find").map(|at| at.0), Some(number));
            assert!(all.insert(document.key, (whole, written.order)).is_none(), "a key is there twice");
        }
    }
    all
}

/// Every occurrence of every term of a field: term, key -> frequency, length, positions.
type Occurrences = BTreeMap<(Vec<u8>, KeyHash), (u32, u8, Vec<u32>)>;

fn occurrences(shard: &Shard, field: Field, text: bool) -> Occurrences {
    let mut all = BTreeMap::new();
    let option = if text { IndexRecordOption::WithFreqsAndPositions } else { IndexRecordOption::Basic };
    for segment in &shard.segments {
        let columns = segment.reader.fast_fields();
        let (high, low) =
            (columns.u64("_key_high").expect("column"), columns.u64("_key_low").expect("column"));
        let lengths = segment.reader.fieldnorms_readers();
        let lengths = text.then(|| lengths.get_field(field).expect("lengths").expect("lengths"));
        let index = segment.reader.inverted_index(field).expect("field");
        let mut terms = index.terms().stream().expect("terms");
        while let Some((term, info)) = terms.next() {
            let mut found = index.read_postings_from_terminfo(info, option).expect("postings");
            while found.doc() != TERMINATED {
                let document = found.doc();
                let key = KeyHash::from_parts(
                    high.first(document).expect("key"),
                    low.first(document).expect("key"),
                );
                let mut positions = vec![];
                if text {
                    found.positions(&mut positions);
                }
                let length = lengths.as_ref().map_or(0, |lengths| lengths.fieldnorm_id(document));
                let frequency = if text { found.term_freq() } else { 1 };
                all.insert((term.to_vec(), key), (frequency, length, positions));
                found.advance();
            }
        }
    }
    all
}

/// Asserts that two versions are alike.
pub(super) fn versions(made: (&Place, &Manifest), expected: (&Place, &Manifest), seed: u64) {
    let (left, right) = (made.1, expected.1);
    assert_eq!(left.languages, right.languages, "seed {seed}");
    assert_eq!(left.counts.long_tokens, right.counts.long_tokens, "seed {seed}");
    // The statistics' file is a function of its entries, so equal ids are equal entries.
    assert_eq!(left.statistics, right.statistics, "seed {seed}");
    assert_eq!(left.layouts[0].shards, right.layouts[0].shards);
    let (mut one, mut other) = (BTreeMap::new(), BTreeMap::new());
    let tokens = |manifest: &Manifest| manifest.shards.iter().map(|shard| shard.documents).sum::<u64>();
    assert_eq!(tokens(left), tokens(right));
    let (left_shards, right_shards) = (shards(made.0, left), shards(expected.0, right));
    one.extend(left_shards.iter().flat_map(documents));
    other.extend(right_shards.iter().flat_map(documents));
    assert_eq!(one, other, "seed {seed}");
    let engine = left_shards[0].schema.engine.clone();
    for (field, entry) in engine.fields().filter(|(_, entry)| entry.is_indexed()) {
        let text = matches!(entry.field_type(), FieldType::Str(_)) && entry.has_fieldnorms();
        let all = |shards: &[Shard]| -> Occurrences {
            shards.iter().flat_map(|shard| occurrences(shard, field, text)).collect()
        };
        assert_eq!(all(&left_shards), all(&right_shards), "seed {seed}, field {}", entry.name());
    }
}
