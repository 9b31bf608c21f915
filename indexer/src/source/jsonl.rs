//! JSON lines: one object a line. Empty lines are skipped, a byte order mark at the start too. A line over the limit is
//! skipped without being kept, whatever its length.

use canopy_format::document::{MAX_DOCUMENT_BYTES, Reject};
use serde_json::{Map, Value};

use super::{Place, Record, reject, stream::Stream, too_large};

/// The records of a file.
pub(super) struct Lines {
    stream: Stream,
    place: Place,
    line: Vec<u8>,
    done: bool,
}

impl Lines {
    /// Around an opened file.
    pub(super) fn new(mut stream: Stream, place: Place) -> Self {
        if stream.peek(3) == "\u{feff}".as_bytes() {
            stream.skip(3);
        }
        Self { stream, place, line: Vec::new(), done: false }
    }

    /// Reads a line, without its end, into the buffer as far as it fits; its length, `None` at the end of the file.
    fn read_line(&mut self) -> Option<u64> {
        self.line.clear();
        let (mut bytes, mut ended) = (0_u64, false);
        while !ended {
            let chunk = self.stream.chunk();
            if chunk.is_empty() {
                return (bytes > 0).then_some(bytes);
            }
            let end = chunk.iter().position(|byte| *byte == b'\n');
            let content = &chunk[..end.unwrap_or(chunk.len())];
            bytes += content.len() as u64;
            if bytes <= MAX_DOCUMENT_BYTES as u64 {
                self.line.extend_from_slice(content);
            } else {
                self.line = Vec::new();
            }
            let taken = content.len() + usize::from(end.is_some());
            self.stream.take(taken);
            ended = end.is_some();
        }
        Some(bytes)
    }
}

impl Iterator for Lines {
    type Item = Record;

    fn next(&mut self) -> Option<Record> {
        while !self.done {
            let offset = self.stream.position();
            let line = self.read_line();
            self.place.number += 1;
            let read = self.stream.read_bytes();
            if let Some(failure) = self.stream.failure() {
                self.done = true;
                let whole = self.place.number - 1;
                let reason = format!("it could be read up to line {whole} only: {failure}");
                return Some(self.place.damage(offset, read, reason));
            }
            let content = match line {
                None => break,
                Some(bytes) if bytes > MAX_DOCUMENT_BYTES as u64 => Err(too_large("the line", bytes)),
                Some(_) if self.line.trim_ascii().is_empty() => continue,
                Some(_) => parse(&self.line),
            };
            return Some(self.place.record(offset, read, content));
        }
        self.done = true;
        None
    }
}

fn parse(line: &[u8]) -> Result<Map<String, Value>, Reject> {
    let text = std::str::from_utf8(line)
        .map_err(|error| reject("record", format!("byte {} is not UTF-8", error.valid_up_to() + 1)))?;
    match serde_json::from_str(text) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(other) => {
            let kind = match other {
                Value::Null => "null",
                Value::Bool(_) => "a bool",
                Value::Number(_) => "a number",
                Value::String(_) => "a string",
                _ => "an array",
            };
            Err(reject("record", format!("it is {kind}; a JSON object is needed")))
        }
        Err(error) => Err(reject("record", format!("it is not valid JSON: {error}"))),
    }
}
