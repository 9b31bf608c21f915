//! Small shards with known tokens, for tests. The documents are written as given, without analysis, in as many segments
//! as asked, so that an oracle can be computed from the same rows.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::{
    ids::{KeyHash, ShardId, Version},
    rng::Dice,
};
use canopy_format::schema::{Field, Kind, Schema};
use canopy_indexer::index_schema::{IndexSchema, STATIC_RANK, tokens::Packed};
use tantivy::{
    IndexWriter, Searcher, TantivyDocument, directory::RamDirectory, indexer::NoMergePolicy,
    schema::OwnedValue,
};

use crate::view::{Base, ShardView};

pub mod overlay;

/// A document as it is written.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// Key.
    pub key: String,
    /// (token, position) of the text fields.
    pub text: BTreeMap<&'static str, Vec<(String, u32)>>,
    /// How often each token is in a text field.
    pub counts: BTreeMap<&'static str, BTreeMap<String, u32>>,
    /// Keywords.
    pub words: BTreeMap<&'static str, Vec<String>>,
    /// Whole numbers and dates.
    pub i64s: BTreeMap<&'static str, Vec<i64>>,
    /// Sizes.
    pub u64s: BTreeMap<&'static str, Vec<u64>>,
    /// Floats.
    pub f64s: BTreeMap<&'static str, Vec<f64>>,
    /// Flags.
    pub bools: BTreeMap<&'static str, Vec<bool>>,
    /// Attributes.
    pub attributes: Vec<(String, OwnedValue)>,
    /// Static rank.
    pub rank: f64,
}

impl Row {
    /// A document of words at consecutive positions.
    pub fn of(key: &str, field: &'static str, words: &str) -> Self {
        let tokens = words.split_whitespace().enumerate().map(|(at, word)| (word.to_owned(), at as u32));
        Self { key: key.into(), text: [(field, tokens.collect())].into(), ..Self::default() }.counted()
    }

    /// Counts the tokens.
    fn counted(mut self) -> Self {
        for (field, tokens) in &self.text {
            let counts = self.counts.entry(field).or_default();
            for (token, _) in tokens {
                *counts.entry(token.clone()).or_insert(0) += 1;
            }
        }
        self
    }

    /// Hash of the key.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.key)
    }
}

/// The schema of the test shards.
pub fn schema() -> Schema {
    let field = |name: &str, kind, query| Field {
        name: name.into(),
        kind,
        weight: u32::from(kind == Kind::Text),
        query,
        show: true,
        multi: true,
    };
    Schema {
        name: "test".into(),
        key: "url".into(),
        default_language: "en".into(),
        fields: vec![
            field("url", Kind::Keyword, false),
            field("title", Kind::Text, true),
            field("body", Kind::Text, false),
            field("host", Kind::Keyword, false),
            field("topic", Kind::Keyword, false),
            field("price", Kind::I64, false),
            field("size", Kind::U64, false),
            field("ratio", Kind::F64, false),
            field("flag", Kind::Bool, false),
            field("published", Kind::Date, false),
            field("attributes", Kind::Map, false),
        ],
    }
}

/// Writes the rows in `segments` segments (in the order given, split evenly).
pub fn shard(rows: &[Row], segments: usize) -> ShardView {
    let (searcher, fields) = searcher(rows, segments);
    let id = ShardId::new("main", 0);
    let base = Base::open(&id, searcher, fields).expect("base");
    ShardView::new(id, Version(1), Arc::new(base))
}

fn searcher(rows: &[Row], segments: usize) -> (Searcher, IndexSchema) {
    let fields = IndexSchema::new(&schema()).expect("schema");
    let index = fields.builder().create_in_dir_ram();
    let mut writer: IndexWriter = index.writer_with_num_threads(1, 64 << 20).expect("writer");
    writer.set_merge_policy(Box::new(NoMergePolicy));
    for chunk in rows.chunks(rows.len().div_ceil(segments).max(1)) {
        for row in chunk {
            writer.add_document(document(&fields, row)).expect("add");
        }
        writer.commit().expect("commit");
    }
    (index.reader().expect("reader").searcher(), fields)
}

/// Rows in the order of the base's documents (segments may stand in any order).
pub fn in_order(view: &ShardView, rows: &[Row]) -> Vec<Row> {
    let by_key: BTreeMap<KeyHash, &Row> = rows.iter().map(|row| (row.hash(), row)).collect();
    let segments = view.base.segments.iter();
    let keys = segments.flat_map(|segment| (0..segment.documents()).map(|doc| segment.key(doc)));
    keys.map(|key| by_key[&key].clone()).collect()
}

trait InMemory {
    fn create_in_dir_ram(self) -> tantivy::Index;
}
impl InMemory for tantivy::IndexBuilder {
    fn create_in_dir_ram(self) -> tantivy::Index {
        self.open_or_create(RamDirectory::create()).expect("index")
    }
}

fn document(fields: &IndexSchema, row: &Row) -> TantivyDocument {
    let mut document = TantivyDocument::new();
    let (high, low) = row.hash().parts();
    document.add_bytes(fields.key, &row.hash().0.to_be_bytes());
    document.add_u64(fields.key_high, high);
    document.add_u64(fields.key_low, low);
    document.add_bytes(fields.source, b"{}");
    document.add_f64(fields.static_rank, row.rank);
    for (name, tokens) in &row.text {
        let mut packed = Packed::default();
        for (token, position) in tokens {
            packed.push(token, *position);
        }
        document.add_text(fields.text_field(name).expect(name), packed.finish().0);
    }
    let field = |name: &str| fields.values[name].1;
    for (name, values) in &row.words {
        for value in values {
            document.add_text(field(name), value);
        }
    }
    for (name, values) in &row.i64s {
        for value in values {
            document.add_i64(field(name), *value);
        }
    }
    for (name, values) in &row.u64s {
        for value in values {
            document.add_u64(field(name), *value);
        }
    }
    for (name, values) in row.f64s.iter().filter(|(name, _)| **name != STATIC_RANK) {
        for value in values {
            document.add_f64(field(name), *value);
        }
    }
    for (name, values) in &row.bools {
        for value in values {
            document.add_bool(field(name), *value);
        }
    }
    if !row.attributes.is_empty() {
        document.add_object(field("attributes"), row.attributes.iter().cloned().collect());
    }
    document
}

/// Word number `n` of the vocabulary.
pub fn word(n: u64) -> String {
    format!("w{n}")
}

/// A word drawn with a long tail.
pub fn draw(dice: &Dice, vocabulary: u64) -> u64 {
    ((vocabulary as f64).powf(dice.unit()) as u64 - 1).min(vocabulary - 1)
}

/// Random documents: lengths from nothing to long, some of one word only, every type of field sometimes missing.
pub fn rows(dice: &Dice, count: usize, vocabulary: u64) -> Vec<Row> {
    (0..count).map(|n| row(dice, n, vocabulary)).collect()
}

fn row(dice: &Dice, n: usize, vocabulary: u64) -> Row {
    let mut row =
        Row { key: format!("https://{n}.example/"), rank: dice.below(100) as f64 / 100.0, ..Row::default() };
    let length = match dice.below(10) {
        0 => 0,
        1 => 200 + dice.below(200),
        2..5 => 5,
        _ => 5 + dice.below(60),
    };
    let one = (dice.below(12) == 0).then(|| draw(dice, vocabulary));
    let mut position = 100;
    let mut text = Vec::new();
    for _ in 0..length {
        text.push((word(one.unwrap_or_else(|| draw(dice, vocabulary))), position));
        position += 1 + u32::from(dice.below(9) == 0);
    }
    row.text.insert("text", text);
    let title = (0..dice.below(6)).map(|at| (word(draw(dice, vocabulary)), at as u32)).collect();
    row.text.insert("title", title);
    let some = |most: u64| 0..dice.below(most + 1);
    row.words.insert("host", some(1).map(|_| format!("h{}", dice.below(40))).collect());
    row.words.insert("topic", some(3).map(|_| format!("t{}", dice.below(7))).collect());
    row.i64s.insert("price", some(2).map(|_| dice.below(200) as i64 - 100).collect());
    row.u64s.insert("size", some(1).map(|_| u64::MAX - dice.below(50)).collect());
    row.f64s.insert("ratio", some(1).map(|_| (dice.below(40) as f64 - 20.0) / 4.0).collect());
    row.bools.insert("flag", some(1).map(|_| dice.below(2) == 0).collect());
    row.i64s.insert(
        "published",
        some(1).map(|_| (dice.below(400) as i64 - 200) * 1_000_000_000_000_000).collect(),
    );
    if dice.below(3) > 0 {
        let value = match dice.below(4) {
            0 => OwnedValue::I64(dice.below(5) as i64),
            1 => OwnedValue::Bool(dice.below(2) == 0),
            _ => OwnedValue::Str(["red", "blue", "3", "true"][dice.below(4) as usize].into()),
        };
        row.attributes.push(("color".into(), value));
    }
    row.counted()
}
