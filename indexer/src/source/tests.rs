//! Tests of `source`: what its module comment promises.

use std::{fs, io::Write, path::PathBuf};

use flate2::{Compression, write::GzEncoder};

use super::*;

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn write(&self, bytes: &[u8]) -> PathBuf {
        let path = self.0.path().join("input");
        fs::write(&path, bytes).unwrap();
        path
    }

    fn read(&self, bytes: &[u8]) -> Vec<Record> {
        open(&self.write(bytes), None).unwrap().collect()
    }

    /// Numbers of the documents, and numbers and reasons of the rejects.
    fn outline(&self, bytes: &[u8]) -> (Vec<u64>, Vec<(u64, String)>) {
        let (mut good, mut bad) = (vec![], vec![]);
        for record in self.read(bytes) {
            match record.content {
                Ok(_) => good.push(record.location.number),
                Err(reject) => bad.push((record.location.number, reject.to_string())),
            }
        }
        (good, bad)
    }
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

fn lz4(bytes: &[u8]) -> Vec<u8> {
    use fastwarc::stream_io::{lz4::Lz4Writer, traits::WarcWrite};
    let target = tempfile::NamedTempFile::new().unwrap();
    let mut writer = Lz4Writer::new(target.reopen().unwrap());
    for part in bytes.chunks(bytes.len() / 2 + 1) {
        writer.write_all(part).unwrap();
        writer.finish().unwrap();
    }
    writer.flush().unwrap();
    drop(writer);
    fs::read(target.path()).unwrap()
}

fn zstd_frames(bytes: &[u8]) -> Vec<u8> {
    let frames = bytes.chunks(bytes.len() / 3 + 1).map(|part| zstd::encode_all(part, 1).unwrap());
    frames.collect::<Vec<_>>().concat()
}

/// One record; `None` leaves the real length in the header.
fn warc(kind: &str, length: Option<&str>, content_type: &str, payload: &[u8]) -> Vec<u8> {
    let length = length.map_or_else(|| payload.len().to_string(), str::to_owned);
    let header = format!(
        "WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://e.org/{kind}\r\n\
         Content-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n"
    );
    [header.as_bytes(), payload, b"\r\n\r\n"].concat()
}

fn response(body: &str) -> Vec<u8> {
    let message = format!("HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n{body}");
    warc("response", None, "application/http; msgtype=response", message.as_bytes())
}

const LINES: &str = "{\"url\":\"a\"}\n\n  \r\n{\"url\":\"b\"}\r\n{\"url\":\"c\"}";

#[test]
fn lines_are_read_whatever_the_compression() {
    let files = Files::new();
    let marked = format!("\u{feff}{LINES}");
    let split = [gzip(&LINES.as_bytes()[..9]), gzip(&LINES.as_bytes()[9..])].concat();
    let inputs = [
        LINES.as_bytes().to_vec(),
        marked.into_bytes(),
        gzip(LINES.as_bytes()),
        split,
        zstd_frames(LINES.as_bytes()),
        lz4(LINES.as_bytes()),
    ];
    for (i, input) in inputs.iter().enumerate() {
        let records = files.read(input);
        let found: Vec<_> = records
            .iter()
            .map(|record| (record.location.number, record.content.as_ref().unwrap()["url"].as_str().unwrap()))
            .collect();
        assert_eq!(found, [(1, "a"), (4, "b"), (5, "c")], "{i}");
        assert!(records.iter().map(|record| record.bytes).sum::<u64>() <= input.len() as u64);
        assert!(&*records[0].location.file == files.0.path().join("input").to_str().unwrap());
    }
    assert_eq!(files.read(&inputs[0])[1].location.offset, 17);
    assert!(files.read(b"").is_empty() && files.read(b"\n\n").is_empty());
}

#[test]
fn bad_lines_are_rejected_one_by_one() {
    let files = Files::new();
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let input: [(&[u8], &str); 12] = [
        (b"{\"url\":", "not valid JSON: EOF"),
        (b"[1]", "it is an array"),
        (b"null", "it is null"),
        (b"\"x\"", "it is a string"),
        (b"17", "it is a number"),
        (b"{\"a\":\"\xff\"}", "byte 7 is not UTF-8"),
        (b"{\"a\":\"\\ud800\"}", "not valid JSON"),
        (b"{\"a\":1e999}", "not valid JSON"),
        (b"{\"a\":NaN}", "not valid JSON"),
        (b"{} {}", "not valid JSON"),
        (b"\0\0\0", "not valid JSON"),
        (deep.as_bytes(), "not valid JSON: recursion"),
    ];
    let mut text = Vec::new();
    for (line, _) in &input {
        text.extend_from_slice(line);
        text.extend_from_slice(b"\n{\"id\":\"kept\"}\n");
    }
    let (good, bad) = files.outline(&text);
    assert_eq!(good, (1..=12).map(|i| 2 * i).collect::<Vec<_>>());
    for (i, (number, reason)) in bad.iter().enumerate() {
        assert_eq!(*number, 2 * i as u64 + 1);
        assert!(reason.contains(input[i].1) && reason.starts_with("record: "), "{reason}");
    }
}

#[test]
fn a_line_over_the_limit_is_passed_over() {
    let files = Files::new();
    let mut text = b"{\"a\":1}\n{\"a\":\"".to_vec();
    text.resize(50 << 20, b'x');
    text.extend_from_slice(b"\"}\n{\"a\":2}\n");
    let (good, bad) = files.outline(&text);
    assert_eq!(good, [1, 3]);
    assert_eq!(bad.len(), 1);
    assert!(bad[0].0 == 2 && bad[0].1.contains("52428794 bytes, more than the 16777216"), "{bad:?}");
    let exact = format!("{{\"a\":\"{}\"}}\n", "x".repeat(MAX_DOCUMENT_BYTES - 8));
    assert_eq!(files.outline(exact.as_bytes()), (vec![1], vec![]));
}

#[test]
fn a_cut_file_gives_its_whole_lines_and_one_reject() {
    let files = Files::new();
    let line = |i| format!("{{\"url\":\"{}\"}}\n", i * 7919 % 10_007);
    let text = (0..2000).map(line).collect::<Vec<_>>().concat();
    for whole in [gzip(text.as_bytes()), zstd_frames(text.as_bytes()), lz4(text.as_bytes())] {
        for part in [3, 5, 9] {
            let (good, bad) = files.outline(&whole[..whole.len() * part / 10]);
            assert!(good.len() < 2000 && good == (1..=good.len() as u64).collect::<Vec<_>>());
            assert_eq!(bad.len(), 1, "{bad:?}");
            assert!(bad[0].1.starts_with("file: it could be read up to line"), "{bad:?}");
        }
    }
    let mut wrong = gzip(text.as_bytes());
    let at = wrong.len() - 6;
    wrong[at] ^= 1;
    let (good, bad) = files.outline(&wrong);
    assert!(good.len() >= 1999 && bad.len() == 1);
}

#[test]
fn files_of_other_kinds_are_refused() {
    let files = Files::new();
    for (bytes, expected) in [(&b"filedesc://x 1 2 3"[..], "ARC file"), (b"BZh91AY", "bzip2")] {
        let refused = open(&files.write(bytes), None).err().unwrap().to_string();
        assert!(refused.contains(expected), "{refused}");
    }
    assert!(open(&files.write(&gzip(b"filedesc://x")), None).err().unwrap().to_string().contains("ARC"));
    assert!(open(files.0.path(), None).err().unwrap().to_string().contains("directory"));
    assert!(matches!(open(&files.0.path().join("none"), None), Err(Error::Io { .. })));
}

#[test]
fn archives_are_read_whatever_the_compression() {
    let files = Files::new();
    let parts = [
        warc("warcinfo", None, "application/warc-fields", b"software: x\r\n"),
        warc("request", None, "application/http", b"GET / HTTP/1.1\r\n\r\n"),
        response("<title>t</title><p>one <a href=two>link</a>"),
        warc("resource", None, "text/plain", b"plain words"),
        warc("conversion", None, "text/plain; charset=utf-8", "größe".as_bytes()),
        warc("metadata", None, "text/plain", b"x"),
        warc("resource", None, "image/png", b"x"),
    ];
    let whole = parts.concat();
    let members: Vec<u8> = parts.iter().flat_map(|part| gzip(part)).collect();
    let bare = String::from_utf8(whole.clone()).unwrap().replace("\r\n", "\n");
    let fixed = bare.replace("Content-Length: 70", "Content-Length: 67").replace("Length: 13", "Length: 12");
    for (i, input) in
        [whole.clone(), members, gzip(&whole), zstd_frames(&whole), lz4(&whole)].iter().enumerate()
    {
        let records = files.read(input);
        let numbers: Vec<_> = records.iter().map(|record| record.location.number).collect();
        assert_eq!(numbers, [3, 4, 5], "{i}");
        let page = records[0].content.as_ref().unwrap();
        assert_eq!((&page["url"], &page["title"]), (&"http://e.org/response".into(), &"t".into()));
        assert_eq!(page["body"], "one link");
        assert_eq!(records[0].links, [Link { url: "http://e.org/two".into(), text: "link".into() }]);
        assert_eq!(records[2].content.as_ref().unwrap()["body"], "größe");
    }
    assert!(files.read(fixed.as_bytes()).iter().any(|record| record.content.is_ok()));
}

#[test]
fn a_dictionary_frame_is_used() {
    let files = Files::new();
    let whole = [response("<p>one two three"), response("<p>four five six")].concat();
    let samples: Vec<Vec<u8>> = (0..200).map(|i| response(&format!("<p>sample {i} {}", i * 31))).collect();
    let dictionary = zstd::dict::from_samples(&samples, 4096).unwrap();
    let mut encoder = zstd::Encoder::with_dictionary(Vec::new(), 1, &dictionary).unwrap();
    encoder.write_all(&whole).unwrap();
    let frames = encoder.finish().unwrap();
    for stored in [dictionary.clone(), zstd::encode_all(&dictionary[..], 3).unwrap()] {
        let head = [&[0x5d, 0x2a, 0x4d, 0x18][..], &(stored.len() as u32).to_le_bytes(), &stored].concat();
        assert_eq!(files.outline(&[head, frames.clone()].concat()), (vec![1, 2], vec![]));
    }
    let huge = [0x5d, 0x2a, 0x4d, 0x18, 0xff, 0xff, 0xff, 0xff];
    assert!(open(&files.write(&huge), None).is_err());
}

#[test]
fn damaged_records_are_rejected_by_number_and_nothing_else_is_lost() {
    let files = Files::new();
    let good = || response("<p>good</p>");
    let plain = |length: &str| warc("resource", Some(length), "text/plain", b"some plain words");
    let cases = [
        ("too long", plain("40"), "cut off|length of 40 bytes is wrong"),
        ("far too long", plain("99999"), "cut off"),
        ("endless", plain("18446744073709551615"), "cut off"),
        ("too short", plain("3"), "length of 3 bytes is wrong"),
        ("no number", plain("x1"), "\"x1\" is not a length"),
        ("negative", plain("-1"), "\"-1\" is not a length"),
        ("overflow", plain("99999999999999999999999"), "is not a length"),
        ("empty length", plain(""), "is not a length"),
        ("no uri", b"WARC/1.0\r\nWARC-Type: resource\r\nContent-Type: text/plain\r\nContent-Length: 1\r\n\r\nx\r\n\r\n".to_vec(), "WARC-Target-URI: missing"),
        ("no http", warc("response", None, "application/http", b"<p>x"), "no HTTP status line"),
        ("rubbish", [good(), b"rubbish \xff\0\r\n\r\n".to_vec()].concat(), "is wrong: no header follows"),
        ("long header", [b"WARC/1.0\r\nX: ".to_vec(), vec![b'y'; 300_000], b"\r\n\r\n".to_vec()].concat(), "header cannot be read"),
    ];
    for (name, bad, expected) in cases {
        let (before, after) = (good(), [good(), good()].concat());
        let members = [gzip(&before), gzip(&bad), gzip(&good()), gzip(&good())].concat();
        let whole = [before, bad, after].concat();
        for (kind, input) in [("plain", whole.clone()), ("members", members), ("one member", gzip(&whole))] {
            if kind != "members" && name == "endless" {
                continue;
            }
            let (good, bad) = files.outline(&input);
            assert!(good.len() >= 3, "{name}, {kind}: {good:?} {bad:?}");
            assert!(!bad.is_empty() && bad.len() <= 2, "{name}, {kind}: {bad:?}");
            let known = expected.split('|').any(|expected| bad[0].1.contains(expected));
            assert!(known, "{name}, {kind}: {bad:?}");
        }
    }
}

#[test]
fn a_cut_archive_gives_its_whole_records_and_the_rest_once() {
    let files = Files::new();
    let parts: Vec<_> =
        (0..20).map(|i| response(&format!("<p>page {i} {}", "word ".repeat(i * 50)))).collect();
    let whole = parts.concat();
    let members: Vec<u8> = parts.iter().flat_map(|part| gzip(part)).collect();
    for input in [whole.clone(), members, gzip(&whole), zstd_frames(&whole)] {
        for end in (1..input.len()).step_by(input.len() / 60) {
            let path = files.write(&input[..end]);
            let records: Vec<_> = open(&path, Some(Format::Warc)).unwrap().collect();
            let good = records.iter().filter(|record| record.content.is_ok()).count();
            assert!(good <= 20 && records.len() - good <= 2, "{end}: {good} of {}", records.len());
            assert!(records[..good].iter().all(|record| record.content.is_ok()));
        }
    }
}

#[test]
fn any_changed_byte_is_survived() {
    let files = Files::new();
    let whole =
        [response("<p>one"), warc("resource", None, "text/plain", b"two"), response("<p>three")].concat();
    for input in [whole.clone(), gzip(&whole), zstd_frames(&whole), lz4(&whole)] {
        for at in (0..input.len()).step_by(3) {
            for byte in [0xff, b'9'] {
                let mut bad = input.clone();
                bad[at] = byte;
                if let Ok(records) = open(&files.write(&bad), Some(Format::Warc)) {
                    assert!(records.count() <= 5);
                }
            }
        }
    }
}

#[test]
fn wrong_digests_are_marked_and_kept() {
    let files = Files::new();
    let with = |digest: &str| {
        let text = String::from_utf8(warc("resource", None, "text/plain", b"two words")).unwrap();
        text.replace("Content-Type", &format!("WARC-Block-Digest: {digest}\r\nContent-Type"))
    };
    // SHA-1 of "two words" and others.
    for (digest, wrong) in [
        ("sha1:AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", true),
        ("sha1:RIGHT", false),
        ("none", false),
        ("md9:AAAA", false),
        ("sha1:", true),
    ] {
        let digest = digest.replace("RIGHT", "6bbd56a66ff1072a75f30df793911caccaef32c8");
        let records = files.read(with(&digest).as_bytes());
        assert!(records.len() == 1 && records[0].content.is_ok(), "{digest}");
        assert_eq!(records[0].wrong_digest, wrong, "{digest}");
    }
}

#[test]
fn a_file_that_is_no_archive_is_not_taken_for_an_empty_one() {
    let files = Files::new();
    let path = files.write(b"{\"url\":\"a\"}\n");
    let records: Vec<Record> = open(&path, Some(Format::Warc)).unwrap().collect();
    assert_eq!(records.len(), 1);
    let reject = records[0].content.as_ref().unwrap_err();
    assert!(records[0].last_of_damaged && reject.reason.contains("no record of a web archive"), "{reject:?}");
}
