//! What builds that failed or died have left, and how it is removed.
//!
//! A build claims its number first and works inside that version's directory. It holds a lock on the claim file all
//! the while; the operating system drops the lock when the process ends, however it ends. So a directory without a
//! manifest whose claim can be locked belongs to nobody: all in it is removed, the claim last, and its number is free
//! again. One that is locked belongs to a running build and is left alone; so is one without a claim, which somebody may
//! be copying. A directory with a manifest, however damaged, is never touched.
//!
//! Two builds never hold one number: the claim is made create-only, a lock counts only while the locked file is still the one
//! with that name and nothing was published, and a claim is removed only under its lock. In a store that is not a local
//! directory leftovers are invisible too, and are the garbage collection's business.

use std::{
    fs::{self, File, TryLockError},
    io,
    os::unix::fs::MetadataExt,
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
    /// Locks the claim of `version` and makes its working directory, in `temp` when given. `None`: the claim was taken
    /// for a dead one and is gone, or the number was claimed again since and its new holder has published; claim anew.
    pub(crate) fn take(
        store: &VersionStore,
        corpus: &str,
        version: Version,
        temp: Option<&Path>,
    ) -> Result<Option<Self>> {
        let directory = store.version_dir(corpus, version);
        let lock = match &directory {
            Some(directory) => match lock(&directory.join(CLAIM))? {
                Some(lock) if !published(directory)? => Some(lock),
                Some(_) | None => return Ok(None),
            },
            None => None,
        };
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
        Ok(Some(Self { work, directory, _lock: lock }))
    }

    /// Removes what an unsuccessful build wrote below its version, and frees the number; never a published one. The
    /// number goes last: from then on whatever has it is another build's.
    pub(crate) fn undo(mut self) {
        self.remove_work();
        self.work.clear();
        let Some(directory) = &self.directory else { return };
        if let Err(error) = remove(directory) {
            let path = directory.display();
            tracing::warn!(%path, %error, "could not remove the files of a failed build; the next build will");
        }
    }
}

impl Claim {
    fn remove_work(&self) {
        if let Err(error) = fs::remove_dir_all(&self.work)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(path = %self.work.display(), %error, "could not remove temporary files");
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.work.as_os_str().is_empty() {
            self.remove_work();
        }
    }
}

/// A number of a local store that is being copied to: while this lives, no build takes it for a dead one's.
pub(crate) struct Hold(File);

impl Hold {
    /// Locks the claim of `version`, and removes the half files of a copy that died. `None`: the claim is gone.
    pub(crate) fn take(store: &VersionStore, corpus: &str, version: Version) -> Result<Option<Self>> {
        let Some(directory) = store.version_dir(corpus, version) else { return Ok(None) };
        let Some(held) = lock(&directory.join(CLAIM))? else { return Ok(None) };
        if published(&directory)? {
            return Ok(None);
        }
        let mut open = vec![directory];
        while let Some(directory) = open.pop() {
            for path in list(&directory)? {
                if path.is_dir() {
                    open.push(path);
                } else if path
                    .file_name()
                    .and_then(|name| name.to_str())
                    .is_some_and(|name| name.contains('#'))
                    && !is_claim(&path)
                {
                    fs::remove_file(&path).map_err(Error::io(&path))?;
                }
            }
        }
        Ok(Some(Self(held)))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Closing it would do; said, it is not forgotten.
        let _closed_soon = self.0.unlock();
    }
}

/// Waits for the lock: a cleaner may hold it for a moment, and may have removed the claim by then.
fn lock(path: &Path) -> Result<Option<File>> {
    let Some(file) = open(path)? else { return Ok(None) };
    file.lock().map_err(Error::io(path))?;
    Ok(is_at(&file, path)?.then_some(file))
}

fn open(path: &Path) -> Result<Option<File>> {
    match File::open(path) {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io(path)(error)),
    }
}

/// Whether this is still the file of that name.
fn is_at(file: &File, path: &Path) -> Result<bool> {
    let held = file.metadata().map_err(Error::io(path))?;
    match fs::metadata(path) {
        Ok(found) => Ok((found.dev(), found.ino()) == (held.dev(), held.ino())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(path)(error)),
    }
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
        if published(&entry)? {
            continue;
        }
        let (worked, cleaned) = (has_files(&entry)?, clean_one(&entry)?);
        // A claim alone is a build that begins, or that died before it did anything.
        if worked {
            found.push(Leftover { version: Version(number), cleaned });
        }
    }
    found.sort_unstable_by_key(|leftover| leftover.version);
    Ok(found)
}

fn clean_one(directory: &Path) -> Result<bool> {
    let path = directory.join(CLAIM);
    let Some(file) = open(&path)? else { return Ok(false) };
    match file.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(false),
        Err(TryLockError::Error(error)) => return Err(Error::io(&path)(error)),
    }
    // A claim of this name is a new one.
    if !is_at(&file, &path)? {
        return Ok(false);
    }
    remove(directory)?;
    Ok(!published(directory)?)
}

/// Whether there is a manifest, however damaged; what can't be told is an error, never "no".
fn published(directory: &Path) -> Result<bool> {
    let path = directory.join(MANIFEST);
    match fs::symlink_metadata(&path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(Error::io(&path)(error)),
    }
}

/// Empties a version's directory, the claim last, unless there is a manifest. The caller holds the claim's lock. The
/// directory stays: the next build may be about to claim in it.
fn remove(directory: &Path) -> Result<()> {
    for path in list(directory)? {
        if published(directory)? {
            return Ok(());
        }
        if is_claim(&path) {
            continue;
        }
        let removed = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.map_err(Error::io(&path))?;
    }
    let claim = directory.join(CLAIM);
    fs::remove_file(&claim).map_err(Error::io(&claim))
}

/// The claim, or the file beside it that it is made from.
fn is_claim(path: &Path) -> bool {
    path.file_name().and_then(|name| name.to_str()).is_some_and(|name| {
        name.strip_prefix(CLAIM).is_some_and(|rest| rest.is_empty() || rest.starts_with('#'))
    })
}

fn has_files(directory: &Path) -> Result<bool> {
    Ok(list(directory)?.iter().any(|path| !is_claim(path)))
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
