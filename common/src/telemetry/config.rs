//! `[telemetry]` of the configuration.

use serde::{Deserialize, Serialize};

use crate::config::Section;

/// How log lines look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// The section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetryConfig {
    /// Log filter, `info` or `info,canopy_leaf=debug`. Default: info.
    pub log: String,
    /// Log format. Default: text.
    pub log_format: LogFormat,
    /// OTLP/gRPC endpoint for traces, `http://127.0.0.1:4317`; empty: none. Default: empty.
    pub otlp_endpoint: String,
    /// Share of queries traced when the caller did not decide, 0..1. Default: 0.01.
    pub trace_share: f64,
}

impl Default for TelemetryConfig {
    fn default() -> Self {
        Self {
            log: "info".to_owned(),
            log_format: LogFormat::Text,
            otlp_endpoint: String::new(),
            trace_share: 0.01,
        }
    }
}

impl Section for TelemetryConfig {
    const NAME: &'static str = "telemetry";
    const DOCS: &'static [(&'static str, &'static str)] = &[
        ("log", "log filter, such as info or info,canopy_leaf=debug"),
        ("log_format", "text or json"),
        ("otlp_endpoint", "OTLP/gRPC endpoint for traces, http://host:port; empty: none"),
        ("trace_share", "share of queries traced when the caller did not decide; 0..1"),
    ];

    fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        if !(0.0..=1.0).contains(&self.trace_share) {
            found.push(("trace_share".into(), format!("{} is outside 0..1", self.trace_share)));
        }
        if let Err(error) = self.log.parse::<tracing_subscriber::EnvFilter>() {
            found.push(("log".into(), format!("not a log filter: {error}")));
        }
        let endpoint = &self.otlp_endpoint;
        if !endpoint.is_empty() && !endpoint.starts_with("http://") {
            found.push(("otlp_endpoint".into(), "write http://host:port".into()));
        }
        found
    }
}
