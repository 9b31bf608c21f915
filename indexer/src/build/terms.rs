//! The terms of a shard with their document frequency, written by the shard's thread for the statistics: one sorted
//! file per segment, entries (length, key, document frequency), key = field name, 0x1F, term.
//!
//! The statistics merge the files of all shards in one pass. Above [`FAN_IN`] files they are merged in groups first, so
//! that open files stay few.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use canopy_format::error::Error as FormatError;
use tantivy::SegmentReader;

use crate::{
    error::{Error, Result},
    index_schema::IndexSchema,
    read_back,
};

/// Most files merged at once.
pub(crate) const FAN_IN: usize = 128;
/// Between a field's name and a term.
const SEPARATOR: u8 = 0x1f;
/// Buffer of each file, bytes.
const BUFFER: usize = 1 << 15;

/// Writes the terms of every segment of the index in `index` to files in `directory`.
pub(crate) fn write_all(index: &Path, schema: &IndexSchema, directory: &Path) -> Result<Vec<PathBuf>> {
    let engine = read_back::index(index, "shard")?;
    let segments = engine.searchable_segments().map_err(Error::engine("open shard"))?;
    let mut paths = vec![];
    for (number, segment) in segments.iter().enumerate() {
        let reader = SegmentReader::open(segment).map_err(Error::engine("open segment"))?;
        let path = directory.join(format!("terms-{number:04}"));
        write(&reader, schema, &path)?;
        paths.push(path);
    }
    Ok(paths)
}

fn write(reader: &SegmentReader, schema: &IndexSchema, path: &Path) -> Result<()> {
    let file = File::create(path).map_err(Error::io(path))?;
    let mut out = BufWriter::with_capacity(BUFFER, file);
    for (name, field) in schema.text_fields() {
        let mut key = name.as_bytes().to_vec();
        key.push(SEPARATOR);
        let prefix = key.len();
        let index = reader.inverted_index(field).map_err(Error::engine("read terms"))?;
        let mut terms = index.terms().stream().map_err(Error::io(path))?;
        while let Some((term, info)) = terms.next() {
            key.truncate(prefix);
            key.extend_from_slice(term);
            put(&mut out, &key, u64::from(info.doc_freq)).map_err(Error::io(path))?;
        }
    }
    out.flush().map_err(Error::io(path))
}

pub(crate) fn put(out: &mut impl Write, key: &[u8], frequency: u64) -> io::Result<()> {
    out.write_all(&u32::try_from(key.len()).map_err(io::Error::other)?.to_le_bytes())?;
    out.write_all(&frequency.to_le_bytes())?;
    out.write_all(key)
}

/// Reads a file of terms.
pub(crate) struct Terms {
    path: PathBuf,
    reader: BufReader<File>,
}

impl Terms {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_owned(), reader: BufReader::with_capacity(BUFFER, file) })
    }

    fn read(&mut self) -> io::Result<Option<(Vec<u8>, u64)>> {
        let mut head = [0; 12];
        if self.reader.read(&mut head[..1])? == 0 {
            return Ok(None);
        }
        self.reader.read_exact(&mut head[1..])?;
        let (length, frequency) = head.split_at(4);
        let length = u32::from_le_bytes(length.try_into().map_err(io::Error::other)?);
        let frequency = u64::from_le_bytes(frequency.try_into().map_err(io::Error::other)?);
        let mut key = vec![];
        if (&mut self.reader).take(u64::from(length)).read_to_end(&mut key)? != length as usize {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(Some((key, frequency)))
    }
}

impl Iterator for Terms {
    type Item = canopy_format::error::Result<(Vec<u8>, u64)>;

    fn next(&mut self) -> Option<Self::Item> {
        let read = self.read();
        read.map_err(|source| FormatError::Io { path: self.path.display().to_string(), source }).transpose()
    }
}

/// Merges files in groups until at most [`FAN_IN`] are left. What is merged gets names that begin with `name`.
pub(crate) fn reduce(mut files: Vec<PathBuf>, directory: &Path, name: &str) -> Result<Vec<PathBuf>> {
    let mut made = 0;
    while files.len() > FAN_IN {
        let mut merged = vec![];
        for group in files.chunks(FAN_IN) {
            let path = directory.join(format!("{name}-merged-{made:04}"));
            made += 1;
            merge(group, &path)?;
            merged.push(path);
        }
        files = merged;
    }
    Ok(files)
}

fn merge(files: &[PathBuf], path: &Path) -> Result<()> {
    let mut sources: Vec<Terms> = files.iter().map(|file| Terms::open(file)).collect::<Result<_>>()?;
    let mut heap = BinaryHeap::new();
    for (number, source) in sources.iter_mut().enumerate() {
        heap.extend(source.next().transpose()?.map(|(key, frequency)| Reverse((key, number, frequency))));
    }
    let file = File::create(path).map_err(Error::io(path))?;
    let mut out = BufWriter::with_capacity(BUFFER, file);
    let mut last: Option<(Vec<u8>, u64)> = None;
    while let Some(Reverse((key, number, frequency))) = heap.pop() {
        heap.extend(sources[number].next().transpose()?.map(|(key, count)| Reverse((key, number, count))));
        match &mut last {
            Some((known, sum)) if *known == key => *sum += frequency,
            _ => {
                if let Some((known, sum)) = last.replace((key, frequency)) {
                    put(&mut out, &known, sum).map_err(Error::io(path))?;
                }
            }
        }
    }
    if let Some((known, sum)) = last {
        put(&mut out, &known, sum).map_err(Error::io(path))?;
    }
    out.flush().map_err(Error::io(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_files_merge_to_few_with_their_frequencies_summed() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let mut files = vec![];
        for number in 0..300u64 {
            let path = directory.path().join(format!("t{number}"));
            let mut out = File::create(&path).expect("file");
            put(&mut out, b"body\x1fa", 1).expect("term");
            put(&mut out, format!("body\x1fx{number:04}").as_bytes(), number).expect("term");
            files.push(path);
        }
        let merged = reduce(files, directory.path(), "terms").expect("merge");
        assert_eq!(merged.len(), 3);
        let all: Vec<_> = merged
            .iter()
            .flat_map(|path| Terms::open(path).expect("open").collect::<Vec<_>>())
            .map(|entry| entry.expect("term"))
            .collect();
        let common: u64 = all.iter().filter(|(key, _)| key == b"body\x1fa").map(|(_, count)| count).sum();
        assert_eq!((common, all.len()), (300, 300 + 3));
    }
}
