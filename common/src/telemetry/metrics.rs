//! Making and printing metrics. Every role of a process has a registry of its own (several leaves may run in one
//! process), so a name is registered once.

use prometheus::{
    Encoder, Histogram, HistogramOpts, IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
    core::Collector,
};

/// Latency buckets, seconds: 100 us to 60 s, about 1.6 apart.
pub const LATENCY: [f64; 20] = [
    0.0001, 0.00025, 0.0005, 0.001, 0.0016, 0.0025, 0.004, 0.0063, 0.01, 0.016, 0.025, 0.04, 0.063, 0.1,
    0.16, 0.25, 0.5, 1.0, 5.0, 60.0,
];

fn register<M: Collector + Clone + 'static>(registry: &Registry, metric: M) -> M {
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::error!(%error, "a metric could not be registered");
    }
    metric
}

/// A counter.
pub fn counter(registry: &Registry, name: &str, help: &str) -> IntCounter {
    let metric = IntCounter::new(name, help).expect("metric names are literals");
    register(registry, metric)
}

/// A counter with one bounded label.
pub fn counters(registry: &Registry, name: &str, help: &str, label: &str) -> IntCounterVec {
    let metric = IntCounterVec::new(Opts::new(name, help), &[label]).expect("metric names are literals");
    register(registry, metric)
}

/// A gauge.
pub fn gauge(registry: &Registry, name: &str, help: &str) -> IntGauge {
    let metric = IntGauge::new(name, help).expect("metric names are literals");
    register(registry, metric)
}

/// A latency histogram, seconds.
pub fn latency(registry: &Registry, name: &str, help: &str) -> Histogram {
    let options = HistogramOpts::new(name, help).buckets(LATENCY.to_vec());
    register(registry, Histogram::with_opts(options).expect("metric names are literals"))
}

/// All metrics in the Prometheus text format.
pub fn text(registry: &Registry) -> String {
    let mut bytes = Vec::new();
    match TextEncoder::new().encode(&registry.gather(), &mut bytes) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => format!("# {error}\n"),
    }
}
