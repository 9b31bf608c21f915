//! The query log: one JSON object a line for each sampled query, as roots write it and as builds, warm-up and judgement read it.
//! One type for both sides, so that what is written can be read.
//!
//! The failure this prevents: a log that one torn line, or one written by a newer release, makes unreadable as a whole. Rules:
//! unknown fields are passed over; a line that is no record is counted and passed over; lines and the number of distinct texts
//! are bounded, so that no file decides how much memory reading takes. A line is whole when it ends in a newline; the last may be
//! torn, because its writer was stopped. Units: `_ms` are milliseconds, `at_ms` since 1970 UTC.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufRead, BufReader, Read},
    path::Path,
};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// Keys of hits that a record holds at most.
pub const MAX_HITS: usize = 10;
/// Longest query text that a record holds, bytes.
pub const MAX_TEXT: usize = 8 << 10;
/// Longest line that is read, bytes.
const MAX_LINE: usize = 256 << 10;
/// Distinct texts that are counted at most; those that are first seen later are left out.
const MAX_TEXTS: usize = 1 << 18;

/// One query.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Record {
    /// 32 hex digits; a query that was logged twice has it twice.
    pub query_id: String,
    /// When it arrived.
    pub at_ms: i64,
    /// The corpus asked.
    pub corpus: String,
    /// What was asked, as the user wrote it; empty when it came as JSON.
    pub q: String,
    /// What was asked, when it came as JSON.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub query: String,
    /// Filters of it, as they came.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filter: Vec<String>,
    /// Hits wanted.
    #[serde(default)]
    pub k: u32,
    /// `interactive` or `batch`.
    #[serde(default)]
    pub priority: String,
    /// The version that it was answered from; 0: it never got to one.
    pub version: u64,
    /// What it was in a trial of a version: `treatment`, `control` or `shadowed`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arm: Option<String>,
    /// The version that could not answer it whole, so that `version` did; 0: none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub repinned_from: u64,
    /// `answered`, or the code of the error.
    pub outcome: String,
    /// How much was searched; none when the search never began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<Covered>,
    /// What was cut, in the words of answers.
    #[serde(default)]
    pub degraded: Vec<String>,
    /// Keys of the first hits, best first; at most [`MAX_HITS`].
    #[serde(default)]
    pub hits: Vec<String>,
    /// Documents that match, as far as they were counted.
    #[serde(default)]
    pub total: u64,
    /// From its arrival to its answer.
    pub took_ms: f64,
    /// The same by phase.
    #[serde(default)]
    pub phases: BTreeMap<String, f64>,
}

/// What an answer covers.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Covered {
    /// Nothing is missing.
    pub complete: bool,
    /// Documents searched or proved irrelevant.
    pub documents: u64,
    /// Documents of the version.
    pub documents_total: u64,
    /// Shards that answered.
    pub answered: u32,
    /// Shards of the corpus.
    pub shards: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_zero(version: &u64) -> bool {
    *version == 0
}

impl Record {
    /// The record as its line, with the newline.
    pub fn line(&self) -> Vec<u8> {
        let mut line = serde_json::to_vec(self).unwrap_or_default();
        line.push(b'\n');
        line
    }

    /// Whether it was answered with nothing missing.
    pub fn whole(&self) -> bool {
        self.outcome == "answered" && self.coverage.is_some_and(|coverage| coverage.complete)
    }
}

/// Whether a file's first line is one of a query log, and not a query.
pub fn is_record(line: &str) -> bool {
    line.trim_start().starts_with('{') && serde_json::from_str::<Record>(line).is_ok()
}

/// Reads records one after the other.
pub struct Reader<R> {
    from: R,
    path: String,
    passed_over: u64,
}

impl Reader<BufReader<File>> {
    /// Of a file. Errors: it can't be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io(path, source))?;
        Ok(Self { from: BufReader::new(file), path: path.display().to_string(), passed_over: 0 })
    }
}

impl<R: BufRead> Reader<R> {
    /// Lines so far that are no records: torn, or too long.
    pub fn passed_over(&self) -> u64 {
        self.passed_over
    }

    /// The next record, `None` at the end. Errors: the file can't be read on.
    pub fn next_record(&mut self) -> Result<Option<Record>> {
        loop {
            let mut line = Vec::new();
            let read = self.from.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut line);
            let whole = match read.map_err(|source| self.failed(source))? {
                0 => return Ok(None),
                _ if line.ends_with(b"\n") => true,
                read => read < MAX_LINE,
            };
            if !whole {
                self.passed_over += 1;
                self.advance_line()?;
                continue;
            }
            let line = line.trim_ascii();
            match serde_json::from_slice(line) {
                Ok(record) => return Ok(Some(record)),
                Err(_) => self.passed_over += u64::from(!line.is_empty()),
            }
        }
    }

    /// Leaves the rest of a line out without holding it.
    fn advance_line(&mut self) -> Result<()> {
        let mut rest = Vec::new();
        loop {
            rest.clear();
            let read = self.from.by_ref().take(MAX_LINE as u64).read_until(b'\n', &mut rest);
            if read.map_err(|source| self.failed(source))? == 0 || rest.ends_with(b"\n") {
                return Ok(());
            }
        }
    }

    fn failed(&self, source: std::io::Error) -> Error {
        Error::Io { path: self.path.clone(), source }
    }
}

/// The texts asked most often of a corpus, most often first, ties by text: what a version should be warm for. Only what was asked in
/// words and answered; at most `most`. Errors: the file can't be read.
pub fn most_asked(path: &Path, corpus: &str, most: usize) -> Result<Vec<String>> {
    let mut reader = Reader::open(path)?;
    let mut counts: BTreeMap<String, u64> = BTreeMap::new();
    while let Some(record) = reader.next_record()? {
        let text = record.q.trim();
        if record.corpus != corpus || record.outcome != "answered" || text.is_empty() || text.len() > MAX_TEXT
        {
            continue;
        }
        let full = counts.len() >= MAX_TEXTS;
        match counts.get_mut(text) {
            Some(count) => *count += 1,
            None if full => {}
            None => drop(counts.insert(text.to_owned(), 1)),
        }
    }
    let mut texts: Vec<(u64, String)> = counts.into_iter().map(|(text, count)| (count, text)).collect();
    texts.sort_by(|(a, one), (b, other)| b.cmp(a).then_with(|| one.cmp(other)));
    Ok(texts.into_iter().take(most).map(|(_, text)| text).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(q: &str) -> Record {
        Record {
            query_id: "0".repeat(32),
            at_ms: 1_700_000_000_000,
            corpus: "web".into(),
            q: q.into(),
            k: 10,
            version: 7,
            arm: Some("control".into()),
            outcome: "answered".into(),
            coverage: Some(Covered {
                complete: true,
                documents: 5,
                documents_total: 5,
                answered: 2,
                shards: 2,
            }),
            hits: vec!["https://example.org/".into()],
            took_ms: 1.5,
            phases: [("search".to_owned(), 1.0)].into(),
            ..Record::default()
        }
    }

    fn file(lines: &[Vec<u8>]) -> tempfile::NamedTempFile {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), lines.concat()).unwrap();
        file
    }

    #[test]
    fn a_record_reads_what_it_wrote_and_is_told_from_a_query() {
        let lines = file(&[record("red fox").line(), record("grüne\n\"Wiese\"").line()]);
        let mut reader = Reader::open(lines.path()).unwrap();
        assert_eq!(reader.next_record().unwrap(), Some(record("red fox")));
        assert_eq!(reader.next_record().unwrap(), Some(record("grüne\n\"Wiese\"")));
        assert_eq!((reader.next_record().unwrap(), reader.passed_over()), (None, 0));
        let line = String::from_utf8(record("x").line()).unwrap();
        assert!(is_record(&line) && record("x").whole());
        assert!(!is_record("red fox") && !is_record("{\"match\":\"fox\"}") && !is_record(""));
    }

    #[test]
    fn torn_long_and_foreign_lines_are_passed_over_and_newer_fields_too() {
        let newer = String::from_utf8(record("newer").line()).unwrap().replacen('{', "{\"unheard\":[1],", 1);
        let torn = record("torn").line()[..40].to_vec();
        let long = [vec![b'x'; 3 * MAX_LINE + 5], b"\n".to_vec()].concat();
        let lines = file(&[long, b"not a record\n\n".to_vec(), newer.into_bytes(), b"\xff\n".to_vec(), torn]);
        let mut reader = Reader::open(lines.path()).unwrap();
        assert_eq!(reader.next_record().unwrap().unwrap().q, "newer");
        assert_eq!((reader.next_record().unwrap(), reader.passed_over()), (None, 4));
        let whole_without_newline = file(&[record("last").line().trim_ascii_end().to_vec()]);
        assert_eq!(
            Reader::open(whole_without_newline.path()).unwrap().next_record().unwrap().unwrap().q,
            "last"
        );
    }

    #[test]
    fn what_is_asked_most_comes_first() {
        let other = Record { corpus: "news".into(), ..record("other corpus") };
        let failed = Record { outcome: "UNAVAILABLE".into(), ..record("failed") };
        let mut lines: Vec<_> = ["b", "a", " c ", "c", "", "c"].map(|q| record(q).line()).into();
        lines.extend([other.line(), failed.line()]);
        let lines = file(&lines);
        assert_eq!(most_asked(lines.path(), "web", 2).unwrap(), ["c", "a"]);
        assert_eq!(most_asked(lines.path(), "web", 9).unwrap(), ["c", "a", "b"]);
        assert!(most_asked(lines.path(), "none", 9).unwrap().is_empty());
        assert!(most_asked(Path::new("/nowhere/at/all"), "web", 9).is_err());
    }
}
