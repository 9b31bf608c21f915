//! What is to be done with each item of a batch: checked by the build's own code, then held against the others of the batch.
//!
//! The failure this prevents: of two items of one key the first silently counts. Rules: an item that another one replaces whole (a
//! later put or delete; with producers' orders, one of a newer order) is not written and says so; a patch replaces nothing
//! whole, so what it follows is written before it; a bad item replaces nothing.

use std::collections::BTreeMap;

use bytes::Bytes;
use canopy_common::ids::KeyHash;
use canopy_format::{
    document::Reject,
    layout::slot,
    newest::{Kind, Stamp},
    operation::{Action, Given},
    schema::Schema,
    store::Ordering,
};
use canopy_log::record;
use prost::Message;

/// An item as it came.
pub struct Came {
    /// What was read.
    pub given: Result<Given, Reject>,
    /// Key and operation as far as they are known, for the answer and the dead letter.
    pub key: String,
    /// See `key`.
    pub op: String,
    /// Its bytes, perhaps cut.
    pub raw: Bytes,
}

/// What it is checked by.
#[derive(Clone)]
pub struct Rules {
    /// The schema.
    pub schema: std::sync::Arc<Schema>,
    /// What decides between two writes.
    pub ordering: Ordering,
    /// Of the log.
    pub partitions: u32,
    /// Largest record, bytes.
    pub max_record: usize,
    /// Now.
    pub at_us: i64,
}

/// An item that can be written.
#[derive(Debug, Clone)]
pub struct Ready {
    /// Its key.
    pub key: String,
    /// Hash of the key.
    pub hash: KeyHash,
    /// Slot of the key.
    pub slot: u16,
    /// Where it belongs.
    pub partition: u32,
    /// What is done.
    pub kind: Kind,
    /// The producer's order, with what decides between equal ones.
    pub stamp: Stamp,
    /// For the log.
    pub record: Bytes,
}

/// Checks one item.
pub fn check(given: Given, rules: &Rules) -> Result<Ready, Reject> {
    let operation = given.check(&rules.schema, rules.ordering)?;
    let made = record::encode(&operation, &rules.schema, rules.at_us);
    let kind = match operation.action {
        Action::Put(_) => Kind::Put,
        Action::Patch(_) => Kind::Patch,
        Action::Delete => Kind::Delete,
    };
    let content = KeyHash::of(std::str::from_utf8(&made.document).unwrap_or_default());
    let record = Bytes::from(made.encode_to_vec());
    if record.len() > rules.max_record {
        let (size, most) = (record.len(), rules.max_record);
        let reason =
            format!("it needs {size} bytes in the log, at most {most} are sent to leaves (rpc.max_message)");
        return Err(Reject { field: "document".to_owned(), reason });
    }
    let slot = slot(&operation.key);
    Ok(Ready {
        hash: KeyHash::of(&operation.key),
        slot,
        partition: u32::from(slot) % rules.partitions.max(1),
        kind,
        stamp: Stamp::of_producer(operation.order, kind, content.0),
        key: operation.key,
        record,
    })
}

/// By which other item of the batch an item is replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replaced {
    /// Index of the other one.
    pub by: usize,
    /// It comes later in the batch.
    pub later: bool,
}

/// Which items are replaced by which; `None`: to be written.
pub fn replaced(items: &[Option<Ready>], ordering: Ordering) -> Vec<Option<Replaced>> {
    let mut winners: BTreeMap<KeyOf, (usize, Stamp)> = BTreeMap::new();
    for (at, item) in items.iter().enumerate() {
        let Some(item) = item.as_ref().filter(|item| item.kind != Kind::Patch) else { continue };
        let newer = match (ordering, winners.get(&key_of(item))) {
            (Ordering::Producer, Some((_, newest))) => item.stamp >= *newest,
            (Ordering::Log, _) | (_, None) => true,
        };
        if newer {
            winners.insert(key_of(item), (at, item.stamp));
        }
    }
    let fate = |(at, item): (usize, &Option<Ready>)| {
        let item = item.as_ref()?;
        let (by, newest) = winners.get(&key_of(item)).copied()?;
        let loses = match ordering {
            Ordering::Log => at < by,
            Ordering::Producer => at != by && item.stamp <= newest,
        };
        loses.then_some(Replaced { by, later: by > at })
    };
    items.iter().enumerate().map(fate).collect()
}

type KeyOf = u128;

fn key_of(item: &Ready) -> KeyOf {
    item.hash.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(lines: &[&str], ordering: Ordering) -> Vec<Option<Replaced>> {
        let rules = Rules {
            schema: std::sync::Arc::new(Schema::web()),
            ordering,
            partitions: 4,
            max_record: 1 << 20,
            at_us: 0,
        };
        let check = |line: &&str| check(Given::from_line(line.as_bytes()).ok()?, &rules).ok();
        let items: Vec<_> = lines.iter().map(check).collect();
        replaced(&items, ordering)
    }

    #[expect(clippy::unnecessary_wraps, reason = "as a plan has it")]
    fn by(by: usize, later: bool) -> Option<Replaced> {
        Some(Replaced { by, later })
    }

    #[test]
    fn the_last_put_or_delete_of_a_key_wins_and_a_patch_replaces_nothing() {
        let put = r#"{"op":"put","key":"k","document":{}}"#;
        let patch = r#"{"op":"patch","key":"k","document":{"title":"T"}}"#;
        let delete = r#"{"op":"delete","key":"k"}"#;
        let bad = r#"{"op":"put","key":"k","document":{"colour":1}}"#;
        let other = r#"{"op":"delete","key":"j"}"#;
        let replaced = |lines: &[&str]| batch(lines, Ordering::Log);
        assert_eq!(replaced(&[put, other, delete]), [by(2, true), None, None]);
        assert_eq!(replaced(&[put, patch]), [None, None]);
        assert_eq!(replaced(&[patch, put, patch]), [by(1, true), None, None]);
        assert_eq!(replaced(&[put, bad]), [None, None], "a bad line replaces nothing");
    }

    #[test]
    fn with_orders_the_newest_wins_wherever_it_stands() {
        let put = |order: u64, title: &str| {
            format!(
                r#"{{"op":"put","key":"k","order":{order},"document":{{"title":"{title}","lang":"en"}}}}"#
            )
        };
        let patch =
            |order: u64| format!(r#"{{"op":"patch","key":"k","order":{order},"document":{{"title":"P"}}}}"#);
        let delete = |order: u64| format!(r#"{{"op":"delete","key":"k","order":{order}}}"#);
        let replaced = |lines: &[String]| {
            let lines: Vec<_> = lines.iter().map(String::as_str).collect();
            batch(&lines, Ordering::Producer)
        };
        assert_eq!(replaced(&[put(9, "a"), put(8, "b")]), [None, by(0, false)]);
        assert_eq!(replaced(&[put(8, "a"), put(9, "b")]), [by(1, true), None]);
        assert_eq!(replaced(&[put(8, "a"), put(8, "a")]), [by(1, true), None], "the same twice");
        assert_eq!(replaced(&[delete(8), put(8, "a")]), [None, by(0, false)], "a delete wins a tie");
        assert_eq!(replaced(&[put(8, "a"), patch(9)]), [None, None]);
        assert_eq!(replaced(&[put(8, "a"), patch(7)]), [None, by(0, false)]);
    }

    #[test]
    fn a_record_that_no_message_holds_is_refused_with_the_limit() {
        let rules = Rules {
            schema: std::sync::Arc::new(Schema::web()),
            ordering: Ordering::Log,
            partitions: 4,
            max_record: 100,
            at_us: 0,
        };
        let line = format!(r#"{{"op":"put","key":"k","document":{{"body":"{}"}}}}"#, "b ".repeat(100));
        let refused = check(Given::from_line(line.as_bytes()).unwrap(), &rules).unwrap_err();
        assert!(refused.reason.contains("at most 100"), "{}", refused.reason);
    }
}
