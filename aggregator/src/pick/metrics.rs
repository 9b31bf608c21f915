//! What choosing counts. Labels are closed lists of words.

use canopy_common::telemetry::metrics;
use prometheus::{IntCounter, Registry};

use super::Why;

/// Counters of one picker.
#[derive(Clone)]
pub struct PickMetrics {
    picks: [IntCounter; Why::ALL.len()],
    panics: IntCounter,
    /// Calls that were withheld.
    pub throttled: IntCounter,
    /// Shadows that were sent.
    pub probes: IntCounter,
}

impl PickMetrics {
    /// Registers the counters of `role`.
    pub fn new(role: &str, registry: &Registry) -> Self {
        let name = |what: &str| format!("canopy_{role}_{what}");
        let picks =
            metrics::counters(registry, &name("picks_total"), "choices of a node by their reason", "why");
        let counter = |what: &str, help: &str| metrics::counter(registry, &name(what), help);
        Self {
            picks: Why::ALL.map(|why| picks.with_label_values(&[why.as_str()])),
            panics: counter("panics_total", "choices among nodes that were all ejected"),
            throttled: counter("throttled_total", "calls not sent to a node that refused too many"),
            probes: counter("probes_total", "copies of calls sent to ejected nodes"),
        }
    }

    pub(super) fn chosen(&self, why: Why) {
        self.panics.inc_by(u64::from(why == Why::Panic));
        if let Some(at) = Why::ALL.iter().position(|known| *known == why) {
            self.picks[at].inc();
        }
    }
}
