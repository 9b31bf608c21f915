//! Tests of `http`: what its module comment promises.

use std::io::Write;

use flate2::{
    Compression,
    write::{DeflateEncoder, GzEncoder, ZlibEncoder},
};

use super::*;

const PAGE: &[u8] = b"<p>some page, some page, some page</p>";

fn message(headers: &str, body: &[u8]) -> Vec<u8> {
    [format!("HTTP/1.1 200 OK\r\n{headers}\r\n").as_bytes(), body].concat()
}

fn body(headers: &str, body: &[u8]) -> Result<Vec<u8>, String> {
    let message = message(headers, body);
    let response = Response::parse(&message).map_err(|reject| reject.reason)?;
    response.body().map(Cow::into_owned).map_err(|reject| reject.reason)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn bare(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = DeflateEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn chunked(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for chunk in bytes.chunks(7) {
        out.extend_from_slice(format!("{:x};name=value\r\n", chunk.len()).as_bytes());
        out.extend_from_slice(chunk);
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(b"0\r\nTrailer: x\r\n\r\n");
    out
}

/// A stored block, with the header that Brotli gives to input it does not compress.
fn brotli(bytes: &[u8]) -> Vec<u8> {
    use fastwarc::stream_io::{brotli::BrotliWriter, traits::WarcWrite};
    let target = tempfile::NamedTempFile::new().unwrap();
    let mut writer = BrotliWriter::new(target.reopen().unwrap());
    writer.write_all(bytes).unwrap();
    writer.finish().unwrap();
    drop(writer);
    std::fs::read(target.path()).unwrap()
}

#[test]
fn headers_are_read() {
    let message = message("content-TYPE: text/html; charset=x\nContent-Language: de\r\n", b"body");
    let response = Response::parse(&message).unwrap();
    assert_eq!((response.status, response.content_type.as_str()), (200, "text/html; charset=x"));
    assert_eq!(response.language.as_deref(), Some("de"));
    assert_eq!(&*response.body().unwrap(), b"body");
}

#[test]
fn bad_messages_are_refused() {
    for (message, expected) in [
        (&b""[..], "no HTTP status line"),
        (b"<html>", "no HTTP status line"),
        (b"HTTP/1.1 abc\r\n\r\n", "status is not a number"),
        (b"HTTP/1.1", "status is not a number"),
    ] {
        assert!(Response::parse(message).err().unwrap().reason.contains(expected), "{expected}");
    }
    let long = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(100_000));
    assert!(Response::parse(long.as_bytes()).err().unwrap().reason.contains("65536"));
    let many = format!("HTTP/1.1 200 OK\r\n{}", "X: y\r\n".repeat(100_000));
    assert!(Response::parse(many.as_bytes()).err().unwrap().reason.contains("65536"));
}

#[test]
fn encodings_are_undone_in_order() {
    for (headers, encoded) in [
        ("", PAGE.to_vec()),
        ("Content-Encoding: gzip\r\n", gzip(PAGE)),
        ("Content-Encoding: X-GZIP\r\n", gzip(PAGE)),
        ("Content-Encoding: deflate\r\n", zlib(PAGE)),
        ("Content-Encoding: deflate\r\n", bare(PAGE)),
        ("Content-Encoding: br\r\n", brotli(PAGE)),
        ("Content-Encoding: zstd\r\n", zstd::encode_all(PAGE, 1).unwrap()),
        ("Transfer-Encoding: chunked\r\n", chunked(PAGE)),
        ("Transfer-Encoding: gzip, chunked\r\n", chunked(&gzip(PAGE))),
        ("Content-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n", chunked(&gzip(PAGE))),
        ("Content-Encoding: deflate, gzip\r\n", gzip(&zlib(PAGE))),
        ("Content-Encoding: identity\r\n", PAGE.to_vec()),
    ] {
        assert_eq!(body(headers, &encoded).unwrap(), PAGE, "{headers}");
    }
}

#[test]
fn bodies_that_were_decoded_before_stay() {
    for name in ["gzip", "deflate", "br", "zstd", "compress", "utf-8"] {
        assert_eq!(body(&format!("Content-Encoding: {name}\r\n"), PAGE).unwrap(), PAGE, "{name}");
    }
    assert_eq!(body("Transfer-Encoding: chunked\r\n", PAGE).unwrap(), PAGE);
}

#[test]
fn what_came_before_a_cut_counts() {
    let long: Vec<u8> = (0..50_000_u32).flat_map(|i| i.to_string().into_bytes()).collect();
    let cut = gzip(&long);
    let found = body("Content-Encoding: gzip\r\n", &cut[..cut.len() / 2]).unwrap();
    assert!(!found.is_empty() && long.starts_with(&found));
    let chunks = chunked(PAGE);
    let found = body("Transfer-Encoding: chunked\r\n", &chunks[..chunks.len() / 2]).unwrap();
    assert!(!found.is_empty() && PAGE.starts_with(&found));
    let wrong = b"5\r\nabcde\r\nffffffffffffffffffffff\r\nrest";
    assert_eq!(body("Transfer-Encoding: chunked\r\n", wrong).unwrap(), b"abcderest");
    let wrong = b"5\r\nabcde\r\nno size\r\nrest";
    assert_eq!(body("Transfer-Encoding: chunked\r\n", wrong).unwrap(), b"abcdeno size\r\nrest");
}

#[test]
fn bombs_are_refused_by_size() {
    let zeros = vec![0; MAX_DOCUMENT_BYTES + 1];
    for (name, bomb) in [("gzip", gzip(&zeros)), ("deflate", zlib(&zeros))] {
        assert!(bomb.len() < 100_000);
        let reason = body(&format!("Content-Encoding: {name}\r\n"), &bomb).unwrap_err();
        assert!(reason.contains("16777216"), "{reason}");
    }
}
