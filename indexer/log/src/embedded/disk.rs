//! The file system below the embedded log, as a seam: tests put one in its place that is full, that fails to sync, that writes
//! half, or that loses power. Positions are explicit, so that readers and the writer share a file. Units: bytes.

use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::Arc,
};

/// Something that is in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Its name.
    pub name: String,
    /// Whether it is a plain file.
    pub file: bool,
}

/// An open file.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads at a position; fewer bytes than wanted at the end of the file.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Writes at a position; perhaps fewer bytes than given.
    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize>;
    /// Makes the content durable.
    fn sync(&self) -> io::Result<()>;
    /// Cuts the file, durable after a sync.
    fn cut(&self, length: u64) -> io::Result<()>;
    /// Its length.
    fn length(&self) -> io::Result<u64>;
}

/// A file system.
pub trait Disk: Send + Sync + 'static {
    /// Makes a directory, and takes it for this process until what is returned is dropped. `WouldBlock`: somebody has it.
    fn take(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>>;
    /// What is in a directory.
    fn list(&self, dir: &Path) -> io::Result<Vec<Found>>;
    /// Makes a file, or empties one, for reading and writing.
    fn make(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file that is there for reading and writing.
    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>>;
    /// Puts a file in the place of another.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, path: &Path) -> io::Result<()>;
    /// Makes names durable.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;
    /// Bytes that can still be written.
    fn free(&self, dir: &Path) -> io::Result<u64>;
}

/// The machine's.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl DiskFile for File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }

    fn write_at(&self, bytes: &[u8], at: u64) -> io::Result<usize> {
        FileExt::write_at(self, bytes, at)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn cut(&self, length: u64) -> io::Result<()> {
        self.set_len(length)
    }

    fn length(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }
}

impl Disk for System {
    fn take(&self, dir: &Path) -> io::Result<Box<dyn Send + Sync>> {
        std::fs::create_dir_all(dir)?;
        let path = dir.join(super::open::LOCK);
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        file.try_lock()?;
        Ok(Box::new(file))
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<Found>> {
        std::fs::read_dir(dir)?
            .map(|entry| {
                let entry = entry?;
                let name = entry.file_name().to_string_lossy().into_owned();
                Ok(Found { name, file: entry.file_type()?.is_file() })
            })
            .collect()
    }

    fn make(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().create(true).truncate(true).read(true).write(true).open(path)?;
        Ok(Arc::new(file))
    }

    fn open(&self, path: &Path) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(OpenOptions::new().read(true).write(true).open(path)?))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn free(&self, dir: &Path) -> io::Result<u64> {
        canopy_common::disk::free(dir)
    }
}

/// Reads as much as there is, up to the buffer's length.
pub fn read_full(file: &dyn DiskFile, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut filled = 0;
    while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64) {
            Ok(0) => break,
            Ok(bytes) => filled += bytes,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// The whole file.
pub fn read_all(file: &dyn DiskFile) -> io::Result<Vec<u8>> {
    let length = usize::try_from(file.length()?).map_err(io::Error::other)?;
    let mut bytes = vec![0; length];
    let read = read_full(file, &mut bytes, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Writes all bytes, however few the system takes at a time.
pub fn write_full(file: &dyn DiskFile, mut bytes: &[u8], mut at: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.write_at(bytes, at) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                at += written as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Writes a file under another name, syncs it, and puts it in its place, so that a crash leaves the old one or the new one.
pub fn replace(disk: &dyn Disk, path: &Path, bytes: &[u8]) -> io::Result<Arc<dyn DiskFile>> {
    let mut name = path.as_os_str().to_owned();
    name.push(super::open::TEMPORARY);
    let temporary = Path::new(&name);
    let file = disk.make(temporary)?;
    write_full(&*file, bytes, 0)?;
    file.sync()?;
    disk.rename(temporary, path)?;
    if let Some(dir) = path.parent() {
        disk.sync_dir(dir)?;
    }
    Ok(file)
}
