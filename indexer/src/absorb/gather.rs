//! Reads the log from the last version's cut on and sorts what it says by shard, key and offset: in memory up to a budget,
//! then as runs on disk, like the rows of a build. So a log of any length takes the same memory, and each key's
//! operations come together, in the order of the log.

use std::collections::BTreeMap;

use bytes::Bytes;
use canopy_common::ids::KeyHash;
use canopy_format::{
    layout::{Layout, slot},
    newest::Kind,
};
use tokio::runtime::Handle;

use super::{AbsorbRequest, Chunk, Logged, damaged, judge::Task};
use crate::{
    build::{
        Amount, Stage,
        partition::Partition,
        row::{ANCHOR, Row},
    },
    error::{Error, Result},
};

/// Bytes before the key: kind, order, length of the key.
const HEAD: usize = 1 + 8 + 4;

/// Reads all operations of the task into `partition`, by the shards of `layout`; how many. Blocking.
pub(super) fn read(
    request: &AbsorbRequest,
    task: &Task,
    layout: &Layout,
    partition: &Partition,
) -> Result<u64> {
    let handle = Handle::current();
    let mut count = 0;
    for (&number, &to) in &task.until.offsets {
        let mut from = task.base.cut.get(&number).copied().unwrap_or(0);
        while from < to {
            request.cancel.check()?;
            let chunk = handle.block_on(request.operations.read(number, from, to))?;
            count += take(&chunk, layout, partition, (from, to))?;
            let documents = chunk.operations.len() as u64;
            request.progress.advance(Stage::Read, Amount { documents, bytes: 0 });
            if chunk.next <= from {
                return Err(Error::Log(format!("partition {number} ends at {from}, not at {to}")));
            }
            from = chunk.next;
        }
    }
    Ok(count)
}

fn take(chunk: &Chunk, layout: &Layout, partition: &Partition, (from, to): (u64, u64)) -> Result<u64> {
    let mut rows: BTreeMap<u32, Vec<Row>> = BTreeMap::new();
    let (mut last, mut count) = (None, 0);
    for logged in &chunk.operations {
        if logged.offset < from || last.is_some_and(|last| last >= logged.offset) || logged.offset >= ANCHOR {
            let reason = format!("offset {} is out of order", logged.offset);
            return Err(Error::Log(reason));
        }
        last = Some(logged.offset);
        if logged.offset >= to {
            break;
        }
        let shard = layout.table.get(usize::from(slot(&logged.key)));
        let shard = *shard.ok_or_else(|| damaged("the layout", "a slot has no shard"))?;
        rows.entry(shard.into()).or_default().push(row(logged));
        count += 1;
    }
    rows.into_iter().try_for_each(|(shard, rows)| partition.add(shard, rows))?;
    Ok(count)
}

fn row(logged: &Logged) -> Row {
    let mut bytes = Vec::with_capacity(HEAD + logged.key.len() + logged.document.len());
    bytes.push(match logged.kind {
        Kind::Put => 1,
        Kind::Patch => 2,
        Kind::Delete => 3,
    });
    bytes.extend(logged.order.to_le_bytes());
    // A key has at most some thousand bytes.
    bytes.extend((logged.key.len() as u32).to_le_bytes());
    bytes.extend(logged.key.as_bytes());
    bytes.extend(&logged.document);
    Row { hash: KeyHash::of(&logged.key).0, order: logged.offset, bytes: bytes.into() }
}

/// The operation of a row.
pub(super) fn logged(row: Row) -> Result<Logged> {
    let offset = row.order;
    let read = || {
        let (kind, rest) = row.bytes.split_first()?;
        let kind = match kind {
            1 => Kind::Put,
            2 => Kind::Patch,
            3 => Kind::Delete,
            _ => return None,
        };
        let (order, rest) = rest.split_first_chunk()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (key, _) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        Some((kind, u64::from_le_bytes(*order), std::str::from_utf8(key).ok()?.to_owned()))
    };
    let (kind, order, key) = read().ok_or_else(|| {
        damaged("a spilled operation", "it can't be read back; check the disk and absorb again")
    })?;
    let document = Bytes::from(row.bytes.into_vec()).split_off(HEAD + key.len());
    Ok(Logged { offset, kind, key, order, document })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_comes_back_from_its_row_and_damage_is_an_error() {
        for kind in [Kind::Put, Kind::Patch, Kind::Delete] {
            let document = Bytes::from_static(b"{\"title\":\"T\"}");
            let given = Logged { offset: 7, kind, key: "ü".into(), order: u64::MAX, document };
            let row = row(&given);
            assert_eq!(logged(row.clone()).expect("row"), given);
            let cut = |end: usize| Row { bytes: row.bytes[..end].into(), ..row.clone() };
            assert!((0..HEAD + 2).all(|end| logged(cut(end)).is_err()));
        }
    }
}
