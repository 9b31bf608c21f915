//! The streams of a log: one a partition, a subject a slot. The subjects carry a tag that is random a stream, so that a publish
//! meant for one stream can't land in another one of its name; the epoch is all tags and when each stream was made, so that any
//! stream that was made anew makes another log, which keeps what the other streams hold. (Servers before 2.10 know no stream
//! metadata: what must be remembered is in the description.) An offset is the stream's sequence less one.

use async_nats::jetstream::{
    Context, ErrorCode,
    context::GetStreamErrorKind,
    stream::{self, DiscardPolicy, Info, RetentionPolicy, StorageType, Stream},
};
use xxhash_rust::xxh3::Xxh3;

use super::Config;
use crate::{
    Range,
    error::{Error, Result},
};

/// How long the server remembers ids.
pub const REMEMBERS: std::time::Duration = std::time::Duration::from_mins(2);

/// Name of a partition's stream.
pub fn name(corpus: &str, partition: u32) -> String {
    format!("canopy_{corpus}_{partition}")
}

/// Subject of a slot.
pub fn subject(corpus: &str, tag: &str, partition: u32, slot: &str) -> String {
    format!("canopy.{corpus}.{tag}.{partition}.{slot}")
}

/// Slot of a subject.
pub fn slot(subject: &str) -> Option<u16> {
    subject.rsplit('.').next()?.parse().ok()
}

fn settings(config: &Config, tag: &str, partition: u32) -> stream::Config {
    stream::Config {
        name: name(&config.corpus, partition),
        subjects: vec![subject(&config.corpus, tag, partition, "*")],
        storage: StorageType::File,
        retention: RetentionPolicy::Limits,
        // A full stream refuses; it never drops what is not trimmed.
        discard: DiscardPolicy::New,
        max_bytes: config.stream_bytes().and_then(|bytes| i64::try_from(bytes).ok()).unwrap_or(-1),
        max_messages: -1,
        max_messages_per_subject: -1,
        max_consumers: -1,
        max_message_size: -1,
        num_replicas: config.replicas,
        duplicate_window: REMEMBERS,
        description: Some(describe(config.partitions, None)),
        ..stream::Config::default()
    }
}

/// What a description says: how many partitions the log has, and which offsets at its start were erased, not trimmed.
pub fn describe(partitions: u32, erased: Option<(u64, u64)>) -> String {
    let erased = erased.map(|(from, to)| format!("; erased {from} {to}")).unwrap_or_default();
    format!("canopy log; partitions {partitions}{erased}")
}

fn described(info: &Info) -> (Option<u32>, Option<(u64, u64)>) {
    let text = info.config.description.as_deref().unwrap_or_default();
    let (mut partitions, mut erased) = (None, None);
    for part in text.split("; ") {
        match part.split(' ').collect::<Vec<_>>()[..] {
            ["partitions", count] => partitions = count.parse().ok(),
            ["erased", from, to] => erased = from.parse().ok().zip(to.parse().ok()),
            _ => {}
        }
    }
    (partitions, erased)
}

/// What a stream holds.
pub fn range(info: &Info) -> Range {
    let end = info.state.last_sequence;
    let first = info.state.first_sequence.saturating_sub(1).min(end);
    let first = match described(info).1 {
        Some((from, to)) if first <= to => from.min(first),
        _ => first,
    };
    Range { first, end }
}

/// When a stream was made, nanoseconds.
pub fn made(info: &Info) -> i128 {
    info.created.unix_timestamp_nanos()
}

/// Which log these streams are: the tag of each, and when it was made.
pub fn epoch<'a>(streams: impl Iterator<Item = (&'a str, i128)>) -> String {
    let mut hash = Xxh3::new();
    for (tag, made) in streams {
        hash.update(tag.as_bytes());
        hash.update(&[0]);
        hash.update(&made.to_le_bytes());
    }
    format!("{:016x}", hash.digest())
}

fn away(error: impl std::fmt::Display) -> Error {
    Error::Away(error.to_string())
}

async fn find(context: &Context, name: &str) -> Result<Option<Stream>> {
    match context.get_stream(name).await {
        Ok(stream) => Ok(Some(stream)),
        Err(error) => match error.kind() {
            GetStreamErrorKind::JetStream(error) if error.error_code() == ErrorCode::STREAM_NOT_FOUND => {
                Ok(None)
            }
            _ => Err(away(error)),
        },
    }
}

/// What a stream says of itself now; `None`: it is gone.
pub async fn info(context: &Context, name: &str) -> Result<Option<Info>> {
    Ok(find(context, name).await?.map(|stream| stream.cached_info().clone()))
}

fn tag(config: &Config, partition: u32, info: &Info) -> Option<String> {
    let subject = info.config.subjects.first()?;
    let rest = subject.strip_prefix(&format!("canopy.{}.", config.corpus))?;
    Some(rest.strip_suffix(&format!(".{partition}.*"))?.to_owned())
}

/// The stream of a partition and its tag; made, with the tag `wanted`, where there is none.
pub async fn ensure(
    context: &Context,
    config: &Config,
    partition: u32,
    wanted: &str,
) -> Result<(Stream, String)> {
    let name = name(&config.corpus, partition);
    let stream = match find(context, &name).await? {
        Some(stream) => stream,
        None => match context.create_stream(settings(config, wanted, partition)).await {
            Ok(stream) => stream,
            // Somebody else was faster.
            Err(error) => find(context, &name).await?.ok_or_else(|| away(error))?,
        },
    };
    let info = stream.cached_info();
    let Some(tag) = tag(config, partition, info) else {
        return Err(Error::invalid(
            "corpus",
            format!("stream {name} is not of this log; remove or rename it"),
        ));
    };
    match described(info).0 {
        Some(count) if count == config.partitions => Ok((stream, tag)),
        count => {
            let reason =
                format!("stream {name} has {}, and that can't be changed", count.unwrap_or_default());
            Err(Error::invalid("partitions", reason))
        }
    }
}

/// Writes down that the offsets `from..to` at the start of a stream are erased, not trimmed.
pub async fn note_erased(context: &Context, config: &Config, info: &Info, erased: (u64, u64)) -> Result<()> {
    let description = Some(describe(config.partitions, Some(erased)));
    let changed = stream::Config { description, ..info.config.clone() };
    context.update_stream(changed).await.map(drop).map_err(away)
}
