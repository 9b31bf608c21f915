//! A log in memory with room that a test sets, and an ingest over it.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use axum::{Router, body::Body, http::Request};
use bytes::Bytes;
use canopy_common::{
    admin::AdminPages,
    clock::Manual,
    config::{Size, Time},
    drain::Drain,
    ids::{KeyHash, NodeId},
    rng::Dice,
    telemetry::Telemetry,
};
use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering as CorpusOrdering, VersionStore},
};
use canopy_log::{Append, Chunk, Entry, Error, Log, Range, Shared, Slots, record};
use futures::{FutureExt, future::BoxFuture};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{Semaphore, watch};
use tower::ServiceExt;

use crate::{
    config::IngestConfig,
    corpora::Corpora,
    engine::Engine,
    feed::{Feed, Surroundings},
    health::IngestHealth,
    http::{self, App},
    keys::Keys,
    metrics::Metrics,
};

/// The log.
pub struct Memory {
    epoch: String,
    kept: Vec<Mutex<Kept>>,
    ends: Vec<watch::Sender<u64>>,
    /// Records other than deletes that there is room for.
    pub room: AtomicUsize,
    /// The server is away.
    pub away: AtomicBool,
}

#[derive(Default)]
struct Kept {
    first: u64,
    entries: Vec<(KeyHash, bool, Entry)>,
}

impl Memory {
    /// Empty.
    pub fn new(epoch: &str, partitions: u32) -> Self {
        Self {
            epoch: epoch.to_owned(),
            kept: (0..partitions).map(|_| Mutex::default()).collect(),
            ends: (0..partitions).map(|_| watch::channel(0).0).collect(),
            room: AtomicUsize::new(usize::MAX),
            away: AtomicBool::new(false),
        }
    }

    /// Every record, decoded, by partition and offset.
    pub fn records(&self) -> Vec<canopy_proto::ingest::Record> {
        let all = self.kept.iter().flat_map(|kept| kept.lock().entries.clone());
        all.map(|(_, _, entry)| record::decode(&entry.record).unwrap()).collect()
    }

    fn one(&self, append: Append) -> Result<u64, Error> {
        if self.away.load(Ordering::Relaxed) {
            return Err(Error::Away("asked for by the test".to_owned()));
        }
        if !append.delete {
            let left = self.room.load(Ordering::Relaxed);
            if left == 0 {
                return Err(Error::Full { needs: 1, free: 0, reserve: 1 });
            }
            self.room.store(left - 1, Ordering::Relaxed);
        }
        let mut kept = self.kept[append.partition as usize].lock();
        let offset = kept.first + kept.entries.len() as u64;
        let entry = Entry { offset, slot: append.slot, at_us: append.at_us, record: append.record };
        kept.entries.push((append.key, append.delete, entry));
        self.ends[append.partition as usize].send_replace(offset + 1);
        Ok(offset)
    }

    fn chunk(&self, partition: u32, from: u64, slots: &Slots, most: usize) -> Result<Chunk, Error> {
        let kept = self.kept[partition as usize].lock();
        let end = kept.first + kept.entries.len() as u64;
        if from < kept.first || from > end {
            return Err(Error::Lost { partition, wanted: from, first: kept.first, end });
        }
        let (mut chunk, mut bytes) = (Chunk { next: from, end, ..Chunk::default() }, 0);
        for (_, _, entry) in &kept.entries[(from - kept.first) as usize..] {
            if bytes >= most {
                chunk.oldest_us = entry.at_us;
                break;
            }
            chunk.next = entry.offset + 1;
            if slots.contains(entry.slot) {
                bytes += entry.record.len().max(1);
                chunk.entries.push(entry.clone());
            }
        }
        Ok(chunk)
    }
}

impl Log for Memory {
    fn epoch(&self) -> String {
        self.epoch.clone()
    }

    fn partitions(&self) -> u32 {
        self.kept.len() as u32
    }

    fn append(&self, batch: Vec<Append>) -> BoxFuture<'_, Vec<Result<u64, Error>>> {
        async move { batch.into_iter().map(|append| self.one(append)).collect() }.boxed()
    }

    fn read(
        &self,
        partition: u32,
        from: u64,
        slots: Slots,
        most: usize,
    ) -> BoxFuture<'_, Result<Chunk, Error>> {
        async move { self.chunk(partition, from, &slots, most) }.boxed()
    }

    fn wait(&self, partition: u32, end: u64) -> BoxFuture<'_, ()> {
        let mut ends = self.ends[partition as usize].subscribe();
        async move {
            let _never_closed = ends.wait_for(|now| *now > end).await;
        }
        .boxed()
    }

    fn ranges(&self) -> BoxFuture<'_, Result<Vec<Range>, Error>> {
        let range = |kept: &Mutex<Kept>| {
            let kept = kept.lock();
            Range { first: kept.first, end: kept.first + kept.entries.len() as u64 }
        };
        let ranges = self.kept.iter().map(range).collect();
        async move { Ok(ranges) }.boxed()
    }

    fn trim(&self, before: BTreeMap<u32, u64>) -> BoxFuture<'_, Result<(), Error>> {
        for (partition, before) in before {
            let mut kept = self.kept[partition as usize].lock();
            let gone = (before.saturating_sub(kept.first) as usize).min(kept.entries.len());
            kept.entries.drain(..gone);
            kept.first += gone as u64;
        }
        async { Ok(()) }.boxed()
    }

    fn erase(&self, partition: u32, key: KeyHash) -> BoxFuture<'_, Result<u64, Error>> {
        let mut kept = self.kept[partition as usize].lock();
        let newest = kept.entries.iter().rposition(|(of, delete, _)| *of == key && *delete).unwrap_or(0);
        let mut count = 0;
        for (of, _, entry) in &mut kept.entries[..newest] {
            if *of == key {
                let nothing = canopy_proto::ingest::Record { key: "erased".to_owned(), ..Default::default() };
                entry.record = prost::Message::encode_to_vec(&nothing).into();
                count += 1;
            }
        }
        async move { Ok(count) }.boxed()
    }

    fn status(&self) -> Value {
        Value::Null
    }
}

/// Gives the log of a test.
pub struct Given(pub Arc<Memory>);

impl Engine for Given {
    fn open(&self, _: &Corpus) -> BoxFuture<'_, crate::error::Result<Shared>> {
        let log: Shared = self.0.clone();
        async move { Ok(log) }.boxed()
    }
}

/// An ingest of one corpus, `web`.
pub struct Bench {
    /// Its log.
    pub log: Arc<Memory>,
    /// What it takes.
    pub corpora: Arc<Corpora>,
    /// Its end.
    pub drain: Drain,
    router: Router,
    directory: tempfile::TempDir,
}

/// A small configuration.
pub fn config() -> IngestConfig {
    IngestConfig {
        max_line: Size(4 << 10),
        batch: 4,
        queue: 100,
        max_lag: Time::ms(1000),
        ..IngestConfig::default()
    }
}

impl Bench {
    /// Ordered by the log.
    pub async fn new() -> Self {
        Self::with(CorpusOrdering::Log, config()).await
    }

    /// As configured, but for the directory.
    pub async fn with(ordering: CorpusOrdering, config: IngestConfig) -> Self {
        Self::over(Arc::new(Memory::new("e1", 4)), ordering, config).await
    }

    /// Over a log that may hold something.
    pub async fn over(log: Arc<Memory>, ordering: CorpusOrdering, mut config: IngestConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        config.directory = directory.path().join("ingest").display().to_string();
        let store = VersionStore::open(&directory.path().join("store").display().to_string(), true).unwrap();
        let schema = Schema::web();
        let corpus = Corpus { name: "web".to_owned(), schema, partitions: log.partitions(), ordering };
        store.create_corpus(&corpus).await.unwrap();
        let (clock, telemetry, drain) = (Manual::default(), Telemetry::default(), Drain::new());
        clock.set_us(1_000_000);
        let keys = Arc::new(Keys::open(&config.keys_file).unwrap());
        let writers = Arc::new(Semaphore::new(config.writers as usize));
        let around = Surroundings {
            config: Arc::new(config),
            max_message: 1 << 20,
            clock: Arc::new(clock),
            dice: Dice::seeded(1),
            metrics: Metrics::new(&telemetry.registry),
        };
        let corpora = Arc::new(Corpora::new(store, Arc::new(Given(log.clone())), around));
        corpora.look().await;
        let health = Arc::new(IngestHealth { node: NodeId::from("ingest-1"), corpora: corpora.clone() });
        let admin = AdminPages { health, telemetry, drain: drain.clone() };
        let app = App { corpora: corpora.clone(), keys, admin, drain: drain.clone(), writers };
        Self { log, corpora, drain, router: http::router(app), directory }
    }

    /// The corpus.
    pub fn feed(&self) -> Arc<Feed> {
        self.corpora.get("web").unwrap()
    }

    /// Where everything is.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Asks over HTTP: status, body, `Retry-After`.
    pub async fn ask(&self, method: &str, path: &str, body: impl Into<Body>) -> (u16, Value, bool) {
        let request = Request::builder().method(method).uri(path).body(body.into()).unwrap();
        self.send(request).await
    }

    /// The same for a request.
    pub async fn send(&self, request: Request<Body>) -> (u16, Value, bool) {
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (status, retry) = (response.status().as_u16(), response.headers().contains_key("retry-after"));
        let body: Bytes = axum::body::to_bytes(response.into_body(), 1 << 24).await.unwrap();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null), retry)
    }

    /// Writes lines.
    pub async fn write(&self, lines: &str) -> (u16, Value, bool) {
        self.ask("POST", "/v1/web/documents", lines.to_owned()).await
    }

    /// The words of the answers to lines.
    pub async fn statuses(&self, lines: &str) -> Vec<String> {
        let items = self.write(lines).await.1["items"].clone();
        let status = |item: &Value| item["status"].as_str().unwrap().to_owned();
        items.as_array().unwrap().iter().map(status).collect()
    }
}

/// A line that puts a document.
pub fn put(key: &str, title: &str) -> String {
    format!("{{\"op\":\"put\",\"key\":\"{key}\",\"document\":{{\"title\":\"{title}\",\"lang\":\"en\"}}}}\n")
}

/// The same with an order.
pub fn put_at(key: &str, order: u64) -> String {
    format!("{{\"op\":\"put\",\"key\":\"{key}\",\"order\":\"{order}\",\"document\":{{\"lang\":\"en\"}}}}\n")
}
