//! A document as a version keeps it whole: what `_source` shows and what `_rest` holds beside it, and which write each of
//! its fields is of. From it a patched document is made, and the next version absorbs the log without the source.
//!
//! `_rest` is JSON, `{"fields":{…},"orders":{"title":12},"ties":{"":7}}`: the fields that answers do not show; orders of
//! fields that were patched after the document was put, which has `_order`; and what decides between writes of one order,
//! under `""` that of the document. Each part is left out when it is empty, and `_rest` with them: most documents of a
//! schema that shows everything have none. Where the schema has no field for the language, `_rest` has it too: told anew from
//! a document that link texts were added to, it might be another one, and with it the terms.

use std::collections::BTreeMap;

use canopy_format::{document::Document, newest::Stamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::IndexSchema;
use crate::error::{Error, Result};

/// The writes that a document is of, beside its [`super::Place`]. All empty in a build.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Writes {
    /// Decides between two writes of the document's order; 0: not known.
    pub tie: u64,
    /// Writes of the fields that were patched since, by name.
    pub fields: BTreeMap<String, Stamp>,
}

/// What is stored beside the source.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Rest {
    #[serde(skip_serializing_if = "Map::is_empty")]
    fields: Map<String, Json>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    orders: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    ties: BTreeMap<String, u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    language: Option<String>,
}

/// Name of the document itself among the ties.
const DOCUMENT: &str = "";
/// The field of the language, in schemas that have it.
const LANGUAGE: &str = "lang";

/// The bytes of `_rest`; `None`: there is nothing to keep.
pub(super) fn rest(schema: &IndexSchema, document: &Document, writes: &Writes) -> Option<Vec<u8>> {
    let fields = document.to_unshown(&schema.schema).unwrap_or_default();
    let orders: BTreeMap<String, u64> =
        writes.fields.iter().map(|(name, stamp)| (name.clone(), stamp.order)).collect();
    let ties = writes.fields.iter().map(|(name, stamp)| (name.as_str(), stamp.tie));
    let ties = ties.chain([(DOCUMENT, writes.tie)]).filter(|(_, tie)| *tie != 0);
    let ties: BTreeMap<String, u64> = ties.map(|(name, tie)| (name.to_owned(), tie)).collect();
    let language = schema.schema.field(LANGUAGE).is_none().then(|| document.language.clone());
    if fields.is_empty() && orders.is_empty() && ties.is_empty() && language.is_none() {
        return None;
    }
    // Text keys and plain values: writing them to memory cannot fail.
    Some(serde_json::to_vec(&Rest { fields, orders, ties, language }).unwrap_or_default())
}

/// The fields of `_rest`, without the writes that they are of, to be compared.
pub(crate) fn unshown(rest: &[u8]) -> Result<Vec<u8>> {
    let rest: std::result::Result<Rest, _> = serde_json::from_slice(rest);
    let rest = rest.map_err(|error| Error::Damaged {
        what: "a stored document".to_owned(),
        reason: error.to_string(),
    })?;
    Ok(if rest.fields.is_empty() { vec![] } else { serde_json::to_vec(&rest.fields).unwrap_or_default() })
}

impl IndexSchema {
    /// Reads a document back with all of its fields from what `_source` and `_rest` hold (empty: it has none).
    pub fn whole_document(&self, source: &[u8], rest: &[u8]) -> Result<(Document, Writes)> {
        let damaged = |reason: String| Error::Damaged { what: "a stored document".to_owned(), reason };
        let broken = |error: serde_json::Error| damaged(error.to_string());
        let mut fields: Map<String, Json> = serde_json::from_slice(source).map_err(broken)?;
        let (mut writes, mut language) = (Writes::default(), None);
        if !rest.is_empty() {
            let mut rest: Rest = serde_json::from_slice(rest).map_err(broken)?;
            fields.append(&mut rest.fields);
            language = rest.language;
            writes.tie = rest.ties.remove(DOCUMENT).unwrap_or(0);
            for (name, order) in rest.orders {
                let tie = rest.ties.get(&name).copied().unwrap_or(0);
                writes.fields.insert(name, Stamp { order, tie });
            }
        }
        let document = Document::from_whole(&self.schema, fields);
        let mut document = document.map_err(|reject| damaged(reject.to_string()))?;
        if let Some(language) = language {
            document.language = language;
        }
        Ok((document, writes))
    }
}

#[cfg(test)]
mod tests {
    use canopy_format::schema::Schema;

    use super::*;

    fn document(schema: &Schema) -> Document {
        let json = serde_json::json!({
            "url": "https://a.example/x", "title": "T", "anchors": ["one", "two"], "lang": "de", "static_rank": 0.5,
            "attributes": { "size": 3 }
        });
        Document::from_json(schema, json.as_object().expect("object").clone()).expect("document")
    }

    #[test]
    fn a_document_reads_back_whole_with_its_writes() {
        let schema = Schema::web();
        let (whole, shown) = (IndexSchema::of(&schema, true), IndexSchema::of(&schema, false));
        let (whole, shown) = (whole.expect("schema"), shown.expect("schema"));
        assert_eq!(shown.engine, IndexSchema::new(&schema).expect("schema").engine);
        assert!(whole.rest.is_some() && shown.rest.is_none());
        let document = document(&schema);
        let stamp = |order, tie| Stamp { order, tie };
        let fields = BTreeMap::from([("title".into(), stamp(12, 3)), ("body".into(), stamp(u64::MAX, 0))]);
        for writes in [Writes::default(), Writes { tie: u64::MAX, fields }] {
            let rest = rest(&whole, &document, &writes).expect("anchors are not shown");
            let read = whole.whole_document(&document.to_source(&schema), &rest).expect("read");
            assert_eq!(read, (document.clone(), writes));
        }
    }

    #[test]
    fn a_language_that_no_field_has_is_kept() {
        let mut schema = Schema::web();
        schema.fields.retain(|field| field.name != "lang");
        let fields = IndexSchema::of(&schema, true).expect("schema");
        let json = serde_json::json!({ "url": "https://a.example/x", "title": "The cat sat on the mat" });
        let mut document =
            Document::from_json(&schema, json.as_object().expect("object").clone()).expect("document");
        document.language = "fi".to_owned();
        let rest = rest(&fields, &document, &Writes::default()).expect("a language");
        let read = fields.whole_document(&document.to_source(&schema), &rest).expect("read");
        assert_eq!(read.0, document);
    }

    #[test]
    fn nothing_is_kept_where_nothing_is_hidden_and_damage_is_an_error() {
        let schema = Schema::web();
        let fields = IndexSchema::of(&schema, true).expect("schema");
        let mut shown = document(&schema);
        shown.values.remove("anchors");
        assert_eq!(rest(&fields, &shown, &Writes::default()), None);
        let source = shown.to_source(&schema);
        assert_eq!(fields.whole_document(&source, b"").expect("read").0, shown);
        for (source, rest) in [(&source[1..], &b""[..]), (&source[..], b"{"), (b"{}", b"")] {
            assert!(matches!(fields.whole_document(source, rest), Err(Error::Damaged { .. })));
        }
    }
}
