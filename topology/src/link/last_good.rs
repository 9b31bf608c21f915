//! The last snapshot that a node went by, on its disk: written under another name, synced, then renamed, so that what is there is
//! whole. One that can't be read is as good as none: the service gives another.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use crate::{
    error::{Error, Result},
    routing::RoutingSnapshot,
};

/// The file of one node.
#[derive(Debug, Clone)]
pub struct LastGood {
    path: PathBuf,
}

impl LastGood {
    /// In `directory`, which is made. Errors: it can't be.
    pub fn at(directory: &Path, node: &str) -> Result<Self> {
        fs::create_dir_all(directory).map_err(|source| Error::Io {
            what: format!("topology.state_dir {}", directory.display()),
            source,
        })?;
        Ok(Self { path: directory.join(format!("{node}.routing.json")) })
    }

    /// What it holds.
    pub fn read(&self) -> Option<RoutingSnapshot> {
        let bytes = fs::read(&self.path).ok()?;
        match RoutingSnapshot::from_json(&bytes) {
            Ok(snapshot) => Some(snapshot),
            Err(reason) => {
                tracing::warn!(path = %self.path.display(), reason, "the last good routing snapshot can't be read");
                None
            }
        }
    }

    /// Replaces it. Blocks.
    pub fn write(&self, snapshot: &RoutingSnapshot) -> io::Result<()> {
        let next = self.path.with_extension("next");
        let mut file = File::create(&next)?;
        file.write_all(&snapshot.to_json())?;
        file.sync_all()?;
        fs::rename(&next, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use canopy_common::ids::Epoch;

    use super::*;

    #[test]
    fn a_snapshot_is_there_after_a_restart_and_a_damaged_one_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let at = || LastGood::at(&dir.path().join("deep"), "leaf-1").unwrap();
        assert!(at().read().is_none());
        let snapshot = RoutingSnapshot { epoch: Epoch(5), ..RoutingSnapshot::default() };
        let text = String::from_utf8(snapshot.to_json()).unwrap();
        at().write(&snapshot).unwrap();
        assert_eq!(at().read(), Some(snapshot));
        for damage in ["{", &text.replace("\"epoch\":5", "\"epoch\":18446744073709551615")] {
            fs::write(&at().path, damage).unwrap();
            assert!(at().read().is_none(), "{damage}");
        }
    }
}
