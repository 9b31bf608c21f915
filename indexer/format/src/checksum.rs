//! Length and BLAKE3 of what is read or written, taken while the bytes pass, so that no file is read twice.

use std::{
    fs::File,
    io::{self, Read, Write},
    path::Path,
};

use crate::{
    error::{Error, Result},
    manifest::FileEntry,
};

/// Bytes read at a time.
pub(crate) const BLOCK: usize = 1 << 20;

/// Counts and hashes what passes.
#[derive(Default)]
pub struct Checksum {
    hasher: blake3::Hasher,
    bytes: u64,
}

impl Checksum {
    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hasher.update(bytes);
        self.bytes += bytes.len() as u64;
    }

    /// The entry of a file with this content.
    pub fn entry(&self, path: &str) -> FileEntry {
        FileEntry {
            path: path.to_owned(),
            bytes: self.bytes,
            blake3: self.hasher.finalize().to_hex().as_str().to_owned(),
        }
    }
}

/// A writer that hashes what it passes on.
pub struct Hashing<W> {
    inner: W,
    checksum: Checksum,
}

impl<W: Write> Hashing<W> {
    /// Around a writer.
    pub fn new(inner: W) -> Self {
        Self { inner, checksum: Checksum::default() }
    }

    /// The writer, and the checksum of what was written.
    pub fn into_parts(self) -> (W, Checksum) {
        (self.inner, self.checksum)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.checksum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl FileEntry {
    /// The entry of a local file under the path `name`, by reading it. Blocking.
    pub fn of_file(file: &Path, name: &str) -> Result<Self> {
        let mut source = File::open(file).map_err(|source| Error::io(file, source))?;
        let mut checksum = Checksum::default();
        let mut block = vec![0; BLOCK];
        loop {
            match source.read(&mut block) {
                Ok(0) => return Ok(checksum.entry(name)),
                Ok(read) => checksum.update(&block[..read]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Error::io(file, error)),
            }
        }
    }

    /// Checks what was found in this entry's place; the error says what differs.
    pub fn check(&self, found: &Self) -> Result<()> {
        let reason = if self.bytes != found.bytes {
            format!("it has {} bytes, the manifest says {}", found.bytes, self.bytes)
        } else if !self.blake3.eq_ignore_ascii_case(&found.blake3) {
            format!("its BLAKE3 is {}, the manifest says {}", found.blake3, self.blake3)
        } else {
            return Ok(());
        };
        Err(Error::Damaged { file: self.path.clone(), reason })
    }

    /// Checks bytes against this entry; the length first.
    pub fn check_bytes(&self, bytes: &[u8]) -> Result<()> {
        let mut checksum = Checksum::default();
        if bytes.len() as u64 == self.bytes {
            checksum.update(bytes);
        } else {
            checksum.bytes = bytes.len() as u64;
        }
        self.check(&checksum.entry(&self.path))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_writing_and_bytes_agree() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let content: Vec<u8> = (0..3_000_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        let mut writer = Hashing::new(File::create(&path).unwrap());
        content.chunks(4321).for_each(|chunk| writer.write_all(chunk).unwrap());
        writer.flush().unwrap();
        let written = writer.into_parts().1.entry("a/file");
        assert_eq!(written, FileEntry::of_file(&path, "a/file").unwrap());
        assert_eq!(written.blake3, blake3::hash(&content).to_hex().as_str());
        written.check_bytes(&content).unwrap();
        let short = written.check_bytes(&content[1..]).unwrap_err().to_string();
        assert_eq!(short, "a/file is damaged: it has 2999999 bytes, the manifest says 3000000");
        let mut other = content.clone();
        other[1_500_000] ^= 1;
        assert!(written.check_bytes(&other).unwrap_err().to_string().contains("its BLAKE3 is"));
        assert!(FileEntry::of_file(&directory.path().join("none"), "x").is_err());
    }
}
