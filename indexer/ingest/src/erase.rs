//! Erasing: a document must go from everything that keeps its text, and whoever asks must be told what is not done yet.
//!
//! Rules: first a delete is written, so that no leaf shows it any more; then its text goes from the log and the dead letters. What
//! others keep (overlays of leaves, retained versions) is judged by that delete: asking again writes no second one while the first is
//! the newest write of the key, so that "done" can become true. Of a key only a hash is remembered.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use bytes::Bytes;
use canopy_common::ids::KeyHash;
use canopy_format::{
    layout::slot,
    operation::Given,
    store::{Ordering, VersionStore},
    token::Token,
};
use canopy_log::{Slots, record};
use parking_lot::Mutex;

use crate::{
    error::{Error, Result},
    feed::{Feed, blocking},
    plan::Came,
    trim::Cuts,
    write,
};

/// Most erasures that are remembered.
const MOST: usize = 100_000;
/// Bytes of the log that are read at a time.
const READ_BYTES: usize = 1 << 20;

/// Deletes by which keys were erased.
pub struct Erased {
    path: PathBuf,
    known: Mutex<BTreeMap<String, (u32, u64)>>,
}

impl Erased {
    /// From their file.
    pub fn open(path: &Path) -> Result<Self> {
        let known = match fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Error::io(path, std::io::Error::new(std::io::ErrorKind::InvalidData, error))
            })?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => BTreeMap::new(),
            Err(error) => return Err(Error::io(path, error)),
        };
        Ok(Self { path: path.to_owned(), known: Mutex::new(known) })
    }

    fn get(&self, key: KeyHash) -> Option<(u32, u64)> {
        self.known.lock().get(&name(key)).copied()
    }

    fn set(&self, key: KeyHash, place: (u32, u64)) -> Result<()> {
        let mut known = self.known.lock();
        known.insert(name(key), place);
        while known.len() > MOST {
            known.pop_first();
        }
        let beside = self.path.with_extension("new");
        let text = serde_json::to_vec(&*known).unwrap_or_default();
        let write = || {
            let mut file = File::create(&beside)?;
            file.write_all(&text)?;
            file.sync_all()?;
            fs::rename(&beside, &self.path)
        };
        write().map_err(|source| Error::io(&self.path, source))
    }
}

fn name(key: KeyHash) -> String {
    format!("{:032x}", key.0)
}

/// Part of an erasure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// What keeps text.
    pub what: &'static str,
    /// Nothing is left there.
    pub done: bool,
    /// What is left to do, and by whom.
    pub detail: String,
}

/// Erases a key.
pub async fn erase(
    feed: &Arc<Feed>,
    store: &VersionStore,
    cuts: &Cuts,
    key: &str,
    order: Option<u64>,
) -> Result<(Token, Vec<Step>)> {
    let hash = KeyHash::of(key);
    let known = match feed.erased.get(hash) {
        Some(place) if order.is_none() && !written_since(feed, key, place).await? => Some(place),
        _ => None,
    };
    let (partition, offset) = if let Some(place) = known {
        place
    } else {
        let place = delete(feed, key, order).await?;
        let noting = feed.clone();
        blocking(move || noting.erased.set(hash, place)).await?;
        place
    };
    let mut steps = vec![from_log(feed, partition, hash).await];
    let (letters, of) = (feed.clone(), key.to_owned());
    let forgotten = blocking(move || letters.dead.forget(&of)).await;
    steps.push(match forgotten {
        Ok(count) => Step { what: "dead_letters", done: true, detail: format!("{count} removed") },
        Err(error) => Step { what: "dead_letters", done: false, detail: error.to_string() },
    });
    steps.push(from_overlays(feed, partition, offset));
    steps.push(from_versions(feed, store, cuts, partition, offset).await);
    let token = Token { epoch: feed.log.epoch(), offsets: BTreeMap::from([(partition, offset + 1)]) };
    Ok((token, steps))
}

/// Whether the key was written after its erasure.
async fn written_since(feed: &Feed, key: &str, (partition, offset): (u32, u64)) -> Result<bool> {
    let mut slots = Slots::none();
    slots.set(slot(key));
    let ranges = feed.ranges().await?;
    let Some(range) = ranges.get(partition as usize) else { return Ok(true) };
    if offset >= range.end {
        return Ok(true);
    }
    let mut from = (offset + 1).max(range.first);
    while from < range.end {
        let chunk = feed.log.read(partition, from, slots.clone(), READ_BYTES).await?;
        let same = |record: &Bytes| record::decode(record).is_ok_and(|record| record.key == key);
        if chunk.entries.iter().any(|entry| same(&entry.record)) {
            return Ok(true);
        }
        if chunk.next <= from {
            break;
        }
        from = chunk.next;
    }
    Ok(false)
}

async fn delete(feed: &Arc<Feed>, key: &str, order: Option<u64>) -> Result<(u32, u64)> {
    let partition = u32::from(slot(key)) % feed.log.partitions().max(1);
    let order = match feed.ordering {
        Ordering::Log => order,
        Ordering::Producer => order.or_else(|| feed.producers.lock().newest(partition, KeyHash::of(key))),
    };
    if order.is_none() && feed.ordering == Ordering::Producer {
        let message = "no write of this key is in the log; give the order that its delete has";
        return Err(Error::invalid("order", message));
    }
    let given = Given { op: "delete".to_owned(), key: key.to_owned(), document: None, order };
    let item = Came { given: Ok(given), key: key.to_owned(), op: "delete".to_owned(), raw: Bytes::new() };
    let answer = write::write(feed, vec![item]).await.answers.pop();
    let answer = answer.ok_or_else(|| Error::invalid("key", "it has no answer"))?;
    match (answer.offset, answer.again) {
        (Some(place), _) => Ok(place),
        (None, Some(_)) => {
            Err(Error::Busy { reason: answer.reason, retry_after_ms: crate::pressure::RETRY_AFTER_MS })
        }
        (None, None) => Err(Error::invalid(answer.field, answer.reason)),
    }
}

async fn from_log(feed: &Feed, partition: u32, hash: KeyHash) -> Step {
    match feed.log.erase(partition, hash).await {
        Ok(count) => Step { what: "log", done: true, detail: format!("{count} records lost their text") },
        Err(error) => Step { what: "log", done: false, detail: error.to_string() },
    }
}

fn from_overlays(feed: &Feed, partition: u32, offset: u64) -> Step {
    let (behind, any) = feed.followers.without(partition, offset);
    let what = "overlays";
    if !behind.is_empty() {
        let detail = format!("not yet sent to {}; ask again", behind.join(", "));
        return Step { what, done: false, detail };
    }
    let detail = if any {
        "sent to every leaf that follows; it leaves their disks with their next checkpoint, within a minute"
    } else {
        "no leaf follows; it leaves the disks of leaves when they are started"
    };
    Step { what, done: any, detail: detail.to_owned() }
}

async fn from_versions(feed: &Feed, store: &VersionStore, cuts: &Cuts, partition: u32, offset: u64) -> Step {
    let what = "versions";
    let cuts = match cuts.all(store, &feed.name).await {
        Ok(cuts) => cuts,
        Err(error) => return Step { what, done: false, detail: error.to_string() },
    };
    let epoch = feed.log.epoch();
    let older: Vec<_> = cuts
        .iter()
        .filter(|cut| cut.of(&epoch, partition) <= offset)
        .map(|cut| cut.version.to_string())
        .collect();
    if older.is_empty() {
        return Step { what, done: true, detail: "no version is older than the delete".to_owned() };
    }
    let detail = format!(
        "{} may hold it: make a version without it (`canopy index absorb`), roll it out, then `canopy index gc`",
        older.join(", ")
    );
    Step { what, done: false, detail }
}
