//! What travels from validation to the shard writers: a document, or the text of a link to one, packed into bytes that
//! sort by key hash and input order.
//!
//! With a document travels which write it is ([`Written`]): the order right behind the key, so that of two documents of a key
//! the newer is found without unpacking either.
//!
//! A validated document could travel as JSON, but parsing and checking it twice costs more than writing it; so it is
//! packed with its types, field names as numbers of the schema. Rows live no longer than their build: the format has
//! no version. Bytes read back are still checked, since a disk may lie: a damaged row is an error, not a panic.

use std::collections::BTreeMap;

use canopy_format::{
    document::{Document, Value},
    newest::Stamp,
    schema::Schema,
};

use crate::index_schema::Writes;

/// Set in [`Row::order`] of link texts, so that they sort behind the documents of their key.
pub(crate) const ANCHOR: u64 = 1 << 63;

/// A packed row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Row {
    /// Hash of the document's key.
    pub hash: u128,
    /// Place in the input, growing; with [`ANCHOR`] set for link texts.
    pub order: u64,
    /// The rest.
    pub bytes: Box<[u8]>,
}

impl Row {
    /// Memory that a row takes, bytes: its struct twice (a growing list is copied), its allocation.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes.len() as u64 + 96
    }

    /// The order of a sorted run. Two links of one page to one target differ in their bytes only.
    pub(crate) fn order(&self, other: &Self) -> std::cmp::Ordering {
        let place = |row: &Self| (row.hash, row.order);
        place(self).cmp(&place(other)).then_with(|| self.bytes.cmp(&other.bytes))
    }

    /// Whether it is a link text.
    pub(crate) fn is_anchor(&self) -> bool {
        self.order & ANCHOR != 0
    }

    /// The key of a document row, read without the rest.
    pub(crate) fn key(&self) -> Option<&str> {
        let mut reader = Reader(&self.bytes);
        reader.text()
    }

    /// Which write a document row is, read without the rest.
    pub(crate) fn write_order(&self) -> Option<u64> {
        let mut reader = Reader(&self.bytes);
        reader.text()?;
        reader.word()
    }
}

/// Which write a document is: the producer's order of it, and what is known beside it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Written {
    pub(crate) order: u64,
    pub(crate) writes: Writes,
}

/// Packs and unpacks documents of one schema.
#[derive(Debug, Clone)]
pub(crate) struct Codec {
    names: Vec<String>,
    numbers: BTreeMap<String, u32>,
}

impl Codec {
    pub(crate) fn new(schema: &Schema) -> Self {
        let names: Vec<_> = schema.fields.iter().map(|field| field.name.clone()).collect();
        let numbers = names.iter().cloned().zip(1..).collect();
        Self { names, numbers }
    }

    /// Packs a document.
    pub(crate) fn pack(&self, document: &Document, written: &Written) -> Box<[u8]> {
        let mut out = Vec::with_capacity(512);
        text(&mut out, &document.key);
        out.extend_from_slice(&written.order.to_le_bytes());
        number(&mut out, written.writes.tie);
        number(&mut out, written.writes.fields.len() as u64);
        for (name, stamp) in &written.writes.fields {
            text(&mut out, name);
            number(&mut out, stamp.order);
            number(&mut out, stamp.tie);
        }
        text(&mut out, &document.language);
        out.extend_from_slice(&document.static_rank.to_bits().to_le_bytes());
        number(&mut out, document.values.len() as u64);
        for (name, values) in &document.values {
            if let Some(field) = self.numbers.get(name) {
                number(&mut out, u64::from(*field));
            } else {
                number(&mut out, 0);
                text(&mut out, name);
            }
            number(&mut out, values.len() as u64);
            for value in values {
                self::value(&mut out, value);
            }
        }
        out.into_boxed_slice()
    }

    /// Unpacks a document; `None` when the bytes are damaged.
    pub(crate) fn unpack(&self, bytes: &[u8]) -> Option<(Document, Written)> {
        let mut reader = Reader(bytes);
        let key = reader.text()?.to_owned();
        let written = reader.written()?;
        let mut document = Document {
            key,
            language: reader.text()?.to_owned(),
            static_rank: f64::from_bits(reader.word()?),
            ..Document::default()
        };
        for _ in 0..reader.number()? {
            let name = match reader.number()? {
                0 => reader.text()?.to_owned(),
                field => self.names.get(usize::try_from(field).ok()?.checked_sub(1)?)?.clone(),
            };
            let count = reader.number()?;
            let mut values = Vec::with_capacity(count.min(64) as usize);
            for _ in 0..count {
                values.push(reader.value()?);
            }
            document.values.insert(name, values);
        }
        reader.0.is_empty().then_some((document, written))
    }
}

fn number(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn text(out: &mut Vec<u8>, text: &str) {
    number(out, text.len() as u64);
    out.extend_from_slice(text.as_bytes());
}

fn value(out: &mut Vec<u8>, value: &Value) {
    let mut word = |tag: u8, word: u64| {
        out.push(tag);
        out.extend_from_slice(&word.to_le_bytes());
    };
    match value {
        Value::Text(content) => {
            out.push(0);
            text(out, content);
        }
        Value::I64(number) => word(1, number.cast_unsigned()),
        Value::U64(number) => word(2, *number),
        Value::F64(number) => word(3, number.to_bits()),
        Value::Date(micros) => word(4, micros.cast_unsigned()),
        Value::Bool(yes) => out.push(5 + u8::from(*yes)),
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = *self.take(1)?.first()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn word(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn text(&mut self) -> Option<&'a str> {
        let length = usize::try_from(self.number()?).ok()?;
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn written(&mut self) -> Option<Written> {
        let mut written = Written { order: self.word()?, ..Written::default() };
        written.writes.tie = self.number()?;
        for _ in 0..self.number()? {
            let name = self.text()?.to_owned();
            let stamp = Stamp { order: self.number()?, tie: self.number()? };
            written.writes.fields.insert(name, stamp);
        }
        Some(written)
    }

    fn value(&mut self) -> Option<Value> {
        Some(match self.take(1)?[0] {
            0 => Value::Text(self.text()?.to_owned()),
            1 => Value::I64(self.word()?.cast_signed()),
            2 => Value::U64(self.word()?),
            3 => Value::F64(f64::from_bits(self.word()?)),
            4 => Value::Date(self.word()?.cast_signed()),
            tag @ (5 | 6) => Value::Bool(tag == 6),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use canopy_format::schema::{Field, Kind};

    use super::*;

    #[test]
    fn a_document_unpacks_as_packed_and_damage_is_seen() {
        let field = |name: &str, kind| Field {
            name: name.into(),
            kind,
            weight: 0,
            query: false,
            show: true,
            multi: false,
        };
        let schema = Schema {
            name: "t".into(),
            key: "url".into(),
            default_language: "en".into(),
            fields: vec![field("url", Kind::Keyword), field("n", Kind::I64)],
        };
        let values = [
            ("url", vec![Value::Text("https://ü.example/".into())]),
            ("n", vec![Value::I64(-5), Value::U64(u64::MAX), Value::F64(-0.5), Value::Bool(true)]),
            ("attributes.größe", vec![Value::Date(i64::MIN), Value::Bool(false), Value::Text(String::new())]),
            ("none", vec![]),
        ];
        let document = Document {
            key: "https://ü.example/".into(),
            language: "de".into(),
            static_rank: 0.25,
            values: values.into_iter().map(|(name, values)| (name.to_owned(), values)).collect(),
            dropped: vec![],
        };
        let codec = Codec::new(&schema);
        let stamp = |order, tie| Stamp { order, tie };
        let fields = [("n".to_owned(), stamp(u64::MAX, 1)), ("url".to_owned(), stamp(0, u64::MAX))];
        let writes = Writes { tie: u64::MAX, fields: fields.into() };
        let written = Written { order: u64::MAX - 1, writes };
        let bytes = codec.pack(&document, &written);
        assert_eq!(codec.unpack(&bytes), Some((document.clone(), written)));
        let row = Row { hash: 1, order: 2, bytes: bytes.clone() };
        assert_eq!(row.key(), Some(document.key.as_str()));
        assert_eq!(row.write_order(), Some(u64::MAX - 1));
        assert!((0..bytes.len()).all(|end| codec.unpack(&bytes[..end]).is_none()));
        for at in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[at] ^= 0xff;
            let _ = codec.unpack(&damaged);
        }
    }
}
