//! Logs, metrics, traces. One `Telemetry` per process, handed down through `Deps`; no globals but the log subscriber.

pub mod slow;

pub use slow::SlowQueries;

/// Metrics registry and slow-query ring. Cloning shares them.
#[derive(Clone, Default)]
pub struct Telemetry {
    /// Prometheus metrics of this process.
    pub registry: prometheus::Registry,
    /// Slowest recent queries.
    pub slow: SlowQueries,
}
