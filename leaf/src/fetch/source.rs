//! The stored source of a document: a JSON object of its shown fields, read without taking it apart. Only the top
//! level is looked at; values stay the text they are, so a large body costs one pass and no copy.

use std::{borrow::Cow, fmt};

use serde::{
    Deserialize, Deserializer,
    de::{MapAccess, Visitor},
};
use serde_json::value::RawValue;
use tantivy::{
    DocAddress, TantivyDocument,
    schema::document::{Document, Value},
};

use crate::{
    error::{Error, Result},
    view::ShardView,
};

/// Reads the stored source at an address of this view.
pub fn read(view: &ShardView, address: DocAddress) -> Result<Vec<u8>> {
    let step = "read stored document";
    let document: TantivyDocument = if view.is_overlay(address) {
        let segment = view.segment(address.segment_ord);
        let segment = segment.ok_or_else(|| Error::invalid("address", "the view has no such segment"))?;
        let store = segment.reader.get_store_reader(1).map_err(Error::engine(step))?;
        store.get(address.doc_id).map_err(Error::engine(step))?
    } else {
        view.base.searcher.doc(address).map_err(Error::engine(step))?
    };
    let source = document
        .iter_fields_and_values()
        .find(|(field, _)| *field == view.base.schema.source)
        .and_then(|(_, value)| value.as_bytes().map(<[u8]>::to_vec));
    source.ok_or_else(|| Error::Damaged {
        shard: view.shard.clone(),
        reason: "a document has no stored source".to_owned(),
    })
}

/// The fields of a source, in its order.
#[derive(Debug, Default)]
pub struct Source<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Source<'a> {
    /// Reads the top level of a source.
    pub fn parse(view: &ShardView, bytes: &'a [u8]) -> Result<Self> {
        serde_json::from_slice(bytes).map_err(|error| Error::Damaged {
            shard: view.shard.clone(),
            reason: format!("a stored source is not a JSON object: {error}"),
        })
    }

    fn raw(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(field, _)| field == name).map(|(_, value)| *value)
    }

    /// The first text of a field; empty when there is none.
    pub fn first(&self, name: &str) -> String {
        self.texts(name).into_iter().next().unwrap_or_default()
    }

    /// All texts of a field, one a line.
    pub fn text(&self, name: &str) -> String {
        let mut texts = self.texts(name);
        if texts.len() == 1 { texts.pop().unwrap_or_default() } else { texts.join("\n") }
    }

    fn texts(&self, name: &str) -> Vec<String> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Texts {
            One(String),
            Some(Vec<String>),
            Other(serde::de::IgnoredAny),
        }
        let Some(raw) = self.raw(name) else { return Vec::new() };
        match serde_json::from_str(raw.get()) {
            Ok(Texts::One(text)) => vec![text],
            Ok(Texts::Some(texts)) => texts,
            Ok(Texts::Other(_)) | Err(_) => Vec::new(),
        }
    }

    /// The asked fields as one JSON object, all of them when none is named. `attributes.color` gives one attribute of
    /// a map under its full name. A field that the document does not have is left out.
    pub fn select(&self, names: &[String]) -> String {
        let mut out = String::from("{");
        let mut add = |name: &str, value: &str| {
            if out.len() > 1 {
                out.push(',');
            }
            out.push_str(&serde_json::Value::from(name).to_string());
            out.push(':');
            out.push_str(value);
        };
        if names.is_empty() {
            self.0.iter().for_each(|(name, value)| add(name, value.get()));
        }
        for name in names {
            if let Some(value) = self.raw(name) {
                add(name, value.get());
            } else if let Some((map, attribute)) = name.split_once('.')
                && let Some(map) = self.raw(map)
                && let Ok(map) = serde_json::from_str::<Source>(map.get())
                && let Some(value) = map.raw(attribute)
            {
                add(name, value.get());
            }
        }
        out.push('}');
        out
    }
}

impl<'de> Deserialize<'de> for Source<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Self, D::Error> {
        struct Fields;
        impl<'de> Visitor<'de> for Fields {
            type Value = Source<'de>;
            fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> std::result::Result<Self::Value, A::Error> {
                let mut fields = Vec::new();
                while let Some((Name(name), value)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    fields.push((name, value));
                }
                Ok(Source(fields))
            }
        }
        deserializer.deserialize_map(Fields)
    }
}

/// A key that borrows when it can.
#[derive(Deserialize)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str =
        r#"{"url":"u","t\u0069tle":["a\"b","c"],"body":"x","n":5,"attributes":{"color":"red","n":1}}"#;

    fn select(names: &[&str]) -> String {
        let source: Source = serde_json::from_str(SOURCE).unwrap();
        source.select(&names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn values_travel_as_they_are_stored() {
        let source: Source = serde_json::from_str(SOURCE).unwrap();
        assert_eq!((source.first("title"), source.text("title")), ("a\"b".into(), "a\"b\nc".into()));
        assert_eq!((source.first("n"), source.first("none")), (String::new(), String::new()));
        let all: serde_json::Value = serde_json::from_str(&select(&[])).unwrap();
        assert_eq!(all, serde_json::from_str::<serde_json::Value>(SOURCE).unwrap());
    }

    #[test]
    fn fields_are_picked_by_name_and_attribute() {
        assert_eq!(select(&["n", "none"]), r#"{"n":5}"#);
        assert_eq!(select(&["attributes.color"]), r#"{"attributes.color":"red"}"#);
        assert_eq!(select(&["attributes.none", "n.x"]), "{}");
    }
}
