//! Merges the sorted term counts of the shards into one map, straight into the file, and behind it their spellings:
//! memory stays at one term per shard plus the builder's fixed tables, for any number of terms.
//!
//! The file: map of terms, map of spellings, lists of rules, then the lengths of the two maps (8 bytes each, low byte
//! first). Files of format 1 hold the map of terms only.
//!
//! Counts that cannot be (out of order, a term twice, none or more documents than there are) are refused: they would
//! shift the scores of every query without a trace.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fs::File,
    io::{BufWriter, Write},
    path::Path,
};

use super::{
    FILE, SEPARATOR,
    spellings::{Counting, SpellingWriter},
};
use crate::{
    checksum::Hashing,
    error::{Error, Result},
    manifest::{FileEntry, StatisticsEntry},
};

/// Term counts of one shard in byte order of their keys.
pub type Counts = Box<dyn Iterator<Item = Result<(Vec<u8>, u64)>> + Send>;

/// Merges term counts of the shards into one statistics file. Input: per shard, terms in byte order of (field, 0x1F,
/// term) with their document frequency; and in `spellings` words as written in byte order of (spelling, 0x1F, term),
/// with any count. Writes to `path`; returns id, length, checksum and counts as the entry. On an error the file is
/// removed.
pub fn write(
    path: &Path,
    documents: u64,
    tokens: BTreeMap<String, u64>,
    shards: Vec<Counts>,
    spellings: Vec<Counts>,
) -> Result<StatisticsEntry> {
    let written = write_file(path, documents, shards, spellings);
    if written.is_err() {
        // The error that counts is the first one.
        let _ = std::fs::remove_file(path);
    }
    let (terms, spellings, file) = written?;
    let spellings = Some(spellings);
    let entry = StatisticsEntry { id: String::new(), file, documents, tokens, terms, spellings };
    Ok(StatisticsEntry { id: id(&entry), ..entry })
}

/// The id that belongs to the content: file, documents and tokens.
pub(super) fn id(entry: &StatisticsEntry) -> String {
    let (documents, terms) = (entry.documents, entry.terms);
    let mut lines = match entry.spellings {
        None => vec![format!("statistics 1\n{}\n{documents}\n{terms}\n", entry.file.blake3)],
        Some(spellings) => {
            vec![format!("statistics 2\n{}\n{documents}\n{terms}\n{spellings}\n", entry.file.blake3)]
        }
    };
    lines.extend(entry.tokens.iter().map(|(field, tokens)| format!("{field} {tokens}\n")));
    blake3::hash(lines.concat().as_bytes()).to_hex()[..16].to_owned()
}

fn write_file(
    path: &Path,
    documents: u64,
    shards: Vec<Counts>,
    spellings: Vec<Counts>,
) -> Result<(u64, u64, FileEntry)> {
    let io = |source| Error::io(path, source);
    let fst = |error| match error {
        fst::Error::Io(source) => io(source),
        fst::Error::Fst(error) => invalid(error.to_string()),
    };
    let file = BufWriter::with_capacity(1 << 20, File::create(path).map_err(io)?);
    let writer = Counting { inner: Hashing::new(file), bytes: 0 };
    let mut builder = fst::MapBuilder::new(writer).map_err(fst)?;
    let mut merge = Merge::new(shards)?;
    let mut terms = 0;
    while let Some((key, frequency)) = merge.next()? {
        if frequency > documents {
            let reason = format!("{:?} is in {frequency} of {documents} documents", text(&key));
            return Err(invalid(reason));
        }
        builder.insert(&key, frequency).map_err(fst)?;
        terms += 1;
    }
    let writer = builder.into_inner().map_err(fst)?;
    let first = writer.bytes;
    let mut found = SpellingWriter::new(writer).map_err(fst)?;
    let mut merge = Merge::new(spellings)?;
    while let Some((key, _)) = merge.next()? {
        let (spelling, term) = parts(&key).ok_or_else(|| not_two(&key))?;
        found.add(spelling, term).map_err(fst)?;
    }
    let (mut writer, lists, spellings) = found.finish().map_err(fst)?;
    let second = writer.bytes - first;
    writer.write_all(&lists).map_err(io)?;
    writer.write_all(&first.to_le_bytes()).map_err(io)?;
    writer.write_all(&second.to_le_bytes()).map_err(io)?;
    writer.flush().map_err(io)?;
    let (writer, checksum) = writer.inner.into_parts();
    writer.into_inner().map_err(|error| io(error.into_error()))?.sync_all().map_err(io)?;
    Ok((terms, spellings, checksum.entry(FILE)))
}

/// The two parts of a key, neither of them empty.
fn parts(key: &[u8]) -> Option<(&str, &str)> {
    let (first, second) = str::from_utf8(key).ok()?.split_once(char::from(SEPARATOR))?;
    (!first.is_empty() && !second.is_empty()).then_some((first, second))
}

fn not_two(key: &[u8]) -> Error {
    invalid(format!("{:?} is not field, 0x1F, term", text(key)))
}

/// The shards' streams, the one with the smallest key first.
struct Merge {
    streams: Vec<Counts>,
    heads: BinaryHeap<Reverse<(Vec<u8>, usize, u64)>>,
}

impl Merge {
    fn new(streams: Vec<Counts>) -> Result<Self> {
        let mut merge = Self { heads: BinaryHeap::with_capacity(streams.len()), streams };
        (0..merge.streams.len()).try_for_each(|shard| merge.advance(shard, None))?;
        Ok(merge)
    }

    /// The next key with the sum of its counts.
    fn next(&mut self) -> Result<Option<(Vec<u8>, u64)>> {
        let Some(Reverse((key, shard, mut sum))) = self.heads.pop() else { return Ok(None) };
        self.advance(shard, Some(&key))?;
        while self.heads.peek().is_some_and(|Reverse((next, ..))| *next == key) {
            let Some(Reverse((_, shard, frequency))) = self.heads.pop() else { break };
            sum = sum.saturating_add(frequency);
            self.advance(shard, Some(&key))?;
        }
        Ok(Some((key, sum)))
    }

    fn advance(&mut self, shard: usize, last: Option<&[u8]>) -> Result<()> {
        let Some((key, frequency)) = self.streams[shard].next().transpose()? else { return Ok(()) };
        if last.is_some_and(|last| last >= key.as_slice()) {
            return Err(invalid(format!("the terms of input {shard} are not in order at {:?}", text(&key))));
        }
        if parts(&key).is_none() {
            return Err(not_two(&key));
        }
        if frequency == 0 {
            return Err(invalid(format!("{:?} is in no document", text(&key))));
        }
        self.heads.push(Reverse((key, shard, frequency)));
        Ok(())
    }
}

fn invalid(reason: String) -> Error {
    Error::Invalid { field: "statistics", reason }
}

fn text(key: &[u8]) -> String {
    String::from_utf8_lossy(&key[..key.len().min(80)]).into_owned()
}
