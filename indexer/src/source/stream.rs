//! The bytes of an input file, decompressed, with what the readers need to find their way after damage: the position,
//! the borders between gzip members, a way to put bytes back, and the first error, kept.
//!
//! An error ends the stream like the end of the file does; who reads it asks [`Stream::failure`] to tell the two apart.
//! So no reader can loop on an error, and all whole records before it are delivered.

use std::{
    any::Any,
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom},
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use fastwarc::stream_io::{lz4::Lz4Reader, traits::WarcRead};

use super::members::Members;
use crate::error::{Error, Result};

/// Buffer in front of the file, bytes.
const BUFFER: usize = 256 << 10;
/// Largest dictionary of a compressed archive, bytes.
const MAX_DICTIONARY: u64 = 4 << 20;
/// Bytes shown to who decides about the format.
const HEAD: usize = 16;

/// A decompressed file.
pub(super) struct Stream {
    inner: Inner,
    /// Bytes of the file read, compressed.
    read: Arc<AtomicU64>,
    /// Bytes taken, decompressed; bytes put back are taken off.
    position: u64,
    /// Bytes put back, and how many of them were taken again.
    back: (Vec<u8>, usize),
    /// Ends before a gzip member that begins with a record.
    held: bool,
    failure: Option<String>,
}

enum Inner {
    Plain(BufReader<Counted>),
    Gzip(Box<Members<BufReader<Counted>>>),
    /// Zstandard and LZ4.
    Framed(Box<dyn BufRead + Send>),
}

/// Opens a file; its first bytes (none when they cannot be read: the stream's failure says why).
pub(super) fn open(path: &Path) -> Result<(Stream, Vec<u8>)> {
    let file = File::open(path).map_err(Error::io(path))?;
    if file.metadata().map_err(Error::io(path))?.is_dir() {
        return Err(Error::Invalid { field: "input", reason: format!("{} is a directory", path.display()) });
    }
    let read = Arc::new(AtomicU64::new(0));
    let mut file = BufReader::with_capacity(BUFFER, Counted { file, read: read.clone() });
    let magic = file.fill_buf().map_err(Error::io(path))?;
    let inner = match magic {
        [0x1f, 0x8b, ..] => Inner::Gzip(Box::new(Members::new(file))),
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Inner::Framed(Box::new(BufReader::with_capacity(BUFFER, zstd(file).map_err(Error::io(path))?)))
        }
        [0x04, 0x22, 0x4d, 0x18, ..] => Inner::Framed(Box::new(Lz4Reader::new(file))),
        _ => Inner::Plain(file),
    };
    let mut stream = Stream { inner, read, position: 0, back: (Vec::new(), 0), held: false, failure: None };
    let head = stream.peek(HEAD);
    Ok((stream, head))
}

/// A Zstandard file; web archives may begin with a frame that holds the dictionary of all others.
fn zstd(mut file: BufReader<Counted>) -> io::Result<zstd::Decoder<'static, BufReader<Counted>>> {
    if !file.fill_buf()?.starts_with(&[0x5d, 0x2a, 0x4d, 0x18]) {
        return zstd::Decoder::with_buffer(file);
    }
    let mut head = [0; 8];
    file.read_exact(&mut head)?;
    let bytes = u64::from(u32::from_le_bytes([head[4], head[5], head[6], head[7]]));
    let mut dictionary = Vec::new();
    let mut frame = file.by_ref().take(bytes.min(MAX_DICTIONARY));
    if bytes <= MAX_DICTIONARY {
        frame.read_to_end(&mut dictionary)?;
    }
    if dictionary.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let compressed = std::mem::take(&mut dictionary);
        zstd::Decoder::new(&compressed[..])?.take(MAX_DICTIONARY + 1).read_to_end(&mut dictionary)?;
    }
    if dictionary.is_empty() || dictionary.len() as u64 > MAX_DICTIONARY {
        let reason = format!("its dictionary must have 1 to {MAX_DICTIONARY} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, reason));
    }
    zstd::Decoder::with_dictionary(file, &dictionary)
}

impl Stream {
    /// Bytes of the file read so far.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Bytes taken so far.
    pub(super) fn position(&self) -> u64 {
        self.position
    }

    /// What ended the stream, if it was not the end of the file.
    pub(super) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    /// While held, the stream ends before a gzip member that begins with a record.
    pub(super) fn hold(&mut self, held: bool) {
        self.held = held;
    }

    /// The next bytes, at most what is buffered at once; empty at the end, also at that of a held member.
    pub(super) fn chunk(&mut self) -> &[u8] {
        if self.back.1 < self.back.0.len() {
            return &self.back.0[self.back.1..];
        }
        if self.failure.is_some() {
            return &[];
        }
        let held = self.held;
        match self.inner.next(held) {
            Ok(bytes) => bytes,
            Err(error) => {
                self.failure = Some(error.to_string());
                &[]
            }
        }
    }

    /// Takes bytes of the last chunk.
    pub(super) fn take(&mut self, amount: usize) {
        self.position += amount as u64;
        if self.back.1 < self.back.0.len() {
            self.back.1 += amount;
            return;
        }
        match &mut self.inner {
            Inner::Plain(inner) => inner.consume(amount),
            Inner::Gzip(inner) => inner.consume(amount),
            Inner::Framed(inner) => inner.consume(amount),
        }
    }

    /// Puts bytes back that were taken last.
    pub(super) fn put_back(&mut self, bytes: &[u8]) {
        self.position = self.position.saturating_sub(bytes.len() as u64);
        let rest = self.back.0.split_off(self.back.1.min(self.back.0.len()));
        self.back = ([bytes, &rest].concat(), 0);
    }

    /// Appends the next bytes to `out`, at most `limit`; fewer only at the end.
    pub(super) fn read_into(&mut self, out: &mut Vec<u8>, limit: u64) {
        let mut left = limit;
        while left > 0 {
            let chunk = self.chunk();
            let taken = (chunk.len() as u64).min(left) as usize;
            if taken == 0 {
                return;
            }
            out.extend_from_slice(&chunk[..taken]);
            self.take(taken);
            left -= taken as u64;
        }
    }

    /// Takes the next bytes without keeping them; how many there were.
    pub(super) fn skip(&mut self, amount: u64) -> u64 {
        let mut left = amount;
        while left > 0 {
            let taken = (self.chunk().len() as u64).min(left);
            if taken == 0 {
                break;
            }
            self.take(taken as usize);
            left -= taken;
        }
        amount - left
    }

    /// The next bytes, at most `limit`, without taking them.
    pub(super) fn peek(&mut self, limit: usize) -> Vec<u8> {
        let chunk = self.chunk();
        if chunk.len() >= limit {
            return chunk[..limit].to_vec();
        }
        let mut bytes = Vec::new();
        self.read_into(&mut bytes, limit as u64);
        self.put_back(&bytes);
        bytes
    }
}

impl Inner {
    fn next(&mut self, held: bool) -> io::Result<&[u8]> {
        match self {
            Self::Plain(inner) => retry(inner),
            Self::Gzip(inner) => {
                inner.fill_buf()?;
                let border = held && inner.at_border();
                let bytes = inner.fill_buf()?;
                Ok(if border && bytes.starts_with(b"WARC/") { &[] } else { bytes })
            }
            Self::Framed(inner) => {
                // An empty frame looks like the end once; only a second look without progress is the end.
                for _ in 0..8 {
                    if !inner.fill_buf()?.is_empty() {
                        break;
                    }
                }
                inner.fill_buf()
            }
        }
    }
}

fn retry(inner: &mut impl BufRead) -> io::Result<&[u8]> {
    loop {
        match inner.fill_buf() {
            Ok(_) => return inner.fill_buf(),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// A file that counts what was read from it.
struct Counted {
    file: File,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.file.read(out)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl Seek for Counted {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

// The archive parser wants a reader of its own kind. It never seeks, it only asks for the position.

impl Read for Stream {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.chunk().read(out)?;
        self.take(read);
        Ok(read)
    }
}

impl BufRead for Stream {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.chunk())
    }

    fn consume(&mut self, amount: usize) {
        self.take(amount);
    }
}

impl Seek for Stream {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        match to {
            SeekFrom::Current(0) => Ok(self.position),
            _ => Err(io::Error::from(io::ErrorKind::Unsupported)),
        }
    }
}

impl WarcRead for Stream {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }

    fn inner_seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.seek(to)
    }

    fn inner_stream_position(&mut self) -> io::Result<u64> {
        Ok(self.position)
    }

    fn is_stream_decoder(&self) -> bool {
        true
    }
}
