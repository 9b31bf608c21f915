//! Records that are not documents: one line of JSON each in the reject file, a count always, and a limit on their
//! share.
//!
//! Validation runs on several threads, so lines come out of order; a batch waits here until the ones before it have
//! been written. At most the batches in flight wait.

use std::{
    collections::BTreeMap,
    fs::File,
    io::{BufWriter, Write},
    path::PathBuf,
};

use parking_lot::Mutex;
use serde::Serialize;

use crate::error::{Error, Result};

/// Lines kept for the report.
const SAMPLES: usize = 10;
/// And at most, damaged files included.
const MOST: usize = 100;
/// Longest reason written, bytes: a reason may quote the record.
const MAX_REASON: usize = 512;

/// A rejected record, or a field that was dropped from a record that stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RejectLine {
    /// Input file.
    pub file: String,
    /// Line, record or byte offset in it, as the reader counts.
    pub line: u64,
    /// Field at fault; `record` for the whole.
    pub field: String,
    /// Why.
    pub reason: String,
    /// The document was kept without this field.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub kept: bool,
}

impl std::fmt::Display for RejectLine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}: {}", self.file, self.line, self.field, self.reason)
    }
}

/// Where rejects go.
pub(crate) struct Rejects {
    path: Option<PathBuf>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    waiting: BTreeMap<u64, Vec<RejectLine>>,
    writer: Option<BufWriter<File>>,
    samples: Vec<RejectLine>,
}

impl Rejects {
    /// Creates the file at once, so that a path that can't be written is known before the work.
    pub(crate) fn create(path: Option<PathBuf>) -> Result<Self> {
        let writer = match &path {
            Some(path) => Some(BufWriter::new(File::create(path).map_err(Error::io(path))?)),
            None => None,
        };
        Ok(Self { path, state: Mutex::new(State { writer, ..State::default() }) })
    }

    /// Takes the lines of batch `number` (counted from 0 without gaps).
    pub(crate) fn add(&self, number: u64, lines: Vec<RejectLine>) -> Result<()> {
        let mut state = self.state.lock();
        state.waiting.insert(number, lines);
        let mut next = state.next;
        while let Some(lines) = state.waiting.remove(&next) {
            next += 1;
            state.next = next;
            for line in lines {
                self.write(&mut state, line)?;
            }
        }
        Ok(())
    }

    fn write(&self, state: &mut State, mut line: RejectLine) -> Result<()> {
        let end = line.reason.floor_char_boundary(MAX_REASON);
        line.reason.truncate(end);
        if let (Some(writer), Some(path)) = (&mut state.writer, &self.path) {
            let result = serde_json::to_writer(&mut *writer, &line).map_err(std::io::Error::from);
            result.and_then(|()| writer.write_all(b"\n")).map_err(Error::io(path))?;
        }
        // a file that is cut off is one reject and many lost records: it is always shown
        if !line.kept && (line.field == "file" || state.samples.len() < SAMPLES) && state.samples.len() < MOST
        {
            state.samples.push(line);
        }
        Ok(())
    }

    /// Ends the file; the first rejected records.
    pub(crate) fn finish(&self) -> Result<Vec<RejectLine>> {
        let mut state = self.state.lock();
        if let (Some(mut writer), Some(path)) = (state.writer.take(), &self.path) {
            writer.flush().map_err(Error::io(path))?;
        }
        Ok(std::mem::take(&mut state.samples))
    }

    /// Fails when more than the allowed share was rejected.
    pub(crate) fn judge(
        &self,
        read: u64,
        rejected: u64,
        limit: f64,
        first: Option<&RejectLine>,
    ) -> Result<()> {
        if rejected as f64 <= limit * read as f64 {
            return Ok(());
        }
        let file = self.path.as_ref().map(|path| path.display().to_string());
        let first = first.map(ToString::to_string);
        Err(Error::Rejects { rejected, read, limit_percent: limit * 100.0, file, first })
    }
}
