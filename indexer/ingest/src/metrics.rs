//! The metrics of an ingest. Names are `canopy_feed_<what>`; labels are small fixed sets, never a corpus or a key.

use canopy_common::telemetry::metrics;
use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, Registry};

/// All of them. Cheap to clone.
#[derive(Clone)]
pub struct Metrics {
    /// Items by their answer: `applied`, `stale`, `superseded`, `rejected`, `again`.
    pub items: IntCounterVec,
    /// Items refused for their content, by class: `syntax`, `invalid`, `too_large`, `log`, or by a `leaf`.
    pub rejected: IntCounterVec,
    /// Time from a batch's arrival until it is durable.
    pub write: Histogram,
    /// Dead letters that could not be kept.
    pub unkept: IntCounter,
    /// Streams that follow the log.
    pub followers: IntGauge,
    /// Operations behind the slowest follower that counts, of the worst corpus.
    pub behind: IntGauge,
    /// Lag of the slowest connected one, milliseconds.
    pub lag: IntGauge,
    /// Corpora that are open.
    pub corpora: IntGauge,
    /// Corpora that could not be opened.
    pub lacking: IntGauge,
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        let name = |what: &str| format!("canopy_feed_{what}");
        let gauge = |what: &str, help: &str| metrics::gauge(registry, &name(what), help);
        let by = |label: &str, what: &str, help: &str| metrics::counters(registry, &name(what), help, label);
        Self {
            items: by("status", "items_total", "items by their answer"),
            rejected: by("reason", "rejected_total", "operations refused for their content"),
            write: metrics::latency(
                registry,
                &name("write_seconds"),
                "arrival of a batch until it is durable",
            ),
            unkept: metrics::counter(registry, &name("letters_lost_total"), "dead letters not kept"),
            followers: gauge("followers", "streams that follow the log"),
            behind: gauge("behind_operations", "operations behind the slowest follower"),
            lag: gauge("lag_ms", "age of the oldest operation that a follower was not sent"),
            corpora: gauge("corpora", "corpora that are open"),
            lacking: gauge("corpora_lacking", "corpora that can't be opened"),
        }
    }
}
