//! What a root keeps of versions of a remote store: their tables of contents and statistics, so that it comes back while the store is
//! away. Statistics are named by their content: a file that is complete is right for whichever version names it.
//!
//! The failure this prevents: a disk that fills with statistics of versions that are long gone. Rule: once everything that is
//! wanted is open, whatever belongs to nothing that is open goes.

use std::{
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
};

use canopy_common::ids::Version;
use canopy_format::{manifest::Manifest, store::VersionStore};

use super::CorpusState;

/// Ending of a file of statistics.
const ENDING: &str = "fst";

/// Where the statistics of a version lie.
pub fn statistics(cache_dir: &str, manifest: &Manifest) -> PathBuf {
    let name = format!("{}-{}.{ENDING}", manifest.corpus, manifest.statistics.file.blake3);
    PathBuf::from(cache_dir).join(name)
}

/// Removes what belongs to none of these versions; how much was removed.
pub fn sweep<'a>(cache_dir: &str, open: impl Iterator<Item = &'a CorpusState>) -> io::Result<usize> {
    let (mut files, mut tables) = (BTreeSet::new(), BTreeSet::new());
    for state in open {
        files.insert(statistics(cache_dir, &state.manifest));
        tables.insert((state.manifest.corpus.clone(), state.manifest.version));
    }
    let mut removed = 0;
    for path in list(Path::new(cache_dir))? {
        let ours = path.extension().is_some_and(|ending| ending == ENDING || ending == "part");
        if ours && path.is_file() && !files.contains(&path) {
            std::fs::remove_file(&path)?;
            removed += 1;
        }
    }
    for corpus in list(&Path::new(cache_dir).join("corpora"))? {
        let Some(name) = corpus.file_name().and_then(|name| name.to_str()) else { continue };
        for version in list(&corpus.join("versions"))? {
            let number = version.file_name().and_then(|name| name.to_str()?.parse().ok());
            let Some(number) = number.map(Version) else { continue };
            if !tables.contains(&(name.to_owned(), number)) {
                VersionStore::forget_table(cache_dir, name, number)?;
                removed += 1;
            }
        }
    }
    Ok(removed)
}

/// Entries of a directory; none when it does not exist.
fn list(directory: &Path) -> io::Result<Vec<PathBuf>> {
    match std::fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| entry.map(|entry| entry.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}
