//! A document after validation: typed, bounded, with its key. The same validation serves build and ingest, so that what
//! one accepts the other does too.
//!
//! A record is refused as a whole when a person must look at it: an unknown field, a wrong type, no key, a date that no
//! calendar has. The message names the field and what was expected. Only what is understood but cannot be kept drops
//! its field and lets the document stand, reported in [`Document::dropped`]: a date outside the years 0001 to 9999, a
//! language code that is none. Nothing is cut, rounded or wrapped in silence.
//!
//! `null`, an empty list and a list of nulls all mean "no value".

mod attributes;
mod date;
mod host;
#[cfg(test)]
mod tests;
mod typed;
mod whole;

pub use date::format as format_date;
pub use whole::Patch;

use std::collections::BTreeMap;

use canopy_common::ids::KeyHash;
use serde_json::Value as Json;

use crate::{
    analysis::{Analyzer, language_code},
    schema::{Field, Kind, Schema},
};

/// Largest document, bytes of its source form (before that, a reader skips the line without keeping it).
pub const MAX_DOCUMENT_BYTES: usize = 16 << 20;
/// Longest key, bytes.
pub const MAX_KEY_BYTES: usize = 2048;
/// Longest keyword value, bytes; the engine drops terms above 64 KiB without a word.
pub const MAX_KEYWORD_BYTES: usize = 8192;
/// Most values of one field.
pub const MAX_VALUES: usize = 10_000;
/// Most attributes of a map.
pub const MAX_ATTRIBUTES: usize = 64;
/// Letters of a text that its language is told from.
const DETECT_CHARS: usize = 1000;

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
    /// Static rank, 0..1; 0 when the source has none.
    pub static_rank: f64,
    /// Values by field, in source order. The key and, where the schema has them, the language (detected or not), the
    /// host (of the address when the source has none) and a given static rank are here too.
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

impl Reject {
    pub(crate) fn new(field: &str, reason: impl Into<String>) -> Self {
        Self { field: field.chars().take(128).collect(), reason: reason.into() }
    }
}

impl Document {
    /// Checks and types a JSON object against the schema. Unknown fields are refused by name; NUL bytes are removed
    /// from text; wrong types are refused; a date outside the representable years drops that field only.
    pub fn from_json(schema: &Schema, object: serde_json::Map<String, Json>) -> Result<Self, Reject> {
        let mut document = Self::default();
        let mut size = 0;
        for (name, json) in object {
            let Some(field) = schema.fields.iter().find(|field| field.name == name) else {
                return Err(unknown(schema, &name));
            };
            size += name.len() + 4 + typed::size(&json);
            if size > MAX_DOCUMENT_BYTES {
                return Err(Reject::new(
                    "record",
                    format!("larger than {MAX_DOCUMENT_BYTES} bytes; split it"),
                ));
            }
            document.add(field, json)?;
        }
        document.take_key(schema)?;
        document.take_static_rank()?;
        document.take_language(schema);
        document.take_host(schema);
        Ok(document)
    }

    fn add(&mut self, field: &Field, json: Json) -> Result<(), Reject> {
        if field.kind == Kind::Map {
            return attributes::read(&field.name, json, &mut self.values);
        }
        let given = match json {
            Json::Array(values) if field.multi => values,
            Json::Array(values) if values.iter().all(Json::is_null) => return Ok(()),
            Json::Array(values) => {
                let reason =
                    format!("expected one value, found a list of {}; the field is not multi", values.len());
                return Err(Reject::new(&field.name, reason));
            }
            one => vec![one],
        };
        if given.len() > MAX_VALUES {
            let reason = format!("{} values given, at most {MAX_VALUES} allowed", given.len());
            return Err(Reject::new(&field.name, reason));
        }
        let mut values = Vec::with_capacity(given.len());
        for json in given.into_iter().filter(|json| !json.is_null()) {
            match typed::value(field, json)? {
                Ok(value) => values.push(value),
                Err(dropped) => self.dropped.push((field.name.clone(), dropped)),
            }
        }
        if !values.is_empty() {
            self.values.insert(field.name.clone(), values);
        }
        Ok(())
    }

    fn take_key(&mut self, schema: &Schema) -> Result<(), Reject> {
        let key = self.text(&schema.key).unwrap_or_default();
        if key.is_empty() {
            return Err(Reject::new(&schema.key, "missing; every document needs its key"));
        }
        if key.len() > MAX_KEY_BYTES {
            let reason = format!("the key has {} bytes, at most {MAX_KEY_BYTES} are allowed", key.len());
            return Err(Reject::new(&schema.key, reason));
        }
        self.key = key.to_owned();
        Ok(())
    }

    fn take_static_rank(&mut self) -> Result<(), Reject> {
        let Some(&[Value::F64(rank)]) = self.values.get("static_rank").map(Vec::as_slice) else {
            return Ok(());
        };
        if !(0.0..=1.0).contains(&rank) {
            return Err(Reject::new("static_rank", format!("{rank} is not between 0 and 1")));
        }
        self.static_rank = rank;
        Ok(())
    }

    fn take_language(&mut self, schema: &Schema) {
        let given = self.text("lang").map(|text| language_code(text).ok_or_else(|| text.to_owned()));
        self.language = match given {
            Some(Ok(code)) => code,
            other => {
                // `und` and its like say that nobody knows, which is no fault.
                if let Some(Err(text)) = other
                    && !matches!(text.trim(), "" | "und" | "mul" | "zxx" | "mis")
                {
                    let shown: String = text.chars().take(40).collect();
                    let reason =
                        format!("{shown:?} is not a language code such as en or zh-Hant; detected instead");
                    self.dropped.push(("lang".into(), reason));
                }
                let detected = Analyzer::new().detect(&self.beginning(schema));
                detected.unwrap_or(&schema.default_language).to_owned()
            }
        };
        if schema.field("lang").is_some() {
            self.values.insert("lang".into(), vec![Value::Text(self.language.clone())]);
        }
    }

    /// The first letters of the searched fields.
    fn beginning(&self, schema: &Schema) -> String {
        let mut text = String::new();
        let mut left = DETECT_CHARS;
        for value in schema.searched().filter_map(|field| self.values.get(&field.name)).flatten() {
            if let Value::Text(part) = value {
                let end = part.char_indices().nth(left).map_or(part.len(), |(at, _)| at);
                text.push_str(&part[..end]);
                text.push(' ');
                left = left.saturating_sub(part[..end].chars().count());
            }
            if left == 0 {
                break;
            }
        }
        text
    }

    fn take_host(&mut self, schema: &Schema) {
        let wanted = schema.fields.iter().any(|field| {
            field.name == "host" && matches!(field.kind, Kind::Keyword | Kind::Text) && schema.key != "host"
        });
        if wanted
            && !self.values.contains_key("host")
            && let Some(host) = host::of(self.text("url").unwrap_or(&self.key))
        {
            self.values.insert("host".into(), vec![Value::Text(host)]);
        }
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

    /// The shown fields as stored source: compact JSON, an object in schema order of names. Read by `from_json` it gives
    /// the same values again.
    pub fn to_source(&self, schema: &Schema) -> Vec<u8> {
        serde_json::to_vec(&self.fields(schema, |field| field.show)).unwrap_or_default()
    }
}

fn unknown(schema: &Schema, name: &str) -> Reject {
    let known: Vec<&str> = schema.fields.iter().map(|field| field.name.as_str()).collect();
    Reject::new(name, format!("not a field of this corpus; its fields are {}", known.join(", ")))
}
