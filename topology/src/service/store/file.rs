//! The documents in one file, an embedded transactional database (`redb`). Two services on one file: the second does not start,
//! so whoever has it leads.

use std::path::Path;

use redb::{Database, ReadableDatabase, ReadableTable, TableDefinition};

use super::{Documents, Store};
use crate::error::{Error, Result};

const DOCUMENTS: TableDefinition<&str, &[u8]> = TableDefinition::new("documents");
const AUDIT: TableDefinition<u64, &str> = TableDefinition::new("audit");
/// Lines of the audit log that are kept.
const AUDIT_KEPT: u64 = 100_000;

/// See the module.
pub struct FileStore {
    /// `None`: it failed, and is opened again when it is needed next.
    database: Option<Database>,
    path: String,
}

impl FileStore {
    /// Opens or creates the file. Errors: it can't be written, or another service has it open.
    pub fn open(path: &str) -> Result<Self> {
        let database = Some(database(path)?);
        Ok(Self { database, path: path.to_owned() })
    }

    fn database(&mut self) -> Result<&Database> {
        let database = self.database.take().map_or_else(|| database(&self.path), Ok)?;
        Ok(self.database.insert(database))
    }

    fn try_write(&mut self, from: &Documents, to: &Documents, audit: &[String]) -> Result<()> {
        write(self.database()?, from, to, audit).map_err(|error| failed(&self.path, &error))
    }
}

impl Store for FileStore {
    fn read(&mut self) -> Result<Documents> {
        let path = self.path.clone();
        let failed = |error: &dyn std::fmt::Display| failed(&path, error);
        let read = self.database()?.begin_read().map_err(|error| failed(&error))?;
        let table = match read.open_table(DOCUMENTS) {
            Ok(table) => table,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Documents::new()),
            Err(error) => return Err(failed(&error)),
        };
        let entries = table.iter().map_err(|error| failed(&error))?;
        let each = entries.map(|entry| {
            let (key, bytes) = entry.map_err(|error| failed(&error))?;
            Ok((key.value().to_owned(), bytes.value().to_vec()))
        });
        each.collect()
    }

    fn write(&mut self, from: &Documents, to: &Documents, audit: &[String]) -> Result<()> {
        // A database that failed once (a full disk) refuses everything until it is opened again.
        if self.try_write(from, to, audit).is_err() {
            self.database = None;
            self.try_write(from, to, audit).inspect_err(|_| self.database = None)?;
        }
        Ok(())
    }

    fn audit(&mut self, last: usize) -> Result<Vec<String>> {
        let path = self.path.clone();
        let failed = |error: &dyn std::fmt::Display| failed(&path, error);
        let read = self.database()?.begin_read().map_err(|error| failed(&error))?;
        let log = match read.open_table(AUDIT) {
            Ok(log) => log,
            Err(redb::TableError::TableDoesNotExist(_)) => return Ok(Vec::new()),
            Err(error) => return Err(failed(&error)),
        };
        let newest = log.iter().map_err(|error| failed(&error))?.rev().take(last);
        let mut lines = newest
            .map(|entry| entry.map(|(_, line)| line.value().to_owned()))
            .collect::<std::result::Result<Vec<_>, _>>()
            .map_err(|error| failed(&error))?;
        lines.reverse();
        Ok(lines)
    }
}

fn failed(path: &str, error: &dyn std::fmt::Display) -> Error {
    Error::Store { path: path.to_owned(), reason: error.to_string() }
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

/// Opens the file, and its directories. Errors: it can't be written, or another service has it open.
fn database(path: &str) -> Result<Database> {
    let failed = |reason: String| Error::Store { path: path.to_owned(), reason };
    if let Some(parent) = Path::new(path).parent().filter(|parent| !parent.as_os_str().is_empty()) {
        std::fs::create_dir_all(parent).map_err(|error| failed(error.to_string()))?;
    }
    Database::create(path).map_err(|error| match error {
        redb::DatabaseError::DatabaseAlreadyOpen => failed(
            "another topology service has it open; stop that one, or let both share an etcd: store = \"etcd://…\"".to_owned(),
        ),
        error => failed(error.to_string()),
    })
}
