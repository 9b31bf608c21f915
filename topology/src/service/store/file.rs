//! The documents in one file, an embedded transactional database (`redb`). Two services on one file: the second does not start,
//! so whoever has it leads.
//!
//! The failure this prevents: a file that is removed or moved away under a running service, which writes on into what has no name
//! any more; every change is acknowledged, and all are lost when the service stops. Rule: before each write, and whenever nothing
//! is to be written, it is looked whether the file that is open is the one of that name; when there is none it is made again from
//! what the service knows, and another one is refused.

use std::{io::ErrorKind, os::unix::fs::MetadataExt, path::Path};

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Documents, Store};
use crate::error::{Error, Result};

const DOCUMENTS: TableDefinition<&str, &[u8]> = TableDefinition::new("documents");
const AUDIT: TableDefinition<u64, &str> = TableDefinition::new("audit");
/// Lines of the audit log that are kept.
const AUDIT_KEPT: u64 = 100_000;
/// What to do about a file that is none of a store, or is damaged.
const WAY_OUT: &str = "; the file is damaged: restore its backup, or move it away and follow \"A lost store\" in docs/operations.md; \
                       queries go on meanwhile";

/// See the module.
pub struct FileStore {
    /// `None`: it failed, and is opened again when it is needed next.
    database: Option<Database>,
    path: String,
    /// Which file was opened: device and number.
    opened: Option<(u64, u64)>,
}

impl FileStore {
    /// Opens or creates the file. Errors: it can't be written, or another service has it open.
    pub fn open(path: &str) -> Result<Self> {
        let database = Some(database(path)?);
        Ok(Self { database, path: path.to_owned(), opened: at(path) })
    }

    fn database(&mut self) -> Result<&Database> {
        if let Some(database) = self.database.take() {
            return Ok(self.database.insert(database));
        }
        let database = database(&self.path)?;
        self.opened = at(&self.path);
        Ok(self.database.insert(database))
    }

    fn try_write(&mut self, from: &Documents, to: &Documents, audit: &[String]) -> Result<()> {
        write(self.database()?, from, to, audit).map_err(|error| failed(&self.path, error))
    }
}

impl Store for FileStore {
    fn read(&mut self) -> Result<Documents> {
        let path = self.path.clone();
        let read = self.database()?.begin_read().map_err(|error| failed(&path, error))?;
        let table = match read.open_table(DOCUMENTS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Documents::new()),
            Err(error) => return Err(failed(&path, error)),
        };
        let entries = table.iter().map_err(|error| failed(&path, error))?;
        let each = entries.map(|entry| {
            let (key, bytes) = entry.map_err(|error| failed(&path, error))?;
            Ok((key.value().to_owned(), bytes.value().to_vec()))
        });
        each.collect()
    }

    fn is_there(&self) -> bool {
        at(&self.path) == self.opened
    }

    fn write(&mut self, from: &Documents, to: &Documents, audit: &[String]) -> Result<()> {
        let (mut from, nothing) = (from, Documents::new());
        if !self.is_there() {
            if at(&self.path).is_some() {
                let reason = "another file lies there than the one that this service has open; stop the service, put the right one \
                              there and start it again";
                return Err(Error::Store { path: self.path.clone(), reason: reason.to_owned() });
            }
            tracing::error!(
                path = self.path,
                "the store's file is gone while the service runs; it is made again from what the service knows, without the audit \
                 log of before"
            );
            (self.database, from) = (None, &nothing);
        }
        // A database that failed once (a full disk) refuses everything until it is opened again.
        if self.try_write(from, to, audit).is_err() {
            self.database = None;
            self.try_write(from, to, audit).inspect_err(|_| self.database = None)?;
        }
        Ok(())
    }

    fn audit(&mut self, last: usize) -> Result<Vec<String>> {
        let path = self.path.clone();
        let read = self.database()?.begin_read().map_err(|error| failed(&path, error))?;
        let log = match read.open_table(AUDIT) {
            Ok(log) => log,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(failed(&path, error)),
        };
        let newest = log.iter().map_err(|error| failed(&path, error))?.rev().take(last);
        let mut lines = newest
            .map(|entry| entry.map(|(_, line)| line.value().to_owned()))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| failed(&path, error))?;
        lines.reverse();
        Ok(lines)
    }
}

fn failed(path: &str, error: impl Into<redb::Error>) -> Error {
    let error = error.into();
    let damaged = match &error {
        redb::Error::Corrupted(_) => true,
        redb::Error::Io(io) => matches!(io.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof),
        _ => false,
    };
    let mut reason = error.to_string();
    if damaged {
        reason.push_str(WAY_OUT);
    }
    Error::Store { path: path.to_owned(), reason }
}

fn write(
    database: &Database,
    from: &Documents,
    to: &Documents,
    audit: &[String],
) -> std::result::Result<(), redb::Error> {
    let write = database.begin_write()?;
    {
        let mut table = write.open_table(DOCUMENTS)?;
        for (key, bytes) in to.iter().filter(|(key, bytes)| from.get(*key) != Some(*bytes)) {
            table.insert(key.as_str(), bytes.as_slice())?;
        }
        for key in from.keys().filter(|key| !to.contains_key(*key)) {
            table.remove(key.as_str())?;
        }
        let mut log = write.open_table(AUDIT)?;
        let mut number = log.last()?.map_or(0, |(number, _)| number.value());
        for line in audit {
            number += 1;
            log.insert(number, line.as_str())?;
            if let Some(old) = number.checked_sub(AUDIT_KEPT) {
                log.remove(old)?;
            }
        }
    }
    write.commit()?;
    Ok(())
}

/// The file of that name; `None`: there is none.
fn at(path: &str) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|file| (file.dev(), file.ino()))
}

/// Opens the file, and its directories. Errors: it can't be written, or another service has it open.
fn database(path: &str) -> Result<Database> {
    let refused = |reason: String| Error::Store { path: path.to_owned(), reason };
    if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|error| refused(error.to_string()))?;
    }
    Database::create(path).map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => refused(
            "another topology service has it open; stop that one, or let both share an etcd: store = \"etcd://…\"".to_owned(),
        ),
        error => failed(path, error),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_file_is_told_with_the_way_out() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("topology.redb").display().to_string();
        std::fs::write(&file, vec![b'x'; 64 << 10]).unwrap();
        let damaged = FileStore::open(&file).err().unwrap().to_string();
        assert!(damaged.contains(&file) && damaged.contains("restore its backup"), "{damaged}");
        assert!(damaged.contains("\"A lost store\" in docs/operations.md"), "{damaged}");
        std::fs::remove_file(&file).unwrap();
        let store = FileStore::open(&file).unwrap();
        let taken = FileStore::open(&file).err().unwrap().to_string();
        assert!(taken.contains("another topology service has it open"), "{taken}");
        drop(store);
    }
}
