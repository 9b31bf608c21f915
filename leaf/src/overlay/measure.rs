//! What has come and was not applied yet, and how far behind the log that is.
//!
//! The failure this prevents: a lag of 0 while the log is away, or one that grows while there is nothing to do. Rules:
//! the lag is that of the oldest record which is not shown: the first of those that wait or are being applied, else the
//! first that the log has beyond them; 0 when there is none. While nothing is heard it counts from when something
//! was last heard, since records may have come then. Units: microseconds since 1970 UTC; milliseconds where so named.

use std::collections::BTreeMap;

use canopy_proto::ingest::{Record, TailReply};
use prost::Message;

use super::apply::Incoming;

/// A partition that is followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Partition {
    /// Everything below was received.
    pub next: u64,
    /// Its end, as last heard.
    pub end: u64,
    /// Event time of the first record at or above `next`; 0: none.
    pub oldest_us: i64,
}

/// Records on their way into the overlay.
#[derive(Debug, Default)]
pub struct Waiting {
    partitions: BTreeMap<u32, Partition>,
    records: Vec<Incoming>,
    bytes: usize,
    /// Event time of the oldest that waits; 0: none.
    oldest_us: i64,
    /// The same of those that are being applied.
    applying_us: i64,
    /// When anything was last heard; 0: never.
    heard_us: i64,
    /// Whether the log is being heard.
    connected: bool,
    /// From when a record was accepted to when it was received, of the newest.
    pub log_ms: u64,
}

/// What is taken to be applied.
#[derive(Debug, Default)]
pub struct Batch {
    /// Ascending in each partition.
    pub records: Vec<Incoming>,
    /// Everything below was looked at.
    pub next: BTreeMap<u32, u64>,
}

impl Waiting {
    /// From these offsets on.
    pub fn new(offsets: &BTreeMap<u32, u64>) -> Self {
        let partition = |(at, next): (&u32, &u64)| (*at, Partition { next: *next, ..Partition::default() });
        Self { partitions: offsets.iter().map(partition).collect(), ..Self::default() }
    }

    /// Next offset of each partition.
    pub fn next(&self) -> BTreeMap<u32, u64> {
        self.partitions.iter().map(|(at, partition)| (*at, partition.next)).collect()
    }

    /// A message came.
    pub fn take(&mut self, reply: TailReply, now_us: i64) {
        (self.heard_us, self.connected) = (now_us, true);
        for news in reply.partitions {
            let Some(partition) = self.partitions.get_mut(&news.partition) else { continue };
            for record in news.records {
                // What was received is not received again, whatever the far side thinks.
                if record.offset < partition.next {
                    continue;
                }
                partition.next = record.offset + 1;
                let event_us = event_us(&record.record);
                if event_us > 0 {
                    self.oldest_us = oldest(self.oldest_us, event_us);
                    self.log_ms = (now_us - event_us).max(0) as u64 / 1000;
                }
                self.bytes += record.record.len();
                let (partition, offset, record) = (news.partition, record.offset, record.record);
                self.records.push(Incoming { partition, offset, record });
            }
            partition.next = partition.next.max(news.next);
            partition.end = partition.end.max(news.end).max(partition.next);
            partition.oldest_us = if partition.next < partition.end { news.oldest_us } else { 0 };
        }
    }

    /// The log is not heard any more.
    pub fn broken(&mut self) {
        self.connected = false;
    }

    /// Records and bytes that wait.
    pub fn size(&self) -> (usize, usize) {
        (self.records.len(), self.bytes)
    }

    /// Records that the log has and that are not received, of all slots.
    pub fn behind(&self) -> u64 {
        self.partitions.values().map(|partition| partition.end.saturating_sub(partition.next)).sum()
    }

    /// Takes everything that waits.
    pub fn batch(&mut self) -> Batch {
        self.applying_us = oldest(self.applying_us, self.oldest_us);
        (self.oldest_us, self.bytes) = (0, 0);
        Batch { records: std::mem::take(&mut self.records), next: self.next() }
    }

    /// What was taken is shown.
    pub fn shown(&mut self) {
        self.applying_us = 0;
    }

    /// Event time of the oldest record that is not shown; 0: all are.
    pub fn oldest_us(&self) -> i64 {
        let beyond = self.partitions.values().map(|partition| partition.oldest_us);
        let waits = beyond.chain([self.oldest_us, self.applying_us]).fold(0, oldest);
        if self.connected { waits } else { oldest(waits, self.heard_us) }
    }
}

/// The earlier of two times, of which 0 is none.
fn oldest(one: i64, other: i64) -> i64 {
    match (one, other) {
        (0, time) | (time, 0) => time,
        (one, other) => one.min(other),
    }
}

fn event_us(record: &bytes::Bytes) -> i64 {
    Record::decode(record.clone()).map_or(0, |record| record.event_us)
}

#[cfg(test)]
mod tests {
    use canopy_proto::ingest::{TailPartition, TailRecord};

    use super::*;

    fn record(offset: u64, event_us: i64) -> TailRecord {
        let record = Record { event_us, ..Record::default() };
        TailRecord { offset, record: record.encode_to_vec().into() }
    }

    fn news(records: Vec<TailRecord>, next: u64, end: u64, oldest_us: i64) -> TailReply {
        let partition = TailPartition { partition: 3, records, next, end, oldest_us };
        TailReply { partitions: vec![partition], ..TailReply::default() }
    }

    #[test]
    fn lag_is_that_of_the_oldest_record_which_is_not_shown() {
        let mut waiting = Waiting::new(&BTreeMap::from([(3, 10)]));
        assert_eq!(waiting.oldest_us(), 0, "nothing was ever heard");
        waiting.take(news(vec![record(12, 500), record(14, 400)], 15, 20, 700), 1_000_000);
        assert_eq!((waiting.oldest_us(), waiting.behind(), waiting.size().0), (400, 5, 2));
        let batch = waiting.batch();
        assert_eq!((batch.records.len(), batch.next), (2, BTreeMap::from([(3, 15)])));
        assert_eq!(waiting.oldest_us(), 400, "it is being applied");
        waiting.shown();
        assert_eq!(waiting.oldest_us(), 700, "the log has more");
        // Again, and records of other slots only.
        waiting.take(news(vec![record(12, 500)], 20, 20, 0), 1_500_000);
        assert_eq!((waiting.oldest_us(), waiting.size()), (0, (0, 0)));
        waiting.broken();
        assert_eq!(waiting.oldest_us(), 1_500_000, "nobody knows what came since");
        waiting.take(news(vec![], 20, 20, 0), 9_000_000);
        assert_eq!(waiting.oldest_us(), 0);
    }

    #[test]
    fn what_is_not_followed_or_no_record_does_no_harm() {
        let mut waiting = Waiting::new(&BTreeMap::from([(3, 0)]));
        let mut reply = news(vec![TailRecord { offset: 0, record: vec![0xff].into() }], 1, 1, 0);
        reply.partitions.push(TailPartition { partition: 9, end: 100, ..TailPartition::default() });
        waiting.take(reply, 5);
        assert_eq!((waiting.size(), waiting.behind(), waiting.next()), ((1, 1), 0, BTreeMap::from([(3, 1)])));
    }
}
