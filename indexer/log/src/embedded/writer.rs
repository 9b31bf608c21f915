//! The one thread that writes. It takes what has gathered while the last batch was made durable, writes it as one piece with
//! one sync (group commit), and answers when that is done: many small writes cost little more than one. A write or sync that
//! fails is cut off again before anything else is written, and nothing of its batch counts. Units: bytes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, atomic::Ordering},
};

use canopy_common::ids::KeyHash;
use canopy_format::layout::SLOTS;
use tokio::sync::{mpsc, oneshot};
use tracing::{error, warn};

use super::{
    disk::{self, DiskFile},
    frame::{self, Head, Header},
    meta::Meta,
    space::Room,
    state::{Core, Segment},
};
use crate::{
    Append,
    error::{Error, Result},
    record::MAX_RECORD_BYTES,
};

/// Most bytes of a batch, after which no further appends are taken into it.
const BATCH_BYTES: usize = 8 << 20;
/// Positions are of 32 bits; a segment and the largest batch behind it stay below.
const MOST_BYTES: u64 = 3 << 30;
/// Ids that are remembered.
const IDS: usize = 1 << 16;

/// What the writer is asked.
pub enum Order {
    /// Write these.
    Append(Vec<Append>, oneshot::Sender<Vec<Result<u64>>>),
    /// See [`crate::Log::trim`].
    Trim(BTreeMap<u32, u64>, oneshot::Sender<Result<()>>),
    /// See [`crate::Log::erase`].
    Erase(u32, KeyHash, oneshot::Sender<Result<u64>>),
}

/// The writer's own state.
pub struct Writer {
    pub(super) core: Arc<Core>,
    pub(super) meta: Meta,
    number: u64,
    file: Arc<dyn DiskFile>,
    /// Everything below is durable and counts.
    position: u32,
    /// Something behind `position` may be in the file.
    dirty: bool,
    /// The next segment may be in the directory, half made: what came behind its first offsets here would contradict it.
    rolling: bool,
    /// The last frame is a mark of a batch that was durable before it.
    clean: bool,
    ids: BTreeMap<u128, u64>,
    id_order: VecDeque<u128>,
}

/// A batch that is being put together.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    ends: Vec<u64>,
    places: Vec<(u32, u32, u16)>,
    ids: BTreeMap<u128, u64>,
    answers: Vec<(Vec<Result<u64>>, oneshot::Sender<Vec<Result<u64>>>)>,
}

impl Writer {
    /// Goes on behind what was found; makes a new segment where the last one must not be written to.
    pub fn start(core: Arc<Core>, meta: Meta, sealed: bool) -> Result<Self> {
        let last = core
            .state
            .read()
            .segments
            .iter()
            .next_back()
            .map(|(number, segment)| (*number, Arc::clone(&segment.file), segment.bytes as u32));
        let fresh = last.is_none() || sealed;
        let (number, file, position) = match last {
            Some(last) => last,
            None => (meta.last, make(&core, meta.last + 1, &meta.first)?, 0),
        };
        let (ids, id_order) = (BTreeMap::new(), VecDeque::new());
        let mut writer = Self {
            core,
            meta,
            number,
            file,
            position,
            dirty: false,
            rolling: false,
            clean: false,
            ids,
            id_order,
        };
        if fresh {
            writer.roll()?;
        }
        Ok(writer)
    }

    /// Works until all handles are gone.
    pub fn run(mut self, mut orders: mpsc::UnboundedReceiver<Order>) {
        let mut next = None;
        while let Some(order) = next.take().or_else(|| orders.blocking_recv()) {
            match order {
                Order::Append(items, answer) => next = self.commit(items, answer, &mut orders),
                Order::Trim(before, answer) => drop(answer.send(self.trim(&before))),
                Order::Erase(partition, key, answer) => drop(answer.send(self.erase(partition, key))),
            }
        }
        if !self.clean
            && !self.rolling
            && let Err(error) = self.leave_mark()
        {
            warn!(%error, "the log was closed without its last mark");
        }
    }

    /// Makes these and all appends that wait durable; the first order behind them that is something else.
    fn commit(
        &mut self,
        items: Vec<Append>,
        answer: oneshot::Sender<Vec<Result<u64>>>,
        orders: &mut mpsc::UnboundedReceiver<Order>,
    ) -> Option<Order> {
        let ready = self.ready();
        let mut batch = Batch { ends: self.core.state.read().ends(), ..Batch::default() };
        let mut room = self.room();
        let mut next = Some(Order::Append(items, answer));
        while let Some(Order::Append(items, answer)) = next {
            let add = |item: &Append| match &ready {
                Ok(()) => self.add(item, &mut batch, &mut room),
                Err(error) => Err(error.clone()),
            };
            let results = items.iter().map(add).collect();
            batch.answers.push((results, answer));
            next = if batch.bytes.len() < BATCH_BYTES { orders.try_recv().ok() } else { None };
        }
        self.finish(batch, room);
        next
    }

    /// The file is as it should be, and has room for another batch.
    fn ready(&mut self) -> Result<()> {
        if self.dirty {
            self.repair().map_err(|error| Error::io(&self.core.path(self.number), &error))?;
        }
        if self.rolling || u64::from(self.position) >= self.core.config.segment_bytes {
            self.roll()?;
        }
        Ok(())
    }

    pub(super) fn room(&self) -> Room {
        let config = &self.core.config;
        let disk = self.core.disk.free(&config.dir).unwrap_or_else(|error| {
            warn!(%error, "free space can't be asked for");
            u64::MAX
        });
        Room::of(disk, self.core.state.read().bytes(), config.max_bytes, config.reserve_bytes)
    }

    fn add(&self, item: &Append, batch: &mut Batch, room: &mut Room) -> Result<u64> {
        let known = || self.ids.get(&item.id).or_else(|| batch.ids.get(&item.id));
        if item.id != 0
            && let Some(offset) = known()
        {
            return Ok(*offset);
        }
        if item.record.len() > MAX_RECORD_BYTES {
            let reason = format!("{} bytes, at most {MAX_RECORD_BYTES} are allowed", item.record.len());
            return Err(Error::invalid("record", reason));
        }
        if item.slot >= SLOTS {
            return Err(Error::invalid("slot", format!("{}, but slots are below {SLOTS}", item.slot)));
        }
        if u64::from(self.position) + (batch.bytes.len() + MAX_RECORD_BYTES) as u64 > MOST_BYTES {
            return Err(Error::invalid("batch", format!("more than {MOST_BYTES} bytes; split it")));
        }
        let count = batch.ends.len();
        let Some(end) = batch.ends.get_mut(item.partition as usize) else {
            return Err(Error::invalid("partition", format!("{}, of {count}", item.partition)));
        };
        let mark = (frame::FRAME + 8 * count) as u64;
        room.take((frame::FRAME + item.record.len()) as u64 + mark, item.delete).inspect_err(|_| {
            self.core.refused.fetch_add(1, Ordering::Relaxed);
        })?;
        let position = self.position + batch.bytes.len() as u32;
        let head = Head {
            partition: item.partition,
            offset: *end,
            slot: item.slot,
            flags: if item.delete { frame::DELETE } else { 0 },
            durable: self.position,
            at_us: item.at_us,
            key: item.key.0,
        };
        head.encode(&item.record, self.number, position, &mut batch.bytes);
        batch.places.push((item.partition, position, item.slot));
        let offset = *end;
        *end += 1;
        if item.id != 0 {
            batch.ids.insert(item.id, offset);
        }
        Ok(offset)
    }

    /// Writes a batch, and answers.
    fn finish(&mut self, mut batch: Batch, room: Room) {
        if !batch.places.is_empty()
            && let Err(error) = self.write(&mut batch)
        {
            error!(%error, "the log can't be written");
            *self.core.trouble.write() = Some(error.to_string());
            let error = room.error(&self.core.path(self.number), batch.bytes.len() as u64, &error);
            for (results, _) in &mut batch.answers {
                for result in results.iter_mut().filter(|result| result.is_ok()) {
                    *result = Err(error.clone());
                }
            }
        }
        for (results, answer) in batch.answers {
            drop(answer.send(results));
        }
    }

    fn write(&mut self, batch: &mut Batch) -> std::io::Result<()> {
        self.put(&mut batch.bytes, &batch.ends)?;
        self.core.commits.fetch_add(1, Ordering::Relaxed);
        self.clean = false;
        self.core.trouble.write().take();
        let mut state = self.core.state.write();
        for (partition, position, slot) in &batch.places {
            if let Some(partition) = state.partitions.get_mut(*partition as usize) {
                partition.push(self.number, *position, *slot);
            }
        }
        drop(state);
        for (sender, end) in self.core.ends.iter().zip(&batch.ends) {
            sender.send_if_modified(|known| std::mem::replace(known, *end) != *end);
        }
        while let Some((id, offset)) = batch.ids.pop_first() {
            self.ids.insert(id, offset);
            self.id_order.push_back(id);
            if self.id_order.len() > IDS
                && let Some(old) = self.id_order.pop_front()
            {
                self.ids.remove(&old);
            }
        }
        Ok(())
    }

    /// Writes frames and a mark behind them, durably, or not at all.
    fn put(&mut self, bytes: &mut Vec<u8>, ends: &[u64]) -> std::io::Result<()> {
        let record: Vec<u8> = ends.iter().flat_map(|end| end.to_le_bytes()).collect();
        let place = self.position + bytes.len() as u32;
        Head::mark(self.position).encode(&record, self.number, place, bytes);
        self.dirty = true;
        let written =
            disk::write_full(&*self.file, bytes, u64::from(self.position)).and_then(|()| self.file.sync());
        if let Err(error) = written {
            // Best now; else before the next write.
            if let Err(error) = self.repair() {
                warn!(%error, "what was half written can't be cut off yet");
            }
            return Err(error);
        }
        self.dirty = false;
        self.position += bytes.len() as u32;
        if let Some(segment) = self.core.state.write().segments.get_mut(&self.number) {
            segment.bytes = u64::from(self.position);
        }
        Ok(())
    }

    fn repair(&mut self) -> std::io::Result<()> {
        self.file.cut(u64::from(self.position))?;
        self.file.sync()?;
        self.dirty = false;
        *self.core.trouble.write() = None;
        Ok(())
    }

    /// A mark that knows all before it as durable: from then on no byte of it can pass for a torn write.
    fn leave_mark(&mut self) -> std::io::Result<()> {
        if self.dirty {
            self.repair()?;
        }
        let ends = self.core.state.read().ends();
        self.put(&mut Vec::new(), &ends)?;
        self.clean = true;
        Ok(())
    }

    /// Goes on in a new segment.
    pub(super) fn roll(&mut self) -> Result<()> {
        if self.dirty {
            self.repair().map_err(|error| Error::io(&self.core.path(self.number), &error))?;
        }
        let next = self.number + 1;
        let first = self.core.state.read().ends();
        self.rolling = true;
        let file = make(&self.core, next, &first)?;
        self.rolling = false;
        let bytes = frame::header_bytes(first.len() as u32);
        self.meta.last = next;
        let segment = Segment { file: Arc::clone(&file), bytes: bytes as u64, first };
        self.core.state.write().segments.insert(next, segment);
        (self.number, self.file, self.position) = (next, file, bytes as u32);
        (self.dirty, self.clean) = (false, true);
        self.save_meta()
    }

    pub(super) fn save_meta(&self) -> Result<()> {
        let dir = &self.core.config.dir;
        self.meta.write(&*self.core.disk, dir).map_err(|error| Error::io(dir, &error))
    }

    /// The number of the segment that is written to, and the byte behind its last frame.
    pub(super) fn active(&self) -> (u64, u32) {
        (self.number, self.position)
    }
}

/// A new segment, durable with its name.
fn make(core: &Core, number: u64, first: &[u64]) -> Result<Arc<dyn DiskFile>> {
    let path = core.path(number);
    let header = Header { segment: number, epoch: core.epoch.clone(), first: first.to_vec() };
    let made = || {
        let file = core.disk.make(&path)?;
        disk::write_full(&*file, &header.encode(), 0)?;
        file.sync()?;
        core.disk.sync_dir(&core.config.dir)?;
        Ok(file)
    };
    made().map_err(|error: std::io::Error| Error::io(&path, &error))
}
