//! The files of a query log: appended to, closed when they are full, counted. Blocking; one writer.
//!
//! A line is torn when its writer was stopped or the disk was full in the middle of it. The next line then begins on a line of
//! its own, so that one record is lost and no more.

use std::{
    fs::{self, File, OpenOptions},
    io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::{Path, PathBuf},
};

/// See the module.
#[derive(Debug, Clone)]
pub(super) struct Files {
    pub(super) path: PathBuf,
    pub(super) max_file: u64,
    pub(super) keep: u32,
}

impl Files {
    /// Appends whole lines. Errors: the file system; some of them may be written.
    pub(super) fn append(&self, lines: &[u8]) -> Result<()> {
        if let Some(parent) = self.path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
            fs::create_dir_all(parent)?;
        }
        let mut file = self.open()?;
        let length = file.metadata()?.len();
        if length > 0 && length + lines.len() as u64 > self.max_file {
            drop(file);
            self.turn()?;
            file = self.open()?;
        } else if length > 0 && !ends_a_line(&mut file)? {
            file.write_all(b"\n")?;
        }
        file.write_all(lines)
    }

    fn open(&self) -> Result<File> {
        let mut options = OpenOptions::new();
        options.read(true).append(true).create(true).mode(0o600);
        let file = options.open(&self.path)?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Err(Error::new(ErrorKind::InvalidInput, "it is not a file"))
    }

    fn closed(&self, number: u32) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(format!(".{number}"));
        name.into()
    }

    /// Closes the file: `path` becomes `path.1`, `path.1` becomes `path.2`, and the oldest goes.
    fn turn(&self) -> Result<()> {
        if self.keep == 0 {
            return gone(fs::remove_file(&self.path));
        }
        for number in (1..self.keep).rev() {
            gone(rename(&self.closed(number), &self.closed(number + 1)))?;
        }
        rename(&self.path, &self.closed(1))
    }
}

fn rename(from: &Path, to: &Path) -> Result<()> {
    fs::rename(from, to)
}

/// It need not have been there.
fn gone(result: Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn ends_a_line(file: &mut File) -> Result<bool> {
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}
