//! Where the records of a partition are: 6 bytes a record in memory, so that a reader of some slots touches only their frames.
//! Offsets are given without gaps, so a run of records needs no offsets; a gap between runs is a hole, which is damage.
//! Units: bytes, offsets.

use crate::{
    error::{Error, Result},
    slots::Slots,
};

/// Most records that one read looks at.
const LOOKED_AT: u64 = 1 << 18;

/// Records of one segment with consecutive offsets.
#[derive(Debug, Default)]
struct Run {
    segment: u64,
    first: u64,
    positions: Vec<u32>,
    slots: Vec<u16>,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.positions.len() as u64
    }
}

/// Offsets that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// First one.
    pub first: u64,
    /// The one behind the last.
    pub end: u64,
    /// Where they should be.
    pub file: String,
    /// First byte that is wrong there.
    pub byte: u64,
}

impl Hole {
    fn error(&self, offset: u64) -> Error {
        let reason = format!("offsets {} to {} can't be read", self.first, self.end.saturating_sub(1));
        Error::Damaged { file: self.file.clone(), byte: self.byte, offset, reason }
    }
}

/// A record that is to be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Its segment.
    pub segment: u64,
    /// Its frame there.
    pub position: u32,
    /// Its offset.
    pub offset: u64,
}

/// One partition.
#[derive(Debug, Default)]
pub struct Partition {
    /// Oldest offset that is kept.
    pub first: u64,
    /// Next offset to be written.
    pub end: u64,
    runs: Vec<Run>,
    /// What is lost, ascending.
    pub holes: Vec<Hole>,
}

impl Partition {
    /// One that starts at an offset.
    pub fn starting(first: u64) -> Self {
        Self { first, end: first, ..Self::default() }
    }

    /// Adds the record of the next offset.
    pub fn push(&mut self, segment: u64, position: u32, slot: u16) {
        match self.runs.last_mut() {
            Some(run) if run.segment == segment && run.end() == self.end => {
                run.positions.push(position);
                run.slots.push(slot);
            }
            _ => {
                self.runs.push(Run {
                    segment,
                    first: self.end,
                    positions: vec![position],
                    slots: vec![slot],
                });
            }
        }
        self.end += 1;
    }

    /// All offsets from the end up to `end` are lost.
    pub fn lose(&mut self, end: u64, file: &str, byte: u64) {
        if end > self.end {
            self.holes.push(Hole { first: self.end, end, file: file.to_owned(), byte });
            self.end = end;
        }
    }

    /// Which records to read, at most `most`, and up to which offset that looks.
    pub fn plan(&self, from: u64, slots: &Slots, most: usize) -> Result<(Vec<Place>, u64)> {
        let (mut places, mut at) = (Vec::new(), from);
        let until = self.end.min(from.saturating_add(LOOKED_AT));
        let start = self.runs.partition_point(|run| run.end() <= from);
        for run in self.runs.iter().skip(start) {
            if at >= until || run.first > at {
                break;
            }
            let skipped = (at - run.first) as usize;
            for (position, slot) in run.positions.iter().zip(&run.slots).skip(skipped) {
                if at >= until || places.len() >= most {
                    return Ok((places, at));
                }
                if slots.contains(*slot) {
                    places.push(Place { segment: run.segment, position: *position, offset: at });
                }
                at += 1;
            }
        }
        if at == from && at < self.end {
            let hole = self.holes.iter().find(|hole| (hole.first..hole.end).contains(&at)).cloned();
            let unnamed = Hole { first: at, end: at + 1, file: "the index".to_owned(), byte: 0 };
            return Err(hole.unwrap_or(unnamed).error(at));
        }
        Ok((places, at))
    }

    /// The record at an offset, or behind it when that one is lost.
    pub fn at_or_after(&self, offset: u64) -> Option<Place> {
        let run = self.runs.get(self.runs.partition_point(|run| run.end() <= offset))?;
        let at = offset.max(run.first);
        let position = *run.positions.get((at - run.first) as usize)?;
        Some(Place { segment: run.segment, position, offset: at })
    }

    /// Segments that hold records of this partition.
    pub fn segments(&self) -> Vec<u64> {
        let mut segments: Vec<u64> = self.runs.iter().map(|run| run.segment).collect();
        segments.dedup();
        segments
    }

    /// Forgets what is below an offset; its segments are gone.
    pub fn forget(&mut self, first: u64, before_segment: u64) {
        self.first = first.max(self.first);
        self.runs.retain(|run| run.segment >= before_segment);
        self.holes.retain(|hole| hole.end > first);
    }

    /// A segment was written anew: `moved` are old and new positions, ascending.
    pub fn moved(&mut self, segment: u64, moved: &[(u32, u32)]) {
        for run in self.runs.iter_mut().filter(|run| run.segment == segment) {
            for position in &mut run.positions {
                let found = moved.binary_search_by_key(position, |(old, _)| *old);
                if let Some((_, new)) = found.ok().and_then(|at| moved.get(at)) {
                    *position = *new;
                }
            }
        }
    }
}
