//! Logs, metrics, traces. One `Telemetry` per process, handed down through `Deps`; the only global is the log
//! subscriber, which the binary installs.

pub mod config;
pub mod metrics;
pub mod slow;
pub mod subscriber;
pub mod trace;

pub use config::TelemetryConfig;
pub use slow::SlowQueries;
pub use subscriber::{Exporting, init};

/// Metrics registry and slow-query ring. Cloning shares them.
#[derive(Clone, Default)]
pub struct Telemetry {
    /// Prometheus metrics of this process.
    pub registry: prometheus::Registry,
    /// Slowest recent queries.
    pub slow: SlowQueries,
}
