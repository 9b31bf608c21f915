//! Opens a shard's files for reading only. The engine's own directory writes a lock file when a reader opens it, which
//! must not happen to a published version (and can't on a read-only mount); everything else is passed on.

use std::{io, path::Path, sync::Arc};

use tantivy::{
    Directory, Index, IndexReader, ReloadPolicy,
    directory::{
        DirectoryLock, FileHandle, Lock, MmapDirectory, WatchCallback, WatchHandle, WritePtr,
        error::{DeleteError, LockError, OpenReadError, OpenWriteError},
    },
};

use crate::error::{Error, Result};

#[derive(Debug, Clone)]
struct ReadOnly(MmapDirectory);

fn refused() -> io::Error {
    io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a finished shard is never written")
}

impl Directory for ReadOnly {
    fn get_file_handle(&self, path: &Path) -> std::result::Result<Arc<dyn FileHandle>, OpenReadError> {
        self.0.get_file_handle(path)
    }

    fn exists(&self, path: &Path) -> std::result::Result<bool, OpenReadError> {
        self.0.exists(path)
    }

    fn atomic_read(&self, path: &Path) -> std::result::Result<Vec<u8>, OpenReadError> {
        self.0.atomic_read(path)
    }

    fn delete(&self, path: &Path) -> std::result::Result<(), DeleteError> {
        Err(DeleteError::IoError { io_error: Arc::new(refused()), filepath: path.to_owned() })
    }

    fn open_write(&self, path: &Path) -> std::result::Result<WritePtr, OpenWriteError> {
        Err(OpenWriteError::IoError { io_error: Arc::new(refused()), filepath: path.to_owned() })
    }

    fn atomic_write(&self, _path: &Path, _data: &[u8]) -> io::Result<()> {
        Err(refused())
    }

    fn sync_directory(&self) -> io::Result<()> {
        Ok(())
    }

    fn acquire_lock(&self, _lock: &Lock) -> std::result::Result<DirectoryLock, LockError> {
        Ok(DirectoryLock::from(Box::new(())))
    }

    fn watch(&self, _callback: WatchCallback) -> tantivy::Result<WatchHandle> {
        Ok(WatchHandle::empty())
    }
}

/// Opens the shard in `directory`; `name` says which in errors.
pub(crate) fn index(directory: &Path, name: &str) -> Result<Index> {
    let files = MmapDirectory::open(directory).map_err(|error| Error::engine(name)(error.into()))?;
    Index::open(ReadOnly(files)).map_err(Error::engine(name))
}

/// A reader of the shard in `directory` that never looks for changes.
pub(crate) fn reader(index: &Index, name: &str) -> Result<IndexReader> {
    let builder = index.reader_builder().reload_policy(ReloadPolicy::Manual);
    builder.try_into().map_err(Error::engine(name))
}
