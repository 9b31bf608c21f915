//! Reading a record of the log, and the dead letter of one that makes no sense.

use bytes::Bytes;
use canopy_common::ids::KeyHash;
use canopy_format::{operation::Action, store::Ordering};
use canopy_proto::ingest::{DeadLetter, Op, Record};
use xxhash_rust::xxh3::xxh3_128;

use crate::overlay::{
    ground::Ground,
    state::{Kind, Stamp},
};

/// Bytes of a document that a dead letter keeps.
const LETTER_BYTES: usize = 4096;

/// A record as it came.
#[derive(Debug, Clone)]
pub struct Incoming {
    /// Partition.
    pub partition: u32,
    /// Offset.
    pub offset: u64,
    /// Encoded [`Record`].
    pub record: Bytes,
}

/// A record that makes sense.
pub(super) struct Understood {
    pub(super) key: KeyHash,
    pub(super) kind: Kind,
    pub(super) stamp: Stamp,
    pub(super) fields: Vec<u16>,
    pub(super) action: Action,
    pub(super) partition: u32,
    pub(super) offset: u64,
    /// The record.
    pub(super) record: Record,
}

/// Why a record was not applied.
pub(super) fn letter(partition: u32, offset: u64, record: &Record, reason: String) -> DeadLetter {
    let kept = record.document.len().min(LETTER_BYTES);
    DeadLetter {
        key: record.key.clone(),
        op: word(record.op()).to_owned(),
        reason,
        offset: format!("{partition}:{offset}"),
        document: record.document.slice(..kept),
        ..DeadLetter::default()
    }
}

pub(super) fn unread(incoming: &Incoming, reason: String) -> Box<DeadLetter> {
    Box::new(letter(incoming.partition, incoming.offset, &Record::default(), reason))
}

/// Reads a record; `None`: it is of another shard.
pub(super) fn understand(
    ground: &Ground,
    incoming: &Incoming,
) -> std::result::Result<Option<Understood>, Box<DeadLetter>> {
    let record =
        canopy_log::record::decode(&incoming.record).map_err(|error| unread(incoming, error.to_string()))?;
    if !ground.holds(&record.key) {
        return Ok(None);
    }
    let refused = |reason: String| Box::new(letter(incoming.partition, incoming.offset, &record, reason));
    let action = canopy_log::record::action(&record, &ground.view.base.schema.schema);
    let (action, _dropped) = action.map_err(|error| refused(error.to_string()))?;
    let (kind, fields) = match &action {
        Action::Put(_) => (Kind::Put, Vec::new()),
        Action::Delete => (Kind::Delete, Vec::new()),
        Action::Patch(patch) => {
            (Kind::Patch, patch.fields().filter_map(|name| ground.number(name)).collect())
        }
    };
    if kind == Kind::Patch && fields.is_empty() {
        return Err(refused("none of its fields is one of this version".to_owned()));
    }
    let stamp = match ground.ordering {
        Ordering::Log => Stamp::of_log(incoming.offset),
        Ordering::Producer => Stamp::of_producer(record.order, kind, xxh3_128(&record.document)),
    };
    let (partition, offset) = (incoming.partition, incoming.offset);
    let key = KeyHash::of(&record.key);
    Ok(Some(Understood { key, kind, stamp, fields, action, partition, offset, record }))
}

fn word(op: Op) -> &'static str {
    match op {
        Op::Put => "put",
        Op::Patch => "patch",
        Op::Delete => "delete",
        Op::Unspecified => "",
    }
}
