//! Web archives. The parser of the archive library reads the headers; finding the way through a damaged file is done
//! here, since one wrong length must not swallow the records behind it.
//!
//! After each record an empty line and the next header must follow. When they do not, the length was wrong or the
//! record was cut off: it is rejected by its number, and reading goes on at the next header, looked for inside the
//! record first (an uncompressed archive), then behind it. In a gzip archive a member that begins with a header ends
//! the record before it at once. A record whose checksum does not fit is kept and marked.

use canopy_format::document::{MAX_DOCUMENT_BYTES, Reject};
use fastwarc::{
    stream_io::traits::WarcRead,
    warc::{header::HeaderMap, record::WarcRecord},
};

use super::{
    Place, Record,
    page::{self, Body, Document},
    reject,
    stream::Stream,
    too_large,
};

/// Largest header block of a record, bytes.
const MAX_HEAD: usize = 128 << 10;
/// Largest record that is kept in memory: a document and its HTTP headers, bytes.
const MAX_PAYLOAD: u64 = MAX_DOCUMENT_BYTES as u64 + (64 << 10);

/// The records of a file.
pub(super) struct Archive {
    /// `None` when the file is done. Boxed as the parser takes and gives it.
    reader: Option<Box<dyn WarcRead>>,
    place: Place,
}

/// A record as it was read.
struct Raw {
    record: WarcRecord,
    offset: u64,
    length: Result<u64, Reject>,
    /// Bytes of it that there were.
    found: u64,
    payload: Vec<u8>,
    /// The next header follows, or the end.
    aligned: bool,
}

impl Archive {
    /// Around an opened file.
    pub(super) fn new(stream: Stream, place: Place) -> Self {
        Self { reader: Some(Box::new(stream)), place }
    }

    fn stream(&mut self) -> Option<&mut Stream> {
        self.reader.as_mut()?.as_any_mut().downcast_mut()
    }

    /// The next header; the reader is back in place afterwards. `None` at the end.
    fn header(&mut self) -> Option<Result<WarcRecord, Reject>> {
        let mut record = WarcRecord::new();
        record.attach_reader(self.reader.take()?);
        // The lenient mode passes over lines that are no header and takes bare line feeds.
        let parsed = record.parse_warc_headers_with_opts(true, MAX_HEAD);
        self.reader = record.detach_reader();
        match parsed {
            Ok(0) => None,
            Ok(_) => Some(Ok(record)),
            Err(error) => Some(Err(reject("record", format!("its WARC header cannot be read: {error}")))),
        }
    }

    /// Reads what belongs to a header.
    fn raw(&mut self, record: WarcRecord) -> Option<Raw> {
        let offset = record.stream_pos();
        let length = length(record.headers());
        let stream = self.stream()?;
        let (mut payload, mut found) = (Vec::new(), 0);
        if let (Ok(length), false) = (&length, record.is_frozen()) {
            stream.hold(true);
            if *length <= MAX_PAYLOAD {
                stream.read_into(&mut payload, *length);
                found = payload.len() as u64;
            } else {
                found = stream.skip(*length);
            }
            stream.hold(false);
        }
        while stream.chunk().first().is_some_and(u8::is_ascii_whitespace) {
            stream.take(1);
        }
        let next = stream.peek(5);
        let aligned = next.is_empty() || next == b"WARC/";
        let mut raw = Raw { record, offset, length, found, payload, aligned };
        if !aligned || raw.cut() {
            self.rewind(&mut raw);
        }
        Some(raw)
    }

    /// Puts the part of a record back that begins with another record's header.
    fn rewind(&mut self, raw: &mut Raw) {
        if let Some(at) = inner_header(&raw.payload)
            && let Some(stream) = self.stream()
        {
            stream.put_back(&raw.payload[at..]);
            raw.payload.truncate(at);
            raw.found = at as u64;
        }
    }

    /// The record as a document, when it is one or should have been.
    fn content(raw: &mut Raw) -> Option<Result<(Document, bool), Reject>> {
        let headers = raw.record.headers();
        let get = |name: &str| headers.get(name).map(|value| value.trim().to_owned()).unwrap_or_default();
        let kind = get("WARC-Type").to_ascii_lowercase();
        let (address, content_type) = (get("WARC-Target-URI"), get("Content-Type"));
        let length = match &raw.length {
            Ok(length) => *length,
            Err(_) if raw.record.is_frozen() => return None,
            Err(reason) => return Some(Err(reason.clone())),
        };
        if raw.cut() {
            let reason = format!("it is cut off: {} of its {length} bytes are there", raw.found);
            return Some(Err(reject("record", reason)));
        }
        if !raw.aligned {
            let reason = format!("its length of {length} bytes is wrong: no header follows it");
            return Some(Err(reject("record", reason)));
        }
        if !matches!(kind.as_str(), "response" | "resource" | "conversion") {
            return None;
        }
        if length > MAX_PAYLOAD {
            return Some(Err(too_large("the record", length)));
        }
        raw.record.set_bytes_payload(std::mem::take(&mut raw.payload));
        let wrong_digest = matches!(raw.record.verify_block_digest(false), Ok(false));
        let payload = raw.record.frozen_payload_bytes().unwrap_or_default();
        let body = Body { address: &address, content_type: &content_type, payload };
        match page::document(&body) {
            Ok(document) => document.map(|document| Ok((document, wrong_digest))),
            Err(reason) => Some(Err(reason)),
        }
    }

    /// The last record: why the file could not be read to its end, or at all.
    fn end(&mut self) -> Option<Record> {
        let (whole, stream) = (self.place.number, self.stream()?);
        let (offset, read) = (stream.position(), stream.read_bytes());
        let reason = match stream.failure() {
            Some(failure) => format!("it could be read up to record {whole} only: {failure}"),
            None if whole == 0 && read > 0 => "no record of a web archive is in it".to_owned(),
            None => return None,
        };
        self.reader = None;
        self.place.number += 1;
        Some(self.place.damage(offset, read, reason))
    }
}

impl Raw {
    fn cut(&self) -> bool {
        self.length.as_ref().is_ok_and(|length| self.found < *length) && !self.record.is_frozen()
    }
}

impl Iterator for Archive {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        loop {
            let stream = self.stream()?;
            let (position, read) = (stream.position(), stream.read_bytes());
            let Some(header) = self.header() else { break };
            self.place.number += 1;
            let mut raw = match header.map(|record| self.raw(record)) {
                Ok(Some(raw)) => raw,
                Ok(None) => break,
                Err(reason) => return Some(self.place.record(position, read, Err(reason))),
            };
            let read = self.stream().map_or(read, |stream| stream.read_bytes());
            match Self::content(&mut raw) {
                None => {}
                Some(Err(reason)) => return Some(self.place.record(raw.offset, read, Err(reason))),
                Some(Ok((document, wrong_digest))) => {
                    let record = self.place.record(raw.offset, read, Ok(document.object));
                    let (links, canonical) = (document.links, document.canonical);
                    return Some(Record { links, canonical, wrong_digest, ..record });
                }
            }
        }
        let last = self.end();
        self.reader = None;
        last
    }
}

fn length(headers: &HeaderMap) -> Result<u64, Reject> {
    let text = headers.get("Content-Length").ok_or_else(|| reject("Content-Length", "missing"))?;
    let digits = text.trim();
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| plain).ok_or_else(|| {
        let shown: String = digits.chars().take(40).collect();
        reject("Content-Length", format!("{shown:?} is not a length"))
    })
}

/// Where the header of another record begins inside a payload.
fn inner_header(payload: &[u8]) -> Option<usize> {
    let mut from = 0;
    while let Some(at) = payload[from..].windows(7).position(|window| window == b"WARC/1.") {
        let at = from + at;
        let line_start = at > 0 && payload[at - 1] == b'\n';
        if line_start && matches!(payload.get(at + 7..at + 9), Some([b'0' | b'1', b'\r' | b'\n'])) {
            return Some(at);
        }
        from = at + 7;
    }
    None
}
