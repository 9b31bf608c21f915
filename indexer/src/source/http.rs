//! The HTTP message inside an archive record: status, headers, and the body with its encodings undone.
//!
//! Archives disagree about encodings: some keep the body as it came, some undo an encoding but keep the header, some
//! clip the body in the middle. Rule: undo what is there, keep what could be decoded, and never produce more than a
//! document may have.

use std::{
    borrow::Cow,
    io::{Cursor, Read},
};

use canopy_format::document::{MAX_DOCUMENT_BYTES, Reject};
use fastwarc::{
    stream_io::brotli::BrotliReader,
    warc::header::{HeaderEncoding, HeaderMap},
};
use flate2::bufread::{DeflateDecoder, MultiGzDecoder, ZlibDecoder};

use super::{reject, too_large};

/// Largest header block, bytes.
const MAX_HEAD: usize = 64 << 10;

/// A response.
pub(super) struct Response<'a> {
    /// Status code.
    pub(super) status: u16,
    /// `Content-Type`, whole; empty when there is none.
    pub(super) content_type: String,
    /// `Content-Language`.
    pub(super) language: Option<String>,
    encodings: Vec<String>,
    body: &'a [u8],
}

impl<'a> Response<'a> {
    /// Splits a message into headers and body.
    pub(super) fn parse(message: &'a [u8]) -> Result<Self, Reject> {
        let wrong = |reason: &str| Err(reject("record", reason));
        if !message.starts_with(b"HTTP/") {
            return wrong("it is said to be HTTP but has no HTTP status line");
        }
        let head = message[..message.len().min(MAX_HEAD)].to_vec();
        let mut headers = HeaderMap::new(HeaderEncoding::Latin1);
        let parsed = headers.parse_with_opts(&mut Cursor::new(head), true, MAX_HEAD, true);
        let length = match parsed {
            Ok(length) if length < MAX_HEAD => length,
            _ => return wrong("its HTTP headers have more than 65536 bytes"),
        };
        let Some(status) = headers.status_code() else { return wrong("its HTTP status is not a number") };
        let one = |name: &str| headers.get(name).map(Cow::into_owned);
        let list = |name: &str| {
            let values = headers.get_multiple(name);
            let names = values.iter().flat_map(|value| value.split(','));
            names.map(|name| name.trim().to_ascii_lowercase()).collect::<Vec<_>>()
        };
        // In the order in which they were applied.
        let encodings = [list("content-encoding"), list("transfer-encoding")].concat();
        Ok(Self {
            status,
            content_type: one("content-type").unwrap_or_default(),
            language: one("content-language"),
            encodings,
            body: &message[length..],
        })
    }

    /// The body as its author wrote it.
    pub(super) fn body(&self) -> Result<Cow<'a, [u8]>, Reject> {
        let mut body = Cow::Borrowed(self.body);
        for encoding in self.encodings.iter().rev() {
            let decoded = match encoding.as_str() {
                "chunked" => dechunked(&body),
                "gzip" | "x-gzip" if body.starts_with(&[0x1f, 0x8b]) => {
                    Some(all(MultiGzDecoder::new(&*body))?)
                }
                "deflate" => deflated(&body)?,
                "br" => Some(all(BrotliReader::new(Cursor::new(body.to_vec())))?),
                "zstd" if body.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) => match zstd::Decoder::new(&*body) {
                    Ok(decoder) => Some(all(decoder)?),
                    Err(error) => return Err(reject("record", error.to_string())),
                },
                // Undone already by who wrote the archive, or no encoding at all.
                _ => None,
            };
            // A body that does not decode at all was stored decoded.
            if let Some(decoded) = decoded.filter(|decoded| !decoded.is_empty()) {
                body = Cow::Owned(decoded);
            }
        }
        if body.len() > MAX_DOCUMENT_BYTES {
            return Err(too_large("the body", body.len() as u64));
        }
        Ok(body)
    }
}

/// Everything a decoder gives; what came before an error counts.
fn all(decoder: impl Read) -> Result<Vec<u8>, Reject> {
    let mut decoded = Vec::new();
    let limit = MAX_DOCUMENT_BYTES as u64;
    // The error is that of a clipped or damaged body; its beginning is still a page.
    let _ = decoder.take(limit + 1).read_to_end(&mut decoded);
    if decoded.len() as u64 > limit {
        let reason = format!("its decoded body has more than the {limit} bytes a document may have");
        return Err(reject("record", reason));
    }
    Ok(decoded)
}

/// `deflate` means zlib to the standard and the bare stream to some servers.
fn deflated(body: &[u8]) -> Result<Option<Vec<u8>>, Reject> {
    if let [first, second, ..] = body
        && first & 0x0f == 8
        && (u32::from(*first) * 256 + u32::from(*second)).is_multiple_of(31)
    {
        return all(ZlibDecoder::new(body)).map(Some);
    }
    all(DeflateDecoder::new(body)).map(Some)
}

/// Undoes chunks; `None` when there are none. Behind a chunk whose length is wrong the rest is kept as it is.
fn dechunked(body: &[u8]) -> Option<Vec<u8>> {
    let mut decoded = Vec::with_capacity(body.len());
    let mut rest = body;
    loop {
        let Some((size, after)) = chunk_size(rest) else {
            if decoded.is_empty() {
                return None;
            }
            // Without a line end it is the beginning of a size line that was cut off.
            if rest.contains(&b'\n') {
                decoded.extend_from_slice(rest);
            }
            return Some(decoded);
        };
        if size == 0 || after.is_empty() {
            return Some(decoded);
        }
        let (chunk, after) = after.split_at(size.min(after.len()));
        decoded.extend_from_slice(chunk);
        rest = after.strip_prefix(b"\r\n").or_else(|| after.strip_prefix(b"\n")).unwrap_or(after);
        if rest.is_empty() {
            return Some(decoded);
        }
    }
}

/// A chunk's size line, with its extensions, and what follows it.
fn chunk_size(body: &[u8]) -> Option<(usize, &[u8])> {
    let end = body.iter().take(1024).position(|byte| *byte == b'\n')?;
    let line = std::str::from_utf8(&body[..end]).ok()?;
    let digits = line.split(';').next()?.trim();
    let hex = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    let size = hex.then(|| usize::from_str_radix(digits, 16).unwrap_or(usize::MAX))?;
    Some((size, &body[end + 1..]))
}

#[cfg(test)]
mod tests;
