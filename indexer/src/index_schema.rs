//! The mapping from a corpus' schema to the engine's index of a shard: one place, used by the build, by the leaf that
//! opens the shard and by the leaf's overlay, so that all three agree on every field.
//!
//! | engine field | type | what |
//! |---|---|---|
//! | `_key` | bytes, indexed | 16 bytes, big-endian [`KeyHash`]; finds the document of a key ([`IndexSchema::key_term`]) |
//! | `_key_high`, `_key_low` | u64, fast | the two halves of the same hash, for merging |
//! | `_source` | bytes, stored | the shown fields as compact JSON (document store: zstd) |
//! | `_rest` | bytes, stored | in whole versions ([`IndexSchema::of`]): the other fields, and writes of fields (`whole.rs`) |
//! | `_order`, `_offset` | u64, fast | which write this document is; 0 in a build |
//! | `text` | text | the one search field: tokens of every text field with weight w, w times, in schema order |
//! | a text field with `query` | text | its own tokens, under its own name |
//! | keyword | string, raw, indexed (basic) + fast | the exact value |
//! | i64, u64, f64, bool | indexed + fast | the value |
//! | date | **i64** microseconds since 1970 UTC, indexed + fast | the engine's date type wraps outside 1678..2262 |
//! | map | engine JSON field, raw, fast, dots expanded | `attributes.color`; term: [`IndexSchema::map_term`] |
//! | `static_rank` | f64, fast (indexed too when the schema has it) | always present, 0 when the source has none |
//!
//! A value that is not set has no value in the engine. Text has frequencies, positions and field norms.
//!
//! **How text gets in.** The engine never splits text: [`tokens`] packs the analyser's tokens into one string and the
//! tokenizer registered as `canopy` only unpacks them. This replaces the engine's own pre-tokenised string, which it
//! copies twice and writes as JSON for every document. So an index that documents are *added* to must know that
//! tokenizer: take [`IndexSchema::tokenizers`] (or create the index with [`IndexSchema::builder`]). Reading and merging
//! need no tokenizer at all.
//!
//! **How to use it.**
//! ```text
//! let index_schema = IndexSchema::of(&manifest.schema, manifest.whole)?; // once per version
//! let document = index_schema.document(&document, &analyzer, Place::default());
//! let mut writer = index_schema.builder().single_segment_index_writer::<IndexDocument>(directory, budget)?;
//! writer.add_document(document)?;                                       // or IndexWriter<IndexDocument>
//! ```
//! [`IndexDocument`] implements the engine's `Document`, so it goes to a writer as it is; its `counts` say how many
//! tokens each text field got (averages are made of them). For tests, [`crate::build::shard`] makes a whole shard.
//!
//! **Positions.** Each part (one value of one field, once per repetition) starts [`tokens::PART_GAP`] after the end of
//! the part before, so no phrase joins two parts.

use std::collections::BTreeMap;

use canopy_common::ids::KeyHash;
use canopy_format::schema::{Kind, SEARCH_FIELD, Schema};
use tantivy::{
    IndexBuilder, IndexSettings, Term,
    schema::{
        BytesOptions, FAST, Field, INDEXED, IndexRecordOption, JsonObjectOptions, NumericOptions, STORED,
        Schema as EngineSchema, SchemaBuilder, TextFieldIndexing, TextOptions,
    },
    store::{Compressor, ZstdCompressor},
    tokenizer::{RAW_TOKENIZER_NAME, TokenizerManager},
};

use crate::error::{Error, Result};

pub mod document;
mod spellings;
pub mod tokens;
mod whole;

pub use document::{IndexDocument, Place, TokenCounts};
pub(crate) use spellings::Gathering;
pub use whole::Writes;
pub(crate) use whole::unshown;

/// Name of the fast field of the static rank, also when the schema does not have it.
pub const STATIC_RANK: &str = "static_rank";

/// Fields of a shard's index. Cheap to clone.
#[derive(Debug, Clone)]
pub struct IndexSchema {
    /// The corpus' schema.
    pub schema: std::sync::Arc<Schema>,
    /// The engine's schema.
    pub engine: EngineSchema,
    /// `_key`.
    pub key: Field,
    /// `_key_high`.
    pub key_high: Field,
    /// `_key_low`.
    pub key_low: Field,
    /// `_source`.
    pub source: Field,
    /// `_rest`, in versions that keep documents whole.
    pub rest: Option<Field>,
    /// `_order`.
    pub order: Field,
    /// `_offset`.
    pub offset: Field,
    /// `text`, the search field.
    pub search: Field,
    /// `static_rank`.
    pub static_rank: Field,
    /// Text fields with an index of their own (`query`), by name.
    pub text: BTreeMap<String, Field>,
    /// Keywords, numbers, booleans, dates and maps, by name (`static_rank` too when the schema has it).
    pub values: BTreeMap<String, (Kind, Field)>,
}

impl IndexSchema {
    /// Maps a schema for documents of which only the shown fields are kept: see [`IndexSchema::of`].
    pub fn new(schema: &Schema) -> Result<Self> {
        Self::of(schema, false)
    }

    /// Maps a schema; `whole`: documents are kept with every field (`Manifest::whole`). Errors: two fields of one name, or a
    /// name that the engine index uses itself.
    pub fn of(schema: &Schema, whole: bool) -> Result<Self> {
        check_names(schema)?;
        let mut builder = EngineSchema::builder();
        let key = builder.add_bytes_field("_key", BytesOptions::default().set_indexed());
        let key_high = builder.add_u64_field("_key_high", FAST);
        let key_low = builder.add_u64_field("_key_low", FAST);
        let source = builder.add_bytes_field("_source", STORED);
        let order = builder.add_u64_field("_order", FAST);
        let offset = builder.add_u64_field("_offset", FAST);
        let search = builder.add_text_field(SEARCH_FIELD, text_options());
        let in_schema = schema.fields.iter().any(|field| field.name == STATIC_RANK);
        let rank = if in_schema { number_options() } else { NumericOptions::default().set_fast() };
        let static_rank = builder.add_f64_field(STATIC_RANK, rank);
        let mut text = BTreeMap::new();
        let mut values = BTreeMap::new();
        for field in &schema.fields {
            match field.kind {
                Kind::Text if field.query => {
                    text.insert(field.name.clone(), builder.add_text_field(&field.name, text_options()));
                }
                Kind::Text => {}
                kind if field.name == STATIC_RANK => {
                    values.insert(field.name.clone(), (kind, static_rank));
                }
                kind => {
                    values.insert(field.name.clone(), (kind, add_value(&mut builder, &field.name, kind)));
                }
            }
        }
        let rest = whole.then(|| builder.add_bytes_field("_rest", STORED));
        let engine = builder.build();
        let schema = std::sync::Arc::new(schema.clone());
        Ok(Self {
            schema,
            engine,
            key,
            key_high,
            key_low,
            source,
            rest,
            order,
            offset,
            search,
            static_rank,
            text,
            values,
        })
    }

    /// The engine field of a text field: the search field under its name, or one with an index of its own.
    pub fn text_field(&self, name: &str) -> Option<Field> {
        if name == SEARCH_FIELD { Some(self.search) } else { self.text.get(name).copied() }
    }

    /// Every text field of the index by name, in byte order of the names (the order of the statistics).
    pub fn text_fields(&self) -> BTreeMap<&str, Field> {
        let own = self.text.iter().map(|(name, field)| (name.as_str(), *field));
        own.chain([(SEARCH_FIELD, self.search)]).collect()
    }

    /// The term that finds the document of a key.
    pub fn key_term(&self, key: KeyHash) -> Term {
        Term::from_field_bytes(self.key, &key.0.to_be_bytes())
    }

    /// A term of a map attribute, without its value: append the value with `append_type_and_str` or
    /// `append_type_and_fast_value` (whole numbers as i64 where they fit, the engine's own rule). `None` when `name`
    /// is not an attribute of a map field, such as `attributes.color`.
    pub fn map_term(&self, name: &str) -> Option<Term> {
        let (map, attribute) = name.split_once('.')?;
        let (Kind::Map, field) = *self.values.get(map)? else { return None };
        Some(Term::from_field_json_path(field, attribute, true))
    }

    /// Index settings of every shard.
    pub fn settings() -> IndexSettings {
        IndexSettings {
            docstore_compression: Compressor::Zstd(ZstdCompressor { compression_level: Some(3) }),
            docstore_compress_dedicated_thread: false,
            ..IndexSettings::default()
        }
    }

    /// Tokenizers of an index that documents are added to.
    pub fn tokenizers() -> TokenizerManager {
        let manager = TokenizerManager::default();
        manager.register(tokens::TOKENIZER, tokens::Unpack::default());
        manager
    }

    /// Builder of an index to add documents to.
    pub fn builder(&self) -> IndexBuilder {
        tantivy::Index::builder()
            .schema(self.engine.clone())
            .settings(Self::settings())
            .tokenizers(Self::tokenizers())
    }
}

fn check_names(schema: &Schema) -> Result<()> {
    let mut seen = std::collections::BTreeSet::from([SEARCH_FIELD]);
    for field in &schema.fields {
        let name = field.name.as_str();
        if name.starts_with('_') || !seen.insert(name) {
            let reason = format!("field {name:?} is there twice, or its name is reserved; rename it");
            return Err(Error::Invalid { field: "schema", reason });
        }
        if name == STATIC_RANK && field.kind != Kind::F64 {
            let reason = format!("{STATIC_RANK} must have kind \"f64\"; change the kind or rename the field");
            return Err(Error::Invalid { field: "schema", reason });
        }
    }
    Ok(())
}

fn text_options() -> TextOptions {
    let indexing = TextFieldIndexing::default()
        .set_tokenizer(tokens::TOKENIZER)
        .set_index_option(IndexRecordOption::WithFreqsAndPositions)
        .set_fieldnorms(true);
    TextOptions::default().set_indexing_options(indexing)
}

fn raw() -> TextFieldIndexing {
    TextFieldIndexing::default()
        .set_tokenizer(RAW_TOKENIZER_NAME)
        .set_index_option(IndexRecordOption::Basic)
        .set_fieldnorms(false)
}

fn number_options() -> NumericOptions {
    NumericOptions::from(INDEXED | FAST)
}

fn add_value(builder: &mut SchemaBuilder, name: &str, kind: Kind) -> Field {
    match kind {
        Kind::Keyword | Kind::Text => {
            let options = TextOptions::default().set_indexing_options(raw()).set_fast(RAW_TOKENIZER_NAME);
            builder.add_text_field(name, options)
        }
        Kind::I64 | Kind::Date => builder.add_i64_field(name, number_options()),
        Kind::U64 => builder.add_u64_field(name, number_options()),
        Kind::F64 => builder.add_f64_field(name, number_options()),
        Kind::Bool => builder.add_bool_field(name, number_options()),
        Kind::Map => {
            let options = JsonObjectOptions::default()
                .set_indexing_options(raw())
                .set_fast(RAW_TOKENIZER_NAME)
                .set_expand_dots_enabled();
            builder.add_json_field(name, options)
        }
    }
}

#[cfg(test)]
mod tests;
