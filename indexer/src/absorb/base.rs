//! A shard of a version as an absorb reads it: documents by key, whole, with the writes that they are of.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use canopy_common::ids::KeyHash;
use canopy_format::{document::Document, graves::Graves};
use tantivy::{
    DocSet, InvertedIndexReader, Segment, SegmentMeta, SegmentReader, TERMINATED, TantivyDocument,
    columnar::Column,
    schema::{Field, IndexRecordOption, Value},
    store::StoreReader,
};

use super::damaged;
use crate::{
    build::row::Written,
    error::{Error, Result},
    index_schema::IndexSchema,
    read_back,
};

/// Blocks of stored documents that a segment keeps unpacked: keys come in the order in which documents mostly lie.
const CACHED_BLOCKS: usize = 4;

/// A document: number of its segment, then its own there.
pub(super) type At = (usize, u32);

/// A shard, opened.
pub(super) struct Shard {
    pub(super) schema: IndexSchema,
    pub(super) segments: Vec<OneSegment>,
    /// Deletes that it remembers.
    pub(super) graves: Graves,
    pub(super) directory: PathBuf,
    name: String,
}

/// A segment, opened.
pub(super) struct OneSegment {
    pub(super) segment: Segment,
    pub(super) meta: SegmentMeta,
    pub(super) reader: SegmentReader,
    keys: Arc<InvertedIndexReader>,
    store: StoreReader,
    orders: Column<u64>,
}

impl OneSegment {
    /// Documents.
    pub(super) fn documents(&self) -> u32 {
        self.reader.max_doc()
    }
}

impl Shard {
    /// Opens the shard in `directory`, called `name` in errors.
    pub(super) fn open(directory: &Path, schema: &IndexSchema, name: &str) -> Result<Self> {
        let index = read_back::index(directory, name)?;
        if index.schema() != schema.engine {
            return Err(damaged(name, "its fields are not those of the schema"));
        }
        let mut segments = vec![];
        for segment in index.searchable_segments().map_err(Error::engine(name))? {
            let reader = SegmentReader::open(&segment).map_err(Error::engine(name))?;
            segments.push(OneSegment {
                meta: segment.meta().clone(),
                segment,
                keys: reader.inverted_index(schema.key).map_err(Error::engine(name))?,
                store: reader.get_store_reader(CACHED_BLOCKS).map_err(Error::io(name))?,
                orders: reader.fast_fields().u64("_order").map_err(Error::engine(name))?,
                reader,
            });
        }
        let graves = Graves::open(directory)?;
        let directory = directory.to_owned();
        Ok(Self { schema: schema.clone(), segments, graves, directory, name: name.to_owned() })
    }

    /// Documents.
    pub(super) fn documents(&self) -> u64 {
        self.segments.iter().map(|segment| u64::from(segment.documents())).sum()
    }

    /// Every text field of every segment.
    pub(super) fn text(&self) -> impl Iterator<Item = (&OneSegment, Field)> {
        let fields: Vec<Field> = self.schema.text_fields().into_values().collect();
        self.segments.iter().flat_map(move |segment| {
            let fields = fields.clone();
            fields.into_iter().map(move |field| (segment, field))
        })
    }

    /// Where the document of a key is.
    pub(super) fn find(&self, key: KeyHash) -> Result<Option<At>> {
        let term = self.schema.key_term(key);
        for (number, segment) in self.segments.iter().enumerate() {
            let found = segment.keys.read_postings(&term, IndexRecordOption::Basic);
            if let Some(found) = found.map_err(Error::io(&self.name))?
                && found.doc() != TERMINATED
            {
                return Ok(Some((number, found.doc())));
            }
        }
        Ok(None)
    }

    /// A document with everything that it has, and which write it is.
    pub(super) fn whole(&self, at: At) -> Result<(Document, Written)> {
        let missing = || damaged(&self.name, "a document is not where its key leads");
        let segment = self.segments.get(at.0).ok_or_else(missing)?;
        let stored: TantivyDocument = segment.store.get(at.1).map_err(Error::engine(&self.name))?;
        let bytes = |field: Option<Field>| {
            let value = field.and_then(|field| stored.get_first(field));
            value.and_then(|value| value.as_bytes()).unwrap_or_default()
        };
        let (source, rest) = (bytes(Some(self.schema.source)), bytes(self.schema.rest));
        let (document, writes) = self.schema.whole_document(source, rest)?;
        let order = segment.orders.first(at.1).ok_or_else(missing)?;
        Ok((document, Written { order, writes }))
    }
}
