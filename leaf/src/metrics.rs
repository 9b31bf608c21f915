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
    /// Searches refused because the queue was full or the time too short.
    pub shed: IntCounter,
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
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        Self {
            queue_wait: metrics::latency(
                registry,
                "canopy_leaf_queue_wait_seconds",
                "time between the arrival of a search and its start on a thread",
            ),
            service: metrics::latency(
                registry,
                "canopy_leaf_service_seconds",
                "time of the search of one shard",
            ),
            in_flight: metrics::gauge(
                registry,
                "canopy_leaf_in_flight_shards",
                "shards asked and not settled yet",
            ),
            outcomes: metrics::counters(
                registry,
                "canopy_leaf_outcomes_total",
                "asked shards by how they ended",
                "outcome",
            ),
            shed: metrics::counter(
                registry,
                "canopy_leaf_shed_total",
                "searches refused before any work, because the queue was full or the time too short",
            ),
            expired_in_queue: metrics::counter(
                registry,
                "canopy_leaf_deadline_in_queue_total",
                "searches whose deadline passed in the queue; they were never run",
            ),
            cancelled: metrics::counter(
                registry,
                "canopy_leaf_cancelled_total",
                "shards whose search the caller stopped",
            ),
            work_after_cancel: work_after_cancel(registry),
            panics: metrics::counter(
                registry,
                "canopy_leaf_panics_total",
                "searches and fetches that panicked",
            ),
            shards: shards(registry),
            passed_over: metrics::gauge(
                registry,
                "canopy_leaf_versions_passed_over",
                "versions newer than the one served, which can't be served; above 0 wants a look",
            ),
            fetch: metrics::latency(registry, "canopy_leaf_fetch_seconds", "time of one fetch"),
            fetched: metrics::counters(
                registry,
                "canopy_leaf_fetched_total",
                "fetched items by result, filled or empty",
                "result",
            ),
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
    let options = Opts::new("canopy_leaf_shards", "shards by state");
    register(registry, IntGaugeVec::new(options, &["state"]).expect("metric names are literals"))
}

fn register<M: prometheus::core::Collector + Clone + 'static>(registry: &Registry, metric: M) -> M {
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::error!(%error, "a metric could not be registered");
    }
    metric
}
