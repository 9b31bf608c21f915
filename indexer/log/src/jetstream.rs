//! The engine over NATS JetStream, for clusters: the server keeps the log, any number of ingests write it. See `streams` for what
//! is where, [`write`] for repeating what was not acknowledged, `tail` for reading. A server that is away is waited for (the
//! client reconnects by itself). A stream that was made anew is another log: the handle then refuses everything, for good,
//! because offsets that its users hold mean nothing there; they open the log again and see another epoch.
//!
//! JetStream acknowledges when a quorum of `replicas` has a message; one server alone does so before it is synced to its disk
//! (`sync_interval`), so that a power loss there can cost the last moments. Use 3 replicas where that matters.

mod streams;
mod tail;
mod write;

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use async_nats::jetstream::{
    self, Context,
    stream::{Info, Stream},
};
use canopy_common::{ids::KeyHash, rng::Dice};
use canopy_format::store::MAX_PARTITIONS;
use futures::{FutureExt, future::BoxFuture};
use parking_lot::{Mutex, RwLock};
use serde_json::json;
use tokio::sync::watch;

use crate::{
    Append, Chunk, Entry, Log, Range, Slots,
    embedded::Room,
    error::{Error, Result},
};
use tail::Tail;

/// Readers that are kept a partition.
const KEPT: usize = 32;
/// Other writers' records are looked for this often.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Records that one read returns at most.
const MOST: usize = 4096;

/// Settings of one log.
#[derive(Debug, Clone)]
pub struct Config {
    /// Servers, such as `nats://user:password@host:4222`; several with commas.
    pub url: String,
    /// The corpus: letters, digits, `-`, `_`.
    pub corpus: String,
    /// As when it was made.
    pub partitions: u32,
    /// Servers that hold each stream: 1 to 5.
    pub replicas: usize,
    /// Most bytes of the log, shared by its partitions; 0: as many as the server allows.
    pub max_bytes: u64,
    /// Of these, for deletes only.
    pub reserve_bytes: u64,
    /// How long an append is repeated.
    pub give_up: Duration,
}

impl Config {
    /// The defaults for a corpus.
    pub fn new(url: impl Into<String>, corpus: impl Into<String>, partitions: u32) -> Self {
        let give_up = Duration::from_secs(10);
        let (url, corpus) = (url.into(), corpus.into());
        Self { url, corpus, partitions, replicas: 1, max_bytes: 0, reserve_bytes: 0, give_up }
    }

    fn stream_bytes(&self) -> Option<u64> {
        (self.max_bytes > 0).then(|| (self.max_bytes / u64::from(self.partitions)).max(1))
    }

    fn check(&self) -> Result<()> {
        if !(1..=MAX_PARTITIONS).contains(&self.partitions) {
            let reason = format!("{}, expected 1 to {MAX_PARTITIONS}", self.partitions);
            return Err(Error::invalid("partitions", reason));
        }
        if !(1..=5).contains(&self.replicas) {
            return Err(Error::invalid("replicas", format!("{}, expected 1 to 5", self.replicas)));
        }
        if self.give_up > streams::REMEMBERS / 2 {
            let reason =
                format!("at most {} s: the server must still know the ids", streams::REMEMBERS.as_secs() / 2);
            return Err(Error::invalid("give_up", reason));
        }
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
        if self.corpus.is_empty() || self.corpus.len() > 128 || !self.corpus.bytes().all(fits) {
            return Err(Error::invalid("corpus", "expected up to 128 letters, digits, - and _"));
        }
        Ok(())
    }
}

struct Part {
    stream: Stream,
    tag: String,
    name: String,
    made: i128,
    end: watch::Sender<u64>,
    bytes: AtomicU64,
    tails: Mutex<Vec<Tail>>,
}

impl Part {
    fn new((stream, tag): (Stream, String), corpus: &str, partition: u32) -> Self {
        let info = stream.cached_info();
        Self {
            name: streams::name(corpus, partition),
            made: streams::made(info),
            end: watch::Sender::new(info.state.last_sequence),
            bytes: AtomicU64::new(info.state.bytes),
            tails: Mutex::default(),
            stream,
            tag,
        }
    }

    fn raise(&self, end: u64, bytes: u64) {
        let raised = self.end.send_if_modified(|known| {
            let more = end > *known;
            *known = end.max(*known);
            more
        });
        if raised {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn room(&self, config: &Config) -> Room {
        let used = self.bytes.load(Ordering::Relaxed);
        let reserve = config.reserve_bytes / u64::from(config.partitions);
        Room::of(u64::MAX, used, config.stream_bytes().unwrap_or(0), reserve)
    }
}

/// An open log.
pub struct JetStream {
    context: Context,
    config: Config,
    epoch: String,
    parts: Vec<Part>,
    replaced: RwLock<Option<Error>>,
    dice: Dice,
}

impl JetStream {
    /// Connects, and opens the log or makes it.
    pub async fn open(config: Config) -> Result<Self> {
        config.check()?;
        let away = |error: String| Error::Away(error);
        let dice = Dice::from_entropy().map_err(|error| away(error.to_string()))?;
        let options = async_nats::ConnectOptions::new().name("canopy");
        let servers: Vec<&str> = config.url.split(',').map(str::trim).collect();
        let client = options.connect(servers).await.map_err(|error| away(error.to_string()))?;
        let mut context = jetstream::new(client);
        context.set_timeout(Duration::from_secs(2));
        let mut parts = Vec::new();
        for partition in 0..config.partitions {
            let tag = format!("{:016x}", dice.next_u64());
            let found = streams::ensure(&context, &config, partition, &tag).await?;
            parts.push(Part::new(found, &config.corpus, partition));
        }
        let epoch = streams::epoch(parts.iter().map(|part| (part.tag.as_str(), part.made)));
        Ok(Self { context, config, epoch, parts, replaced: RwLock::default(), dice })
    }

    fn new_id(&self) -> u128 {
        (u128::from(self.dice.next_u64()) << 64) | u128::from(self.dice.next_u64())
    }

    fn replaced(&self) -> Option<Error> {
        self.replaced.read().clone()
    }

    fn part(&self, partition: u32) -> Result<&Part> {
        let wrong = || Error::invalid("partition", format!("{partition}, of {}", self.parts.len()));
        self.parts.get(partition as usize).ok_or_else(wrong)
    }

    /// What the stream of a partition says of itself, if it is still the one that was opened.
    async fn check(&self, partition: u32) -> Result<Info> {
        if let Some(error) = self.replaced() {
            return Err(error);
        }
        let part = self.part(partition)?;
        // Before asking: what is acknowledged meanwhile need not be in the answer.
        let known = *part.end.borrow();
        let reason = match streams::info(&self.context, &part.name).await? {
            None => format!("stream {} is gone", part.name),
            Some(info) if streams::made(&info) != part.made => format!("stream {} was made anew", part.name),
            Some(info) if info.state.last_sequence < known => {
                format!("stream {} ends below what it had acknowledged", part.name)
            }
            Some(info) => {
                part.raise(info.state.last_sequence, 0);
                part.bytes.store(info.state.bytes, Ordering::Relaxed);
                return Ok(info);
            }
        };
        let error = Error::Replaced { was: self.epoch.clone(), reason };
        tracing::error!(corpus = %self.config.corpus, %error, "the log is another one");
        *self.replaced.write() = Some(error.clone());
        Err(error)
    }

    async fn read_chunk(&self, partition: u32, from: u64, slots: &Slots, max_bytes: usize) -> Result<Chunk> {
        let Range { first, end } = streams::range(&self.check(partition).await?);
        if from < first || from > end {
            return Err(Error::Lost { partition, wanted: from, first, end });
        }
        let part = self.part(partition)?;
        let kept = {
            let mut tails = part.tails.lock();
            let at = tails.iter().position(|tail| tail.next() == from);
            at.map(|at| tails.remove(at))
        };
        let mut tail = kept.unwrap_or_else(|| Tail::at(part.stream.clone(), from, false));
        let (mut entries, mut taken) = (Vec::new(), 0);
        while entries.len() < MOST
            && (entries.is_empty() || taken < max_bytes)
            && tail.peek(end).await?.is_some()
        {
            let Some(item) = tail.take() else { break };
            if slots.contains(item.slot) {
                taken += item.record.len() + 64;
                let tail::Item { offset, slot, at_us, record, .. } = item;
                entries.push(Entry { offset, slot, at_us, record });
            }
        }
        let oldest_us = tail.peek(end).await?.map_or(0, |item| item.at_us);
        let next = tail.next();
        let end = end.max(next);
        let mut tails = part.tails.lock();
        if tails.len() >= KEPT {
            tails.remove(0);
        }
        tails.push(tail);
        Ok(Chunk { entries, next, end, oldest_us })
    }

    async fn trim_all(&self, before: BTreeMap<u32, u64>) -> Result<()> {
        for (partition, offset) in before {
            let end = streams::range(&self.check(partition).await?).end;
            let purge = self.part(partition)?.stream.purge().sequence(offset.min(end) + 1);
            purge.await.map_err(|error| Error::Away(error.to_string()))?;
            self.check(partition).await?;
        }
        Ok(())
    }

    async fn erase_key(&self, partition: u32, key: KeyHash) -> Result<u64> {
        let info = self.check(partition).await?;
        let range = streams::range(&info);
        let stream = &self.part(partition)?.stream;
        let wanted = format!("{:032x}", key.0);
        let mut tail = Tail::at(stream.clone(), range.first, true);
        let (mut held, mut newest, mut all) = (Vec::new(), None, Vec::new());
        while tail.peek(range.end).await?.is_some() {
            let Some(item) = tail.take() else { break };
            all.push(item.offset);
            if item.key == wanted {
                if item.delete {
                    newest = Some(item.offset);
                } else {
                    held.push(item.offset);
                }
            }
        }
        held.retain(|offset| newest.is_some_and(|newest| *offset < newest));
        let begins = all.iter().find(|offset| !held.contains(offset)).copied().unwrap_or(range.end);
        if begins > range.first {
            streams::note_erased(&self.context, &self.config, &info, (range.first, begins)).await?;
        }
        for offset in &held {
            // One that is gone already was erased by another try.
            if let Err(error) = stream.delete_message(offset + 1).await
                && stream.get_raw_message(offset + 1).await.is_ok()
            {
                return Err(Error::Away(error.to_string()));
            }
        }
        part_forgets(self.part(partition)?);
        Ok(held.len() as u64)
    }
}

/// Readers may hold what was erased.
fn part_forgets(part: &Part) {
    part.tails.lock().clear();
}

impl Log for JetStream {
    fn epoch(&self) -> String {
        self.epoch.clone()
    }

    fn partitions(&self) -> u32 {
        self.config.partitions
    }

    fn append(&self, batch: Vec<Append>) -> BoxFuture<'_, Vec<Result<u64>>> {
        self.write(batch).boxed()
    }

    fn read(
        &self,
        partition: u32,
        from: u64,
        slots: Slots,
        max_bytes: usize,
    ) -> BoxFuture<'_, Result<Chunk>> {
        async move { self.read_chunk(partition, from, &slots, max_bytes).await }.boxed()
    }

    fn wait(&self, partition: u32, end: u64) -> BoxFuture<'_, ()> {
        async move {
            let Ok(part) = self.part(partition) else { return std::future::pending().await };
            let mut ends = part.end.subscribe();
            loop {
                let look = tokio::time::timeout(LOOK_EVERY, ends.wait_for(|known| *known > end));
                if let Ok(Ok(_)) = look.await {
                    return;
                }
                // A log that was replaced is told to whoever reads.
                if matches!(self.check(partition).await, Err(Error::Replaced { .. })) {
                    return;
                }
            }
        }
        .boxed()
    }

    fn ranges(&self) -> BoxFuture<'_, Result<Vec<Range>>> {
        async move {
            let checks = (0..self.config.partitions).map(|partition| self.check(partition));
            let infos = futures::future::join_all(checks).await;
            infos.into_iter().map(|info| Ok(streams::range(&info?))).collect()
        }
        .boxed()
    }

    fn trim(&self, before: BTreeMap<u32, u64>) -> BoxFuture<'_, Result<()>> {
        self.trim_all(before).boxed()
    }

    fn erase(&self, partition: u32, key: KeyHash) -> BoxFuture<'_, Result<u64>> {
        self.erase_key(partition, key).boxed()
    }

    fn status(&self) -> serde_json::Value {
        let bytes: u64 = self.parts.iter().map(|part| part.bytes.load(Ordering::Relaxed)).sum();
        json!({
            "engine": "jetstream",
            "epoch": self.epoch,
            "connection": self.context.client().connection_state().to_string(),
            "bytes": bytes,
            "max_bytes": self.config.max_bytes,
            "reserve_bytes": self.config.reserve_bytes,
            "partitions": self.parts.iter().map(|part| json!({"end": *part.end.borrow()})).collect::<Vec<_>>(),
            "replaced": self.replaced().map(|error| error.to_string()),
        })
    }
}
