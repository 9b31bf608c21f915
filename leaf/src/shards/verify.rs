//! Compares every file of a shard with the manifest (length, then BLAKE3) before anything reads it. What is served
//! later is mapped through the same open files, so nothing can change places in between.
//!
//! Reading, not mapping: a bad sector is an error here, with the file's name, instead of a signal.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use canopy_common::ids::ShardId;
use canopy_format::{
    checksum::Checksum,
    manifest::{FileEntry, Manifest, ShardEntry},
};

use crate::error::{Error, Result};

/// Bytes read at a time.
const BLOCK: usize = 256 << 10;

/// Verifies a shard's files below `version_dir`; returns them, open, by their name within the shard. `progress` is told
/// the bytes read; when it returns false, the work is given up.
pub fn shard(
    version_dir: &Path,
    entry: &ShardEntry,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Vec<(PathBuf, File)>> {
    let directory = Manifest::shard_dir(&entry.shard);
    let mut open = Vec::with_capacity(entry.files.len());
    for file in &entry.files {
        let damaged = |reason: String| Error::Damaged { shard: entry.shard.clone(), reason };
        let source = File::open(version_dir.join(&file.path)).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => damaged(format!("{} is missing", file.path)),
            _ => damaged(format!("{}: {error}", file.path)),
        })?;
        content(&source, file, &entry.shard, progress)?;
        let name =
            file.path.strip_prefix(&directory).map_or(&*file.path, |name| name.trim_start_matches('/'));
        open.push((PathBuf::from(name), source));
    }
    Ok(open)
}

fn content(
    mut source: &File,
    file: &FileEntry,
    shard: &ShardId,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<()> {
    let damaged = |reason: String| Error::Damaged { shard: shard.clone(), reason };
    let unreadable = |error: io::Error| damaged(format!("{} can't be read: {error}", file.path));
    let length = source.metadata().map_err(unreadable)?.len();
    if length != file.bytes {
        let reason = format!("{} has {length} bytes, the manifest says {}", file.path, file.bytes);
        return Err(damaged(reason));
    }
    let mut checksum = Checksum::default();
    let mut block = vec![0; BLOCK.min(length.max(1) as usize)];
    loop {
        match source.read(&mut block) {
            Ok(0) => break,
            Ok(read) => {
                checksum.update(&block[..read]);
                if !progress(read as u64) {
                    return Err(damaged("verification was given up: the leaf is leaving".to_owned()));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(error)),
        }
    }
    file.check(&checksum.entry(&file.path)).map_err(|error| damaged(error.to_string()))
}
