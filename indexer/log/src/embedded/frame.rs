//! What a segment is to the byte. A header, then frames. A frame is checksummed over all of itself, with its place as the seed,
//! so that neither a record that looks like a frame nor a block at a wrong place passes for one. Each batch ends with a mark
//! that names the ends of all partitions: a later mark tells what a damaged place held. Each frame says up to where the
//! segment was durable before its batch: a bad frame below that was acknowledged once and is damage, one above it is a torn
//! write. All numbers are little-endian.
//!
//! Header: magic 8, format 4, low half of xxh3 of these 4 | partitions 4, segment 8, epoch 16, first offsets 8 each, xxh3 of all 8.
//! Frame: xxh3 of the rest 8, record length 4, partition 4, offset 8, slot 2, flags 2, durable 4, accepted 8, key 16, record.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::record::MAX_RECORD_BYTES;

/// The format that this build reads and writes.
pub const FORMAT: u32 = 1;
/// Bytes of a frame around its record.
pub const FRAME: usize = 56;
/// The partition of a mark.
pub const MARK: u32 = u32::MAX;
/// A record that deletes.
pub const DELETE: u16 = 1;
/// A record whose text was erased.
pub const ERASED: u16 = 2;

const MAGIC: [u8; 8] = *b"CANOPYLG";
const EPOCH: usize = 16;

/// The start of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its number.
    pub segment: u64,
    /// Of the log.
    pub epoch: String,
    /// The next offset of each partition when it was made.
    pub first: Vec<u64>,
}

/// Why a header can't be used.
#[derive(Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// Of another release.
    Format(u32),
    /// Not what was written.
    Damaged,
}

/// Bytes of a header.
pub fn header_bytes(partitions: u32) -> usize {
    16 + 4 + 8 + EPOCH + 8 * partitions as usize + 8
}

impl Header {
    /// As it is in the file.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(FORMAT.to_le_bytes());
        bytes.extend((xxh3_64(&bytes) as u32).to_le_bytes());
        bytes.extend((self.first.len() as u32).to_le_bytes());
        bytes.extend(self.segment.to_le_bytes());
        let mut epoch = self.epoch.clone().into_bytes();
        epoch.resize(EPOCH, 0);
        bytes.extend(epoch);
        for first in &self.first {
            bytes.extend(first.to_le_bytes());
        }
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes
    }

    /// Reads it at the start of a segment.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadHeader> {
        let mut reader = Reader(bytes);
        let (magic, format, sum) = (reader.take::<8>(), reader.u32(), reader.u32());
        let start = bytes.get(..12).ok_or(BadHeader::Damaged)?;
        if magic != Some(MAGIC) || sum != Some(xxh3_64(start) as u32) {
            return Err(BadHeader::Damaged);
        }
        match format {
            Some(FORMAT) => Self::rest(bytes, &mut reader).ok_or(BadHeader::Damaged),
            Some(other) => Err(BadHeader::Format(other)),
            None => Err(BadHeader::Damaged),
        }
    }

    fn rest(bytes: &[u8], reader: &mut Reader<'_>) -> Option<Self> {
        let partitions = reader.u32().filter(|count| *count <= canopy_format::store::MAX_PARTITIONS)?;
        let segment = reader.u64()?;
        let epoch = reader.take::<EPOCH>()?;
        let first = (0..partitions).map(|_| reader.u64()).collect::<Option<Vec<u64>>>()?;
        let summed = bytes.get(..header_bytes(partitions) - 8)?;
        (reader.u64()? == xxh3_64(summed)).then_some(())?;
        let epoch = String::from_utf8(epoch.to_vec()).ok()?.trim_end_matches('\0').to_owned();
        Some(Self { segment, epoch, first })
    }
}

/// A frame without its record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Head {
    /// The partition, or [`MARK`].
    pub partition: u32,
    /// The offset.
    pub offset: u64,
    /// The slot of the key.
    pub slot: u16,
    /// [`DELETE`], [`ERASED`].
    pub flags: u16,
    /// Everything below this position was durable before this frame was written.
    pub durable: u32,
    /// When it was accepted.
    pub at_us: i64,
    /// Hash of the key.
    pub key: u128,
}

impl Head {
    /// A mark: its record is the ends of the partitions.
    pub fn mark(durable: u32) -> Self {
        Self { partition: MARK, offset: 0, slot: 0, flags: 0, durable, at_us: 0, key: 0 }
    }

    /// Appends a frame that will stand at `position` of a segment.
    pub fn encode(&self, record: &[u8], segment: u64, position: u32, into: &mut Vec<u8>) {
        let start = into.len();
        into.extend([0; 8]);
        into.extend((record.len() as u32).to_le_bytes());
        into.extend(self.partition.to_le_bytes());
        into.extend(self.offset.to_le_bytes());
        into.extend(self.slot.to_le_bytes());
        into.extend(self.flags.to_le_bytes());
        into.extend(self.durable.to_le_bytes());
        into.extend(self.at_us.to_le_bytes());
        into.extend(self.key.to_le_bytes());
        into.extend(record);
        let sum = into.get(start + 8..).map_or(0, |rest| xxh3_64_with_seed(rest, seed(segment, position)));
        if let Some(place) = into.get_mut(start..start + 8) {
            place.copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Bytes of the record of the frame that `bytes` start with, if that can be one.
pub fn record_bytes(bytes: &[u8]) -> Option<usize> {
    let length = Reader(bytes.get(8..)?).u32()? as usize;
    (length <= MAX_RECORD_BYTES).then_some(length)
}

/// The frame at the start of `bytes`, which are at `position` of a segment; `None`: there is no whole, sound one.
pub fn decode(bytes: &[u8], segment: u64, position: u32) -> Option<(Head, &[u8])> {
    let end = FRAME + record_bytes(bytes)?;
    let frame = bytes.get(..end)?;
    let mut reader = Reader(frame);
    let sum = reader.u64()?;
    (xxh3_64_with_seed(reader.0, seed(segment, position)) == sum).then_some(())?;
    reader.u32()?;
    let head = Head {
        partition: reader.u32()?,
        offset: reader.u64()?,
        slot: u16::from_le_bytes(reader.take()?),
        flags: u16::from_le_bytes(reader.take()?),
        durable: reader.u32()?,
        at_us: i64::from_le_bytes(reader.take()?),
        key: u128::from_le_bytes(reader.take()?),
    };
    Some((head, reader.0))
}

/// The ends in a mark.
pub fn ends(record: &[u8]) -> Vec<u64> {
    let mut reader = Reader(record);
    std::iter::from_fn(|| reader.u64()).collect()
}

fn seed(segment: u64, position: u32) -> u64 {
    (segment << 32) | u64::from(position)
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*first)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.take().map(u64::from_le_bytes)
    }
}
