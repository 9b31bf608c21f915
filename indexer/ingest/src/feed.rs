//! What an ingest holds of one corpus: its log, the rules that items are checked by, who follows, what was refused.

use std::{collections::BTreeMap, path::Path, sync::Arc};

use arc_swap::ArcSwap;
use canopy_common::{clock::WallClock, rng::Dice};
use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering},
    token::Token,
};
use canopy_log::{Range, Shared, Slots, record};
use canopy_proto::ingest::Op;
use parking_lot::Mutex;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use crate::{
    config::IngestConfig,
    dead::{Dead, Letter},
    erase::Erased,
    error::{Error, Result},
    followers::Followers,
    metrics::Metrics,
    plan::Rules,
    pressure::{self, Behind, Bounds},
    producers::Producers,
    trim::Trimmed,
};

/// Bytes of the log that are read at a time when it is opened or searched.
const READ_BYTES: usize = 4 << 20;

/// What all corpora of an ingest share.
#[derive(Clone)]
pub struct Surroundings {
    /// `[ingest]`.
    pub config: Arc<IngestConfig>,
    /// Largest message to a leaf, bytes.
    pub max_message: usize,
    /// Event times.
    pub clock: Arc<dyn WallClock>,
    /// Ids of writes.
    pub dice: Dice,
    /// Counts.
    pub metrics: Metrics,
}

/// A corpus that is written and followed.
pub struct Feed {
    /// Its name.
    pub name: String,
    /// What decides between two writes.
    pub ordering: Ordering,
    /// Where operations go.
    pub log: Shared,
    /// What items are checked by.
    pub schema: ArcSwap<Schema>,
    /// Who follows.
    pub followers: Followers,
    /// Newest orders; used where producers order.
    pub producers: Mutex<Producers>,
    /// What was refused.
    pub dead: Dead,
    /// What was erased.
    pub erased: Erased,
    /// What was trimmed, and why no more.
    pub trimmed: Mutex<Trimmed>,
    /// Ended when the corpus is taken here no more, or its log was made anew.
    pub closed: CancellationToken,
    /// What it shares.
    pub around: Surroundings,
    ends: Mutex<BTreeMap<u32, u64>>,
}

impl Feed {
    /// A corpus over its log; reads the log where producers order.
    pub async fn open(
        corpus: &Corpus,
        schema: Schema,
        log: Shared,
        directory: &Path,
        around: Surroundings,
    ) -> Result<Arc<Self>> {
        if log.partitions() != corpus.partitions {
            let reason = format!(
                "its log has {} partitions and the corpus {}: the log is of another corpus of this name; move its directory away",
                log.partitions(),
                corpus.partitions
            );
            return Err(Error::NotOpen { corpus: corpus.name.clone(), reason });
        }
        let (letters, kept) = (directory.join("dead"), around.config.dead_letters);
        let opened = {
            let erasures = directory.join("erased.json");
            move || -> Result<_> { Ok((Dead::open(&letters, u64::from(kept))?, Erased::open(&erasures)?)) }
        };
        let (dead, erased) = blocking(opened).await?;
        let feed = Self {
            name: corpus.name.clone(),
            ordering: corpus.ordering,
            schema: ArcSwap::from_pointee(schema),
            followers: Followers::default(),
            producers: Mutex::new(Producers::new(corpus.partitions)),
            dead,
            erased,
            trimmed: Mutex::default(),
            closed: CancellationToken::new(),
            ends: Mutex::default(),
            around,
            log,
        };
        for (partition, range) in (0..).zip(feed.ranges().await?) {
            if feed.ordering == Ordering::Producer {
                feed.learn(partition, range).await?;
            }
        }
        Ok(Arc::new(feed))
    }

    /// Reads the orders of a partition. What can't be understood is for the leaves to refuse.
    async fn learn(&self, partition: u32, range: Range) -> Result<()> {
        let mut from = range.first;
        while from < range.end {
            let chunk = self.log.read(partition, from, Slots::all(), READ_BYTES).await?;
            let mut producers = self.producers.lock();
            for entry in &chunk.entries {
                let Ok(record) = record::decode(&entry.record) else { continue };
                if matches!(record.op(), Op::Put | Op::Delete) {
                    let key = canopy_common::ids::KeyHash::of(&record.key);
                    producers.note(partition, key, record.order, entry.offset);
                }
            }
            if chunk.next <= from {
                break;
            }
            from = chunk.next;
        }
        Ok(())
    }

    /// What the partitions hold now.
    pub async fn ranges(&self) -> Result<Vec<Range>> {
        let ranges = self.log.ranges().await?;
        let mut ends = self.ends.lock();
        for (partition, range) in (0..).zip(&ranges) {
            let end = ends.entry(partition).or_default();
            *end = range.end.max(*end);
        }
        Ok(ranges)
    }

    /// A record is durable.
    pub fn written(&self, partition: u32, offset: u64) {
        let mut ends = self.ends.lock();
        let end = ends.entry(partition).or_default();
        *end = (*end).max(offset + 1);
    }

    /// Next offset of each partition, as far as this ingest knows.
    pub fn ends(&self) -> BTreeMap<u32, u64> {
        self.ends.lock().clone()
    }

    /// The end of the log.
    pub async fn token(&self) -> Result<Token> {
        let ranges = self.ranges().await?;
        let offsets = (0..).zip(ranges).filter(|(_, range)| range.end > 0).map(|(at, range)| (at, range.end));
        Ok(Token { epoch: self.log.epoch(), offsets: offsets.collect() })
    }

    /// How far the slowest follower is behind.
    pub fn behind(&self) -> Behind {
        let forget = self.around.config.forget_followers.0;
        self.followers.behind(&self.ends(), self.around.clock.now_us(), forget)
    }

    /// Why nothing is taken now.
    pub fn pressed(&self) -> Option<String> {
        let config = &self.around.config;
        let bounds = Bounds { queue: config.queue, max_lag: config.max_lag.0 };
        pressure::refuse(self.behind(), bounds)
    }

    /// What items are checked by now.
    pub fn rules(&self) -> Rules {
        Rules {
            schema: self.schema.load_full(),
            ordering: self.ordering,
            partitions: self.log.partitions(),
            max_record: self.around.max_message.saturating_sub(64 << 10),
            at_us: self.around.clock.now_us(),
        }
    }

    /// Keeps letters; a disk that takes none is told in the log and counted, and holds nobody up.
    pub async fn bury(self: &Arc<Self>, letters: Vec<Letter>) -> u64 {
        if letters.is_empty() {
            return 0;
        }
        let (feed, count) = (self.clone(), letters.len() as u64);
        match blocking(move || feed.dead.add(letters)).await {
            Ok(added) => added,
            Err(error) => {
                tracing::warn!(corpus = self.name, count, %error, "dead letters could not be kept");
                self.around.metrics.unkept.inc_by(count);
                0
            }
        }
    }

    /// For operators.
    pub fn status(&self) -> serde_json::Value {
        let (ends, now_us) = (self.ends(), self.around.clock.now_us());
        let ((letters, dropped), behind) = (self.dead.counts(), self.behind());
        let offsets: serde_json::Map<_, _> =
            ends.iter().map(|(partition, end)| (partition.to_string(), json!(end.to_string()))).collect();
        json!({
            "corpus": self.name,
            "ordering": self.ordering,
            "schema_id": self.schema.load().id(),
            "epoch": self.log.epoch(),
            "ends": offsets,
            "refuses": self.pressed(),
            "behind": { "operations": behind.operations, "lag_ms": behind.lag.as_millis() as u64 },
            "followers": self.followers.status(&ends, now_us),
            "dead_letters": { "kept": letters, "dropped": dropped },
            "keys_ordered": self.producers.lock().len(),
            "trim": self.trimmed.lock().status(),
            "log": self.log.status(),
        })
    }
}

/// Runs what waits for the disk, or computes for long, where it holds up nobody.
pub async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    let failed = |error: tokio::task::JoinError| Error::Io {
        path: "a thread of the ingest".to_owned(),
        source: std::io::Error::other(error),
    };
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}
