//! A document with everything that it has, shown or not: the form in which it is in the log, and from which a patched one is
//! made. And patches: some fields of a document, checked like a whole one.
//!
//! Read under another schema than the one it was written by, what that schema does not know or types otherwise is left out
//! and named, never guessed: an old record must not stop a newer version, nor the other way round.

use std::collections::BTreeMap;

use serde_json::{Map, Value as Json};

use super::{Document, MAX_DOCUMENT_BYTES, Reject, Value, attributes, typed};
use crate::schema::{Field, Kind, Schema};

impl Document {
    /// All fields as compact JSON. Read by [`Document::from_whole`] it gives the same document again.
    pub fn to_whole(&self, schema: &Schema) -> Vec<u8> {
        serde_json::to_vec(&self.fields(schema, |_| true)).unwrap_or_default()
    }

    /// The fields that an answer does not show, as [`Document::to_whole`]; `None`: it has none.
    pub fn to_unshown(&self, schema: &Schema) -> Option<Map<String, Json>> {
        let unshown = self.fields(schema, |field| !field.show);
        (!unshown.is_empty()).then_some(unshown)
    }

    pub(super) fn fields(&self, schema: &Schema, which: impl Fn(&Field) -> bool) -> Map<String, Json> {
        let mut fields = Map::new();
        for field in schema.fields.iter().filter(|field| which(field)) {
            let json = if field.kind == Kind::Map {
                attributes::source(&field.name, &self.values)
            } else {
                self.values.get(&field.name).filter(|values| !values.is_empty()).map(|values| {
                    if field.multi {
                        Json::Array(values.iter().map(typed::json).collect())
                    } else {
                        typed::json(&values[0])
                    }
                })
            };
            if let Some(json) = json {
                fields.insert(field.name.clone(), json);
            }
        }
        fields
    }

    /// Reads a whole document under a schema, perhaps another than it was written by. What does not fit is in
    /// [`Document::dropped`].
    pub fn from_whole(schema: &Schema, object: Map<String, Json>) -> Result<Self, Reject> {
        let mut document = Self::default();
        for (name, json) in object {
            let Some(field) = schema.fields.iter().find(|field| field.name == name) else {
                document.dropped.push((name, "not a field of this version".to_owned()));
                continue;
            };
            if let Err(reject) = document.add(field, json)
                && field.name != schema.key
            {
                document.dropped.push((reject.field, reject.reason));
            }
        }
        document.take_key(schema)?;
        if let Err(reject) = document.take_static_rank() {
            document.values.remove("static_rank");
            document.dropped.push((reject.field, reject.reason));
        }
        document.take_language(schema);
        document.take_host(schema);
        Ok(document)
    }

    /// Values of one field of the schema; those of a map by full name.
    fn take_field(&mut self, field: &Field) -> BTreeMap<String, Vec<Value>> {
        if field.kind != Kind::Map {
            return self.values.remove_entry(&field.name).into_iter().collect();
        }
        let prefix = format!("{}.", field.name);
        let names: Vec<String> =
            self.values.keys().filter(|name| name.starts_with(&prefix)).cloned().collect();
        names.iter().filter_map(|name| self.values.remove_entry(name)).collect()
    }

    /// Sets the fields of a patch that `newer` says are to be set; the others stay.
    pub fn patch(&mut self, schema: &Schema, patch: &Patch, newer: impl Fn(&str) -> bool) {
        let mut given = patch.values.clone();
        for field in schema.fields.iter().filter(|field| patch.has(&field.name) && newer(&field.name)) {
            self.take_field(field);
            self.values.extend(given.take_field(field));
        }
        self.static_rank = match self.values.get("static_rank").map(Vec::as_slice) {
            Some(&[Value::F64(rank)]) => rank,
            _ => 0.0,
        };
        if let Some(language) = self.text("lang").map(str::to_owned) {
            self.language = language;
        }
    }
}

/// Some fields of a document.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Patch {
    /// Their names, and whether each is set or removed.
    names: BTreeMap<String, bool>,
    values: Document,
}

impl Patch {
    /// Checks fields against the schema; `null` removes one. The key can't be patched.
    pub fn from_json(schema: &Schema, key: &str, object: Map<String, Json>) -> Result<Self, Reject> {
        let (mut patch, mut size) = (Self::default(), 0);
        for (name, json) in object {
            if name == schema.key {
                if json.as_str() == Some(key) {
                    continue;
                }
                return Err(Reject::new(
                    &name,
                    "the key of a document can't be patched; put another document",
                ));
            }
            let Some(field) = schema.fields.iter().find(|field| field.name == name) else {
                return Err(super::unknown(schema, &name));
            };
            size += name.len() + 4 + typed::size(&json);
            if size > MAX_DOCUMENT_BYTES {
                let reason = format!("larger than {MAX_DOCUMENT_BYTES} bytes; split it");
                return Err(Reject::new("record", reason));
            }
            patch.names.insert(name, !json.is_null());
            patch.values.add(field, json)?;
        }
        if let Some((field, reason)) = patch.values.dropped.pop() {
            return Err(Reject::new(&field, reason));
        }
        if patch.names.is_empty() {
            return Err(Reject::new("document", "a patch without fields; name at least one"));
        }
        patch.values.take_static_rank()?;
        if let Some(given) = patch.values.text("lang") {
            let code = crate::analysis::language_code(given)
                .ok_or_else(|| Reject::new("lang", "not a language code such as en or zh-Hant"))?;
            patch.values.values.insert("lang".to_owned(), vec![Value::Text(code)]);
        }
        Ok(patch)
    }

    /// Reads a patch of the log under a schema, perhaps another than it was written by; the names of what does not fit.
    pub fn from_whole(schema: &Schema, object: Map<String, Json>) -> (Self, Vec<String>) {
        let (mut patch, mut dropped) = (Self::default(), Vec::new());
        for (name, json) in object {
            let field = schema.fields.iter().find(|field| field.name == name && name != schema.key);
            let set = !json.is_null();
            match field.map(|field| patch.values.add(field, json)) {
                Some(Ok(())) => drop(patch.names.insert(name, set)),
                _ => dropped.push(name),
            }
        }
        (patch, dropped)
    }

    /// As it is in the log.
    pub fn to_whole(&self, schema: &Schema) -> Vec<u8> {
        let mut fields = self.values.fields(schema, |field| self.has(&field.name));
        for name in self.names.keys().filter(|name| !fields.contains_key(*name)).cloned().collect::<Vec<_>>()
        {
            fields.insert(name, Json::Null);
        }
        serde_json::to_vec(&fields).unwrap_or_default()
    }

    /// Whether it has a field.
    pub fn has(&self, field: &str) -> bool {
        self.names.contains_key(field)
    }

    /// Names of its fields.
    pub fn fields(&self) -> impl Iterator<Item = &str> {
        self.names.keys().map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(json: &str) -> Map<String, Json> {
        serde_json::from_str(json).unwrap()
    }

    const DOCUMENT: &str = r#"{"url":"https://a.example/x","title":"Title","anchors":["one","two"],"topic":["t"],
        "published":"2024-02-29","static_rank":0.5,"attributes":{"color":"red","size":3},"lang":"de"}"#;

    #[test]
    fn a_whole_document_reads_back_the_same() {
        let schema = Schema::web();
        let document = Document::from_json(&schema, object(DOCUMENT)).unwrap();
        let whole = document.to_whole(&schema);
        assert_eq!(Document::from_whole(&schema, serde_json::from_slice(&whole).unwrap()).unwrap(), document);
        let unshown = document.to_unshown(&schema).unwrap();
        assert_eq!(unshown.keys().collect::<Vec<_>>(), ["anchors"]);
    }

    #[test]
    fn another_schema_takes_what_it_knows_and_names_the_rest() {
        let schema = Schema::web();
        let document = Document::from_json(&schema, object(DOCUMENT)).unwrap();
        let mut other = schema.clone();
        other.fields.retain(|field| field.name != "topic");
        other
            .fields
            .iter_mut()
            .filter(|field| field.name == "title")
            .for_each(|field| field.kind = Kind::I64);
        let read = serde_json::from_slice(&document.to_whole(&schema)).unwrap();
        let read = Document::from_whole(&other, read).unwrap();
        assert_eq!(
            read.dropped.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(),
            ["title", "topic"]
        );
        assert_eq!((read.key, read.static_rank), (document.key, 0.5));
    }

    #[test]
    fn a_patch_sets_and_removes_its_fields_only() {
        let schema = Schema::web();
        let mut document = Document::from_json(&schema, object(DOCUMENT)).unwrap();
        let fields = object(r#"{"title":"New","attributes":{"size":4},"topic":null,"static_rank":null}"#);
        let patch = Patch::from_json(&schema, "https://a.example/x", fields).unwrap();
        let read = serde_json::from_slice(&patch.to_whole(&schema)).unwrap();
        assert_eq!(Patch::from_whole(&schema, read), (patch.clone(), vec![]));
        document.patch(&schema, &patch, |field| field != "title");
        assert_eq!((document.text("title"), document.static_rank), (Some("Title"), 0.0));
        document.patch(&schema, &patch, |_| true);
        let expected = r#"{"url":"https://a.example/x","title":"New","anchors":["one","two"],
            "published":"2024-02-29","attributes":{"size":4},"lang":"de"}"#;
        assert_eq!(document, Document::from_json(&schema, object(expected)).unwrap());
    }

    #[test]
    fn a_bad_patch_is_refused_by_field() {
        let refused = |json: &str| Patch::from_json(&Schema::web(), "k", object(json)).unwrap_err().field;
        assert_eq!(refused(r#"{"url":"other"}"#), "url");
        assert_eq!(refused(r#"{"published":"10000-01-01"}"#), "published");
        assert_eq!(refused(r#"{"lang":"no language at all"}"#), "lang");
        assert_eq!(refused(r#"{"static_rank":2.0}"#), "static_rank");
        assert_eq!(refused(r#"{"url":"k"}"#), "document");
    }
}
