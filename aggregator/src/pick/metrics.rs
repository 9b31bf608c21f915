//! What choosing counts. Labels are closed lists of words.

use canopy_common::telemetry::metrics;
use prometheus::{IntCounter, Registry};

use super::Why;

/// Counters of one picker.
#[derive(Clone)]
pub struct PickMetrics {
    picks: [IntCounter; Why::ALL.len()],
}

impl PickMetrics {
    /// Registers the counters of `role`.
    pub fn new(role: &str, registry: &Registry) -> Self {
        let name = |what: &str| format!("canopy_{role}_{what}");
        let picks =
            metrics::counters(registry, &name("picks_total"), "choices of a node by their reason", "why");
        Self { picks: Why::ALL.map(|why| picks.with_label_values(&[why.as_str()])) }
    }

    pub(super) fn chosen(&self, why: Why) {
        if let Some(at) = Why::ALL.iter().position(|known| *known == why) {
            self.picks[at].inc();
        }
    }
}
