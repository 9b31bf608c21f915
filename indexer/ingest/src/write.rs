//! Writing a batch: check, plan, append, answer. The one way in, for HTTP and gRPC.
//!
//! Rules: answers are as many as items, in their order. What was refused for its content is a dead letter before it is answered;
//! what was refused for now (no room, followers too far behind, the log's server away) is none, and says `again`. An item that is
//! replaced by another of the batch shares the other's luck: when that was not taken, neither counts as taken.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::error::{Classify, ErrorClass};
use canopy_format::{document::Reject, newest::Kind, store::Ordering, token::Token};
use canopy_log::Append;
use tokio::time::Instant;

use crate::{
    dead::{Letter, MAX_DOCUMENT},
    feed::{Feed, blocking},
    lines,
    plan::{self, Came, Ready, Replaced, Rules},
};

/// What became of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Status {
    /// It is wrong, or was refused for now.
    Rejected,
    /// It is durable.
    Applied,
    /// A newer write is durable.
    Stale,
    /// Another item of the batch has its key.
    Superseded,
}

impl Status {
    /// The word in answers.
    pub fn word(self) -> &'static str {
        match self {
            Self::Rejected => "rejected",
            Self::Applied => "applied",
            Self::Stale => "stale",
            Self::Superseded => "superseded",
        }
    }
}

/// Answer to an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Its key, as far as it is known.
    pub key: String,
    /// What became of it.
    pub status: Status,
    /// Where it is.
    pub offset: Option<(u32, u64)>,
    /// Why it was not applied.
    pub reason: String,
    /// The field at fault.
    pub field: String,
    /// The same may be taken later.
    pub again: Option<ErrorClass>,
}

impl Answer {
    fn new(key: &str, status: Status, reason: impl Into<String>) -> Self {
        let (key, reason) = (key.to_owned(), reason.into());
        Self { key, status, offset: None, reason, field: String::new(), again: None }
    }

    /// `partition:offset`; empty: it has none.
    pub fn place(&self) -> String {
        self.offset.map(|(partition, offset)| format!("{partition}:{offset}")).unwrap_or_default()
    }
}

/// Answer to a batch.
#[derive(Debug, Default)]
pub struct Written {
    /// One for each item.
    pub answers: Vec<Answer>,
    /// Holds every applied one.
    pub token: Token,
}

/// Writes a batch.
pub async fn write(feed: &Arc<Feed>, items: Vec<Came>) -> Written {
    let began = Instant::now();
    let token = Token { epoch: feed.log.epoch(), ..Token::default() };
    if let Some(reason) = feed.pressed() {
        let refused = |item: &Came| later(&item.key, &reason, ErrorClass::Quota);
        let answers: Vec<_> = items.iter().map(refused).collect();
        count(feed, &answers);
        return Written { answers, token };
    }
    let (rules, names) = (feed.rules(), items.iter().map(|item| item.key.clone()).collect::<Vec<_>>());
    let checked = blocking(move || Ok(check_all(items, &rules))).await;
    let batch = match checked {
        Ok(batch) => batch,
        Err(error) => {
            let refused = |key: &String| later(key, &error.to_string(), ErrorClass::Internal);
            return Written { answers: names.iter().map(refused).collect(), token };
        }
    };
    let mut written = Written { answers: Vec::new(), token };
    let appended = append(feed, &batch).await;
    let mut letters = Vec::new();
    for (at, item) in batch.items.iter().enumerate() {
        let answer = answer(at, item, &batch, &appended);
        if let Some((partition, offset)) = answer.offset {
            written.token.raise(partition, offset + 1);
        }
        if answer.status == Status::Rejected && answer.again.is_none() {
            feed.around.metrics.rejected.with_label_values(&[class(&answer, item.checked.as_ref())]).inc();
            letters.push(letter(feed, item, &answer));
        }
        written.answers.push(answer);
    }
    feed.bury(letters).await;
    count(feed, &written.answers);
    feed.around.metrics.write.observe(began.elapsed().as_secs_f64());
    written
}

struct Batch {
    items: Vec<Item>,
    /// What is to be written.
    ready: Vec<Option<Ready>>,
    replaced: Vec<Option<Replaced>>,
}

struct Item {
    key: String,
    op: String,
    raw: bytes::Bytes,
    checked: Option<Reject>,
}

/// Takes a while: finds languages, writes records.
fn check_all(items: Vec<Came>, rules: &Rules) -> Batch {
    let (mut all, mut ready) = (Vec::with_capacity(items.len()), Vec::with_capacity(items.len()));
    for item in items {
        let checked = item.given.and_then(|given| plan::check(given, rules));
        let key = checked.as_ref().map_or(item.key, |ready| ready.key.clone());
        let (checked, one) = match checked {
            Ok(one) => (None, Some(one)),
            Err(reject) => (Some(reject), None),
        };
        all.push(Item { key, op: item.op, raw: item.raw, checked });
        ready.push(one);
    }
    let replaced = plan::replaced(&ready, rules.ordering);
    Batch { items: all, ready, replaced }
}

/// What the log said, by index in the batch; and the newer order of those that are stale.
#[derive(Default)]
struct Appended {
    written: BTreeMap<usize, Result<(u32, u64), canopy_log::Error>>,
    stale: BTreeMap<usize, u64>,
}

async fn append(feed: &Feed, batch: &Batch) -> Appended {
    let (mut appended, mut places, mut appends) = (Appended::default(), Vec::new(), Vec::new());
    let at_us = feed.around.clock.now_us();
    for (at, item) in batch.ready.iter().enumerate() {
        let Some(item) = item.as_ref().filter(|_| batch.replaced.get(at).is_none_or(Option::is_none)) else {
            continue;
        };
        let newest = feed.producers.lock().newest(item.partition, item.hash);
        if let Some(newest) = newest.filter(|newest| *newest > item.stamp.order) {
            appended.stale.insert(at, newest);
            continue;
        }
        places.push((at, item));
        let dice = &feed.around.dice;
        appends.push(Append {
            partition: item.partition,
            slot: item.slot,
            key: item.hash,
            delete: item.kind == Kind::Delete,
            id: (u128::from(dice.next_u64()) << 64) | u128::from(dice.next_u64()),
            at_us,
            record: item.record.clone(),
        });
    }
    if appends.is_empty() {
        return appended;
    }
    let results = feed.log.append(appends).await;
    let missing = || Err(canopy_log::Error::Away("no answer to this record".to_owned()));
    let results = results.into_iter().map(Some).chain(std::iter::repeat(None));
    for ((at, item), result) in places.into_iter().zip(results) {
        let result = result.unwrap_or_else(missing);
        if let Ok(offset) = result {
            feed.written(item.partition, offset);
            if feed.ordering == Ordering::Producer && item.kind != Kind::Patch {
                feed.producers.lock().note(item.partition, item.hash, item.stamp.order, offset);
            }
        }
        appended.written.insert(at, result.map(|offset| (item.partition, offset)));
    }
    appended
}

fn answer(at: usize, item: &Item, batch: &Batch, appended: &Appended) -> Answer {
    if let Some(reject) = &item.checked {
        let field = reject.field.clone();
        return Answer { field, ..Answer::new(&item.key, Status::Rejected, &reject.reason) };
    }
    if let Some(replaced) = batch.replaced.get(at).copied().flatten() {
        return replaced_answer(item, replaced, batch, appended);
    }
    if let Some(newer) = appended.stale.get(&at) {
        return stale(item, *newer);
    }
    match appended.written.get(&at) {
        Some(Ok(place)) => Answer { offset: Some(*place), ..Answer::new(&item.key, Status::Applied, "") },
        Some(Err(error)) if error.again() => {
            let class = match error.class() {
                ErrorClass::Overloaded => ErrorClass::Quota,
                other => other,
            };
            later(&item.key, &error.to_string(), class)
        }
        Some(Err(error)) => Answer::new(&item.key, Status::Rejected, error.to_string()),
        None => later(&item.key, "it was not written", ErrorClass::Internal),
    }
}

fn replaced_answer(item: &Item, replaced: Replaced, batch: &Batch, appended: &Appended) -> Answer {
    let order = batch.ready.get(replaced.by).and_then(Option::as_ref).map_or(0, |other| other.stamp.order);
    if let Some(newer) = appended.stale.get(&replaced.by) {
        return stale(item, *newer);
    }
    if !matches!(appended.written.get(&replaced.by), Some(Ok(_))) {
        let reason = format!("item {} of the batch replaces it and was not taken", replaced.by + 1);
        return later(&item.key, &reason, ErrorClass::Quota);
    }
    if replaced.later {
        let reason = format!("item {} of the batch has the same key", replaced.by + 1);
        return Answer::new(&item.key, Status::Superseded, reason);
    }
    stale(item, order)
}

fn stale(item: &Item, newer: u64) -> Answer {
    let reason = format!("a write of order {newer} is durable, which is newer");
    Answer::new(&item.key, Status::Stale, reason)
}

fn later(key: &str, reason: &str, class: ErrorClass) -> Answer {
    Answer { again: Some(class), ..Answer::new(key, Status::Rejected, reason) }
}

/// The class of what is wrong with an item, for the metric.
fn class(answer: &Answer, checked: Option<&Reject>) -> &'static str {
    match checked {
        None => "log",
        Some(_) if answer.field == "line" && answer.reason.starts_with(TOO_LONG) => "too_large",
        Some(_) if answer.field == "line" => "syntax",
        Some(_) if matches!(answer.field.as_str(), "record") => "too_large",
        Some(_) => "invalid",
    }
}

/// How the reason of a line above the limit begins.
pub const TOO_LONG: &str = "too long";

fn letter(feed: &Feed, item: &Item, answer: &Answer) -> Letter {
    let head = item.raw.get(..MAX_DOCUMENT).unwrap_or(&item.raw);
    let reason = if answer.field.is_empty() {
        answer.reason.clone()
    } else {
        format!("{}: {}", answer.field, answer.reason)
    };
    Letter {
        number: 0,
        at_us: feed.around.clock.now_us(),
        key: item.key.clone(),
        op: item.op.clone(),
        reason,
        offset: String::new(),
        by: "ingest".to_owned(),
        document: String::from_utf8_lossy(head).into_owned(),
    }
}

fn count(feed: &Feed, answers: &[Answer]) {
    for answer in answers {
        let status = if answer.again.is_some() { "again" } else { answer.status.word() };
        feed.around.metrics.items.with_label_values(&[status]).inc();
    }
}

/// A line as an item.
pub fn came(line: lines::Line, max_line: u64) -> Came {
    use canopy_format::operation::Given;
    let peeked =
        |name| lines::peek(line.text.get(..MAX_DOCUMENT).unwrap_or(&line.text), name).unwrap_or_default();
    if let Some(length) = line.too_long {
        let reason = format!(
            "{TOO_LONG}: line {} has {length} bytes, at most {max_line} are taken (ingest.max_line)",
            line.number
        );
        let given = Err(Reject { field: "line".to_owned(), reason });
        return Came { given, key: peeked("key"), op: peeked("op"), raw: line.text };
    }
    match Given::from_line(&line.text) {
        Ok(given) => {
            let (key, op) = (given.key.clone(), given.op.clone());
            Came { given: Ok(given), key, op, raw: line.text }
        }
        Err(reject) => {
            let reject = match reject.field.as_str() {
                "line" => Reject { reason: format!("line {}: {}", line.number, reject.reason), ..reject },
                _ => reject,
            };
            Came { given: Err(reject), key: peeked("key"), op: peeked("op"), raw: line.text }
        }
    }
}

impl Written {
    /// With what came after it.
    pub fn join(&mut self, after: Self) {
        self.answers.extend(after.answers);
        self.token.epoch = after.token.epoch;
        for (partition, next) in after.token.offsets {
            self.token.raise(partition, next);
        }
    }
}
