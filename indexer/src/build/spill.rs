//! Sorted runs of rows on disk: what makes the size of the input independent of memory.
//!
//! A shard has one spill file; each run is one zstd frame appended to it. The window is small, because a merge has up
//! to [`super::sort::FAN_IN`] runs open and each holds a window. A run is written whole or the build fails; there is
//! nothing to recover.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufReader, BufWriter, Read, Seek, SeekFrom, Take, Write},
    path::{Path, PathBuf},
};

use super::row::Row;
use crate::error::{Error, Result};

/// zstd level: the fastest; spilled text shrinks to a third already.
const LEVEL: i32 = 1;
/// Base-2 logarithm of the zstd window, bytes.
const WINDOW_LOG: u32 = 17;
/// Bytes of hash, order and length before each row.
const HEAD: usize = 16 + 8 + 4;

/// One sorted run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    path: PathBuf,
    offset: u64,
    bytes: u64,
    rows: u64,
}

/// The spill file of one shard.
#[derive(Debug)]
pub(crate) struct Spill {
    path: PathBuf,
    length: u64,
    runs: Vec<Run>,
}

impl Spill {
    /// A spill file that does not exist until the first run.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, length: 0, runs: vec![] }
    }

    /// Appends a run; rows come sorted.
    pub(crate) fn append(&mut self, rows: impl Iterator<Item = Result<Row>>) -> Result<()> {
        let mut writer = self.open().map_err(Error::io(&self.path))?;
        let mut count = 0;
        for row in rows {
            write(&mut writer, &row?).map_err(Error::io(&self.path))?;
            count += 1;
        }
        let end = finish(writer).map_err(Error::io(&self.path))?;
        self.runs.push(Run {
            path: self.path.clone(),
            offset: self.length,
            bytes: end - self.length,
            rows: count,
        });
        self.length = end;
        Ok(())
    }

    fn open(&self) -> io::Result<zstd::Encoder<'static, BufWriter<File>>> {
        let mut file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path)?;
        file.seek(SeekFrom::Start(self.length))?;
        let mut encoder = zstd::Encoder::new(BufWriter::with_capacity(1 << 16, file), LEVEL)?;
        encoder.window_log(WINDOW_LOG)?;
        encoder.include_checksum(true)?;
        Ok(encoder)
    }

    /// The runs so far, oldest first.
    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Bytes written.
    pub(crate) fn bytes(&self) -> u64 {
        self.length
    }

    /// The file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Deletes the file.
    pub(crate) fn remove(self) -> Result<()> {
        if self.runs.is_empty() {
            return Ok(());
        }
        std::fs::remove_file(&self.path).map_err(Error::io(&self.path))
    }
}

fn write(writer: &mut impl Write, row: &Row) -> io::Result<()> {
    let length = u32::try_from(row.bytes.len()).map_err(io::Error::other)?;
    writer.write_all(&row.hash.to_le_bytes())?;
    writer.write_all(&row.order.to_le_bytes())?;
    writer.write_all(&length.to_le_bytes())?;
    writer.write_all(&row.bytes)
}

fn finish(writer: zstd::Encoder<'static, BufWriter<File>>) -> io::Result<u64> {
    let mut file = writer.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    file.stream_position()
}

/// Reads a run back.
pub(crate) struct RunReader {
    path: PathBuf,
    left: u64,
    reader: BufReader<zstd::Decoder<'static, BufReader<Take<File>>>>,
}

impl RunReader {
    /// Opens a run.
    pub(crate) fn open(run: &Run) -> Result<Self> {
        let open = || {
            let mut file = File::open(&run.path)?;
            file.seek(SeekFrom::Start(run.offset))?;
            let decoder =
                zstd::Decoder::with_buffer(BufReader::with_capacity(1 << 15, file.take(run.bytes)))?;
            io::Result::Ok(BufReader::with_capacity(1 << 15, decoder))
        };
        let reader = open().map_err(Error::io(&run.path))?;
        Ok(Self { path: run.path.clone(), left: run.rows, reader })
    }

    /// The next row.
    pub(crate) fn next(&mut self) -> Result<Option<Row>> {
        if self.left == 0 {
            return Ok(None);
        }
        self.left -= 1;
        self.read().map(Some).map_err(Error::io(&self.path))
    }

    fn read(&mut self) -> io::Result<Row> {
        let mut head = [0; HEAD];
        self.reader.read_exact(&mut head)?;
        let (hash, rest) = head.split_at(16);
        let (order, length) = rest.split_at(8);
        let length = u32::from_le_bytes(length.try_into().map_err(io::Error::other)?);
        let mut bytes = Vec::new();
        // grows as bytes arrive: a damaged length can't allocate by its number
        if (&mut self.reader).take(u64::from(length)).read_to_end(&mut bytes)? != length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Row {
            hash: u128::from_le_bytes(hash.try_into().map_err(io::Error::other)?),
            order: u64::from_le_bytes(order.try_into().map_err(io::Error::other)?),
            bytes: bytes.into_boxed_slice(),
        })
    }
}
