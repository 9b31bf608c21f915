//! A document after validation: typed, bounded, with its key. The same validation serves build and ingest.

use std::collections::BTreeMap;

use canopy_common::ids::KeyHash;

use crate::schema::Schema;

/// Largest document, bytes of its source form (before that, a reader skips the line without keeping it).
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// Longest key, bytes.
pub const MAX_KEY_BYTES: usize = 2048;

/// A typed value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Text or keyword.
    Text(String),
    /// Signed integer.
    I64(i64),
    /// Unsigned integer.
    U64(u64),
    /// Finite float.
    F64(f64),
    /// Boolean.
    Bool(bool),
    /// Microseconds since 1970 UTC.
    Date(i64),
}

/// A valid document. Values are grouped by field name; map attributes appear as `attributes.color`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Document {
    /// The key (its URL).
    pub key: String,
    /// Language code (`en`, `de`, `zh`, …); detected or the schema's default when the source has none.
    pub language: String,
    /// Static rank, 0..1.
    pub static_rank: f64,
    /// Values by field, in source order; the key, language and static rank are here too where the schema has them.
    pub values: BTreeMap<String, Vec<Value>>,
    /// Fields that were given but refused on their own (a date out of range), with the reason; the document stands.
    pub dropped: Vec<(String, String)>,
}

/// Why a record is not a document.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct Reject {
    /// Field at fault; `record` when the whole record is.
    pub field: String,
    /// Why, with the limit.
    pub reason: String,
}

impl Document {
    /// Checks and types a JSON object against the schema. Unknown fields are refused by name; NUL bytes are removed
    /// from text; wrong types are refused; a date outside the representable years drops that field only.
    pub fn from_json(
        _schema: &Schema,
        _object: serde_json::Map<String, serde_json::Value>,
    ) -> Result<Self, Reject> {
        todo!()
    }

    /// Hash of the key.
    pub fn key_hash(&self) -> KeyHash {
        KeyHash::of(&self.key)
    }

    /// First text value of a field.
    pub fn text(&self, field: &str) -> Option<&str> {
        match self.values.get(field)?.first()? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The shown fields as stored source: compact JSON, an object.
    pub fn to_source(&self, _schema: &Schema) -> Vec<u8> {
        todo!()
    }
}
