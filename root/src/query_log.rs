//! The query log: a sample of the queries, one record a line ([`canopy_format::query_log`]), for warm-up, judgement and people.
//!
//! The failure this prevents: a disk that is full or slow and takes the queries with it. Rules: a query that is sampled hands its
//! record over and goes on; when the writer is behind, the record is dropped and counted. A write that fails is said once, what
//! waits is dropped and counted, and it is tried again after ten seconds. Which queries are in the sample is decided by their
//! id, so that whoever sees one twice (a retry of the client) logs it twice or never. Our own queries (probes, shadows) are not
//! logged. What people ask is theirs: files are for their owner only (mode 0600).
//!
//! The settings may change while it runs: a query and a batch go by those of their time.
//!
//! Files: `path`, and `path.1` (newest) to `path.N` of what was before; a file is closed when it is over `max_file`. The file is
//! opened for each batch, so one that somebody moved away is begun anew.

mod config;
mod file;

use std::{path::PathBuf, sync::Arc, time::Duration};

use canopy_common::{
    config::Live,
    ids::QueryId,
    telemetry::{Telemetry, metrics::counters},
};
use canopy_format::query_log::{Covered, MAX_HITS, MAX_TEXT, Record};
use parking_lot::Mutex;
use prometheus::IntCounterVec;
use tokio::{
    sync::{
        Notify,
        mpsc::{self, Receiver, Sender, error::TrySendError},
    },
    time::Instant,
};
use xxhash_rust::xxh3::xxh3_64;

pub use self::config::QueryLogConfig;
use self::file::Files;
use crate::{
    answer::Answer,
    error::{Error, Result},
    search::{Asked, Root, Trail},
};

/// Records that wait for the writer at most.
const WAITING: usize = 1024;
/// How long the writer lets records gather.
const LINGER: Duration = Duration::from_millis(200);
/// After a failure nothing is written for so long.
const PAUSE: Duration = Duration::from_secs(10);
/// Longest key that is kept, bytes; a longer one is left out.
const MAX_KEY: usize = 2 << 10;
/// Longest corpus name that is kept, characters: it may be anything a client writes.
const MAX_NAME: usize = 80;
/// Filters that are kept, bytes together.
const MAX_FILTERS: usize = 4 << 10;
/// What stands around a filter in the record: without it any number of empty ones would be few bytes.
const APART: usize = 4;

/// The log of one root.
pub struct QueryLog {
    config: Live<QueryLogConfig>,
    node: String,
    queue: Sender<Record>,
    waiting: Mutex<Option<Receiver<Record>>>,
    results: IntCounterVec,
    closing: Notify,
}

impl QueryLog {
    /// Of the root `node`. Nothing is opened yet.
    pub fn new(config: Live<QueryLogConfig>, node: &str, telemetry: &Telemetry) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        Self {
            config,
            node: node.to_owned(),
            queue,
            waiting: Mutex::new(Some(waiting)),
            results: counters(
                &telemetry.registry,
                "canopy_root_query_log_total",
                "records of the query log: written, or dropped because the writer was behind (full), could not write (failed), or was turned off meanwhile (off)",
                "result",
            ),
            closing: Notify::new(),
        }
    }

    /// Whether a query is in the sample.
    fn samples(&self, query: QueryId) -> bool {
        let config = self.config.get();
        if config.path.is_empty() {
            return false;
        }
        // Of 2^64 ids those below it. Saturates: a sample of 1 leaves out one id of 2^64.
        let below = (config.sample * 2_f64.powi(64)) as u64;
        xxh3_64(&query.0) < below
    }

    /// Where records go now; `None`: nowhere.
    fn files(&self) -> Option<Files> {
        let config = self.config.get();
        let path = PathBuf::from(config.path.replace("{node}", &self.node));
        let files = Files { path, max_file: config.max_file.0, keep: config.keep };
        (!config.path.is_empty()).then_some(files)
    }

    fn count(&self, result: &str, records: usize) {
        self.results.with_label_values(&[result]).inc_by(records as u64);
    }

    fn put(&self, record: Record) {
        if let Err(TrySendError::Full(_) | TrySendError::Closed(_)) = self.queue.try_send(record) {
            self.count("full", 1);
        }
    }

    /// Writes what is handed over until it is closed, and then what is left.
    pub async fn run(&self) {
        let Some(mut waiting) = self.waiting.lock().take() else { return };
        let mut failing: Option<(PathBuf, Instant)> = None;
        loop {
            let mut batch = Vec::new();
            let closing = tokio::select! {
                biased;
                () = self.closing.notified() => true,
                _ = waiting.recv_many(&mut batch, WAITING) => {
                    let linger = tokio::time::timeout(LINGER, self.closing.notified());
                    linger.await.is_ok()
                }
            };
            while let Ok(record) = waiting.try_recv() {
                batch.push(record);
            }
            // It was turned off since they were handed over.
            let files = self.files();
            let failed = failing.take().filter(|(path, _)| files.as_ref().is_some_and(|it| it.path == *path));
            match (files, failed) {
                (None, _) => self.count("off", batch.len()),
                (Some(_), Some((path, since))) if since.elapsed() < PAUSE => {
                    self.count("failed", batch.len());
                    failing = Some((path, since));
                }
                (Some(files), failed) => {
                    let path = files.path.clone();
                    let fails = self.write(files, batch, failed.is_some()).await;
                    failing = fails.then(|| (path, Instant::now()));
                }
            }
            if closing {
                return;
            }
        }
    }

    /// Writes a batch; whether it failed. `again`: after a failure that was said.
    async fn write(&self, files: Files, batch: Vec<Record>, again: bool) -> bool {
        if batch.is_empty() {
            return again;
        }
        let (path, count) = (files.path.clone(), batch.len());
        let written = tokio::task::spawn_blocking(move || {
            let lines: Vec<u8> = batch.iter().flat_map(Record::line).collect();
            files.append(&lines)
        });
        let path = path.display();
        match written.await.unwrap_or_else(|error| Err(std::io::Error::other(error))) {
            Ok(()) => {
                self.count("written", count);
                if again {
                    tracing::info!(%path, "the query log is written again");
                }
                false
            }
            Err(error) => {
                self.count("failed", count);
                if !again {
                    tracing::error!(
                        %path, %error,
                        "the query log can't be written; queries go on without it, and it is tried again every {PAUSE:?}"
                    );
                }
                true
            }
        }
    }

    /// No query is answered any more.
    pub fn close(&self) {
        self.closing.notify_one();
    }
}

/// Hands over the record of a query that has ended, when it is in the sample.
pub fn note(root: &Arc<Root>, asked: &Asked, trail: &Trail, result: &Result<Answer>) {
    if root.query_log.samples(asked.query) {
        root.query_log.put(record(root, asked, trail, result));
    }
}

fn record(root: &Root, asked: &Asked, trail: &Trail, result: &Result<Answer>) -> Record {
    let (request, took_ms) = (&asked.request, trail.timeline.took_ms());
    let answer = result.as_ref().ok();
    let report = result.as_ref().map_or_else(|error| error.report(), |answer| Some(&answer.coverage));
    let keys = answer.map_or(&[][..], |answer| &answer.hits).iter().map(|hit| &hit.key);
    let filters = request.filter.iter().map(|filter| filter.len() + APART).sum::<usize>() <= MAX_FILTERS;
    Record {
        query_id: asked.query.to_string(),
        at_ms: root.clock.now_us() / 1000 - took_ms as i64,
        corpus: request.corpus.chars().take(MAX_NAME).collect(),
        q: shortened(&request.q),
        query: shortened(&request.query_json),
        filter: if filters { request.filter.clone() } else { Vec::new() },
        k: request.k.unwrap_or(10),
        priority: if request.priority == "batch" { "batch" } else { "interactive" }.to_owned(),
        version: trail.corpus.as_ref().map_or(0, |corpus| corpus.manifest.version.0),
        arm: trail.tried.map(|tried| tried.arm().to_owned()),
        repinned_from: trail.repinned.as_ref().map_or(0, |repinned| repinned.from.0),
        outcome: result.as_ref().map_or_else(Error::code, |_| "answered").to_owned(),
        coverage: report.map(|report| Covered {
            complete: report.complete,
            documents: report.documents.searched + report.documents.pruned,
            documents_total: report.documents.total,
            answered: report.shards.answered,
            shards: report.shards.total,
        }),
        degraded: answer
            .map_or_else(Vec::new, |answer| answer.degraded.iter().map(|one| (*one).to_owned()).collect()),
        hits: keys.filter(|key| key.len() <= MAX_KEY).take(MAX_HITS).cloned().collect(),
        total: answer.map_or(0, |answer| answer.total.value),
        took_ms,
        phases: trail.timeline.micros().map(|(phase, us)| (phase.to_owned(), us as f64 / 1000.0)).collect(),
    }
}

fn shortened(text: &str) -> String {
    text[..text.floor_char_boundary(MAX_TEXT)].to_owned()
}

#[cfg(test)]
mod tests;
