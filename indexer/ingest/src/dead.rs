//! Dead letters of a corpus: what was refused for its content, by the ingest or by a leaf, with the reason. A person looks at them.
//!
//! The failure this prevents: nine of a billion documents that nobody can account for. Rules: a letter is on the disk before the
//! refusal is answered; a letter about a record of the log is kept once, though each replica sends it; the newest `kept` letters
//! are there, and at most twice as many; how many older ones are gone is known. Two files of one JSON object a line:
//! `letters.jsonl` grows and, when it holds `kept`, becomes `letters.old.jsonl`. A line that was cut by a crash is removed at the
//! start. Strangers' files in the directory are left alone.

use std::{
    collections::{BTreeSet, VecDeque},
    fs::{self, File, OpenOptions},
    io::{self, BufRead, BufReader, Read, Write},
    path::{Path, PathBuf},
};

use canopy_proto::ingest::DeadLetter;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// How much of a document is kept, bytes.
pub const MAX_DOCUMENT: usize = 4 << 10;
/// Longest reason, key and name, bytes.
const MAX_TEXT: usize = 2 << 10;
/// Longest line that is read, bytes.
const MAX_LINE: u64 = 128 << 10;

/// One of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
pub struct Letter {
    /// Which one, from 1.
    #[serde(default)]
    pub number: u64,
    /// When it was refused.
    pub at_us: i64,
    /// The key, as far as it is known.
    pub key: String,
    /// put, patch or delete, as far as it is known.
    pub op: String,
    /// Why it was refused.
    pub reason: String,
    /// `partition:offset` of one that was in the log.
    pub offset: String,
    /// Who refused it.
    pub by: String,
    /// As it came, cut.
    pub document: String,
}

impl Letter {
    /// Bounded, whatever it was made of.
    fn bounded(mut self) -> Self {
        for text in [&mut self.key, &mut self.op, &mut self.reason, &mut self.offset, &mut self.by] {
            cut(text, MAX_TEXT);
        }
        cut(&mut self.document, MAX_DOCUMENT);
        self
    }

    /// From the wire.
    pub fn from_wire(letter: DeadLetter) -> Self {
        let head = letter.document.get(..MAX_DOCUMENT).unwrap_or(&letter.document);
        let document = String::from_utf8_lossy(head).into_owned();
        let DeadLetter { at_us, key, op, reason, offset, by, .. } = letter;
        Self { number: 0, at_us, key, op, reason, offset, by, document }
    }

    /// To the wire.
    pub fn into_wire(self) -> DeadLetter {
        let Self { at_us, key, op, reason, offset, by, document, .. } = self;
        DeadLetter { at_us, key, op, reason, offset, by, document: document.into() }
    }
}

fn cut(text: &mut String, most: usize) {
    let end = (0..=most.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.truncate(end);
}

/// The letters of one corpus. Calls wait for the disk.
pub struct Dead {
    directory: PathBuf,
    kept: u64,
    state: Mutex<State>,
}

struct State {
    file: File,
    /// Length of the file, in bytes and letters.
    bytes: u64,
    lines: u64,
    /// Number of the next letter.
    next: u64,
    /// Number of the oldest letter that is kept.
    first: u64,
    /// Offsets of which there is a letter.
    seen: BTreeSet<String>,
}

impl Dead {
    /// Opens or makes them.
    pub fn open(directory: &Path, kept: u64) -> Result<Self> {
        let failed = |source| Error::io(directory, source);
        fs::create_dir_all(directory).map_err(failed)?;
        let (mut next, mut first, mut seen) = (1, None, BTreeSet::new());
        let mut note = |letter: Letter| {
            next = next.max(letter.number.saturating_add(1));
            first.get_or_insert(letter.number);
            if !letter.offset.is_empty() {
                seen.insert(letter.offset);
            }
        };
        read(&directory.join(OLD), &mut note).map_err(failed)?;
        let (lines, bytes) = read(&directory.join(NEW), &mut note).map_err(failed)?;
        let file = append_to(&directory.join(NEW)).map_err(failed)?;
        if file.metadata().map_err(failed)?.len() > bytes {
            file.set_len(bytes).map_err(failed)?;
        }
        let state = State { file, bytes, lines, next, first: first.unwrap_or(next), seen };
        Ok(Self { directory: directory.to_owned(), kept, state: Mutex::new(state) })
    }

    /// Keeps letters; how many of them are new.
    pub fn add(&self, letters: Vec<Letter>) -> Result<u64> {
        let mut state = self.state.lock();
        let (mut added, mut text) = (0, Vec::new());
        for letter in letters {
            let letter = Letter { number: state.next, ..letter.bounded() };
            if !letter.offset.is_empty() && !state.seen.insert(letter.offset.clone()) {
                continue;
            }
            // Strings and numbers only: writing it to memory can't fail.
            text.extend(serde_json::to_vec(&letter).unwrap_or_default());
            text.push(b'\n');
            state.next += 1;
            added += 1;
        }
        let failed = |source| Error::io(&self.directory, source);
        if added == 0 {
            return Ok(0);
        }
        if let Err(error) = state.file.write_all(&text).and_then(|()| state.file.sync_data()) {
            // Half a line would spoil the next one.
            let _as_well_as_it_goes = state.file.set_len(state.bytes);
            return Err(failed(error));
        }
        state.bytes += text.len() as u64;
        state.lines += added;
        if state.lines >= self.kept {
            self.rotate(&mut state).map_err(failed)?;
        }
        Ok(added)
    }

    fn rotate(&self, state: &mut State) -> io::Result<()> {
        fs::rename(self.directory.join(NEW), self.directory.join(OLD))?;
        state.file = append_to(&self.directory.join(NEW))?;
        File::open(&self.directory)?.sync_all()?;
        state.first = state.next - state.lines;
        (state.bytes, state.lines) = (0, 0);
        let first = state.first;
        let mut seen = BTreeSet::new();
        read(&self.directory.join(OLD), &mut |letter: Letter| {
            if letter.number >= first {
                seen.insert(letter.offset);
            }
        })?;
        state.seen = seen;
        Ok(())
    }

    /// The newest `last` of at most `most` bytes, oldest first, and how many older ones there were.
    pub fn last(&self, last: usize, most: usize) -> Result<(Vec<Letter>, u64)> {
        let state = self.state.lock();
        let (mut found, mut bytes) = (VecDeque::new(), 0);
        let size = |letter: &Letter| letter.document.len() + letter.key.len() + letter.reason.len() + 256;
        let mut keep = |letter: Letter| {
            bytes += size(&letter);
            found.push_back(letter);
            while found.len() > last || bytes > most {
                let Some(letter) = found.pop_front() else { return };
                bytes -= size(&letter);
            }
        };
        for name in [OLD, NEW] {
            read(&self.directory.join(name), &mut keep)
                .map_err(|source| Error::io(&self.directory, source))?;
        }
        Ok((found.into(), state.first - 1))
    }

    /// Removes the letters of a key from the disk; how many.
    pub fn forget(&self, key: &str) -> Result<u64> {
        let failed = |source| Error::io(&self.directory, source);
        let mut state = self.state.lock();
        let mut removed = 0;
        for name in [OLD, NEW] {
            removed += self.without(name, key).map_err(failed)?;
        }
        let (lines, bytes) = read(&self.directory.join(NEW), &mut |_| {}).map_err(failed)?;
        state.file = append_to(&self.directory.join(NEW)).map_err(failed)?;
        (state.lines, state.bytes) = (lines, bytes);
        Ok(removed)
    }

    /// Rewrites a file without the letters of a key.
    fn without(&self, name: &str, key: &str) -> io::Result<u64> {
        let (path, beside) = (self.directory.join(name), self.directory.join("rewritten"));
        let (mut rest, mut removed) = (Vec::new(), 0);
        let quoted = serde_json::Value::from(key).to_string();
        read(&path, &mut |letter: Letter| {
            if letter.key == key || letter.document.contains(&quoted) {
                removed += 1;
            } else {
                rest.extend(serde_json::to_vec(&letter).unwrap_or_default());
                rest.push(b'\n');
            }
        })?;
        if removed > 0 {
            let mut file = File::create(&beside)?;
            file.write_all(&rest)?;
            file.sync_all()?;
            fs::rename(&beside, &path)?;
            File::open(&self.directory)?.sync_all()?;
        }
        Ok(removed)
    }

    /// Letters that are kept, about, and those that are not any more.
    pub fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.next - state.first, state.first - 1)
    }
}

const NEW: &str = "letters.jsonl";
const OLD: &str = "letters.old.jsonl";

fn append_to(path: &Path) -> io::Result<File> {
    OpenOptions::new().create(true).append(true).open(path)
}

/// Reads whole lines; how many there are, and their bytes. What is no letter is passed over.
fn read(path: &Path, each: &mut impl FnMut(Letter)) -> io::Result<(u64, u64)> {
    let mut reader = match File::open(path) {
        Ok(file) => BufReader::new(file),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok((0, 0)),
        Err(error) => return Err(error),
    };
    let (mut lines, mut bytes, mut line) = (0, 0, Vec::new());
    loop {
        line.clear();
        let length = (&mut reader).take(MAX_LINE).read_until(b'\n', &mut line)?;
        if length == 0 || line.last() != Some(&b'\n') && (length as u64) < MAX_LINE {
            return Ok((lines, bytes));
        }
        lines += 1;
        bytes += length as u64;
        if let Ok(letter) = serde_json::from_slice(&line) {
            each(letter);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn letter(key: &str, offset: &str) -> Letter {
        let (key, offset) = (key.to_owned(), offset.to_owned());
        Letter { key, offset, reason: "no date".to_owned(), ..Letter::default() }
    }

    fn keys(dead: &Dead, last: usize) -> Vec<String> {
        dead.last(last, 1 << 20).unwrap().0.into_iter().map(|letter| letter.key).collect()
    }

    #[test]
    fn letters_survive_a_restart_and_a_cut_line_is_removed() {
        let directory = tempfile::tempdir().unwrap();
        let open = || Dead::open(directory.path(), 10).unwrap();
        fs::write(directory.path().join(".tmp123"), "x").unwrap();
        assert_eq!(open().add(vec![letter("a", ""), letter("b", "3:7")]).unwrap(), 2);
        append_to(&directory.path().join(NEW)).unwrap().write_all(b"{\"number\":3,\"at").unwrap();
        let dead = open();
        assert_eq!(dead.add(vec![letter("b", "3:7"), letter("c", "3:8")]).unwrap(), 1, "a replica's own");
        assert_eq!(keys(&open(), 9), ["a", "b", "c"]);
        assert_eq!(keys(&dead, 2), ["b", "c"]);
        assert_eq!(dead.last(9, 1 << 20).unwrap().0.last().unwrap().number, 3);
    }

    #[test]
    fn the_newest_are_kept_and_the_others_counted() {
        let directory = tempfile::tempdir().unwrap();
        let dead = Dead::open(directory.path(), 3).unwrap();
        for n in 0..8 {
            dead.add(vec![letter(&n.to_string(), "")]).unwrap();
        }
        assert_eq!(keys(&dead, 100), ["3", "4", "5", "6", "7"]);
        assert_eq!(dead.last(100, 1 << 20).unwrap().1, 3);
        assert_eq!(dead.counts(), (5, 3));
        assert_eq!(Dead::open(directory.path(), 3).unwrap().counts(), (5, 3));
        assert_eq!(dead.last(100, 600).unwrap().0.len(), 2, "an answer is bounded by bytes too");
    }

    #[test]
    fn an_erased_key_is_in_no_byte_of_the_files() {
        let directory = tempfile::tempdir().unwrap();
        let dead = Dead::open(directory.path(), 2).unwrap();
        for key in ["keep", "secret", "keep", "secret", "also"] {
            let document = format!("{{\"key\":\"{key}\"}}");
            dead.add(vec![Letter { document, ..letter(key, "") }]).unwrap();
        }
        assert_eq!(dead.forget("secret").unwrap(), 1, "the older one was dropped already");
        dead.add(vec![letter("later", "")]).unwrap();
        for file in fs::read_dir(directory.path()).unwrap() {
            let text = fs::read_to_string(file.unwrap().path()).unwrap();
            assert!(!text.contains("secret"), "{text}");
        }
        assert_eq!(keys(&dead, 9).last().unwrap(), "later");
    }

    #[test]
    fn a_letter_is_bounded() {
        let long =
            Letter { document: "é".repeat(MAX_DOCUMENT), reason: "r".repeat(9999), ..letter("k", "") };
        let bounded = long.bounded();
        assert_eq!((bounded.document.len(), bounded.reason.len()), (MAX_DOCUMENT, MAX_TEXT));
    }
}
