//! The files of a shard as the engine reads them: exactly those of the manifest, each mapped into memory through the
//! same open file whose content was verified.
//!
//! The engine's own directory opens paths by itself, takes a lock (a write, which a read-only mount refuses) and
//! watches for changes with a thread per reader. A version never changes: here nothing is written, locked or watched,
//! a file that the manifest does not name does not exist, and one that vanishes from the directory stays readable.

use std::{
    collections::BTreeMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

use tantivy::directory::{
    Directory, DirectoryLock, FileHandle, Lock, OwnedBytes, WatchCallback, WatchHandle, WritePtr,
    error::{DeleteError, LockError, OpenReadError, OpenWriteError},
};

use memmap2::{Advice, Mmap};

use super::fault::Watch;

/// One mapped file. The watch is given up before the mapping.
struct Mapped {
    watch: Option<Watch>,
    bytes: OwnedBytes,
}

/// Verified files by name. Cheap to clone; clones share the mappings.
#[derive(Clone, Default)]
pub struct ShardFiles(Arc<BTreeMap<PathBuf, Mapped>>);

impl ShardFiles {
    /// Maps verified open files by name.
    pub fn map(files: Vec<(PathBuf, File)>) -> io::Result<Self> {
        let mut mapped = BTreeMap::new();
        for (name, file) in files {
            let file = if file.metadata()?.len() == 0 {
                Mapped { watch: None, bytes: OwnedBytes::empty() }
            } else {
                map_file(&name, &file)?
            };
            mapped.insert(name, file);
        }
        Ok(Self(Arc::new(mapped)))
    }

    /// A file of which a part could not be read since it was mapped (a bad disk, a file that was cut): whatever was
    /// answered from it may be wrong.
    pub fn unreadable(&self) -> Option<&Path> {
        let faulted = |mapped: &Mapped| mapped.watch.as_ref().is_some_and(Watch::faulted);
        self.0.iter().find(|(_, mapped)| faulted(mapped)).map(|(name, _)| name.as_path())
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.0.values().map(|mapped| mapped.bytes.len() as u64).sum()
    }

    fn get(&self, path: &Path) -> Result<&OwnedBytes, OpenReadError> {
        let found = self.0.get(path).map(|mapped| &mapped.bytes);
        found.ok_or_else(|| OpenReadError::FileDoesNotExist(path.to_owned()))
    }
}

/// Stored documents are read here and there, so nothing is read ahead of them; everything else as the kernel likes.
fn map_file(name: &Path, file: &File) -> io::Result<Mapped> {
    // SAFETY: a version's files are never written after they were published; one that is cut or can't be read all the
    // same gives zeros and a fault, see `fault`.
    let mmap = unsafe { Mmap::map(file)? };
    if name.extension().is_some_and(|extension| extension == "store") {
        mmap.advise(Advice::Random)?;
    }
    let watch = Watch::over(&mmap);
    Ok(Mapped { watch, bytes: OwnedBytes::new(mmap) })
}

impl std::fmt::Debug for ShardFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}

fn read_only() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a published shard is never written")
}

impl Directory for ShardFiles {
    fn get_file_handle(&self, path: &Path) -> Result<Arc<dyn FileHandle>, OpenReadError> {
        Ok(Arc::new(self.get(path)?.clone()))
    }

    fn exists(&self, path: &Path) -> Result<bool, OpenReadError> {
        Ok(self.0.contains_key(path))
    }

    fn atomic_read(&self, path: &Path) -> Result<Vec<u8>, OpenReadError> {
        Ok(self.get(path)?.as_slice().to_vec())
    }

    fn delete(&self, path: &Path) -> Result<(), DeleteError> {
        Err(DeleteError::IoError { io_error: Arc::new(read_only()), filepath: path.to_owned() })
    }

    fn open_write(&self, path: &Path) -> Result<WritePtr, OpenWriteError> {
        Err(OpenWriteError::IoError { io_error: Arc::new(read_only()), filepath: path.to_owned() })
    }

    fn atomic_write(&self, _path: &Path, _data: &[u8]) -> io::Result<()> {
        Err(read_only())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, _lock: &Lock) -> Result<DirectoryLock, LockError> {
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}
