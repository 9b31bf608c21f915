//! The leaf's metrics. Names are `canopy_leaf_<what>_<unit>`; the only labels are small fixed sets (outcome, state),
//! never a version, shard or key, so the number of series is the same after a thousand swaps.

use canopy_common::telemetry::metrics;
use prometheus::{
    Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts, Registry,
};

/// All of them. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    /// Time between the arrival of a search and its start on a thread.
    pub queue_wait: Histogram,
    /// Time of one shard's search.
    pub service: Histogram,
    /// Shards asked and not settled yet.
    pub in_flight: IntGauge,
    /// Asked shards by how they ended.
    pub outcomes: IntCounterVec,
    /// Searches refused before any work.
    pub shed: IntCounter,
    /// The same by reason: `limit`, `full`, `too_late`, or `waited` too long in a queue that stands.
    pub refused: IntCounterVec,
    /// Searches that may run and wait at once now.
    pub limit: IntGauge,
    /// Tasks in the queue.
    pub queued: IntGauge,
    /// Whether the queue of people stands: 1 or 0.
    pub standing: IntGauge,
    /// Tied searches by what became of them: `claimed` (began, and told the twin), `dropped`, `stopped` (had begun
    /// too), `duplicate` (ran to the end though the twin began earlier).
    pub tied: IntCounterVec,
    /// Claims that did not reach the twin.
    pub untold: IntCounter,
    /// Searches whose deadline passed while they waited; never run.
    pub expired_in_queue: IntCounter,
    /// Shards whose search the caller stopped.
    pub cancelled: IntCounter,
    /// Work done after it was stopped.
    pub work_after_cancel: Histogram,
    /// Searches and fetches that panicked.
    pub panics: IntCounter,
    /// Shards by state.
    pub shards: IntGaugeVec,
    /// Newest versions that can't be served, older ones are.
    pub passed_over: IntGauge,
    /// Time of one fetch.
    pub fetch: Histogram,
    /// Fetched items by result.
    pub fetched: IntCounterVec,
    /// Operations replayed from the log by what became of them: `applied`, `stale` (a newer write was known), `refused` (a dead
    /// letter), `deferred` (applied, and not searchable yet).
    pub operations: IntCounterVec,
    /// Of all overlays: `documents`, `deferred`, `tombstones`, `parts`, `bytes`, and records still `behind`.
    pub overlay: IntGaugeVec,
    /// Lag behind the log of the shard that is furthest behind.
    pub lag: IntGauge,
    /// The same by cause, of the newest records: `log`, `refresh`, `apply`.
    pub lag_by_cause: IntGaugeVec,
    /// Shards that serve an old state because they can't follow the log.
    pub stale_shards: IntGauge,
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        let name = |what: &str| format!("canopy_leaf_{what}");
        let counter = |what: &str, help: &str| metrics::counter(registry, &name(what), help);
        let gauge = |what: &str, help: &str| metrics::gauge(registry, &name(what), help);
        let latency = |what: &str, help: &str| metrics::latency(registry, &name(what), help);
        let by = |label: &str, what: &str, help: &str| metrics::counters(registry, &name(what), help, label);
        Self {
            queue_wait: latency(
                "queue_wait_seconds",
                "time between the arrival of a search and its start on a thread",
            ),
            service: latency("service_seconds", "time of the search of one shard"),
            in_flight: gauge("in_flight_shards", "shards asked and not settled yet"),
            outcomes: by("outcome", "outcomes_total", "asked shards by how they ended"),
            shed: counter("shed_total", "searches refused before any work"),
            refused: by("reason", "refused_total", "searches refused before any work, by reason"),
            limit: gauge("concurrency_limit", "searches that may run and wait at once"),
            queued: gauge("queued_tasks", "tasks that wait for a thread"),
            standing: gauge("queue_standing", "1 when the interactive queue stands"),
            tied: by("event", "tied_total", "tied searches by what became of them"),
            untold: counter("tied_untold_total", "claims that did not reach the twin"),
            expired_in_queue: counter(
                "deadline_in_queue_total",
                "searches whose deadline passed in the queue; they were never run",
            ),
            cancelled: counter("cancelled_total", "shards whose search the caller stopped"),
            work_after_cancel: work_after_cancel(registry),
            panics: counter("panics_total", "searches and fetches that panicked"),
            shards: shards(registry),
            passed_over: gauge(
                "versions_passed_over",
                "versions newer than the one served, which can't be served; above 0 wants a look",
            ),
            fetch: latency("fetch_seconds", "time of one fetch"),
            fetched: by("result", "fetched_total", "fetched items by result, filled or empty"),
            operations: by("result", "operations_total", "operations of the log by what became of them"),
            overlay: gauges(registry, "overlay", "what", "size of all overlays"),
            lag: gauge("lag_ms", "lag behind the log of the shard that is furthest behind"),
            lag_by_cause: gauges(registry, "lag_by_cause_ms", "cause", "what the newest records waited for"),
            stale_shards: gauge("stale_shards", "shards that can't follow the log; above 0 wants a look"),
        }
    }
}

impl Metrics {
    /// Shards were asked.
    pub fn asked(&self, shards: usize) {
        self.in_flight.add(number(shards));
    }

    /// Asked shards came to an end.
    pub fn ended(&self, shards: usize) {
        self.in_flight.sub(number(shards));
    }
}

/// A count as the gauges have it.
pub fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn work_after_cancel(registry: &Registry) -> Histogram {
    let options = HistogramOpts::new("canopy_leaf_work_after_cancel_us", "work done after it was stopped")
        .buckets(vec![10.0, 30.0, 100.0, 300.0, 1e3, 3e3, 1e4, 3e4, 1e5, 1e6]);
    let metric = Histogram::with_opts(options).expect("metric names are literals");
    register(registry, metric)
}

fn shards(registry: &Registry) -> IntGaugeVec {
    gauges(registry, "shards", "state", "shards by state")
}

fn gauges(registry: &Registry, what: &str, label: &str, help: &str) -> IntGaugeVec {
    let options = Opts::new(format!("canopy_leaf_{what}"), help);
    register(registry, IntGaugeVec::new(options, &[label]).expect("metric names are literals"))
}

fn register<M: prometheus::core::Collector + Clone + 'static>(registry: &Registry, metric: M) -> M {
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::error!(%error, "a metric could not be registered");
    }
    metric
}
