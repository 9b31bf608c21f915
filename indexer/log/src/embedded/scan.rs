//! Reads a segment from its first byte to its last. What is not a sound frame is a bad span up to the next sound one. In the last
//! segment a bad span is a torn write, and cut, when nothing behind it knew it as durable; otherwise, and in every other
//! segment, it is damage: it is named and what it held is never skipped as if it had not been there. Units: bytes.

use super::frame::{self, Head, MARK};

/// What was found at a position.
#[derive(Debug, PartialEq, Eq)]
pub enum Item {
    /// A record.
    Record {
        /// Where.
        position: u32,
        /// What it says of itself.
        head: Head,
    },
    /// Ends of all partitions.
    Mark {
        /// Where.
        position: u32,
        /// Next offsets.
        ends: Vec<u64>,
        /// See [`Head::durable`].
        durable: u32,
    },
    /// Bytes that are no frame.
    Bad {
        /// First byte.
        position: u32,
        /// The byte behind it.
        end: u32,
    },
}

impl Item {
    /// Where it is.
    pub fn position(&self) -> u32 {
        match self {
            Self::Record { position, .. } | Self::Mark { position, .. } | Self::Bad { position, .. } => {
                *position
            }
        }
    }

    fn durable(&self) -> u32 {
        match self {
            Self::Record { head, .. } => head.durable,
            Self::Mark { durable, .. } => *durable,
            Self::Bad { .. } => 0,
        }
    }
}

/// All that is behind the header, which takes `start` bytes.
pub fn scan(bytes: &[u8], segment: u64, partitions: u32, start: usize) -> Vec<Item> {
    let mut items = Vec::new();
    let mut at = start;
    while at < bytes.len() {
        if let Some((item, end)) = sound(bytes, segment, partitions, at) {
            items.push(item);
            at = end;
            continue;
        }
        let next = (at + 1..bytes.len()).find(|next| sound(bytes, segment, partitions, *next).is_some());
        let end = next.unwrap_or(bytes.len());
        items.push(Item::Bad { position: at as u32, end: end as u32 });
        at = end;
    }
    items
}

fn sound(bytes: &[u8], segment: u64, partitions: u32, at: usize) -> Option<(Item, usize)> {
    let position = u32::try_from(at).ok()?;
    let rest = bytes.get(at..)?;
    let partition = u32::from_le_bytes(*rest.get(12..)?.first_chunk()?);
    (partition < partitions || partition == MARK).then_some(())?;
    let (head, record) = frame::decode(rest, segment, position)?;
    let end = at + frame::FRAME + record.len();
    if head.partition != MARK {
        return Some((Item::Record { position, head }, end));
    }
    let ends = frame::ends(record);
    (ends.len() == partitions as usize).then_some((Item::Mark { position, ends, durable: head.durable }, end))
}

/// Drops the torn end of the last segment; where to cut it, if anywhere.
pub fn cut_torn(items: &mut Vec<Item>) -> Option<u32> {
    let mut known = 0;
    let mut torn = None;
    for (at, item) in items.iter().enumerate().rev() {
        if let Item::Bad { position, .. } = item
            && known <= *position
        {
            torn = Some((at, *position));
        }
        known = known.max(item.durable());
    }
    let (at, position) = torn?;
    items.truncate(at);
    Some(position)
}
