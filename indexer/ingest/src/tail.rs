//! Sending the log to one follower: what is there, then what comes, and a message a second when nothing does.
//!
//! The failure this prevents: a follower that looks healthy while nothing reaches it. Rules: a message says of each partition that it
//! names up to where it was looked at, where it ends, and how old the oldest unsent record is. One message waits for its reader, so a slow reader slows the reading of the log and nothing piles up. Offsets that
//! can't be had (trimmed, of another log, damaged) end the stream with the reason; nothing is skipped.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use canopy_common::drain::Drain;
use canopy_log::{Chunk, Entry, Slots};
use canopy_proto::ingest::{TailPartition, TailRecord, TailReply, TailRequest};
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{sync::mpsc, time::Instant};
use tonic::Status;

use crate::{
    error::{Error, Result},
    feed::Feed,
    followers::Place,
};

/// Bytes of records in one message, about.
const MESSAGE_BYTES: usize = 1 << 20;
/// The least of it that a partition gets.
const LEAST_SHARE: usize = 16 << 10;
/// A message comes at least this often.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// Records that become durable within this time come in one message.
const TOGETHER: Duration = Duration::from_millis(5);

/// Where the messages go.
pub type Sender = mpsc::Sender<std::result::Result<TailReply, Status>>;

/// A follower's wish, checked.
pub struct Wish {
    node: String,
    slots: Slots,
    next: BTreeMap<u32, u64>,
    /// Why it can't be fulfilled.
    lost: Option<String>,
}

/// Checks a request.
pub fn wish(feed: &Feed, request: &TailRequest) -> Result<Wish> {
    let partitions = feed.log.partitions();
    let slots = Slots::from_bytes(&request.slots)?;
    let mut next = BTreeMap::new();
    for from in &request.from {
        if from.partition >= partitions {
            let message = format!("partition {} of {partitions}; they count from 0", from.partition);
            return Err(Error::invalid("from", message));
        }
        if next.insert(from.partition, from.from).is_some() {
            return Err(Error::invalid("from", format!("partition {} is named twice", from.partition)));
        }
    }
    if next.is_empty() {
        return Err(Error::invalid("from", "no partition is named; name those to follow"));
    }
    let epoch = feed.log.epoch();
    let lost = (!request.epoch.is_empty() && request.epoch != epoch)
        .then(|| format!("the offsets are of log {:?}, this is {epoch:?}", request.epoch));
    let node = request.node.chars().take(100).collect();
    Ok(Wish { node, slots, next, lost })
}

/// Sends until the reader leaves, the corpus goes, or the process drains.
pub async fn run(feed: Arc<Feed>, wish: Wish, sender: Sender, drain: Drain) {
    let epoch = feed.log.epoch();
    if let Some(lost) = wish.lost {
        let _reader_may_be_gone = sender.send(Ok(TailReply { epoch, lost, ..TailReply::default() })).await;
        return;
    }
    let id = feed.followers.join(&wish.node, &wish.next);
    feed.around.metrics.followers.inc();
    let mut tail =
        Tail { id, epoch, slots: wish.slots, at: BTreeMap::new(), start: 0, feed: feed.clone(), sender };
    for (partition, next) in wish.next {
        tail.at.insert(partition, At { next, end: next, oldest_us: 0, due: true });
    }
    tokio::select! {
        biased;
        () = drain.wait_started() => {}
        () = feed.closed.cancelled() => {}
        () = tail.send_on() => {}
    }
    feed.followers.leave(id);
    feed.around.metrics.followers.dec();
}

struct Tail {
    id: u64,
    epoch: String,
    slots: Slots,
    at: BTreeMap<u32, At>,
    /// Which partition is looked at first.
    start: u32,
    feed: Arc<Feed>,
    sender: Sender,
}

#[derive(Debug, Clone, Copy)]
struct At {
    next: u64,
    end: u64,
    oldest_us: i64,
    /// There may be more.
    due: bool,
}

impl Tail {
    async fn send_on(&mut self) {
        let mut all = true;
        loop {
            let reply = match self.news(all).await {
                Ok(reply) => reply,
                Err(error) => return self.lost(error).await,
            };
            if !self.send(reply).await {
                return;
            }
            all = false;
            if self.at.values().all(|at| !at.due) {
                self.feed.followers.caught_up(self.id);
                all = self.wait().await;
            }
        }
    }

    /// What the due partitions have, up to a message, each its share and the one that was not reached first next time, so that a
    /// busy one starves no other. When `all`, also where those are that are at their end.
    async fn news(&mut self, all: bool) -> canopy_log::Result<TailReply> {
        let mut reply = TailReply { epoch: self.epoch.clone(), ..TailReply::default() };
        let (due, mut room) = (self.at.values().filter(|at| at.due).count(), MESSAGE_BYTES);
        let share = (MESSAGE_BYTES / due.max(1)).max(LEAST_SHARE);
        let order: Vec<u32> = self
            .at
            .range(self.start..)
            .chain(self.at.range(..self.start))
            .map(|(partition, _)| *partition)
            .collect();
        let mut unreached = None;
        for partition in order {
            let Some(at) = self.at.get_mut(&partition) else { continue };
            let mut records = Vec::new();
            let look = at.due && room > 0;
            if look {
                let slots = self.slots.clone();
                let read = self.feed.log.read(partition, at.next, slots, share.min(room)).await;
                let Chunk { entries, next, end, oldest_us } = read?;
                let record = |entry: Entry| TailRecord { offset: entry.offset, record: entry.record };
                records.extend(entries.into_iter().map(record));
                room = records.iter().fold(room, |room, one| room.saturating_sub(one.record.len() + 16));
                *at = At { next, end, oldest_us, due: next < end };
            } else if at.due {
                unreached.get_or_insert(partition);
            }
            if look || all && !at.due {
                let At { next, end, oldest_us, .. } = *at;
                reply.partitions.push(TailPartition { partition, records, next, end, oldest_us });
            }
        }
        self.start = unreached.unwrap_or(0);
        Ok(reply)
    }

    /// Whether there is still a reader.
    async fn send(&self, reply: TailReply) -> bool {
        let places: Vec<_> = reply
            .partitions
            .iter()
            .map(|part| (part.partition, Place { next: part.next, oldest_us: part.oldest_us }))
            .collect();
        if self.sender.send(Ok(reply)).await.is_err() {
            return false;
        }
        for (partition, place) in places {
            self.feed.followers.sent(self.id, partition, place);
        }
        true
    }

    /// Waits for news of any partition; whether it is only time for a message.
    async fn wait(&mut self) -> bool {
        let heartbeat = tokio::time::sleep_until(Instant::now() + HEARTBEAT);
        let log = &self.feed.log;
        let mut waiting: FuturesUnordered<_> = self
            .at
            .iter()
            .map(|(&partition, at)| log.wait(partition, at.end).map(move |()| partition))
            .collect();
        let first = tokio::select! {
            biased;
            first = waiting.next() => first,
            () = heartbeat => None,
            () = self.sender.closed() => None,
        };
        let Some(first) = first else { return true };
        tokio::time::sleep(TOGETHER).await;
        let mut due = vec![first];
        while let Some(Some(partition)) = waiting.next().now_or_never() {
            due.push(partition);
        }
        drop(waiting);
        for partition in due {
            if let Some(at) = self.at.get_mut(&partition) {
                at.due = true;
            }
        }
        false
    }

    async fn lost(&self, error: canopy_log::Error) {
        use canopy_log::Error as Log;
        let reply = match error {
            Log::Lost { .. } | Log::Replaced { .. } | Log::Damaged { .. } => {
                Ok(TailReply { epoch: self.epoch.clone(), lost: error.to_string(), ..TailReply::default() })
            }
            other => Err(canopy_common::rpc::status::to_status(&Error::from(other).into())),
        };
        let _reader_may_be_gone = self.sender.send(reply).await;
    }
}

#[cfg(test)]
mod tests;
