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

use super::{
    background::{self, Priority},
    fault::Watch,
};

/// Bytes that are mapped in or out at a time; whole pages.
const PIECE: usize = 1 << 20;

/// One mapped file. The watch is given up before the mapping.
struct Mapped {
    watch: Option<Watch>,
    bytes: OwnedBytes,
}

/// Mappings that end together. The last to have them may be a query; unmapping much takes long, and every page fault of
/// the process waits meanwhile, so it happens elsewhere and piece by piece.
#[derive(Default)]
struct Mappings(BTreeMap<PathBuf, Mapped>);

impl Drop for Mappings {
    fn drop(&mut self) {
        let files = std::mem::take(&mut self.0);
        if files.values().all(|mapped| mapped.bytes.len() < PIECE) {
            return;
        }
        let work = move || {
            for mapped in files.values() {
                pieces(&mapped.bytes, libc::MADV_DONTNEED, &mut || true);
            }
            drop(files);
            give_back();
        };
        // Without a thread they end here.
        let _ended_either_way = background::start("unmap", Priority::Low, work);
    }
}

/// What a version that has gone took of the allocator goes back to the system: it keeps what is free between pieces that are
/// in use, and swap after swap leaves some.
fn give_back() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: a plain call; it only touches what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Gives advice on a mapping, a piece at a time, as long as `goes_on`. Advice that the kernel does not know changes nothing.
fn pieces(bytes: &OwnedBytes, advice: libc::c_int, goes_on: &mut dyn FnMut() -> bool) {
    for piece in bytes.as_slice().chunks(PIECE) {
        // SAFETY: the range lies in a live mapping of a file, from its beginning in steps of whole pages. Neither advice
        // changes what is read there: pages of a file that were dropped are read again. What can't be read is an error
        // of this call, and of whoever reads it later.
        unsafe {
            libc::madvise(piece.as_ptr().cast_mut().cast(), piece.len(), advice);
        }
        if !goes_on() {
            return;
        }
    }
}

/// Verified files by name. Cheap to clone; clones share the mappings.
#[derive(Clone, Default)]
pub struct ShardFiles(Arc<Mappings>);

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
        Ok(Self(Arc::new(Mappings(mapped))))
    }

    /// A file of which a part could not be read since it was mapped (a bad disk, a file that was cut): whatever was
    /// answered from it may be wrong.
    pub fn unreadable(&self) -> Option<&Path> {
        let faulted = |mapped: &Mapped| mapped.watch.as_ref().is_some_and(Watch::faulted);
        self.0.0.iter().find(|(_, mapped)| faulted(mapped)).map(|(name, _)| name.as_path())
    }

    /// Puts what a query may touch at any place (dictionaries, postings, columns) into memory and into the page tables, a
    /// piece at a time, as long as `goes_on`. Positions and stored documents come as they are asked for, which is what
    /// the manifest's estimate of memory counts with.
    pub fn prefault(&self, goes_on: &mut dyn FnMut() -> bool) {
        let everywhere = |(name, _): &(&PathBuf, &Mapped)| {
            !name.extension().is_some_and(|extension| extension == "store" || extension == "pos")
        };
        for (_, mapped) in self.0.0.iter().filter(everywhere) {
            if !goes_on() {
                return;
            }
            pieces(&mapped.bytes, libc::MADV_POPULATE_READ, goes_on);
        }
    }

    /// Bytes of all files.
    pub fn bytes(&self) -> u64 {
        self.0.0.values().map(|mapped| mapped.bytes.len() as u64).sum()
    }

    fn get(&self, path: &Path) -> Result<&OwnedBytes, OpenReadError> {
        let found = self.0.0.get(path).map(|mapped| &mapped.bytes);
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
        f.debug_set().entries(self.0.0.keys()).finish()
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
        Ok(self.0.0.contains_key(path))
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
