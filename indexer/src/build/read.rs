//! Reads the input files: each in its own order, several files at once, in batches that the validators take.
//!
//! Parsing is cheap beside analysis, so a reader only parses; everything that follows runs on the other threads. A
//! batch is bounded by size, not by count, so that a file of large documents does not fill memory. Every record gets
//! its place in the input (file, then record), which later decides between two records of one key: the order in which
//! threads happen to run never shows.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, AtomicUsize, Ordering},
};

use crossbeam_channel::Sender;
use serde_json::{Map, Value};

use super::{
    progress::{Amount, Progress, Stage},
    stop::Stop,
};
use crate::{
    error::{Error, Result},
    source::{self, Format, Record, Records},
};

/// Batches are sent at this size, estimated bytes of memory.
const BATCH_BYTES: usize = 1 << 20;
/// And at this many records.
const BATCH_RECORDS: usize = 256;
/// Bits of the record's number in its place; the file's number is above.
const RECORD_BITS: u32 = 40;
/// Most input files.
pub(crate) const MAX_INPUTS: usize = 1 << 20;

/// An input file, opened by the thread that reads it.
pub(crate) struct Input(Box<dyn Fn() -> Result<Records> + Send + Sync>);

impl Input {
    /// A file; its first bytes say what it is when `format` does not.
    pub(crate) fn file(path: PathBuf, format: Option<Format>) -> Self {
        Self(Box::new(move || source::open(&path, format)))
    }

    /// Records from elsewhere.
    #[cfg(test)]
    pub(crate) fn records(open: impl Fn() -> Result<Records> + Send + Sync + 'static) -> Self {
        Self(Box::new(open))
    }
}

/// Records of one file that follow each other.
pub(crate) struct Batch {
    /// Number of the batch, over all files, without gaps.
    pub(crate) number: u64,
    /// Place of the first record in the input.
    pub(crate) first: u64,
    pub(crate) records: Vec<Record>,
}

/// Hands out files and batch numbers to the reader threads.
pub(crate) struct Reader<'a> {
    inputs: &'a [Input],
    next_input: AtomicUsize,
    next_batch: AtomicU64,
    progress: &'a dyn Progress,
    stop: &'a Stop<'a>,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(inputs: &'a [Input], progress: &'a dyn Progress, stop: &'a Stop<'a>) -> Result<Self> {
        if inputs.len() > MAX_INPUTS {
            let reason = format!("{} files are more than {MAX_INPUTS}; join them", inputs.len());
            return Err(Error::Invalid { field: "input", reason });
        }
        let (next_input, next_batch) = (AtomicUsize::new(0), AtomicU64::new(0));
        Ok(Self { inputs, next_input, next_batch, progress, stop })
    }

    /// One reader thread: takes files until none is left.
    pub(crate) fn run(&self, out: &Sender<Batch>) -> Result<()> {
        loop {
            let number = self.next_input.fetch_add(1, Ordering::Relaxed);
            let Some(input) = self.inputs.get(number) else { return Ok(()) };
            self.read(number, input, out)?;
        }
    }

    fn read(&self, number: usize, input: &Input, out: &Sender<Batch>) -> Result<()> {
        let mut place = (number as u64) << RECORD_BITS;
        let (mut records, mut size, mut bytes) = (vec![], 0, 0);
        for record in (input.0)()? {
            size += record.content.as_ref().map_or(64, weight) + record.links.len() * 128;
            bytes += record.bytes;
            records.push(record);
            if size >= BATCH_BYTES || records.len() >= BATCH_RECORDS {
                place = self.send(place, std::mem::take(&mut records), std::mem::take(&mut bytes), out)?;
                size = 0;
            }
        }
        self.send(place, records, bytes, out).map(drop)
    }

    fn send(&self, first: u64, records: Vec<Record>, bytes: u64, out: &Sender<Batch>) -> Result<u64> {
        self.stop.check()?;
        let documents = records.len() as u64;
        if documents > 0 {
            let number = self.next_batch.fetch_add(1, Ordering::Relaxed);
            let batch = Batch { number, first, records };
            out.send(batch).map_err(|_| Error::Cancelled)?;
        }
        self.progress.advance(Stage::Read, Amount { documents, bytes });
        Ok(first + documents)
    }
}

/// Estimated memory of an object, bytes.
fn weight(object: &Map<String, Value>) -> usize {
    fn of(value: &Value) -> usize {
        64 + match value {
            Value::String(text) => text.len(),
            Value::Array(values) => values.iter().map(of).sum(),
            Value::Object(object) => weight(object),
            _ => 0,
        }
    }
    object.iter().map(|(name, value)| 32 + name.len() + of(value)).sum()
}
