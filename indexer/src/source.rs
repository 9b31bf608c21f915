//! Reads input files as records: JSON lines and WARC archives, plain or compressed. What a file is, is decided by its
//! first bytes; names lie.
//!
//! Input is what strangers wrote. One bad record must not stop a build of a billion others, nor may it cost memory by its
//! numbers. Rules: a record that cannot be read becomes a [`Reject`] with its place and the limit it broke, and reading goes on
//! behind it; memory is bounded by one record ([`MAX_DOCUMENT_BYTES`]), whatever the lengths in a file say; damage of the file
//! itself (cut off, wrong checksum) ends it with a reject of the field `file` after all records before it, marked because
//! nobody knows how many records it stands for. Only a file that cannot be read at all (missing, unknown kind) is an error.

mod charset;
mod html;
mod http;
mod jsonl;
mod members;
mod page;
mod stream;
mod warc;

use std::{path::Path, sync::Arc};

use canopy_format::document::{MAX_DOCUMENT_BYTES, Reject};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// What an input file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// One JSON object a line.
    Jsonl,
    /// A web archive: response, resource and conversion records with HTML or plain text.
    Warc,
}

/// Where a record is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Location {
    /// The file.
    pub file: Arc<str>,
    /// Line (JSON lines) or record (WARC), from 1.
    pub number: u64,
    /// Where it begins, bytes of the decompressed file.
    pub offset: u64,
}

/// A link of a page to another.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where it points, absolute, without its fragment.
    pub url: String,
    /// Its text.
    pub text: String,
}

/// One record of an input file.
#[derive(Debug)]
pub struct Record {
    /// Its place.
    pub location: Location,
    /// Bytes of the file (compressed) that were read since the record before.
    pub bytes: u64,
    /// The document as a JSON object, not yet checked against a schema, or why there is none.
    pub content: std::result::Result<Map<String, Value>, Reject>,
    /// Links to other pages with their text, at most `html::MAX_LINKS`.
    pub links: Vec<Link>,
    /// The page's own word for its address, when it differs from the one it was fetched from.
    pub canonical: Option<String>,
    /// The archive's checksum does not fit the content. Such records are kept: archives with rewritten bodies are
    /// common.
    pub wrong_digest: bool,
    /// The file could not be read beyond this place: what follows it, however much, is missing.
    pub last_of_damaged: bool,
}

/// Records of one file, in its order.
pub type Records = Box<dyn Iterator<Item = Record> + Send>;

/// Opens an input file. Without a format, the first bytes decide.
pub fn open(path: &Path, format: Option<Format>) -> Result<Records> {
    let (stream, head) = stream::open(path)?;
    let refuse = |reason: String| Err(Error::Invalid { field: "input", reason });
    if head.starts_with(b"filedesc://") {
        return refuse(format!("{} is an ARC file; convert it to WARC first", path.display()));
    }
    if head.starts_with(b"BZh") {
        return refuse(format!("{} is compressed with bzip2; use gzip or zstd instead", path.display()));
    }
    let found = if head.starts_with(b"WARC/") { Format::Warc } else { Format::Jsonl };
    let place = Place { file: path.display().to_string().into(), number: 0, read: 0 };
    Ok(match format.unwrap_or(found) {
        Format::Jsonl => Box::new(jsonl::Lines::new(stream, place)),
        Format::Warc => Box::new(warc::Archive::new(stream, place)),
    })
}

/// Counts the records of a file and makes them.
struct Place {
    file: Arc<str>,
    number: u64,
    /// Bytes of the file read so far.
    read: u64,
}

impl Place {
    /// A record without extras. `read`: bytes of the file read so far.
    fn record(
        &mut self,
        offset: u64,
        read: u64,
        content: std::result::Result<Map<String, Value>, Reject>,
    ) -> Record {
        let location = Location { file: self.file.clone(), number: self.number, offset };
        let bytes = read.saturating_sub(std::mem::replace(&mut self.read, read));
        let links = Vec::new();
        Record {
            location,
            bytes,
            content,
            links,
            canonical: None,
            wrong_digest: false,
            last_of_damaged: false,
        }
    }

    /// The last record of a file that is damaged: why nothing follows.
    fn damage(&mut self, offset: u64, read: u64, reason: String) -> Record {
        Record { last_of_damaged: true, ..self.record(offset, read, Err(reject("file", reason))) }
    }
}

fn reject(field: &str, reason: impl Into<String>) -> Reject {
    Reject { field: field.to_owned(), reason: reason.into() }
}

/// The reject of what is larger than a document may be.
fn too_large(what: &str, bytes: u64) -> Reject {
    reject(
        "record",
        format!("{what} has {bytes} bytes, more than the {MAX_DOCUMENT_BYTES} a document may have"),
    )
}

#[cfg(test)]
mod tests;
