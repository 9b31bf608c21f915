//! The file that says which log a directory holds: epoch, partitions, the oldest offsets, and the newest segment that ever was.
//! It tells a lost segment from one that was never there, so that no offset is given twice after somebody removed files.
//! One line of JSON, one line with its checksum.

use std::path::Path;

use serde_json::{Value as Json, json};
use xxhash_rust::xxh3::xxh3_64;

use super::{
    disk::{self, Disk},
    frame::FORMAT,
};
use crate::error::{Error, Result};

/// Its name.
pub const NAME: &str = "log.meta";

/// What a log is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Meta {
    /// Which one.
    pub epoch: String,
    /// Oldest offset by partition.
    pub first: Vec<u64>,
    /// Number of the newest segment; 0: none was made yet.
    pub last: u64,
}

impl Meta {
    /// Reads it; `None`: there is none, or it is not what was written.
    pub fn read(disk: &dyn Disk, dir: &Path) -> Result<Option<Self>> {
        let path = dir.join(NAME);
        let file = disk.open(&path).map_err(|error| Error::io(&path, &error))?;
        let bytes = disk::read_all(&*file).map_err(|error| Error::io(&path, &error))?;
        let Some(json) = sound(&bytes) else { return Ok(None) };
        let format = json.get("format").and_then(Json::as_u64).unwrap_or_default() as u32;
        if format != FORMAT {
            return Err(Error::OtherFormat {
                file: path.display().to_string(),
                found: format,
                known: FORMAT,
            });
        }
        Ok(Self::of(&json))
    }

    fn of(json: &Json) -> Option<Self> {
        Some(Self {
            epoch: json.get("epoch")?.as_str()?.to_owned(),
            first: json.get("first")?.as_array()?.iter().map(Json::as_u64).collect::<Option<_>>()?,
            last: json.get("last")?.as_u64()?,
        })
    }

    /// Puts it in the place of the old one, durably.
    pub fn write(&self, disk: &dyn Disk, dir: &Path) -> std::io::Result<()> {
        let json = json!({"format": FORMAT, "epoch": self.epoch, "first": self.first, "last": self.last})
            .to_string();
        let text = format!("{json}\n{:016x}\n", xxh3_64(json.as_bytes()));
        disk::replace(disk, &dir.join(NAME), text.as_bytes()).map(drop)
    }
}

fn sound(bytes: &[u8]) -> Option<Json> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (json, sum) = text.strip_suffix('\n')?.split_once('\n')?;
    (format!("{:016x}", xxh3_64(json.as_bytes())) == sum).then_some(())?;
    serde_json::from_str(json).ok()
}
