//! What choosing counts. Labels are closed lists of words.

use std::sync::{Arc, Weak};

use canopy_common::telemetry::metrics;
use prometheus::{
    IntCounter, IntGaugeVec, Opts, Registry,
    core::{Collector, Desc},
    proto::MetricFamily,
};

use super::Why;
use crate::{breaker::standing::Standing, load::Loads};

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

/// Nodes by how they stand: read when the metrics are, so that nothing has to be counted on the way.
pub struct Standings {
    loads: Weak<Loads>,
    gauges: IntGaugeVec,
}

impl Standings {
    /// Registers the gauges of `role` over these nodes.
    pub fn register(role: &str, registry: &Registry, loads: &Arc<Loads>) {
        let options =
            Opts::new(format!("canopy_{role}_nodes"), "nodes that were ever asked, by how they stand");
        let registered = IntGaugeVec::new(options, &["standing"])
            .and_then(|gauges| registry.register(Box::new(Self { loads: Arc::downgrade(loads), gauges })));
        if let Err(error) = registered {
            tracing::error!(%error, "a metric could not be registered");
        }
    }
}

impl Collector for Standings {
    fn desc(&self) -> Vec<&Desc> {
        self.gauges.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let nodes = self.loads.upgrade().map_or_else(Vec::new, |loads| loads.all());
        let standings: Vec<Standing> = nodes.iter().map(|(_, load)| load.standing()).collect();
        for standing in Standing::ALL {
            let count = standings.iter().filter(|known| **known == standing).count();
            self.gauges.with_label_values(&[standing.as_str()]).set(count as i64);
        }
        self.gauges.collect()
    }
}
