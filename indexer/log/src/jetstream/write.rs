//! Writes to the streams. All records of a batch are on their way at once; each is durable when the server acknowledges it. What is not
//! acknowledged in time is sent again under the same id, and the server, which remembers ids, answers with the offset that it
//! has already: nothing is lost, nothing is doubled. A record whose first try was lost may come behind later ones of its
//! batch; the offsets that are answered are always where the records are.

use std::time::Duration;

use async_nats::{
    HeaderMap,
    jetstream::{
        context::{PublishAckFuture, PublishErrorKind},
        publish::PublishAck,
    },
};
use canopy_format::layout::SLOTS;
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
            self.round(&items, &mut stands).await;
            let over = started.elapsed() > self.config.give_up;
            if over || stands.iter().all(|stand| matches!(stand, Stand::Done(_))) {
                break;
            }
            tokio::time::sleep(AGAIN_AFTER).await;
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
        if item.slot >= SLOTS as u16 {
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

    /// Sends all that waits, and takes what comes back.
    async fn round(&self, items: &[(Append, String)], stands: &mut [Stand]) {
        let mut sent = Vec::new();
        for ((item, id), stand) in items.iter().zip(stands.iter_mut()) {
            if matches!(stand, Stand::Done(_)) {
                continue;
            }
            if let Some(error) = self.replaced() {
                *stand = Stand::Done(Err(error));
                continue;
            }
            match self.send(item, id).await {
                Ok(answer) => sent.push((item, stand, answer)),
                Err(error) => *stand = Stand::Waits(error),
            }
        }
        for (item, stand, answer) in sent {
            *stand = match answer.await {
                Ok(ack) => self.acknowledged(item, &ack),
                Err(error) => self.failed(item, &error).await,
            };
        }
    }

    async fn send(&self, item: &Append, id: &str) -> Result<PublishAckFuture> {
        let subject =
            streams::subject(&self.config.corpus, &self.tag, item.partition, &item.slot.to_string());
        let mut headers = HeaderMap::new();
        headers.insert(async_nats::header::NATS_MESSAGE_ID, id);
        headers.insert(AT, item.at_us.to_string());
        headers.insert(KEY, format!("{:032x}", item.key.0));
        if item.delete {
            headers.insert(DELETE, "1");
        }
        let sent = self.context.publish_with_headers(subject, headers, item.record.clone());
        match tokio::time::timeout(self.config.give_up, sent).await {
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

    async fn failed(&self, item: &Append, error: &async_nats::jetstream::context::PublishError) -> Stand {
        use std::error::Error as _;
        let reason = error.source().map_or_else(|| error.to_string(), ToString::to_string);
        match error.kind() {
            PublishErrorKind::StreamNotFound => match self.check(item.partition).await {
                Err(error @ Error::Replaced { .. }) => Stand::Done(Err(error)),
                _ => Stand::Waits(Error::Away(reason)),
            },
            PublishErrorKind::MaxPayloadExceeded => Stand::Done(Err(Error::invalid("record", reason))),
            PublishErrorKind::Other if is_full(&reason) => {
                let needs = item.record.len() as u64 + AROUND;
                Stand::Done(Err(Error::Full { needs, free: 0, reserve: self.config.reserve_bytes }))
            }
            _ => Stand::Waits(Error::Away(reason)),
        }
    }
}

/// The server has no code of its own for a full stream.
fn is_full(reason: &str) -> bool {
    ["maximum bytes exceeded", "resource", "no space", "storage"].iter().any(|word| reason.contains(word))
}
