//! The connection of a shard to the log: asks for the ends, then for a tail, and again when that breaks. What it says is
//! one event at a time, and nothing is lost when nobody waits for the next.
//!
//! Rules: a tail that broke is asked for again at once, which is all that a restart of an ingest takes; after that the
//! pauses grow. Offsets are of one log: another epoch, or offsets that are trimmed or beyond the end, are a gap, and the
//! log is looked at again now and then, since it may have been the wrong one.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use canopy_proto::ingest::{EndsReply, PartitionFrom, TailReply, TailRequest};
use futures::{StreamExt, future::BoxFuture};
use tokio::time::{Instant, sleep_until};

use crate::overlay::source::{Source, Tail};

/// First pause, and the longest.
const SOON: Duration = Duration::from_millis(100);
const LATER: Duration = Duration::from_secs(2);
/// Pause before a log that does not fit is looked at again.
const LOST: Duration = Duration::from_secs(15);

/// What is followed.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Corpus.
    pub corpus: String,
    /// Epoch that the offsets are of; empty: of any log that still has all of its records.
    pub epoch: String,
    /// 512 bytes, a bit a slot.
    pub slots: bytes::Bytes,
    /// Who follows.
    pub node: String,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// The log answers, and fits; its epoch and the ends of its partitions.
    Ends(String, BTreeMap<u32, u64>),
    /// News, or that there is none.
    Reply(TailReply),
    /// It can't be heard.
    Broken(String),
    /// The offsets are of another log, or it has them no more.
    Lost(String),
}

enum State {
    Pause(Instant),
    Asking(BoxFuture<'static, Result<(EndsReply, Option<Tail>), String>>),
    /// The first events were the ends.
    Open(Tail),
}

/// The connection.
pub struct Link {
    source: Arc<dyn Source>,
    wanted: Wanted,
    state: State,
    pause: Duration,
}

impl Link {
    /// Nothing is asked before the first event is waited for.
    pub fn new(source: Arc<dyn Source>, wanted: Wanted) -> Self {
        Self { source, wanted, state: State::Pause(Instant::now()), pause: Duration::ZERO }
    }

    /// The epoch that is followed; empty: not known yet.
    pub fn epoch(&self) -> &str {
        &self.wanted.epoch
    }

    /// The next event; from `next` on is what is not received yet. May be dropped and called again.
    pub async fn event(&mut self, next: &BTreeMap<u32, u64>) -> Event {
        loop {
            match &mut self.state {
                State::Pause(until) => {
                    sleep_until(*until).await;
                    self.state = State::Asking(self.ask(next.clone()));
                }
                State::Asking(asked) => {
                    let asked = asked.await;
                    match asked {
                        Err(reason) => return self.broken(reason),
                        Ok((ends, None)) => {
                            let reason = gap(&self.wanted.epoch, &ends, next);
                            let reason = reason.unwrap_or_else(|| "the log has changed".to_owned());
                            return self.lost(reason);
                        }
                        Ok((ends, Some(tail))) => {
                            self.wanted.epoch.clone_from(&ends.epoch);
                            self.state = State::Open(tail);
                            let ends = ends.partitions.iter().map(|range| (range.partition, range.end));
                            return Event::Ends(self.wanted.epoch.clone(), ends.collect());
                        }
                    }
                }
                State::Open(tail) => match tail.next().await {
                    None => return self.broken("the tail ended".to_owned()),
                    Some(Err(reason)) => return self.broken(reason),
                    Some(Ok(reply)) if !reply.lost.is_empty() => return self.lost(reply.lost),
                    Some(Ok(reply)) if !reply.epoch.is_empty() && reply.epoch != self.wanted.epoch => {
                        let reason = format!("the log is {:?} now, not {:?}", reply.epoch, self.wanted.epoch);
                        return self.lost(reason);
                    }
                    Some(Ok(reply)) => {
                        self.pause = Duration::ZERO;
                        return Event::Reply(reply);
                    }
                },
            }
        }
    }

    fn broken(&mut self, reason: String) -> Event {
        self.state = State::Pause(Instant::now() + self.pause);
        self.pause = (self.pause * 2).clamp(SOON, LATER);
        Event::Broken(reason)
    }

    fn lost(&mut self, reason: String) -> Event {
        self.state = State::Pause(Instant::now() + LOST);
        Event::Lost(reason)
    }

    /// Asks for the ends and, where they fit, for the tail.
    fn ask(&self, next: BTreeMap<u32, u64>) -> BoxFuture<'static, Result<(EndsReply, Option<Tail>), String>> {
        let (source, wanted) = (self.source.clone(), self.wanted.clone());
        Box::pin(async move {
            let ends = source.ends(&wanted.corpus).await?;
            if gap(&wanted.epoch, &ends, &next).is_some() {
                return Ok((ends, None));
            }
            let from = next.into_iter().map(|(partition, from)| PartitionFrom { partition, from });
            let request = TailRequest {
                corpus: wanted.corpus,
                epoch: ends.epoch.clone(),
                from: from.collect(),
                slots: wanted.slots,
                node: wanted.node,
            };
            let tail = source.tail(request).await?;
            Ok((ends, Some(tail)))
        })
    }
}

/// Why the log can't be followed from these offsets; `None`: it can.
fn gap(epoch: &str, ends: &EndsReply, next: &BTreeMap<u32, u64>) -> Option<String> {
    if !epoch.is_empty() && ends.epoch != epoch {
        return Some(format!("it is of log {epoch:?}, the log is {:?}", ends.epoch));
    }
    for (partition, next) in next {
        let Some(range) = ends.partitions.iter().find(|range| range.partition == *partition) else {
            return Some(format!("the log has no partition {partition}"));
        };
        if *next < range.first {
            return Some(format!(
                "partition {partition} is wanted from {next} and kept from {}",
                range.first
            ));
        }
        if *next > range.end {
            return Some(format!("partition {partition} is wanted from {next} and ends at {}", range.end));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use canopy_proto::ingest::PartitionRange;

    use super::*;

    #[test]
    fn offsets_fit_one_log_only_and_only_while_it_keeps_them() {
        let range = |partition, first, end| PartitionRange { partition, first, end };
        let ends = EndsReply { epoch: "a1".to_owned(), partitions: vec![range(0, 0, 10), range(1, 5, 9)] };
        let gap = |epoch, next: &[(u32, u64)]| gap(epoch, &ends, &next.iter().copied().collect());
        assert_eq!(gap("a1", &[(0, 0), (1, 5)]), None);
        assert_eq!(gap("", &[(0, 10), (1, 9)]), None);
        assert!(gap("b2", &[(0, 0)]).unwrap().contains("\"b2\""));
        assert!(gap("a1", &[(1, 4)]).unwrap().contains("kept from 5"));
        assert!(gap("", &[(1, 10)]).unwrap().contains("ends at 9"));
        assert!(gap("a1", &[(2, 0)]).unwrap().contains("no partition 2"));
    }
}
