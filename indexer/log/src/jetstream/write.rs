//! Writes to the streams, in waves: many records are on their way at once, and are durable when the server acknowledges them.
//! What is not acknowledged in time is sent again under the same id, and the server, which remembers ids, answers with the
//! offset that it has already: nothing is lost, nothing is doubled. A record whose first try was lost may come behind later
//! ones of its batch, but never behind one of its own key: that one is sent only when the earlier one has its answer. The
//! offsets that are answered are always where the records are. A wave waits for all its answers at once, so that a server that
//! is away costs one timeout a wave and not one a record.

use std::{
    collections::{BTreeMap, BTreeSet, btree_map::Entry},
    time::Duration,
};

use async_nats::{
    HeaderMap,
    jetstream::{
        context::{PublishAckFuture, PublishError, PublishErrorKind},
        publish::PublishAck,
    },
};
use canopy_format::layout::SLOTS;
use futures::future::join_all;
use tokio::time::Instant;

use super::{JetStream, streams};
use crate::{
    Append,
    error::{Error, Result},
    record::MAX_RECORD_BYTES,
};

/// When a record was accepted.
pub const AT: &str = "Canopy-At";
/// Hash of its key.
pub const KEY: &str = "Canopy-Key";
/// It deletes.
pub const DELETE: &str = "Canopy-Delete";
/// Headers and the server's own bytes of a message, at most.
const AROUND: u64 = 512;
/// Records on their way at once; the client takes 5000 of all appends together.
const WAVE: usize = 1024;
const AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Where one record of a batch stands.
enum Stand {
    Waits(Error),
    Done(Result<u64>),
}

impl JetStream {
    /// See [`crate::Log::append`].
    pub(super) async fn write(&self, batch: Vec<Append>) -> Vec<Result<u64>> {
        let started = Instant::now();
        let items: Vec<(Append, String)> = batch
            .into_iter()
            .map(|item| {
                let id = if item.id == 0 { self.new_id() } else { item.id };
                (item, format!("{id:032x}"))
            })
            .collect();
        let mut stands: Vec<Stand> = items.iter().map(|(item, _)| self.admit(item)).collect();
        loop {
            let wave = wave(&items, &stands);
            if wave.is_empty() {
                break;
            }
            self.send_all(&items, &wave, &mut stands).await;
            if started.elapsed() > self.config.give_up {
                break;
            }
            if wave.iter().any(|at| matches!(stands.get(*at), Some(Stand::Waits(_)))) {
                tokio::time::sleep(AGAIN_AFTER).await;
            }
        }
        stands
            .into_iter()
            .map(|stand| match stand {
                Stand::Done(result) => result,
                Stand::Waits(error) => Err(error),
            })
            .collect()
    }

    fn admit(&self, item: &Append) -> Stand {
        let most = MAX_RECORD_BYTES.min(self.context.client().server_info().max_payload.saturating_sub(512));
        let wrong = |field, reason| Stand::Done(Err(Error::invalid(field, reason)));
        if item.record.len() > most {
            let reason =
                format!("{} bytes; this log and its server take {most} (max_payload)", item.record.len());
            return wrong("record", reason);
        }
        if item.slot >= SLOTS {
            return wrong("slot", format!("{}, but slots are below {SLOTS}", item.slot));
        }
        let Some(part) = self.parts.get(item.partition as usize) else {
            return wrong("partition", format!("{}, of {}", item.partition, self.parts.len()));
        };
        let needs = item.record.len() as u64 + AROUND;
        match part.room(&self.config).take(needs, item.delete) {
            Ok(()) => Stand::Waits(Error::Away("no answer in time".to_owned())),
            Err(error) => Stand::Done(Err(error)),
        }
    }

    /// Sends a wave in its order, and takes what comes back.
    async fn send_all(&self, items: &[(Append, String)], wave: &[usize], stands: &mut [Stand]) {
        let until = Instant::now() + self.config.give_up;
        let (mut sent, mut answers) = (Vec::new(), Vec::new());
        for at in wave {
            let (Some((item, id)), Some(stand)) = (items.get(*at), stands.get_mut(*at)) else { continue };
            if let Some(error) = self.replaced() {
                *stand = Stand::Done(Err(error));
                continue;
            }
            match self.send(item, id, until).await {
                Ok(answer) => {
                    sent.push((*at, item));
                    answers.push(answer.into_future());
                }
                Err(error) => *stand = Stand::Waits(error),
            }
        }
        // Whether a stream is gone is asked once a wave.
        let mut gone = BTreeMap::new();
        for ((at, item), answer) in sent.into_iter().zip(join_all(answers).await) {
            let now = match answer {
                Ok(ack) => self.acknowledged(item, &ack),
                Err(error) if error.kind() == PublishErrorKind::StreamNotFound => {
                    if let Entry::Vacant(first) = gone.entry(item.partition) {
                        first.insert(self.check(item.partition).await.err());
                    }
                    match gone.get(&item.partition) {
                        Some(Some(error @ Error::Replaced { .. })) => Stand::Done(Err(error.clone())),
                        _ => Stand::Waits(Error::Away(error.to_string())),
                    }
                }
                Err(error) => self.failed(item, &error),
            };
            if let Some(stand) = stands.get_mut(at) {
                *stand = now;
            }
        }
    }

    async fn send(&self, item: &Append, id: &str, until: Instant) -> Result<PublishAckFuture> {
        let tag = &self.part(item.partition)?.tag;
        let subject = streams::subject(&self.config.corpus, tag, item.partition, &item.slot.to_string());
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        headers.insert(AT, item.at_us.to_string());
        headers.insert(KEY, format!("{:032x}", item.key.0));
        if item.delete {
            headers.insert(DELETE, "1");
        }
        let sent = self.context.publish_with_headers(subject, headers, item.record.clone());
        match tokio::time::timeout_at(until, sent).await {
            Ok(sent) => sent.map_err(|error| Error::Away(error.to_string())),
            Err(_) => Err(Error::Away("it does not take messages".to_owned())),
        }
    }

    fn acknowledged(&self, item: &Append, ack: &PublishAck) -> Stand {
        if let Some(part) = self.parts.get(item.partition as usize) {
            part.raise(ack.sequence, item.record.len() as u64 + AROUND);
        }
        Stand::Done(Ok(ack.sequence.saturating_sub(1)))
    }

    fn failed(&self, item: &Append, error: &PublishError) -> Stand {
        use std::error::Error as _;
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        match error.kind() {
            PublishErrorKind::MaxPayloadExceeded => Stand::Done(Err(Error::invalid("record", reason))),
            PublishErrorKind::Other if is_full(&reason) => {
                let needs = item.record.len() as u64 + AROUND;
                Stand::Done(Err(Error::Full { needs, free: 0, reserve: self.config.reserve_bytes }))
            }
            _ => Stand::Waits(Error::Away(reason)),
        }
    }
}

/// What to send next: records without an answer, in their order, up to the second one of a key.
fn wave(items: &[(Append, String)], stands: &[Stand]) -> Vec<usize> {
    let mut keys = BTreeSet::new();
    let all = items.iter().zip(stands).enumerate();
    let waits = all.filter(|(_, (_, stand))| matches!(stand, Stand::Waits(_)));
    let first = waits.take_while(|(_, ((item, _), _))| keys.insert(item.key.0));
    first.map(|(at, _)| at).take(WAVE).collect()
}

/// The server has no code of its own for a full stream.
fn is_full(reason: &str) -> bool {
    ["maximum bytes exceeded", "resource", "no space", "storage"].iter().any(|word| reason.contains(word))
}
