//! What an overlay lies on: the base of one shard of a version, and how its documents are found and read. Nothing here
//! changes while the overlay grows.
//!
//! Finding documents by key is most of what a put costs beside its analysis, so a batch asks for all of its keys at once,
//! in the order in which the base has them: neighbours share blocks of the dictionary.
//!
//! A document that is to be patched is read with every field that it has. A version that does not keep the fields it
//! does not show can't give these: a patch there is refused by the name of such a field, wherever the document is at the
//! moment, so that all replicas decide alike.

use std::collections::BTreeMap;

use canopy_common::ids::KeyHash;
use canopy_format::{
    analysis::Analyzer,
    document::{Document, Patch},
    graves::Graves,
    layout,
    store::Ordering,
};
use canopy_indexer::index_schema::Writes;
use canopy_log::Slots;
use serde_json::{Map, Value as Json};
use tantivy::{
    DocSet, SegmentReader, TERMINATED, TantivyDocument, Term,
    columnar::Column,
    schema::{Field, IndexRecordOption, document::Document as _, document::Value as _},
};

use super::state::{Fields, Known, Spot, Stamp};
use crate::{
    error::{Error, Result},
    view::{Segment, ShardView},
};

/// What an overlay lies on.
pub struct Ground {
    /// The base alone.
    pub view: ShardView,
    /// Which of two writes is newer.
    pub ordering: Ordering,
    /// Slots of the shard.
    pub slots: Slots,
    /// Deletes that the version remembers.
    graves: Graves,
    /// A field that this version does not keep, if any: nothing can be patched then.
    pub unkept: Option<String>,
    /// Makes tokens.
    pub analyzer: Analyzer,
    orders: Vec<Option<Column<u64>>>,
    /// The fields' numbers by name.
    numbers: BTreeMap<String, u16>,
}

impl Ground {
    /// The base of a shard.
    pub fn new(view: ShardView, ordering: Ordering, slots: Slots, graves: Graves) -> Result<Self> {
        let whole = view.base.schema.rest.is_some();
        let schema = view.base.schema.schema.clone();
        let fields = || schema.fields.iter().enumerate();
        let unkept = fields().find(|(_, field)| !field.show && !whole).map(|(_, field)| field.name.clone());
        let numbers = fields().map(|(at, field)| (field.name.clone(), at as u16)).collect();
        let mut orders = Vec::new();
        for segment in &view.base.segments {
            let column = segment.reader.fast_fields().column_opt::<u64>("_order");
            orders.push(column.map_err(Error::engine("open fast fields"))?);
        }
        Ok(Self { view, ordering, slots, graves, unkept, analyzer: Analyzer::new(), orders, numbers })
    }

    /// Whether the shard has the slot of a key.
    pub fn holds(&self, key: &str) -> bool {
        self.slots.contains(layout::slot(key))
    }

    /// Number of a field.
    pub fn number(&self, field: &str) -> Option<u16> {
        self.numbers.get(field).copied()
    }

    /// Name of a field.
    pub fn name(&self, number: u16) -> Option<&str> {
        let field = self.view.base.schema.schema.fields.get(usize::from(number));
        field.map(|field| field.name.as_str())
    }

    /// What the base knows of keys, which are sorted; those that it does not have are left out.
    pub fn find(&self, keys: &[KeyHash]) -> Result<BTreeMap<KeyHash, Known>> {
        let schema = &self.view.base.schema;
        let buried = keys.iter().filter_map(|key| Some((*key, Known::grave(self.graves.get(*key)?))));
        let mut found: BTreeMap<KeyHash, Known> = buried.collect();
        for (at, segment) in self.view.base.segments.iter().enumerate() {
            let postings = segment.postings(schema.key)?;
            for key in keys {
                let term: Term = schema.key_term(*key);
                let step = "look up key";
                let Some(info) = postings.get_term_info(&term).map_err(Error::engine(step))? else {
                    continue;
                };
                let option = IndexRecordOption::Basic;
                let docs =
                    postings.read_postings_from_terminfo(&info, option).map_err(Error::engine(step))?;
                let doc = docs.doc();
                if doc != TERMINATED {
                    found.insert(*key, self.known(at, segment, doc)?);
                }
            }
        }
        Ok(found)
    }

    fn known(&self, at: usize, segment: &Segment, doc: u32) -> Result<Known> {
        let spot = Spot::Base(segment.start + doc);
        if self.ordering == Ordering::Log {
            return Ok(Known::new(spot, Stamp::default(), Fields::new()));
        }
        let order = self.orders.get(at).and_then(Option::as_ref).and_then(|orders| orders.first(doc));
        let (mut fields, mut tie) = (Fields::new(), 0);
        if self.view.base.schema.rest.is_some() {
            let (_, writes) = self.stored(&segment.reader, doc)?;
            tie = writes.tie;
            let known = |(name, stamp): (String, Stamp)| Some((self.number(&name)?, stamp));
            fields.extend(writes.fields.into_iter().filter_map(known));
        }
        Ok(Known::new(spot, Stamp { order: order.unwrap_or(0), tie }, fields))
    }

    /// A document of the base with every field.
    pub fn base_document(&self, number: u32) -> Result<Document> {
        let segments = &self.view.base.segments;
        let of = |segment: &&Segment| segment.start <= number && number - segment.start < segment.documents();
        let segment = segments.iter().find(of).ok_or_else(|| self.damaged("it has no such document"))?;
        Ok(self.stored(&segment.reader, number - segment.start)?.0)
    }

    /// A document of a part with every field.
    pub fn part_document(&self, segment: &Segment, doc: u32) -> Result<Document> {
        Ok(self.stored(&segment.reader, doc)?.0)
    }

    fn stored(&self, reader: &SegmentReader, doc: u32) -> Result<(Document, Writes)> {
        let step = "read stored document";
        let store = reader.get_store_reader(1).map_err(Error::engine(step))?;
        let stored: TantivyDocument = store.get(doc).map_err(Error::engine(step))?;
        let schema = &self.view.base.schema;
        let bytes = |wanted: Option<Field>| {
            let mut values = stored.iter_fields_and_values().filter(|(field, _)| Some(*field) == wanted);
            values.next().and_then(|(_, value)| value.as_bytes().map(<[u8]>::to_vec)).unwrap_or_default()
        };
        Ok(schema.whole_document(&bytes(Some(schema.source)), &bytes(schema.rest))?)
    }

    fn damaged(&self, reason: &str) -> Error {
        Error::Damaged { shard: self.view.shard.clone(), reason: reason.to_owned() }
    }

    /// Puts these fields of an old document over a new one.
    pub fn keep(&self, document: &mut Document, old: &Document, fields: &Fields) {
        let schema = &self.view.base.schema.schema;
        let whole: Map<String, Json> = serde_json::from_slice(&old.to_whole(schema)).unwrap_or_default();
        let mut kept = Map::new();
        for name in fields.keys().filter_map(|number| self.name(*number)) {
            kept.insert(name.to_owned(), whole.get(name).cloned().unwrap_or(Json::Null));
        }
        let (patch, _) = Patch::from_whole(schema, kept);
        document.patch(schema, &patch, |_| true);
    }
}
