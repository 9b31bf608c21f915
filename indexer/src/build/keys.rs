//! Proves that no two documents of a version have the same key hash.
//!
//! A shard's own sort sees two keys with one 128-bit hash when both fall into that shard. But the shard comes from
//! another hash of the key, so such a pair may lie in two shards; and hits of equal score are ordered, merged and
//! looked up by key hash, so one of the two would vanish. Each shard writer therefore leaves a sorted file of its
//! hashes, and one merge over all files must find them distinct.

use std::{
    cmp::Reverse,
    collections::BinaryHeap,
    fs::File,
    io::{self, BufReader, BufWriter, Read, Write},
    path::{Path, PathBuf},
};

use canopy_common::ids::KeyHash;

use super::terms::FAN_IN;
use crate::error::{Error, Result};

const BUFFER: usize = 1 << 14;

/// Writes the hashes of one shard; they come sorted.
pub(crate) struct KeyWriter {
    path: PathBuf,
    out: BufWriter<File>,
}

impl KeyWriter {
    pub(crate) fn create(path: PathBuf) -> Result<Self> {
        let file = File::create(&path).map_err(Error::io(&path))?;
        Ok(Self { path, out: BufWriter::with_capacity(BUFFER, file) })
    }

    pub(crate) fn add(&mut self, key: KeyHash) -> Result<()> {
        self.out.write_all(&key.0.to_be_bytes()).map_err(Error::io(&self.path))
    }

    pub(crate) fn finish(mut self) -> Result<PathBuf> {
        self.out.flush().map_err(Error::io(&self.path))?;
        Ok(self.path)
    }
}

struct KeyReader {
    path: PathBuf,
    reader: BufReader<File>,
}

impl KeyReader {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).map_err(Error::io(path))?;
        Ok(Self { path: path.to_owned(), reader: BufReader::with_capacity(BUFFER, file) })
    }

    fn next(&mut self) -> Result<Option<u128>> {
        let mut bytes = [0; 16];
        match self.reader.read_exact(&mut bytes) {
            Ok(()) => Ok(Some(u128::from_be_bytes(bytes))),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(Error::io(&self.path)(error)),
        }
    }
}

/// The first hash that two of the sorted files have in common. Files above [`FAN_IN`] are merged in groups in
/// `directory`.
pub(crate) fn find_double(mut files: Vec<PathBuf>, directory: &Path) -> Result<Option<KeyHash>> {
    let mut made = 0;
    while files.len() > FAN_IN {
        let mut merged = vec![];
        for group in files.chunks(FAN_IN) {
            let mut writer = KeyWriter::create(directory.join(format!("keys-merged-{made:04}")))?;
            made += 1;
            if let Some(double) = merge(group, &mut |key| writer.add(key))? {
                return Ok(Some(double));
            }
            merged.push(writer.finish()?);
        }
        files = merged;
    }
    merge(&files, &mut |_| Ok(()))
}

fn merge(files: &[PathBuf], each: &mut dyn FnMut(KeyHash) -> Result<()>) -> Result<Option<KeyHash>> {
    let mut sources: Vec<KeyReader> =
        files.iter().map(|file| KeyReader::open(file)).collect::<Result<_>>()?;
    let mut heap = BinaryHeap::new();
    for (number, source) in sources.iter_mut().enumerate() {
        heap.extend(source.next()?.map(|key| Reverse((key, number))));
    }
    let mut last = None;
    while let Some(Reverse((key, number))) = heap.pop() {
        heap.extend(sources[number].next()?.map(|key| Reverse((key, number))));
        if last.replace(key) == Some(key) {
            return Ok(Some(KeyHash(key)));
        }
        each(KeyHash(key))?;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_in_two_of_many_files_is_found() {
        let directory = tempfile::tempdir().expect("temporary directory");
        let write = |file: u128, extra: Option<u128>| {
            let mut writer = KeyWriter::create(directory.path().join(format!("k{file}"))).expect("file");
            let mut keys: Vec<u128> = (0..50).map(|n| n * 1000 + file).chain(extra).collect();
            keys.sort_unstable();
            for key in keys {
                writer.add(KeyHash(key)).expect("key");
            }
            writer.finish().expect("file")
        };
        let distinct: Vec<_> = (0..300).map(|file| write(file, None)).collect();
        assert_eq!(find_double(distinct.clone(), directory.path()).expect("merge"), None);
        let mut double = distinct;
        double[299] = write(299, Some(7_001));
        assert_eq!(find_double(double, directory.path()).expect("merge"), Some(KeyHash(7_001)));
        assert_eq!(find_double(vec![], directory.path()).expect("merge"), None);
    }
}
