//! What hedging counts: `hedges_sent = won + lost + failed` for all that ended, and apart from them what was due but
//! not sent. The gauges show what `auto` decided last, whatever the class; the status page shows every class.

use canopy_common::telemetry::metrics;
use prometheus::{Gauge, IntCounter, Opts, Registry};

use super::decision::Decision;
use crate::gather::attempt::Fate;

/// Counters of one engine's hedges.
#[derive(Clone)]
pub struct HedgeMetrics {
    /// Hedges sent; tied second attempts and copies count as hedges.
    pub sent: IntCounter,
    /// That settled a shard first.
    pub won: IntCounter,
    /// That were stopped, or came too late.
    pub lost: IntCounter,
    /// That failed or were refused.
    pub failed: IntCounter,
    /// Extra attempts, hedges and retries, that the budget refused.
    pub denied: IntCounter,
    /// Due hedges that were withheld to keep the tail seen.
    pub withheld: IntCounter,
    /// Tokens in the bucket.
    pub budget: Gauge,
    ratio: Gauge,
    delay: Gauge,
    second_delay: Gauge,
    probability: Gauge,
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Gauge {
    let gauge = Gauge::with_opts(Opts::new(name, help)).expect("metric names are literals");
    if let Err(error) = registry.register(Box::new(gauge.clone())) {
        tracing::error!(%error, "a metric could not be registered");
    }
    gauge
}

impl HedgeMetrics {
    /// Registers the counters of `role`.
    pub fn new(role: &str, registry: &Registry) -> Self {
        let name = |what: &str| format!("canopy_{role}_{what}");
        let counter = |what: &str, help: &str| metrics::counter(registry, &name(what), help);
        let gauge = |what: &str, help: &str| gauge(registry, &name(what), help);
        Self {
            sent: counter("hedges_sent_total", "hedges sent"),
            won: counter("hedges_won_total", "hedges that settled a shard first"),
            lost: counter("hedges_lost_total", "hedges that were stopped or came too late"),
            failed: counter("hedges_failed_total", "hedges that failed or were refused"),
            denied: counter("hedges_denied_budget_total", "hedges and retries that the budget refused"),
            withheld: counter("hedges_withheld_total", "due hedges withheld to keep the tail seen"),
            budget: gauge("extra_work_tokens", "shards that may be asked once more"),
            ratio: gauge("hedge_win_ratio", "share of the hedges that ended and had won"),
            delay: gauge("hedge_delay_seconds", "delay before a hedge, as decided last"),
            second_delay: gauge("hedge_second_delay_seconds", "delay before a second hedge; 0: none"),
            probability: gauge("hedge_probability", "probability that a late branch hedges; 0: off"),
        }
    }

    /// A hedge ended.
    pub fn ended(&self, fate: Fate) {
        match fate {
            Fate::Won => self.won.inc(),
            Fate::Failed => self.failed.inc(),
            Fate::Pending | Fate::Lost | Fate::Cancelled => self.lost.inc(),
        }
        let ended = self.won.get() + self.lost.get() + self.failed.get();
        self.ratio.set(self.won.get() as f64 / ended as f64);
    }

    /// Shows what was decided.
    pub fn decided(&self, decision: &Decision) {
        let (delay, second, probability) = match decision {
            Decision::Nothing(_) => (0.0, 0.0, 0.0),
            Decision::Copies(_) => (0.0, 0.0, 1.0),
            Decision::Tied(delay) => (delay.as_secs_f64(), 0.0, 1.0),
            Decision::After { delays, .. } => (
                delays.first.as_secs_f64(),
                delays.second.map_or(0.0, |second| second.as_secs_f64()),
                delays.probability,
            ),
        };
        self.delay.set(delay);
        self.second_delay.set(second);
        self.probability.set(probability);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::hedge::delay::Delays;

    #[test]
    fn what_was_decided_and_how_hedges_ended_is_shown() {
        let registry = Registry::new();
        let metrics = HedgeMetrics::new("root", &registry);
        for fate in [Fate::Won, Fate::Lost, Fate::Failed, Fate::Cancelled] {
            metrics.ended(fate);
        }
        let delays = Delays {
            first: Duration::from_millis(20),
            second: Some(Duration::from_millis(42)),
            probability: 1.0,
            extra: 0.02,
            expected: None,
        };
        metrics.decided(&Decision::After { delays, learned: true });
        let text = canopy_common::telemetry::metrics::text(&registry);
        for line in [
            "canopy_root_hedge_delay_seconds 0.02",
            "canopy_root_hedge_second_delay_seconds 0.042",
            "canopy_root_hedge_win_ratio 0.25",
            "canopy_root_hedges_lost_total 2",
        ] {
            assert!(text.contains(line), "{text}");
        }
    }
}
