//! What builds that died have left, and how the next build removes it.
//!
//! A build claims its number first and works inside that version's directory. It holds a lock on the claim file all
//! the while; the operating system drops the lock when the process ends, however it ends. So a directory without a
//! manifest whose claim can be locked belongs to nobody: everything but the claim is removed (the number stays burnt,
//! so no number is ever used twice). One that is locked belongs to a running build and is left alone. In a store that
//! is not a local directory leftovers are invisible too, and are the garbage collection's business.

use std::{
    fs::{self, File, TryLockError},
    io,
    path::{Path, PathBuf},
};

use canopy_common::ids::Version;
use canopy_format::store::VersionStore;

use super::report::Leftover;
use crate::error::{Error, Result};

const CLAIM: &str = "claim";
const MANIFEST: &str = "manifest.json";
/// Directory of a build's temporary files.
const WORK: &str = "work";

/// A claimed version number and the place to work; removed when dropped.
pub(crate) struct Claim {
    pub(crate) work: PathBuf,
    /// Of the version, in a local store.
    directory: Option<PathBuf>,
    /// Holds the lock.
    _lock: Option<File>,
}

impl Claim {
    /// Locks the claim of `version` and makes its working directory, in `temp` when given.
    pub(crate) fn take(
        store: &VersionStore,
        corpus: &str,
        version: Version,
        temp: Option<&Path>,
    ) -> Result<Self> {
        let directory = store.version_dir(corpus, version);
        let lock = directory.as_ref().map(|directory| lock(&directory.join(CLAIM))).transpose()?;
        let work = match (temp, &directory) {
            (Some(temp), _) => temp.join(format!("canopy-{corpus}-{version}")),
            (None, Some(directory)) => directory.join(WORK),
            (None, None) => {
                let reason =
                    "a store that is not a directory needs a local one for temporary files; give --temp";
                return Err(Error::Invalid { field: "temp", reason: reason.into() });
            }
        };
        if work.exists() {
            fs::remove_dir_all(&work).map_err(Error::io(&work))?; // the number is ours: a dead build's
        }
        fs::create_dir_all(&work).map_err(Error::io(&work))?;
        Ok(Self { work, directory, _lock: lock })
    }

    /// Removes what an unsuccessful build wrote below its version; never a published one.
    pub(crate) fn undo(&self) {
        let Some(directory) = &self.directory else { return };
        if let Err(error) = clear(directory) {
            let path = directory.display();
            tracing::warn!(%path, %error, "could not remove the files of a failed build; the next build will");
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.work)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.work.display(), %error, "could not remove temporary files");
        }
    }
}

/// Waits for the lock: a cleaner may hold it for a moment.
fn lock(path: &Path) -> Result<File> {
    let file = File::open(path).map_err(Error::io(path))?;
    file.lock().map_err(Error::io(path))?;
    Ok(file)
}

/// Removes what dead builds of a corpus left; lists what it found.
pub(crate) fn clean(store: &VersionStore, corpus: &str) -> Result<Vec<Leftover>> {
    let Some(directory) =
        store.version_dir(corpus, Version(0)).and_then(|path| path.parent().map(PathBuf::from))
    else {
        return Ok(vec![]);
    };
    let mut found = vec![];
    for entry in list(&directory)? {
        let Some(number) = entry.file_name().and_then(|name| name.to_str()?.parse().ok()) else { continue };
        if entry.join(MANIFEST).exists() || !has_files(&entry)? {
            continue;
        }
        found.push(Leftover { version: Version(number), cleaned: clean_one(&entry)? });
    }
    found.sort_unstable_by_key(|leftover| leftover.version);
    Ok(found)
}

fn clean_one(directory: &Path) -> Result<bool> {
    let path = directory.join(CLAIM);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(Error::io(&path)(error)),
    };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
    }
    clear(directory)?;
    Ok(!directory.join(MANIFEST).exists())
}

/// Removes all but the claim, unless there is a manifest.
fn clear(directory: &Path) -> Result<()> {
    for path in list(directory)? {
        if directory.join(MANIFEST).exists() {
            return Ok(());
        }
        if path.ends_with(CLAIM) {
            continue;
        }
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(Error::io(&path))?;
    }
    Ok(())
}

fn has_files(directory: &Path) -> Result<bool> {
    Ok(list(directory)?.iter().any(|path| !path.ends_with(CLAIM)))
}

/// Entries of a directory; none when it does not exist.
fn list(directory: &Path) -> Result<Vec<PathBuf>> {
    match fs::read_dir(directory) {
        Ok(entries) => {
            entries.map(|entry| entry.map(|entry| entry.path()).map_err(Error::io(directory))).collect()
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(vec![]),
        Err(error) => Err(Error::io(directory)(error)),
    }
}
