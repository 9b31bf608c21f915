//! A log in memory, as a leaf sees it, that can go away, be trimmed or made anew.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use bytes::Bytes;
use canopy_format::layout::slot;
use canopy_log::Slots;
use canopy_proto::ingest::{
    DeadLetter, EndsReply, PartitionRange, RefuseRequest, TailPartition, TailRecord, TailReply, TailRequest,
};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use serde_json::Value as Json;
use tokio::sync::watch;

use super::bed;
use crate::overlay::source::{Source, Tail};

/// What is in it.
#[derive(Clone, Default)]
struct State {
    epoch: String,
    away: bool,
    first: u64,
    /// Slot and record.
    partitions: Vec<Vec<(u16, Bytes)>>,
}

/// The log.
pub struct Memory {
    state: watch::Sender<State>,
    asked: Mutex<Vec<TailRequest>>,
    letters: Mutex<Vec<DeadLetter>>,
}

impl Memory {
    /// An empty one.
    pub fn new(epoch: &str) -> Arc<Self> {
        Self::of(epoch, bed::PARTITIONS)
    }

    /// One of so many partitions.
    pub fn of(epoch: &str, partitions: u32) -> Arc<Self> {
        let partitions = vec![Vec::new(); partitions as usize];
        let state = State { epoch: epoch.to_owned(), partitions, ..State::default() };
        Arc::new(Self {
            state: watch::Sender::new(state),
            asked: Mutex::default(),
            letters: Mutex::default(),
        })
    }

    /// Appends lines; the ends after them.
    pub fn append(&self, lines: &[Json]) -> BTreeMap<u32, u64> {
        let mut ends = BTreeMap::new();
        self.state.send_modify(|state| {
            for line in lines {
                let key = line["key"].as_str().unwrap();
                let record = bed::record(line, canopy_format::store::Ordering::Log);
                let at = usize::from(slot(key)) % state.partitions.len();
                state.partitions[at].push((slot(key), record.into()));
            }
            ends = (0..).zip(&state.partitions).map(|(at, records)| (at, records.len() as u64)).collect();
        });
        ends
    }

    /// Appends a record that is none.
    pub fn poison(&self, key: &str) {
        let at = bed::partition(key) as usize;
        self.state
            .send_modify(|state| state.partitions[at].push((slot(key), Bytes::from_static(&[0xff; 9]))));
    }

    /// From now on it answers nobody, or again.
    pub fn away(&self, away: bool) {
        self.state.send_modify(|state| state.away = away);
    }

    /// Records below are kept no more.
    pub fn trim(&self, first: u64) {
        self.state.send_modify(|state| state.first = first);
    }

    /// It is made anew, empty.
    pub fn anew(&self, epoch: &str) {
        self.state.send_modify(|state| {
            state.epoch = epoch.to_owned();
            state.partitions.iter_mut().for_each(Vec::clear);
        });
    }

    /// Every tail that was asked for: offset by partition.
    pub fn asked(&self) -> Vec<BTreeMap<u32, u64>> {
        let asked = self.asked.lock();
        asked.iter().map(|tail| tail.from.iter().map(|from| (from.partition, from.from)).collect()).collect()
    }

    /// Dead letters.
    pub fn letters(&self) -> Vec<DeadLetter> {
        self.letters.lock().clone()
    }
}

impl State {
    fn reply(&self, slots: &Slots, next: &mut BTreeMap<u32, u64>) -> TailReply {
        let mut reply = TailReply { epoch: self.epoch.clone(), ..TailReply::default() };
        for (partition, from) in next.iter_mut() {
            let records = &self.partitions[*partition as usize];
            let end = records.len() as u64;
            let some = (*from..end).zip(records.iter().skip(*from as usize));
            let wanted = some.filter(|(_, (slot, _))| slots.contains(*slot));
            let records = wanted.map(|(offset, (_, record))| TailRecord { offset, record: record.clone() });
            let records = records.collect();
            *from = end;
            reply.partitions.push(TailPartition {
                partition: *partition,
                records,
                next: end,
                end,
                oldest_us: 0,
            });
        }
        reply
    }
}

impl Source for Memory {
    fn ends(&self, _corpus: &str) -> BoxFuture<'static, Result<EndsReply, String>> {
        let state = self.state.borrow().clone();
        async move {
            if state.away {
                return Err("away".to_owned());
            }
            let range = |(partition, records): (u32, &Vec<_>)| PartitionRange {
                partition,
                first: state.first,
                end: (records.len() as u64).max(state.first),
            };
            let partitions = (0..).zip(&state.partitions).map(range).collect();
            Ok(EndsReply { epoch: state.epoch.clone(), partitions })
        }
        .boxed()
    }

    fn tail(&self, request: TailRequest) -> BoxFuture<'static, Result<Tail, String>> {
        let slots = Slots::from_bytes(&request.slots).unwrap();
        let next: BTreeMap<u32, u64> = request.from.iter().map(|from| (from.partition, from.from)).collect();
        self.asked.lock().push(request);
        let news = self.state.subscribe();
        let step = move |(mut news, mut next, begun): (watch::Receiver<State>, BTreeMap<u32, u64>, bool)| {
            let slots = slots.clone();
            async move {
                if begun {
                    let _heartbeat = tokio::time::timeout(Duration::from_secs(1), news.changed()).await;
                }
                let state = news.borrow_and_update().clone();
                if state.away {
                    return None;
                }
                let reply = state.reply(&slots, &mut next);
                Some((Ok(reply), (news, next, true)))
            }
        };
        async move { Ok(stream::unfold((news, next, false), step).boxed()) }.boxed()
    }

    fn refuse(&self, request: RefuseRequest) -> BoxFuture<'static, Result<(), String>> {
        self.letters.lock().extend(request.letters);
        async { Ok(()) }.boxed()
    }
}
