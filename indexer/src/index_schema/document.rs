//! One document in the form that the engine's writer takes: tokens packed, values typed, source as bytes. Nothing is
//! copied again on the way into the index.

use std::collections::BTreeMap;

use canopy_common::ids::KeyHash;
use canopy_format::{
    analysis::{Analyzer, TokenRef},
    document::{Document, Value},
    schema::{Kind, SEARCH_FIELD},
};
use tantivy::schema::{
    Field,
    document::{Document as EngineDocument, ReferenceValue, ReferenceValueLeaf, Value as EngineValue},
};

use super::{
    IndexSchema, STATIC_RANK,
    spellings::Gathering,
    tokens::Packed,
    whole::{self, Writes},
};

/// Which write of a key a document is. All zero in a build without a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Place {
    /// What decides between two writes of a key.
    pub order: u64,
    /// Its place in its log partition.
    pub offset: u64,
}

/// What analysing a document gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenCounts {
    /// Tokens by text field of the index; the search field counts repetitions.
    pub tokens: BTreeMap<String, u64>,
    /// Words dropped for their length.
    pub long_tokens: u64,
}

/// A document for an `IndexWriter<IndexDocument>`.
#[derive(Debug)]
pub struct IndexDocument {
    /// Tokens of each text field.
    pub counts: TokenCounts,
    /// Words as written with their terms (spelling, 0x1F, term) that this thread has not met before in this shard, and
    /// perhaps some that it has; empty unless asked for.
    pub(crate) spellings: Vec<Vec<u8>>,
    /// Packed tokens, one string per value of a text field.
    parts: Vec<String>,
    fields: Vec<(Field, Content)>,
}

#[derive(Debug)]
enum Content {
    /// Index into `parts`: a part repeated for its weight is packed once.
    Part(usize),
    Bytes(Vec<u8>),
    Scalar(Scalar),
    Map(Vec<(String, Scalar)>),
}

#[derive(Debug)]
enum Scalar {
    Text(String),
    I64(i64),
    U64(u64),
    F64(f64),
    Bool(bool),
}

impl IndexSchema {
    /// Analyses a document and lays it out for the index.
    pub fn document(&self, document: &Document, analyzer: &Analyzer, place: Place) -> IndexDocument {
        self.document_of(document, analyzer, place, &Writes::default())
    }

    /// The same where writes of single fields are known.
    pub fn document_of(
        &self,
        document: &Document,
        analyzer: &Analyzer,
        place: Place,
        writes: &Writes,
    ) -> IndexDocument {
        self.lay_out(document, (document.key_hash(), place, writes), analyzer, None)
    }

    /// The same for a build, which knows the hash of the key already and gathers spellings for the shard of this
    /// number.
    pub(crate) fn document_of_build(
        &self,
        document: &Document,
        write: (KeyHash, Place, &Writes),
        analyzer: &Analyzer,
        shard: Gathering,
    ) -> IndexDocument {
        self.lay_out(document, write, analyzer, Some(shard))
    }

    fn lay_out(
        &self,
        document: &Document,
        (key, place, writes): (KeyHash, Place, &Writes),
        analyzer: &Analyzer,
        gathering: Option<Gathering>,
    ) -> IndexDocument {
        let (high, low) = key.parts();
        let (parts, fields, spellings) = (vec![], vec![], vec![]);
        let mut out = IndexDocument { counts: TokenCounts::default(), spellings, parts, fields };
        out.fields.extend([
            (self.key, Content::Bytes(key.0.to_be_bytes().to_vec())),
            (self.key_high, Content::Scalar(Scalar::U64(high))),
            (self.key_low, Content::Scalar(Scalar::U64(low))),
            (self.source, Content::Bytes(document.to_source(&self.schema))),
            (self.order, Content::Scalar(Scalar::U64(place.order))),
            (self.offset, Content::Scalar(Scalar::U64(place.offset))),
            (self.static_rank, Content::Scalar(Scalar::F64(document.static_rank))),
        ]);
        if let Some(field) = self.rest
            && let Some(rest) = whole::rest(self, document, writes)
        {
            out.fields.push((field, Content::Bytes(rest)));
        }
        self.add_text(document, analyzer, gathering, &mut out);
        self.add_values(document, &mut out);
        out
    }

    fn add_text(
        &self,
        document: &Document,
        analyzer: &Analyzer,
        gathering: Option<Gathering>,
        out: &mut IndexDocument,
    ) {
        for field in &self.schema.fields {
            let own = self.text.get(&field.name).copied();
            if field.kind != Kind::Text || (field.weight == 0 && own.is_none()) {
                continue;
            }
            for value in document.values.get(&field.name).into_iter().flatten() {
                let Value::Text(text) = value else { continue };
                let mut packed = Packed::default();
                let spellings = &mut out.spellings;
                let mut push = |token: TokenRef<'_>| {
                    packed.push(token.text, token.position);
                    if let Some(gathering) = gathering {
                        spellings.extend(gathering.unseen(token.spelling, token.text));
                    }
                };
                out.counts.long_tokens += analyzer.document_refs(text, &document.language, &mut push);
                let (packed, tokens) = packed.finish();
                let part = out.parts.len();
                out.parts.push(packed);
                if let Some(own) = own {
                    out.fields.push((own, Content::Part(part)));
                    out.counts.add(&field.name, tokens);
                }
                for _ in 0..field.weight {
                    out.fields.push((self.search, Content::Part(part)));
                }
                out.counts.add(SEARCH_FIELD, tokens * u64::from(field.weight));
            }
        }
    }

    fn add_values(&self, document: &Document, out: &mut IndexDocument) {
        for (name, values) in &document.values {
            let (map, attribute) = name.split_once('.').unwrap_or((name, ""));
            let Some((kind, field)) = self.values.get(map) else { continue };
            if map == STATIC_RANK {
                continue; // there already, from the document itself
            }
            if *kind == Kind::Map {
                let entries = values.iter().map(|value| (attribute.to_owned(), Scalar::from(value)));
                out.fields.push((*field, Content::Map(entries.collect())));
            } else {
                out.fields.extend(values.iter().map(|value| (*field, Content::Scalar(Scalar::from(value)))));
            }
        }
    }
}

impl TokenCounts {
    fn add(&mut self, field: &str, tokens: u64) {
        // A field without tokens has no entry, whether nobody has it or somebody has it empty.
        if tokens == 0 {
            return;
        }
        if let Some(count) = self.tokens.get_mut(field) {
            *count += tokens;
        } else {
            self.tokens.insert(field.to_owned(), tokens);
        }
    }

    /// Takes away counts that are in these.
    pub(crate) fn subtract(&mut self, other: &Self) {
        for (field, tokens) in &other.tokens {
            if let Some(count) = self.tokens.get_mut(field) {
                *count = count.saturating_sub(*tokens);
            }
        }
        self.tokens.retain(|_, tokens| *tokens > 0);
        self.long_tokens = self.long_tokens.saturating_sub(other.long_tokens);
    }

    /// Adds another document's counts.
    pub fn merge(&mut self, other: &Self) {
        other.tokens.iter().for_each(|(field, tokens)| self.add(field, *tokens));
        self.long_tokens += other.long_tokens;
    }
}

impl From<&Value> for Scalar {
    fn from(value: &Value) -> Self {
        match value {
            Value::Text(text) => Self::Text(text.clone()),
            Value::I64(number) | Value::Date(number) => Self::I64(*number),
            Value::U64(number) => Self::U64(*number),
            Value::F64(number) => Self::F64(*number),
            Value::Bool(yes) => Self::Bool(*yes),
        }
    }
}

/// A value as the engine sees it.
#[derive(Debug, Clone, Copy)]
pub struct ValueRef<'a>(Shape<'a>);

#[derive(Debug, Clone, Copy)]
enum Shape<'a> {
    Part(&'a str),
    Bytes(&'a [u8]),
    Scalar(&'a Scalar),
    Map(&'a [(String, Scalar)]),
}

impl<'a> EngineValue<'a> for ValueRef<'a> {
    type ArrayIter = std::iter::Empty<Self>;
    type ObjectIter = MapIter<'a>;

    fn as_value(&self) -> ReferenceValue<'a, Self> {
        ReferenceValue::Leaf(match self.0 {
            Shape::Part(text) => ReferenceValueLeaf::Str(text),
            Shape::Bytes(bytes) => ReferenceValueLeaf::Bytes(bytes),
            Shape::Scalar(Scalar::Text(text)) => ReferenceValueLeaf::Str(text),
            Shape::Scalar(Scalar::I64(number)) => ReferenceValueLeaf::I64(*number),
            Shape::Scalar(Scalar::U64(number)) => ReferenceValueLeaf::U64(*number),
            Shape::Scalar(Scalar::F64(number)) => ReferenceValueLeaf::F64(*number),
            Shape::Scalar(Scalar::Bool(yes)) => ReferenceValueLeaf::Bool(*yes),
            Shape::Map(entries) => return ReferenceValue::Object(MapIter(entries.iter())),
        })
    }
}

/// Attributes of a map value.
#[derive(Debug, Clone)]
pub struct MapIter<'a>(std::slice::Iter<'a, (String, Scalar)>);

impl<'a> Iterator for MapIter<'a> {
    type Item = (&'a str, ValueRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (name.as_str(), ValueRef(Shape::Scalar(value))))
    }
}

/// Fields and values of a document.
#[derive(Debug)]
pub struct FieldIter<'a> {
    parts: &'a [String],
    fields: std::slice::Iter<'a, (Field, Content)>,
}

impl<'a> Iterator for FieldIter<'a> {
    type Item = (Field, ValueRef<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (field, content) = self.fields.next()?;
        let shape = match content {
            Content::Part(part) => Shape::Part(&self.parts[*part]),
            Content::Bytes(bytes) => Shape::Bytes(bytes),
            Content::Scalar(scalar) => Shape::Scalar(scalar),
            Content::Map(entries) => Shape::Map(entries),
        };
        Some((*field, ValueRef(shape)))
    }
}

impl EngineDocument for IndexDocument {
    type Value<'a> = ValueRef<'a>;
    type FieldsValuesIter<'a> = FieldIter<'a>;

    fn iter_fields_and_values(&self) -> FieldIter<'_> {
        FieldIter { parts: &self.parts, fields: self.fields.iter() }
    }
}
