//! The engine in the process of the ingest: a segmented, append-only log in one directory a corpus. An append is durable before
//! it resolves; many that come together cost one sync. See `frame` for the format, `open` for what a crash or damage
//! leaves, `writer` for the one thread that writes. Units: bytes, offsets.

pub mod disk;
mod frame;
mod index;
mod meta;
mod open;
mod read;
mod scan;
mod space;
mod state;
#[cfg(test)]
mod tests;
mod trim;
mod writer;

use std::{collections::BTreeMap, path::PathBuf, sync::Arc, thread::JoinHandle};

use canopy_common::{ids::KeyHash, rng::Dice};
use canopy_format::store::MAX_PARTITIONS;
use futures::{FutureExt, future::BoxFuture};
use parking_lot::RwLock;
use tokio::sync::{mpsc, oneshot, watch};

use crate::{
    Append, Chunk, Log, Range, Slots,
    error::{Error, Result},
};
use disk::Disk;
pub(crate) use space::Room;
use state::Core;
use writer::{Order, Writer};

/// Smallest size of segments, bytes.
pub const MIN_SEGMENT_BYTES: u64 = 4 << 10;
/// Largest size of segments, bytes; a segment exceeds it by its last batch.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;

/// Settings of one log.
#[derive(Debug, Clone)]
pub struct Config {
    /// Its directory; nothing else should be in it.
    pub dir: PathBuf,
    /// As when it was made.
    pub partitions: u32,
    /// A segment of this size is followed by a new one: the step in which trim makes room.
    pub segment_bytes: u64,
    /// Room that only deletes may use.
    pub reserve_bytes: u64,
    /// Most bytes of the log; 0: as many as the disk has.
    pub max_bytes: u64,
}

impl Config {
    /// The defaults for a directory.
    pub fn new(dir: impl Into<PathBuf>, partitions: u32) -> Self {
        Self { dir: dir.into(), partitions, segment_bytes: 64 << 20, reserve_bytes: 256 << 20, max_bytes: 0 }
    }

    fn check(&self) -> Result<()> {
        if !(1..=MAX_PARTITIONS).contains(&self.partitions) {
            let reason = format!("{}, expected 1 to {MAX_PARTITIONS}", self.partitions);
            return Err(Error::invalid("partitions", reason));
        }
        if !(MIN_SEGMENT_BYTES..=MAX_SEGMENT_BYTES).contains(&self.segment_bytes) {
            let range = format!("{MIN_SEGMENT_BYTES} to {MAX_SEGMENT_BYTES} bytes");
            return Err(Error::invalid("segment_bytes", format!("{}, expected {range}", self.segment_bytes)));
        }
        Ok(())
    }
}

/// An open log. Dropping it ends the writer and leaves a mark, so that the next start finds a whole log.
pub struct Embedded {
    core: Arc<Core>,
    orders: Option<mpsc::UnboundedSender<Order>>,
    thread: Option<JoinHandle<()>>,
    _taken: Box<dyn Send + Sync>,
}

impl Embedded {
    /// Opens the log of a directory, or makes it. Reads all of it: blocks.
    pub fn open(config: Config) -> Result<Self> {
        let dice = Dice::from_entropy().map_err(|error| Error::io(&config.dir, &error))?;
        Self::open_on(config, Arc::new(disk::System), &dice)
    }

    /// The same on a given file system; `dice` give the epoch of a log that is made.
    pub fn open_on(config: Config, disk: Arc<dyn Disk>, dice: &Dice) -> Result<Self> {
        config.check()?;
        let taken = open::take(&config, &disk)?;
        let open::Opened { meta, state, sealed } = open::open(&config, &*disk, dice)?;
        let core = Arc::new(Core {
            epoch: meta.epoch.clone(),
            ends: state.ends().into_iter().map(watch::Sender::new).collect(),
            state: RwLock::new(state),
            config,
            disk,
            refused: Default::default(),
            commits: Default::default(),
            trouble: Default::default(),
        });
        let writer = Writer::start(Arc::clone(&core), meta, sealed)?;
        let (orders, received) = mpsc::unbounded_channel();
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || writer.run(received))
            .map_err(|error| Error::io(&core.config.dir, &error))?;
        Ok(Self { core, orders: Some(orders), thread: Some(thread), _taken: taken })
    }

    async fn ask<T>(&self, order: impl FnOnce(oneshot::Sender<T>) -> Order) -> Result<T> {
        let (answer, answered) = oneshot::channel();
        let orders = self.orders.as_ref().ok_or(Error::Closed)?;
        orders.send(order(answer)).map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.orders.take();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the log's writer had panicked");
        }
    }
}

impl Log for Embedded {
    fn epoch(&self) -> String {
        self.core.epoch.clone()
    }

    fn partitions(&self) -> u32 {
        self.core.config.partitions
    }

    fn append(&self, batch: Vec<Append>) -> BoxFuture<'_, Vec<Result<u64>>> {
        async move {
            let count = batch.len();
            let answers = self.ask(|answer| Order::Append(batch, answer)).await;
            answers.unwrap_or_else(|error| vec![Err(error); count])
        }
        .boxed()
    }

    fn read(
        &self,
        partition: u32,
        from: u64,
        slots: Slots,
        max_bytes: usize,
    ) -> BoxFuture<'_, Result<Chunk>> {
        let core = Arc::clone(&self.core);
        async move {
            tokio::task::spawn_blocking(move || read::read(&core, partition, from, &slots, max_bytes))
                .await
                .unwrap_or(Err(Error::Closed))
        }
        .boxed()
    }

    fn wait(&self, partition: u32, end: u64) -> BoxFuture<'_, ()> {
        async move {
            let Some(ends) = self.core.ends.get(partition as usize) else {
                return std::future::pending().await;
            };
            // The sender lives as long as the log.
            drop(ends.subscribe().wait_for(|known| *known > end).await);
        }
        .boxed()
    }

    fn ranges(&self) -> BoxFuture<'_, Result<Vec<Range>>> {
        let state = self.core.state.read();
        let ranges =
            state.partitions.iter().map(|partition| Range { first: partition.first, end: partition.end });
        let ranges = ranges.collect();
        async move { Ok(ranges) }.boxed()
    }

    fn trim(&self, before: BTreeMap<u32, u64>) -> BoxFuture<'_, Result<()>> {
        async move { self.ask(|answer| Order::Trim(before, answer)).await? }.boxed()
    }

    fn erase(&self, partition: u32, key: KeyHash) -> BoxFuture<'_, Result<u64>> {
        async move { self.ask(|answer| Order::Erase(partition, key, answer)).await? }.boxed()
    }

    fn status(&self) -> serde_json::Value {
        self.core.status()
    }
}
