//! Reads records of the wanted slots. Only their frames are touched, through a window that takes neighbours along; each is
//! checked again, because what was sound at the start may rot later. Units: bytes, offsets.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;

use super::{
    disk::{self, DiskFile},
    frame::{self, ERASED, FRAME, Head},
    index::Place,
    state::{Core, State},
};
use crate::{
    Chunk, Entry, Slots,
    error::{Error, Result},
};

/// Records that one read returns at most.
const MOST: usize = 4096;
/// Bytes that are read at a time.
const WINDOW: usize = 16 << 10;

type Files = BTreeMap<u64, Arc<dyn DiskFile>>;

/// See [`crate::Log::read`].
pub fn read(core: &Core, partition: u32, from: u64, slots: &Slots, max_bytes: usize) -> Result<Chunk> {
    let (places, files, mut next, end) = plan(core, partition, from, slots)?;
    let mut reader = Reader { core, files: &files, segment: 0, at: 0, bytes: Vec::new() };
    let (mut entries, mut taken) = (Vec::new(), 0);
    for place in places {
        if !entries.is_empty() && taken >= max_bytes {
            next = place.offset;
            break;
        }
        let (head, record) = match reader.frame(place) {
            Ok(frame) => frame,
            Err(_) if !entries.is_empty() => {
                next = place.offset;
                break;
            }
            Err(error) => return Err(error),
        };
        taken += FRAME + record.len();
        if head.flags & ERASED == 0 {
            entries.push(Entry { offset: place.offset, slot: head.slot, at_us: head.at_us, record });
        }
    }
    Ok(Chunk { entries, next, end, oldest_us: oldest(core, partition, next) })
}

fn plan(core: &Core, partition: u32, from: u64, slots: &Slots) -> Result<(Vec<Place>, Files, u64, u64)> {
    let state = core.state.read();
    let count = state.partitions.len();
    let wrong = || Error::invalid("partition", format!("{partition}, of {count}"));
    let found = state.partitions.get(partition as usize).ok_or_else(wrong)?;
    if from < found.first || from > found.end {
        return Err(Error::Lost { partition, wanted: from, first: found.first, end: found.end });
    }
    let (places, next) = found.plan(from, slots, MOST)?;
    let files = files(&state, &places);
    Ok((places, files, next, found.end))
}

fn files(state: &State, places: &[Place]) -> Files {
    let mut files = Files::new();
    for place in places {
        if let Some(segment) = state.segments.get(&place.segment) {
            files.entry(place.segment).or_insert_with(|| Arc::clone(&segment.file));
        }
    }
    files
}

/// When the first record at or above an offset was accepted.
fn oldest(core: &Core, partition: u32, offset: u64) -> i64 {
    let (place, files) = {
        let state = core.state.read();
        let found = state.partitions.get(partition as usize);
        let Some(place) = found.and_then(|found| found.at_or_after(offset)) else { return 0 };
        (place, files(&state, &[place]))
    };
    let mut reader = Reader { core, files: &files, segment: 0, at: 0, bytes: Vec::new() };
    // A damaged one is named to whoever reads it.
    reader.frame(place).map_or(0, |(head, _)| head.at_us)
}

struct Reader<'a> {
    core: &'a Core,
    files: &'a Files,
    segment: u64,
    at: u64,
    bytes: Vec<u8>,
}

impl Reader<'_> {
    fn frame(&mut self, place: Place) -> Result<(Head, Bytes)> {
        let wanted = FRAME + self.window(place, FRAME)?.and_then(frame::record_bytes).unwrap_or_default();
        let found = self.window(place, wanted)?;
        let decoded = found.and_then(|bytes| frame::decode(bytes, place.segment, place.position));
        let Some((head, record)) = decoded.filter(|(head, _)| head.offset == place.offset) else {
            return Err(Error::Damaged {
                file: self.core.path(place.segment).display().to_string(),
                byte: u64::from(place.position),
                offset: place.offset,
                reason: format!("offset {} is not what was written", place.offset),
            });
        };
        Ok((head, Bytes::copy_from_slice(record)))
    }

    /// At least `wanted` bytes from a place on, if the file has them.
    fn window(&mut self, place: Place, wanted: usize) -> Result<Option<&[u8]>> {
        let position = u64::from(place.position);
        let held = self.segment == place.segment && position >= self.at;
        let skip = position.saturating_sub(self.at) as usize;
        if !held || self.bytes.len() < skip + wanted {
            let path = self.core.path(place.segment);
            let Some(file) = self.files.get(&place.segment) else { return Ok(None) };
            self.bytes.resize(wanted.max(WINDOW), 0);
            let read = disk::read_full(&**file, &mut self.bytes, position)
                .map_err(|error| Error::io(&path, &error))?;
            self.bytes.truncate(read);
            (self.segment, self.at) = (place.segment, position);
            return Ok(Some(&self.bytes));
        }
        Ok(self.bytes.get(skip..))
    }
}
