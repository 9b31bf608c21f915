//! Input files of `feed bulk` as operations, one after the other, in the files' order.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use canopy_indexer::source::{self, Format, Record, Records};
use serde_json::{Map, Value, json};

use super::send::Line;

/// What a file holds, and how its lines become operations.
#[derive(Debug, Clone)]
pub struct Reading {
    /// Its records are documents, to be put; else operations.
    pub put: bool,
    /// The field of documents that is the key.
    pub key_field: String,
}

/// An operation, or why a record is none.
pub enum Read {
    /// To be sent.
    Line(Line),
    /// Where, and what is wrong.
    Bad(String),
}

/// The operations of files.
pub struct Inputs {
    files: std::vec::IntoIter<PathBuf>,
    records: Option<Records>,
    reading: Reading,
    number: u64,
}

impl Inputs {
    /// Opens nothing yet.
    pub fn new(files: Vec<PathBuf>, reading: Reading) -> Self {
        Self { files: files.into_iter(), records: None, reading, number: 0 }
    }

    /// The next one with its number, from 1; `None`: that was all. Errors: a file can't be read to its end.
    pub fn next(&mut self) -> Result<Option<(u64, Read)>> {
        loop {
            if self.records.is_none() {
                let Some(file) = self.files.next() else { return Ok(None) };
                let path = if file.as_os_str() == "-" { Path::new("/dev/stdin") } else { &file };
                // Documents may be those of a web archive.
                let format = (!self.reading.put).then_some(Format::Jsonl);
                let opened = source::open(path, format);
                self.records = Some(opened.with_context(|| format!("{} can't be read", file.display()))?);
            }
            let Some(record) = self.records.as_mut().and_then(Iterator::next) else {
                self.records = None;
                continue;
            };
            if record.last_of_damaged {
                let what =
                    record.content.err().map_or_else(String::new, |reject| format!(": {}", reject.reason));
                anyhow::bail!(
                    "{} can't be read beyond record {}{what}",
                    record.location.file,
                    record.location.number
                );
            }
            self.number += 1;
            return Ok(Some((self.number, self.reading.line(self.number, record))));
        }
    }
}

impl Reading {
    fn line(&self, number: u64, record: Record) -> Read {
        let place = format!("{}:{}", record.location.file, record.location.number);
        let fields = match record.content {
            Ok(fields) => fields,
            Err(reject) => return Read::Bad(format!("{place}: {}: {}", reject.field, reject.reason)),
        };
        let key = self.key(&fields);
        let text = if self.put {
            let document = Value::Object(fields);
            json!({ "op": "put", "document": document }).to_string()
        } else {
            Value::Object(fields).to_string()
        };
        Read::Line(Line { number, place, key, text })
    }

    /// Of one key whatever comes goes one way, so that its order is kept; the key of an operation may be in its document.
    fn key(&self, fields: &Map<String, Value>) -> String {
        let document =
            if self.put { Some(fields) } else { fields.get("document").and_then(Value::as_object) };
        let own = fields.get("key").filter(|_| !self.put);
        let key = own.or_else(|| document?.get(&self.key_field));
        key.and_then(Value::as_str).unwrap_or_default().to_owned()
    }
}
