//! What a record of the log says: written by the ingest from a checked operation, read again by whoever replays it, perhaps
//! under a newer schema. What that schema does not know is left out and named; a record that can't be applied at all is an
//! error with its reason, never a guess: it goes to the dead letters and the records behind it go on.

use bytes::Bytes;
use canopy_format::{
    document::{Document, MAX_DOCUMENT_BYTES, MAX_KEY_BYTES, Patch},
    operation::{Action, Operation},
    schema::Schema,
};
use canopy_proto::ingest::{Op, Record};
use prost::Message;
use serde_json::{Map, Value as Json};

use crate::error::{Error, Result};

/// Longest record, bytes: the largest document in its longest writing, and its key.
pub const MAX_RECORD_BYTES: usize = 2 * MAX_DOCUMENT_BYTES + MAX_KEY_BYTES + 256;

/// The record of a checked operation that was accepted at `event_us` (microseconds since 1970 UTC).
pub fn encode(operation: &Operation, schema: &Schema, event_us: i64) -> Record {
    let (op, document) = match &operation.action {
        Action::Put(document) => (Op::Put, document.to_whole(schema)),
        Action::Patch(patch) => (Op::Patch, patch.to_whole(schema)),
        Action::Delete => (Op::Delete, Vec::new()),
    };
    Record {
        op: op.into(),
        key: operation.key.clone(),
        order: operation.order,
        event_us,
        document: Bytes::from(document),
        schema_id: schema.id(),
    }
}

/// Reads a record; the document in it is not looked at yet.
pub fn decode(bytes: &[u8]) -> Result<Record> {
    if bytes.len() > MAX_RECORD_BYTES {
        return Err(wrong(
            "record",
            format!("{} bytes, at most {MAX_RECORD_BYTES} are allowed", bytes.len()),
        ));
    }
    let record = Record::decode(bytes).map_err(|error| wrong("record", error.to_string()))?;
    if record.key.is_empty() || record.key.len() > MAX_KEY_BYTES {
        let reason = format!("the key has {} bytes, expected 1 to {MAX_KEY_BYTES}", record.key.len());
        return Err(wrong("key", reason));
    }
    Ok(record)
}

/// What a record does under a schema, and the names of the fields of which that schema knows nothing.
pub fn action(record: &Record, schema: &Schema) -> Result<(Action, Vec<String>)> {
    match record.op() {
        Op::Put => {
            let document = Document::from_whole(schema, fields(record)?)
                .map_err(|reject| wrong(&reject.field, reject.reason.clone()))?;
            if document.key != record.key {
                return Err(wrong(&schema.key, "the document has another key than its record"));
            }
            let dropped = document.dropped.iter().map(|(name, _)| name.clone()).collect();
            Ok((Action::Put(document), dropped))
        }
        Op::Patch => {
            let (patch, dropped) = Patch::from_whole(schema, fields(record)?);
            Ok((Action::Patch(patch), dropped))
        }
        Op::Delete => Ok((Action::Delete, Vec::new())),
        Op::Unspecified => Err(wrong("op", format!("{} is no operation that this build knows", record.op))),
    }
}

fn fields(record: &Record) -> Result<Map<String, Json>> {
    serde_json::from_slice(&record.document)
        .map_err(|error| wrong("document", format!("not an object of fields: {error}")))
}

fn wrong(field: &str, reason: impl Into<String>) -> Error {
    Error::Record { field: field.to_owned(), reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use canopy_format::{operation::Given, store::Ordering};

    use super::*;

    fn operation(line: &str) -> Operation {
        Given::from_line(line.as_bytes()).unwrap().check(&Schema::web(), Ordering::Log).unwrap()
    }

    #[test]
    fn every_operation_comes_back_as_it_was() {
        for line in [
            r#"{"op":"put","key":"https://a.example/","document":{"title":"T","body":"B","lang":"en"}}"#,
            r#"{"op":"patch","key":"k","document":{"title":"N","topic":null}}"#,
            r#"{"op":"delete","key":"k"}"#,
        ] {
            let operation = operation(line);
            let record = encode(&operation, &Schema::web(), 7);
            let read = decode(&record.encode_to_vec()).unwrap();
            assert_eq!((read.key.as_str(), read.event_us), (operation.key.as_str(), 7), "{line}");
            let (action, dropped) = action(&read, &Schema::web()).unwrap();
            assert_eq!((action, dropped), (operation.action, Vec::new()), "{line}");
        }
    }

    #[test]
    fn what_another_schema_does_not_know_is_named_and_poison_is_an_error() {
        let put = operation(r#"{"op":"put","key":"k","document":{"title":"T","topic":"x"}}"#);
        let mut record = encode(&put, &Schema::web(), 0);
        let mut schema = Schema::web();
        schema.fields.retain(|field| field.name != "topic");
        assert_eq!(action(&record, &schema).unwrap().1, ["topic"]);
        record.document = Bytes::from_static(b"{\"title\":");
        assert!(matches!(action(&record, &schema), Err(Error::Record { field, .. }) if field == "document"));
        record.op = 9;
        assert!(matches!(action(&record, &schema), Err(Error::Record { field, .. }) if field == "op"));
        assert!(matches!(decode(&[0xff; 9]), Err(Error::Record { .. })));
        record.key.clear();
        assert!(
            matches!(decode(&record.encode_to_vec()), Err(Error::Record { field, .. }) if field == "key")
        );
    }
}
