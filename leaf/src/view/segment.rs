//! One segment of a base or of an overlay: the engine's reader with everything opened that a search needs.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::{KeyHash, ShardId};
use canopy_format::schema::Kind;
use canopy_indexer::index_schema::{IndexSchema, STATIC_RANK};
use tantivy::{
    DocId, DocSet, InvertedIndexReader, SegmentReader, TERMINATED, Term,
    columnar::Column,
    fieldnorm::FieldNormReader,
    postings::TermInfo,
    schema::{Field, IndexRecordOption},
};

use super::column::FieldColumn;
use crate::error::{Error, Result};

/// A text field in a segment.
#[derive(Clone)]
pub struct TextField {
    /// Postings and terms.
    pub postings: Arc<InvertedIndexReader>,
    /// Lengths of the field, one byte a document.
    pub lengths: FieldNormReader,
    /// Tokens per document of this segment, which the engine's block maxima were computed with.
    pub average: f64,
}

/// One segment.
pub struct Segment {
    /// The engine's reader.
    pub reader: SegmentReader,
    /// Number of its first document among the base's; 0 in an overlay.
    pub start: u32,
    /// Static rank, when any document has one.
    pub static_rank: Option<Column<f64>>,
    /// No document has a higher static rank; 0 to 1.
    pub max_static_rank: f64,
    key_high: Column<u64>,
    key_low: Column<u64>,
    text: BTreeMap<Field, TextField>,
    columns: BTreeMap<String, Vec<FieldColumn>>,
}

impl Segment {
    /// Opens everything. Errors: a column that every segment has is missing.
    pub(crate) fn open(
        shard: &ShardId,
        reader: SegmentReader,
        schema: &IndexSchema,
        start: u32,
    ) -> Result<Self> {
        let step = "open fast fields";
        let fast = reader.fast_fields();
        let missing = |name: &str| Error::Damaged {
            shard: shard.clone(),
            reason: format!("there is no {name}; rebuild the version"),
        };
        let key = |name: &str| -> Result<Column<u64>> {
            let column = fast.column_opt::<u64>(name).map_err(Error::engine(step))?;
            column.filter(|column| column.num_docs() == reader.max_doc()).ok_or_else(|| missing(name))
        };
        let (key_high, key_low) = (key("_key_high")?, key("_key_low")?);
        let static_rank = fast.column_opt::<f64>(STATIC_RANK).map_err(Error::engine(step))?;
        let max_static_rank = static_rank.as_ref().map_or(0.0, |ranks| ranks.max_value().max(0.0).min(1.0));
        let mut text = BTreeMap::new();
        for field in schema.text_fields().into_values() {
            text.insert(field, open_text(&reader, field)?);
        }
        let mut columns = BTreeMap::new();
        let plain = schema.values.iter().filter(|(_, (kind, _))| *kind != Kind::Map);
        for name in plain.map(|(name, _)| name.as_str()).chain([STATIC_RANK]) {
            columns.insert(name.to_owned(), open_columns(&reader, name)?);
        }
        Ok(Self { reader, start, static_rank, max_static_rank, key_high, key_low, text, columns })
    }

    /// Documents, hidden ones too.
    pub fn documents(&self) -> u32 {
        self.reader.max_doc()
    }

    /// Key hash of a document of this segment.
    #[inline]
    pub fn key(&self, doc: DocId) -> KeyHash {
        let high = self.key_high.values.get_val(doc);
        KeyHash::from_parts(high, self.key_low.values.get_val(doc))
    }

    /// Key hashes of documents of this segment; faster than one by one, since their misses of the cache overlap.
    pub fn keys(&self, docs: &[DocId]) -> Vec<KeyHash> {
        let mut high = vec![0; docs.len()];
        let mut low = vec![0; docs.len()];
        self.key_high.values.get_vals(docs, &mut high);
        self.key_low.values.get_vals(docs, &mut low);
        high.into_iter().zip(low).map(|(high, low)| KeyHash::from_parts(high, low)).collect()
    }

    /// Static rank of a document, 0 to 1 whatever is stored; 0 when it has none.
    #[inline]
    pub fn rank(&self, doc: DocId) -> f64 {
        let rank = self.static_rank.as_ref().and_then(|ranks| ranks.first(doc)).unwrap_or(0.0);
        rank.max(0.0).min(1.0)
    }

    /// A text field. `None`: not a text field of the schema.
    pub fn text(&self, field: Field) -> Option<&TextField> {
        self.text.get(&field)
    }

    /// Postings and terms of any indexed field.
    pub fn postings(&self, field: Field) -> Result<Arc<InvertedIndexReader>> {
        match self.text.get(&field) {
            Some(text) => Ok(text.postings.clone()),
            None => self.reader.inverted_index(field).map_err(Error::engine("open postings")),
        }
    }

    /// Where the postings of a term are.
    pub fn term(&self, term: &Term) -> Result<Option<TermInfo>> {
        let step = "look up term";
        match self.text.get(&term.field()) {
            Some(text) => text.postings.get_term_info(term).map_err(Error::engine(step)),
            None => self.postings(term.field())?.get_term_info(term).map_err(Error::engine(step)),
        }
    }

    /// The columns of a field; those of a map attribute are opened anew. Empty: no document has a value.
    pub fn columns(&self, name: &str) -> Result<Vec<FieldColumn>> {
        match self.columns.get(name) {
            Some(columns) => Ok(columns.clone()),
            None => open_columns(&self.reader, name),
        }
    }

    /// The first document with a term that is wanted.
    pub(crate) fn posting(&self, term: &Term, wanted: impl Fn(DocId) -> bool) -> Result<Option<DocId>> {
        let step = "look up key";
        let postings = self.postings(term.field())?;
        let found = postings.read_postings(term, IndexRecordOption::Basic).map_err(Error::engine(step))?;
        let Some(mut found) = found else { return Ok(None) };
        while found.doc() != TERMINATED {
            if wanted(found.doc()) {
                return Ok(Some(found.doc()));
            }
            found.advance();
        }
        Ok(None)
    }
}

fn open_text(reader: &SegmentReader, field: Field) -> Result<TextField> {
    let postings = reader.inverted_index(field).map_err(Error::engine("open postings"))?;
    let lengths =
        reader.fieldnorms_readers().get_field(field).map_err(Error::engine("open field lengths"))?;
    // A segment in which no document has the field stores no lengths.
    let lengths = lengths.unwrap_or_else(|| FieldNormReader::constant(reader.max_doc(), 0));
    let average = postings.total_num_tokens() as f64 / f64::from(reader.max_doc().max(1));
    Ok(TextField { postings, lengths, average })
}

fn open_columns(reader: &SegmentReader, name: &str) -> Result<Vec<FieldColumn>> {
    let handles = reader.fast_fields().dynamic_column_handles(name);
    let handles = handles.map_err(Error::engine("open fast field"))?;
    let mut columns = Vec::with_capacity(handles.len());
    for handle in &handles {
        columns.extend(FieldColumn::open(handle)?);
    }
    Ok(columns)
}
