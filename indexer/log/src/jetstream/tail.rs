//! Reads a stream from a place on. A consumer that stands where the next read begins is kept, so that a follower costs one request a
//! read; a consumer that went (the server forgets them in a restart) is made anew. Its messages are not acknowledged, so one
//! that was lost on the way shows as a gap: a gap is believed (it was erased) only when a new consumer shows it too.

use std::{collections::VecDeque, time::Duration};

use async_nats::jetstream::{
    Message,
    consumer::{AckPolicy, DeliverPolicy, PullConsumer, ReplayPolicy, pull},
    stream::Stream,
};
use bytes::Bytes;
use futures::StreamExt;

use super::{streams, write};
use crate::error::{Error, Result};

/// Messages that are asked for at a time.
const AT_A_TIME: usize = 256;
/// After so long without a request the server removes a consumer.
const FORGOTTEN: Duration = Duration::from_mins(1);

/// A message of a stream.
#[derive(Debug, Clone)]
pub struct Item {
    /// Its offset.
    pub offset: u64,
    /// Its slot.
    pub slot: u16,
    /// When it was accepted.
    pub at_us: i64,
    /// Hash of the key, as text.
    pub key: String,
    /// Whether it deletes.
    pub delete: bool,
    /// The record.
    pub record: Bytes,
}

/// A reader that stands somewhere in a stream.
pub struct Tail {
    stream: Stream,
    headers_only: bool,
    consumer: Option<PullConsumer>,
    /// Next offset that the consumer has not given yet.
    asked: u64,
    /// Given, and not used yet.
    held: VecDeque<Item>,
}

impl Tail {
    /// At an offset.
    pub fn at(stream: Stream, offset: u64, headers_only: bool) -> Self {
        Self { stream, headers_only, consumer: None, asked: offset, held: VecDeque::new() }
    }

    /// The offset below which everything was used.
    pub fn next(&self) -> u64 {
        self.held.front().map_or(self.asked, |item| item.offset)
    }

    /// The first message that is not used yet and below `end`; `None`: there is none.
    pub async fn peek(&mut self, end: u64) -> Result<Option<&Item>> {
        while self.held.is_empty() && self.asked < end {
            self.fill(end).await?;
        }
        Ok(self.held.front())
    }

    /// Takes it.
    pub fn take(&mut self) -> Option<Item> {
        self.held.pop_front()
    }

    async fn fill(&mut self, end: u64) -> Result<()> {
        let fresh = self.consumer.is_none();
        let consumer = match self.consumer.take() {
            Some(consumer) => consumer,
            None => self.consumer().await?,
        };
        let Ok(messages) = ask(&consumer).await else {
            // A consumer that went; the next try makes a new one.
            return if fresh { Err(Error::Away("its consumer went".to_owned())) } else { Ok(()) };
        };
        let begun = self.asked;
        for message in &messages {
            let Some(item) = item(message) else { continue };
            if item.offset < self.asked {
                continue;
            }
            let gap = item.offset > self.asked;
            if gap && !(fresh && self.asked == begun) {
                // Not believed yet.
                return Ok(());
            }
            self.asked = item.offset + 1;
            self.held.push_back(item);
        }
        if messages.is_empty() {
            if fresh {
                // Nothing is there any more.
                self.asked = end;
            }
            return Ok(());
        }
        self.consumer = Some(consumer);
        Ok(())
    }

    async fn consumer(&self) -> Result<PullConsumer> {
        let config = pull::Config {
            deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: self.asked + 1 },
            ack_policy: AckPolicy::None,
            replay_policy: ReplayPolicy::Instant,
            inactive_threshold: FORGOTTEN,
            memory_storage: true,
            num_replicas: 1,
            headers_only: self.headers_only,
            ..pull::Config::default()
        };
        self.stream.create_consumer(config).await.map_err(|error| Error::Away(error.to_string()))
    }
}

async fn ask(consumer: &PullConsumer) -> Result<Vec<Message>> {
    let away = |error: String| Error::Away(error);
    let answer = async {
        let mut batch = consumer
            .fetch()
            .max_messages(AT_A_TIME)
            .messages()
            .await
            .map_err(|error| away(error.to_string()))?;
        let mut messages = Vec::new();
        while let Some(message) = batch.next().await {
            messages.push(message.map_err(|error| away(error.to_string()))?);
        }
        Ok(messages)
    };
    let patience = Duration::from_secs(5);
    tokio::time::timeout(patience, answer)
        .await
        .unwrap_or_else(|_| Err(away("no messages in time".to_owned())))
}

fn item(message: &Message) -> Option<Item> {
    let info = message.info().ok()?;
    let header = |name: &str| {
        let headers = message.headers.as_ref()?;
        headers.get(name).map(|value| value.as_str().to_owned())
    };
    let published = (info.published.unix_timestamp_nanos() / 1000) as i64;
    Some(Item {
        offset: info.stream_sequence.checked_sub(1)?,
        // A foreign subject is of no slot: whoever wants all slots sees it, and refuses the record.
        slot: streams::slot(&message.subject).unwrap_or_default(),
        at_us: header(write::AT).and_then(|text| text.parse().ok()).unwrap_or(published),
        key: header(write::KEY).unwrap_or_default(),
        delete: header(write::DELETE).is_some(),
        record: message.payload.clone(),
    })
}
