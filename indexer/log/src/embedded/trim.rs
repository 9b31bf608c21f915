//! Lets go of old segments, and of the text of erased documents. Trim removes whole files, oldest first, and makes that durable
//! before it answers, so that a crash does not bring a full disk back. Erase writes the segments that hold the text anew,
//! without it, under another name, and puts them in place. Units: offsets.

use std::collections::BTreeMap;

use canopy_common::ids::KeyHash;

use super::{
    disk,
    frame::{self, ERASED, Head, Header, MARK},
    scan::{self, Item},
    state::{Segment, State},
    writer::Writer,
};
use crate::error::{Error, Result};

impl Writer {
    /// See [`crate::Log::trim`].
    pub(super) fn trim(&mut self, before: &BTreeMap<u32, u64>) -> Result<()> {
        let (_, bytes) = self.active();
        let all = ends_are_before(&self.core.state.read().ends(), None, before);
        if all && u64::from(bytes) > self.core.config.segment_bytes / 4 {
            self.roll()?;
        }
        let (removable, first) = removable(&self.core.state.read(), before);
        if removable.is_empty() {
            return Ok(());
        }
        for number in &removable {
            let path = self.core.path(*number);
            self.core.disk.remove(&path).map_err(|error| Error::io(&path, &error))?;
            let mut state = self.core.state.write();
            state.segments.remove(number);
            let begins =
                state.segments.first_key_value().map(|(number, segment)| (*number, segment.first.clone()));
            if let Some((oldest, first)) = begins {
                for (partition, first) in state.partitions.iter_mut().zip(first) {
                    partition.forget(first, oldest);
                }
                state.damage.retain(|damage| damage.segment >= oldest);
            }
        }
        let dir = &self.core.config.dir;
        self.core.disk.sync_dir(dir).map_err(|error| Error::io(dir, &error))?;
        self.meta.first = first;
        self.save_meta()
    }

    /// See [`crate::Log::erase`].
    pub(super) fn erase(&mut self, partition: u32, key: KeyHash) -> Result<u64> {
        let segments = {
            let state = self.core.state.read();
            let count = state.partitions.len();
            let wrong = || Error::invalid("partition", format!("{partition}, of {count}"));
            state.partitions.get(partition as usize).ok_or_else(wrong)?.segments()
        };
        let (mut newest_delete, mut holding) = (None, BTreeMap::<u64, Vec<u64>>::new());
        for number in segments {
            let (_, items) = self.load(number)?;
            for head in items.iter().filter_map(record) {
                if head.partition == partition && head.key == key.0 {
                    if head.flags & frame::DELETE != 0 {
                        newest_delete = Some(head.offset);
                    } else if head.flags & ERASED == 0 {
                        holding.entry(number).or_default().push(head.offset);
                    }
                }
            }
        }
        let Some(newest) = newest_delete else { return Ok(0) };
        let mut erased = 0;
        for (number, offsets) in holding {
            let gone: Vec<u64> = offsets.into_iter().filter(|offset| *offset < newest).collect();
            if gone.is_empty() {
                continue;
            }
            if number == self.active().0 {
                self.roll()?;
            }
            self.rewrite(number, partition, &gone)?;
            erased += gone.len() as u64;
        }
        Ok(erased)
    }

    fn load(&self, number: u64) -> Result<(Vec<u8>, Vec<Item>)> {
        let path = self.core.path(number);
        let (file, length, partitions) = {
            let state = self.core.state.read();
            let segment = state.segments.get(&number).ok_or(Error::Closed)?;
            (segment.file.clone(), segment.bytes, state.partitions.len() as u32)
        };
        let mut bytes = disk::read_all(&*file).map_err(|error| Error::io(&path, &error))?;
        bytes.truncate(usize::try_from(length).unwrap_or(usize::MAX));
        let items = scan::scan(&bytes, number, partitions, frame::header_bytes(partitions));
        Ok((bytes, items))
    }

    /// Writes a segment anew without the text of some records. Damaged bytes are left out too: they may hold it.
    fn rewrite(&mut self, number: u64, partition: u32, gone: &[u64]) -> Result<()> {
        let (bytes, items) = self.load(number)?;
        let path = self.core.path(number);
        let first = self.core.state.read().segments.get(&number).map(|segment| segment.first.clone());
        let first = first.ok_or(Error::Closed)?;
        let mut new =
            Header { segment: number, epoch: self.core.epoch.clone(), first: first.clone() }.encode();
        let mut moved = Vec::new();
        for item in &items {
            let old = item.position();
            let Some((mut head, mut text)) =
                bytes.get(old as usize..).and_then(|rest| frame::decode(rest, number, old))
            else {
                continue;
            };
            let position = new.len() as u32;
            head.durable = position;
            if head.partition == partition && gone.binary_search(&head.offset).is_ok() {
                head.flags |= ERASED;
                text = &[];
            }
            if head.partition != MARK {
                moved.push((old, position));
            }
            head.encode(text, number, position, &mut new);
        }
        let file = disk::replace(&*self.core.disk, &path, &new).map_err(|error| Error::io(&path, &error))?;
        let mut state = self.core.state.write();
        for partition in &mut state.partitions {
            partition.moved(number, &moved);
        }
        state.segments.insert(number, Segment { file, bytes: new.len() as u64, first });
        Ok(())
    }
}

fn record(item: &Item) -> Option<&Head> {
    match item {
        Item::Record { head, .. } => Some(head),
        Item::Mark { .. } | Item::Bad { .. } => None,
    }
}

/// Whether nothing at or above `before` lies below `ends`; a partition without records since `first` does not matter.
fn ends_are_before(ends: &[u64], first: Option<&[u64]>, before: &BTreeMap<u32, u64>) -> bool {
    ends.iter().enumerate().all(|(partition, end)| {
        let empty = first.and_then(|first| first.get(partition)) == Some(end);
        empty || *end <= before.get(&(partition as u32)).copied().unwrap_or_default()
    })
}

/// Segments that nobody needs, oldest first, and the first offsets behind them.
fn removable(state: &State, before: &BTreeMap<u32, u64>) -> (Vec<u64>, Vec<u64>) {
    let mut numbers = Vec::new();
    let mut behind = Vec::new();
    let segments: Vec<_> = state.segments.iter().collect();
    for pair in segments.windows(2) {
        let [(number, segment), (_, next)] = pair else { break };
        if !ends_are_before(&next.first, Some(&segment.first), before) {
            break;
        }
        numbers.push(**number);
        behind.clone_from(&next.first);
    }
    (numbers, behind)
}
