//! Checks records against the schema, on as many threads as there are, and hands the documents to the partition. What
//! is not a document is counted and goes to the reject file.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
};

use canopy_common::ids::KeyHash;
use canopy_format::{
    document::{Document, MAX_KEY_BYTES, Reject},
    layout::{Layout, slot},
    schema::{Kind, Schema},
    store::Ordering as WriteOrder,
};
use crossbeam_channel::Receiver;
use serde_json::{Map, Value as Json};

use super::{
    partition::Partition,
    read::Batch,
    reject::{RejectLine, Rejects},
    row::{ANCHOR, Codec, Row, Written},
    sort::ANCHORS,
    stop::Stop,
};
use crate::{error::Result, source::Link};

/// Says which write of its producer a record is.
const ORDER: &str = "_order";
/// Longest text of a link, bytes; the rest is cut off.
const MAX_LINK_TEXT: usize = 256;

/// What validators share.
pub(crate) struct Validator<'a> {
    schema: &'a Schema,
    layout: &'a Layout,
    codec: &'a Codec,
    /// Records may say which write they are.
    ordering: WriteOrder,
    /// Hash of a key; tests set one that collides.
    key_hash: fn(&str) -> KeyHash,
    /// The schema takes the texts of links.
    takes_links: bool,
    partition: &'a Partition,
    rejects: &'a Rejects,
    stop: &'a Stop<'a>,
    counts: Counts,
}

/// What was seen.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) read: AtomicU64,
    pub(crate) rejected: AtomicU64,
    /// Files that could not be read to their end.
    pub(crate) damaged: AtomicU64,
    pub(crate) dropped_fields: AtomicU64,
}

impl<'a> Validator<'a> {
    pub(crate) fn new(
        (schema, ordering): (&'a Schema, WriteOrder),
        layout: &'a Layout,
        codec: &'a Codec,
        key_hash: fn(&str) -> KeyHash,
        (partition, rejects): (&'a Partition, &'a Rejects),
        stop: &'a Stop<'a>,
    ) -> Self {
        let takes_links = schema
            .fields
            .iter()
            .any(|field| field.name == ANCHORS && field.kind == Kind::Text && field.multi);
        let counts = Counts::default();
        Self { schema, layout, codec, ordering, key_hash, takes_links, partition, rejects, stop, counts }
    }

    /// One validator thread: takes batches until the readers are done.
    pub(crate) fn run(&self, batches: &Receiver<Batch>) -> Result<()> {
        for batch in batches {
            self.stop.check()?;
            self.validate(batch)?;
        }
        Ok(())
    }

    /// What was seen by all threads.
    pub(crate) fn counts(&self) -> &Counts {
        &self.counts
    }

    fn validate(&self, batch: Batch) -> Result<()> {
        let mut rows: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
        let mut lines = vec![];
        self.counts.read.fetch_add(batch.records.len() as u64, Ordering::Relaxed);
        for (place, record) in (batch.first..).zip(batch.records) {
            let line = |Reject { field, reason }, kept| RejectLine {
                file: record.location.file.to_string(),
                line: record.location.number,
                field,
                reason,
                kept,
            };
            self.counts.damaged.fetch_add(u64::from(record.last_of_damaged), Ordering::Relaxed);
            match record.content.and_then(|object| self.document(object)) {
                Ok((mut document, written)) => {
                    let dropped = std::mem::take(&mut document.dropped);
                    self.counts.dropped_fields.fetch_add(dropped.len() as u64, Ordering::Relaxed);
                    lines.extend(
                        dropped.into_iter().map(|(field, reason)| line(Reject { field, reason }, true)),
                    );
                    self.add(&mut rows, &document.key, place, self.codec.pack(&document, &written));
                    if self.takes_links {
                        self.add_links(&mut rows, &document.key, place, &record.links);
                    }
                }
                Err(reject) => {
                    self.counts.rejected.fetch_add(1, Ordering::Relaxed);
                    lines.push(line(reject, false));
                }
            }
        }
        self.rejects.add(batch.number, lines)?;
        rows.into_iter().try_for_each(|(shard, rows)| self.partition.add(shard, rows))
    }

    fn document(&self, mut object: Map<String, Json>) -> std::result::Result<(Document, Written), Reject> {
        let mut written = Written::default();
        if let Some(order) = object.remove(ORDER) {
            written.order =
                self.order(&order).map_err(|reason| Reject { field: ORDER.to_owned(), reason })?;
        }
        Ok((Document::from_json(self.schema, object)?, written))
    }

    fn order(&self, order: &Json) -> std::result::Result<u64, String> {
        if self.ordering == WriteOrder::Log {
            return Err("this corpus is ordered by the log, which would ignore it; leave it out".to_owned());
        }
        let number = match order {
            Json::String(text) => text.parse().ok(),
            other => other.as_u64(),
        };
        number.ok_or_else(|| "expected a whole number of 64 bits, not negative".to_owned())
    }

    fn add(&self, rows: &mut BTreeMap<u32, Vec<Row>>, key: &str, order: u64, bytes: Box<[u8]>) {
        let shard = u32::from(self.layout.table[usize::from(slot(key))]);
        let row = Row { hash: (self.key_hash)(key).0, order, bytes };
        rows.entry(shard).or_default().push(row);
    }

    fn add_links(&self, rows: &mut BTreeMap<u32, Vec<Row>>, page: &str, place: u64, links: &[Link]) {
        for Link { url: target, text } in links {
            let text = text.trim();
            if text.is_empty() || target == page || target.len() > MAX_KEY_BYTES {
                continue;
            }
            let text = &text[..text.floor_char_boundary(MAX_LINK_TEXT)];
            self.add(rows, target, place | ANCHOR, text.as_bytes().into());
        }
    }
}
