//! How far answers are behind the log, for whoever asks whether updates arrive. A gauge of the last answer rather than of the
//! worst one: what is over must not go on looking bad.

use prometheus::{Gauge, IntCounter, Registry};
use serde_json::{Value, json};

use crate::answer::Answer;

/// What answers say of the log.
#[derive(Clone)]
pub struct Newest {
    stale: IntCounter,
    lag: Gauge,
}

impl Newest {
    /// Registers it.
    pub fn new(registry: &Registry) -> Self {
        let stale = IntCounter::new(
            "canopy_root_stale_answers_total",
            "answers that lack newer documents: a shard lost its log, or the wanted offsets were not reached in time",
        );
        let lag = Gauge::new(
            "canopy_root_lag_max_seconds",
            "age of the oldest operation that a shard of the last answer had not applied; 0: none",
        );
        let expected = "metric names are literals";
        let new = Self { stale: stale.expect(expected), lag: lag.expect(expected) };
        for metric in
            [Box::new(new.stale.clone()) as Box<dyn prometheus::core::Collector>, Box::new(new.lag.clone())]
        {
            if let Err(error) = registry.register(metric) {
                tracing::error!(%error, "a metric could not be registered");
            }
        }
        new
    }

    /// An answer went out.
    pub fn answered(&self, answer: &Answer) {
        self.stale.inc_by(u64::from(answer.degraded.contains(&"stale")));
        self.lag.set(answer.offset.max_lag_ms as f64 / 1000.0);
    }

    /// For operators.
    pub fn status(&self) -> Value {
        let lag_ms = (self.lag.get() * 1000.0).round() as u64;
        json!({ "lag_max_ms": lag_ms, "stale_answers": self.stale.get() })
    }
}
