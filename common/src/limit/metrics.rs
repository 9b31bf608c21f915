//! What admission exports: the limit and the refusals by reason, under the name of the role that admits.

use prometheus::{IntCounterVec, IntGauge, Registry};

use super::{Admission, Refusal};
use crate::request::Priority;
use crate::telemetry::metrics;

/// The metrics of one admission.
#[derive(Clone)]
pub struct AdmissionMetrics {
    limit: IntGauge,
    p90: IntGauge,
    refused: IntCounterVec,
}

impl AdmissionMetrics {
    /// Registers them for `role`.
    pub fn new(role: &str, registry: &Registry) -> Self {
        let name = |what: &str| format!("canopy_{role}_{what}");
        Self {
            limit: metrics::gauge(registry, &name("concurrency_limit"), "calls that may run at once now"),
            p90: metrics::gauge(registry, &name("latency_p90_us"), "time that nine of ten calls take"),
            refused: metrics::counters(
                registry,
                &name("refused_total"),
                "calls refused before any work, by reason",
                "reason",
            ),
        }
    }

    /// Takes over what holds now.
    pub fn seen(&self, admission: &Admission) {
        self.limit.set(i64::from(admission.limit()));
        self.p90
            .set(i64::try_from(admission.times(Priority::Interactive).p90().as_micros()).unwrap_or(i64::MAX));
    }

    /// A call was refused.
    pub fn refused(&self, refusal: Refusal) {
        self.refused.with_label_values(&[refusal.as_str()]).inc();
    }
}
