//! One realtime update after validation: put a whole document, patch some of its fields, or delete it. Ingest reads it from a
//! line or a message by the same checks as a build, so that what one accepts the other does too; a leaf replays it.
//!
//! A line is `{"op":"put","key":"https://…","document":{…},"order":"12"}`. The key may be left out of the document, which is
//! given it; when both say one, they must say the same. `order` is the producer's own number of the write, a string or a
//! number; it is required where the corpus is ordered by producers, and refused where the log decides, because it would be
//! ignored.

use serde_json::{Map, Value as Json};

use crate::{
    document::{Document, MAX_KEY_BYTES, Patch, Reject},
    schema::Schema,
    store::Ordering,
};

/// What is done to a document.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// All fields are these.
    Put(Document),
    /// These fields are these.
    Patch(Patch),
    /// It goes.
    Delete,
}

impl Action {
    /// The word in lines and answers.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Put(_) => "put",
            Self::Patch(_) => "patch",
            Self::Delete => "delete",
        }
    }
}

/// An update of one document.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// The document's key.
    pub key: String,
    /// What is done.
    pub action: Action,
    /// The producer's number of this write; 0 where the log decides.
    pub order: u64,
}

/// An update as it was given, not yet checked.
#[derive(Debug, Clone, Default)]
pub struct Given {
    /// `put`, `patch` or `delete`.
    pub op: String,
    /// The key; empty: in the document.
    pub key: String,
    /// Document or fields.
    pub document: Option<Map<String, Json>>,
    /// The producer's number.
    pub order: Option<u64>,
}

impl Given {
    /// Reads a line of NDJSON.
    pub fn from_line(line: &[u8]) -> Result<Self, Reject> {
        let json: Json = serde_json::from_slice(line)
            .map_err(|error| Reject::new("line", format!("not a JSON object: {error}")))?;
        let Json::Object(fields) = json else {
            return Err(Reject::new(
                "line",
                "expected an object such as {\"op\":\"put\",\"key\":…,\"document\":{…}}",
            ));
        };
        let mut given = Self::default();
        for (name, value) in fields {
            match (name.as_str(), value) {
                ("op", Json::String(op)) => given.op = op,
                ("key", Json::String(key)) => given.key = key,
                ("document", Json::Object(document)) => given.document = Some(document),
                ("document" | "order", Json::Null) => {}
                ("order", value) => given.order = Some(order(&value)?),
                ("op" | "key", _) => return Err(Reject::new(&name, "expected a string")),
                ("document", _) => return Err(Reject::new("document", "expected an object of fields")),
                _ => {
                    let reason = "not a part of an operation; its parts are op, key, document, order";
                    return Err(Reject::new(&name, reason));
                }
            }
        }
        Ok(given)
    }

    /// Checks it against the corpus.
    pub fn check(self, schema: &Schema, ordering: Ordering) -> Result<Operation, Reject> {
        let Self { op, key, document, order } = self;
        let order = match (ordering, order) {
            (Ordering::Producer, None) => {
                let reason = "missing; this corpus is ordered by producers: give the number of the write";
                return Err(Reject::new("order", reason));
            }
            (Ordering::Log, Some(_)) => {
                let reason = "this corpus is ordered by the log, which would ignore it; leave it out";
                return Err(Reject::new("order", reason));
            }
            (Ordering::Producer, Some(order)) => order,
            (Ordering::Log, None) => 0,
        };
        let action = match (op.as_str(), document) {
            ("put", Some(document)) => {
                let document = Document::from_json(schema, keyed(schema, &key, document)?)?;
                return Ok(Operation { key: document.key.clone(), action: Action::Put(document), order });
            }
            ("patch", Some(fields)) => Action::Patch(Patch::from_json(schema, &key, fields)?),
            ("delete", None) => Action::Delete,
            ("delete", Some(_)) => {
                return Err(Reject::new("document", "a delete has none; leave it out"));
            }
            ("put" | "patch", None) => return Err(Reject::new("document", "missing")),
            ("", _) => return Err(Reject::new("op", "missing; one of put, patch, delete")),
            (other, _) => {
                let shown: String = other.chars().take(40).collect();
                return Err(Reject::new("op", format!("{shown:?} is not one of put, patch, delete")));
            }
        };
        check_key(&key)?;
        Ok(Operation { key, action, order })
    }
}

fn order(value: &Json) -> Result<u64, Reject> {
    let number = match value {
        Json::String(text) => text.parse().ok(),
        other => other.as_u64(),
    };
    number.ok_or_else(|| Reject::new("order", "expected a whole number of 64 bits, not negative"))
}

fn check_key(key: &str) -> Result<(), Reject> {
    if key.is_empty() {
        return Err(Reject::new("key", "missing"));
    }
    if key.len() > MAX_KEY_BYTES {
        let reason = format!("the key has {} bytes, at most {MAX_KEY_BYTES} are allowed", key.len());
        return Err(Reject::new("key", reason));
    }
    if key.contains('\0') {
        return Err(Reject::new("key", "the key has a NUL byte"));
    }
    Ok(())
}

/// The document with its key in it.
fn keyed(schema: &Schema, key: &str, mut document: Map<String, Json>) -> Result<Map<String, Json>, Reject> {
    if key.is_empty() {
        return Ok(document);
    }
    check_key(key)?;
    match document.get(&schema.key) {
        None | Some(Json::Null) => {
            document.insert(schema.key.clone(), Json::String(key.to_owned()));
        }
        Some(Json::String(same)) if same == key => {}
        Some(_) => {
            let reason =
                format!("it is not the key of the operation; leave {} out or say the same", schema.key);
            return Err(Reject::new(&schema.key, reason));
        }
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str, ordering: Ordering) -> Result<Operation, Reject> {
        Given::from_line(line.as_bytes())?.check(&Schema::web(), ordering)
    }

    #[test]
    fn lines_are_read_as_the_contract_shows_them() {
        let put = r#"{"op":"put","key":"https://a.example/","document":{"title":"T","lang":"en"}}"#;
        let Operation { key, action, order } = read(put, Ordering::Log).unwrap();
        assert_eq!((key.as_str(), order), ("https://a.example/", 0));
        let Action::Put(document) = action else { panic!("a put") };
        assert_eq!((document.key.as_str(), document.text("title")), ("https://a.example/", Some("T")));
        let in_it = r#"{"op":"put","document":{"url":"https://a.example/"}}"#;
        assert_eq!(read(in_it, Ordering::Log).unwrap().key, "https://a.example/");
        for order in ["\"1000001001111123111\"", "1000001001111123111"] {
            let line = format!(r#"{{"op":"delete","key":"k","order":{order}}}"#);
            let read = read(&line, Ordering::Producer).unwrap();
            assert_eq!((read.order, read.action), (1_000_001_001_111_123_111, Action::Delete));
        }
        let patch = read(r#"{"op":"patch","key":"k","document":{"title":"N","topic":null}}"#, Ordering::Log);
        let Action::Patch(patch) = patch.unwrap().action else { panic!("a patch") };
        assert_eq!(patch.fields().collect::<Vec<_>>(), ["title", "topic"]);
    }

    #[test]
    fn what_is_wrong_is_named_by_field() {
        for (line, ordering, field) in [
            ("{", Ordering::Log, "line"),
            ("[1]", Ordering::Log, "line"),
            (r#"{"op":"drop","key":"k"}"#, Ordering::Log, "op"),
            (r#"{"key":"k"}"#, Ordering::Log, "op"),
            (r#"{"op":"put","key":"k"}"#, Ordering::Log, "document"),
            (r#"{"op":"put","key":"k","document":[]}"#, Ordering::Log, "document"),
            (r#"{"op":"delete","key":"k","document":{}}"#, Ordering::Log, "document"),
            (r#"{"op":"delete"}"#, Ordering::Log, "key"),
            (r#"{"op":"delete","key":"k","order":1}"#, Ordering::Log, "order"),
            (r#"{"op":"delete","key":"k"}"#, Ordering::Producer, "order"),
            (r#"{"op":"delete","key":"k","order":-1}"#, Ordering::Producer, "order"),
            (r#"{"op":"delete","key":"k","when":1}"#, Ordering::Log, "when"),
            (r#"{"op":"put","key":"k","document":{"url":"j"}}"#, Ordering::Log, "url"),
            (r#"{"op":"put","key":"k","document":{"colour":"j"}}"#, Ordering::Log, "colour"),
            (r#"{"op":"put","key":"k","document":{"published":"2023-02-31"}}"#, Ordering::Log, "published"),
            (r#"{"op":"patch","key":"k","document":{"url":"j"}}"#, Ordering::Log, "url"),
            (r#"{"op":"patch","key":"k","document":{}}"#, Ordering::Log, "document"),
        ] {
            assert_eq!(read(line, ordering).unwrap_err().field, field, "{line}");
        }
        let long = format!(r#"{{"op":"delete","key":"{}"}}"#, "k".repeat(MAX_KEY_BYTES + 1));
        assert!(read(&long, Ordering::Log).unwrap_err().reason.contains("2048"));
    }
}
