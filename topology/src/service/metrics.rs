//! The service's metrics. Names are `canopy_topology_<what>_<unit>`; the only labels are small fixed sets, never a node, corpus
//! or version.

use canopy_common::telemetry::metrics;
use prometheus::{IntCounter, IntGauge, IntGaugeVec, Opts, Registry};

use tokio::time::Instant;

use super::control::Control;
use crate::rollout::Stop;

/// All of them.
pub struct Metrics {
    epoch: IntGauge,
    nodes: IntGaugeVec,
    leaves: IntGaugeVec,
    behind: IntGauge,
    rollouts: IntGauge,
    stopped: IntGauge,
    /// 1 while this service leads.
    pub leads: IntGauge,
    /// Changes that could not be stored.
    pub unstored: IntCounter,
}

impl Metrics {
    /// Registers them.
    pub fn new(registry: &Registry) -> Self {
        let gauge =
            |what: &str, help: &str| metrics::gauge(registry, &format!("canopy_topology_{what}"), help);
        let by = |what: &str, help: &str, label: &str| {
            let gauges = IntGaugeVec::new(Opts::new(format!("canopy_topology_{what}"), help), &[label])
                .expect("metric names are literals");
            if let Err(error) = registry.register(Box::new(gauges.clone())) {
                tracing::error!(%error, "a metric could not be registered");
            }
            gauges
        };
        Self {
            epoch: gauge("epoch", "of the newest routing snapshot"),
            nodes: by("nodes", "nodes by state", "state"),
            leaves: by("leaves", "leaves by health", "health"),
            behind: gauge(
                "replicas_behind",
                "replicas that lack a version they should hold for two minutes, or whose leaf is away for 30 s; above 0 wants a look",
            ),
            rollouts: gauge("rollouts", "rollouts under way"),
            stopped: gauge(
                "rollouts_stopped",
                "rollouts that are halted or paused; above 0 for long wants a look",
            ),
            leads: gauge("leads", "1 at the service that leads; a sum other than 1 for long wants a look"),
            unstored: metrics::counter(
                registry,
                "canopy_topology_unstored_total",
                "changes that could not be stored; above 0 wants a look",
            ),
        }
    }

    /// Takes over what holds now.
    pub fn seen(&self, control: &Control) {
        self.epoch.set(i64::try_from(control.snapshot().epoch.0).unwrap_or(i64::MAX));
        for (state, count) in control.node_counts() {
            self.nodes.with_label_values(&[state]).set(count);
        }
        for (health, count) in control.conditions() {
            self.leaves.with_label_values(&[health]).set(count);
        }
        self.behind.set(i64::try_from(control.alarms(Instant::now())).unwrap_or(i64::MAX));
        let active = || control.desired().corpora.values().filter_map(|state| state.active.as_ref());
        let stopped = |stop: &Option<Stop>| stop.is_some();
        self.rollouts.set(active().count() as i64);
        self.stopped.set(active().filter(|rollout| stopped(&rollout.stop)).count() as i64);
    }
}
