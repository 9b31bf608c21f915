//! Opens the directory of an embedded log: every segment is read and checked. A torn end of the last segment is cut. Damage is
//! named and kept: what is before and behind it can be read, reading at it is an error, and appends go to a new segment. Where
//! offsets can't be known any more, the log is refused rather than given the same offsets twice. Files that are not the log's
//! are left alone, with one warning for all of them.

use std::{path::Path, sync::Arc};

use canopy_common::rng::Dice;
use tracing::{error, warn};

use super::{
    Config,
    disk::{self, Disk},
    frame::{self, BadHeader, FRAME, Header},
    index::Partition,
    meta::{self, Meta},
    scan::{self, Item},
    state::{Damage, Segment, State},
};
use crate::error::{Error, Result};

/// Held while the log is open.
pub const LOCK: &str = "log.lock";
/// Ending of files that are not whole yet.
pub const TEMPORARY: &str = ".tmp";
const ENDING: &str = ".seg";

/// Name of a segment.
pub fn name(segment: u64) -> String {
    format!("{segment:016x}{ENDING}")
}

fn number(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(ENDING).filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok().filter(|number| self::name(*number) == name)
}

/// A log as it was found.
pub struct Opened {
    /// What it is.
    pub meta: Meta,
    /// What it holds.
    pub state: State,
    /// Whether the last segment must not be written to.
    pub sealed: bool,
}

/// Opens it, or makes it.
pub fn open(config: &Config, disk: &dyn Disk, dice: &Dice) -> Result<Opened> {
    let (numbers, has_meta) = listed(disk, &config.dir)?;
    // A process that was killed may have made a file and not its name durable: what is written to it now must not go with it.
    disk.sync_dir(&config.dir).map_err(|error| Error::io(&config.dir, &error))?;
    let meta = if has_meta { Meta::read(disk, &config.dir)? } else { None };
    let meta = match (meta, numbers.first()) {
        (Some(meta), _) => meta,
        (None, None) if has_meta => {
            return Err(unusable(config, meta::NAME, "it says not which log this is"));
        }
        (None, None) => {
            let first = vec![0; config.partitions as usize];
            let meta = Meta { epoch: format!("{:016x}", dice.next_u64()), first, last: 0 };
            meta.write(disk, &config.dir).map_err(|error| Error::io(&config.dir, &error))?;
            meta
        }
        (None, Some(first)) => {
            from_header(config, disk, *first, numbers.last().copied().unwrap_or_default())?
        }
    };
    if meta.first.len() != config.partitions as usize {
        let reason = format!("this log has {}, and that can't be changed", meta.first.len());
        return Err(Error::invalid("partitions", reason));
    }
    if numbers.last().copied().unwrap_or_default() < meta.last {
        return Err(unusable(config, &name(meta.last), "the newest segment is missing"));
    }
    let mut opening = Opening { config, disk, meta, state: State::default(), sealed: false };
    for (at, number) in numbers.iter().enumerate() {
        opening.segment(*number, at == 0, at + 1 == numbers.len())?;
    }
    let Opening { meta, mut state, sealed, .. } = opening;
    if state.partitions.is_empty() {
        state.partitions = meta.first.iter().map(|first| Partition::starting(*first)).collect();
    }
    for damage in &state.damage {
        error!(file = %damage.file, byte = damage.byte, reason = %damage.reason, "the log is damaged");
    }
    Ok(Opened { meta, state, sealed })
}

/// Numbers of the segments, ascending, and whether there is a meta file. Unfinished files of ours are removed.
fn listed(disk: &dyn Disk, dir: &Path) -> Result<(Vec<u64>, bool)> {
    let found = disk.list(dir).map_err(|error| Error::io(dir, &error))?;
    let (mut numbers, mut meta, mut strays) = (Vec::new(), false, Vec::new());
    for found in found {
        let whole = found.name.strip_suffix(TEMPORARY);
        if !found.file {
            strays.push(found.name);
        } else if found.name == meta::NAME {
            meta = true;
        } else if let Some(number) = number(&found.name) {
            numbers.push(number);
        } else if whole.is_some_and(|whole| whole == meta::NAME || number(whole).is_some()) {
            let path = dir.join(&found.name);
            disk.remove(&path).map_err(|error| Error::io(&path, &error))?;
        } else if found.name != LOCK {
            strays.push(found.name);
        }
    }
    if !strays.is_empty() {
        strays.sort();
        warn!(dir = %dir.display(), files = ?strays, "not of the log, and left alone");
    }
    numbers.sort_unstable();
    Ok((numbers, meta))
}

/// The meta file is gone or damaged: a sound header of the oldest segment says the same.
fn from_header(config: &Config, disk: &dyn Disk, first: u64, last: u64) -> Result<Meta> {
    let path = config.dir.join(name(first));
    let io = |error: std::io::Error| Error::io(&path, &error);
    let file = disk.open(&path).map_err(io)?;
    let mut bytes = vec![0; frame::header_bytes(canopy_format::store::MAX_PARTITIONS)];
    let read = disk::read_full(&*file, &mut bytes, 0).map_err(io)?;
    bytes.truncate(read);
    let header = match Header::decode(&bytes) {
        Ok(header) => header,
        Err(BadHeader::Format(found)) => return Err(other_format(&path, found)),
        Err(BadHeader::Damaged) => {
            return Err(unusable(
                config,
                meta::NAME,
                "neither it nor the oldest segment says which log this is",
            ));
        }
    };
    warn!(file = meta::NAME, "missing or damaged; made again from a segment");
    let meta = Meta { epoch: header.epoch, first: header.first, last };
    meta.write(disk, &config.dir).map_err(|error| Error::io(&config.dir, &error))?;
    Ok(meta)
}

fn other_format(path: &Path, found: u32) -> Error {
    Error::OtherFormat { file: path.display().to_string(), found, known: frame::FORMAT }
}

fn unusable(config: &Config, file: &str, reason: &str) -> Error {
    let advice = "offsets would be given twice; move the directory away to start a new log";
    let file = config.dir.join(file).display().to_string();
    Error::Damaged { file, byte: 0, offset: 0, reason: format!("{reason}; {advice}") }
}

struct Opening<'a> {
    config: &'a Config,
    disk: &'a dyn Disk,
    meta: Meta,
    state: State,
    sealed: bool,
}

impl Opening<'_> {
    fn segment(&mut self, number: u64, oldest: bool, last: bool) -> Result<()> {
        let path = self.config.dir.join(name(number));
        let io = |error: std::io::Error| Error::io(&path, &error);
        let file = self.disk.open(&path).map_err(io)?;
        let mut bytes = disk::read_all(&*file).map_err(io)?;
        let start = frame::header_bytes(self.config.partitions);
        if oldest {
            self.state.partitions = self.meta.first.iter().map(|first| Partition::starting(*first)).collect();
        }
        let mut header = match Header::decode(&bytes) {
            Ok(header) => Some(header),
            Err(BadHeader::Format(found)) => return Err(other_format(&path, found)),
            Err(BadHeader::Damaged) => None,
        };
        if header.is_none() && last && bytes.len() <= start {
            // Its making was cut off: nothing was ever written to it.
            let first = self.state.ends();
            let made = Header { segment: number, epoch: self.meta.epoch.clone(), first };
            bytes = made.encode();
            disk::write_full(&*file, &bytes, 0).map_err(io)?;
            header = Some(made);
        }
        let mut items = scan::scan(&bytes, number, self.config.partitions, start.min(bytes.len()));
        let mut length = bytes.len() as u64;
        if last {
            let nothing = !items.iter().any(|item| !matches!(item, Item::Bad { .. }));
            if header.is_none() && nothing {
                return Err(unusable(self.config, &name(number), "no byte of the newest segment is sound"));
            }
            if let Some(cut) = scan::cut_torn(&mut items) {
                warn!(file = %path.display(), from = cut, bytes = length - u64::from(cut), "a torn write was cut off");
                length = u64::from(cut);
                file.cut(length).map_err(io)?;
            }
            file.sync().map_err(io)?;
        }
        self.sealed = last && header.is_none();
        let first = self.begin(number, &path, header, oldest)?;
        self.items(number, &path, &items)?;
        if last {
            self.close(&path, &items, number);
        }
        self.state.segments.insert(number, Segment { file, bytes: length, first });
        Ok(())
    }

    /// Compares where a segment says that it begins with where the one before it ended.
    fn begin(&mut self, number: u64, path: &Path, header: Option<Header>, oldest: bool) -> Result<Vec<u64>> {
        let missing = !oldest && !self.state.segments.contains_key(&number.saturating_sub(1));
        if missing {
            self.damage(number, path, 0, "the segment before it is missing");
        }
        if let Some(header) = header {
            let ours = header.epoch == self.meta.epoch && header.first.len() == self.state.partitions.len();
            if !ours || header.segment != number {
                return Err(unusable(
                    self.config,
                    &name(number),
                    "it belongs to another log, or another place",
                ));
            }
            let before = self.state.segments.iter().next_back();
            let (file, byte) = match before.filter(|_| !missing) {
                Some((number, segment)) => {
                    let bad = self.state.damage.iter().rev().find(|damage| damage.segment == *number);
                    (self.config.dir.join(name(*number)), bad.map_or(segment.bytes, |damage| damage.byte))
                }
                None => (path.to_owned(), 0),
            };
            for (partition, first) in self.state.partitions.iter_mut().zip(&header.first) {
                if *first < partition.end {
                    return Err(unusable(
                        self.config,
                        &name(number),
                        "it begins below the end of the one before it",
                    ));
                }
                if oldest {
                    *partition = Partition::starting(*first);
                }
                partition.lose(*first, &file.display().to_string(), byte);
            }
        } else {
            self.damage(number, path, 0, "its header is not sound");
        }
        Ok(self.state.ends())
    }

    fn items(&mut self, number: u64, path: &Path, items: &[Item]) -> Result<()> {
        let file = path.display().to_string();
        let mut wrong = None;
        for item in items {
            let byte = u64::from(wrong.unwrap_or(item.position()));
            match item {
                Item::Bad { position, end } => {
                    let reason = format!("{} bytes are not what was written", end - position);
                    self.damage(number, path, u64::from(*position), &reason);
                    wrong = Some(*position);
                }
                Item::Record { position, head } => {
                    let Some(partition) = self.state.partitions.get_mut(head.partition as usize) else {
                        continue;
                    };
                    if head.offset < partition.end {
                        return Err(unusable(self.config, &name(number), "it gives an offset twice"));
                    }
                    partition.lose(head.offset, &file, byte);
                    partition.push(number, *position, head.slot);
                }
                Item::Mark { ends, .. } => {
                    for (partition, end) in self.state.partitions.iter_mut().zip(ends) {
                        partition.lose(*end, &file, byte);
                    }
                }
            }
        }
        Ok(())
    }

    /// Damage in the newest segment: no offset may be given twice, so where no mark behind it tells the ends, as many are
    /// given up as the bad bytes could hold.
    fn close(&mut self, path: &Path, items: &[Item], number: u64) {
        let Some(at) = items.iter().rposition(|item| matches!(item, Item::Bad { .. })) else { return };
        self.sealed = true;
        let behind = items.get(at..).unwrap_or_default();
        if behind.iter().any(|item| matches!(item, Item::Mark { .. })) {
            return;
        }
        let Some(Item::Bad { position, end }) = items.get(at) else { return };
        let most = u64::from(end - position) / FRAME as u64 + 1;
        for partition in &mut self.state.partitions {
            partition.lose(partition.end + most, &path.display().to_string(), u64::from(*position));
        }
        self.damage(
            number,
            path,
            u64::from(*position),
            "it can't be told what was there: offsets are left out",
        );
    }

    fn damage(&mut self, segment: u64, path: &Path, byte: u64, reason: &str) {
        let file = path.display().to_string();
        self.state.damage.push(Damage { file, segment, byte, reason: reason.to_owned() });
    }
}

/// Takes the directory for this process.
pub fn take(config: &Config, disk: &Arc<dyn Disk>) -> Result<Box<dyn Send + Sync>> {
    disk.take(&config.dir).map_err(|error| match error.kind() {
        std::io::ErrorKind::WouldBlock => Error::Locked(config.dir.display().to_string()),
        _ => Error::io(&config.dir, &error),
    })
}
