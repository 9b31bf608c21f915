//! The plain HTTP pages of every role: `/healthz/startup`, `/healthz/live`, `/healthz/ready`, `/metrics`,
//! `/debug/slow`, `/version`, `/status`. A router of its own over hyper, so that leaf and aggregator need no web framework;
//! the root mounts [`AdminPages::respond`] beside its own pages.
//!
//! Three probes, never one: startup = opened once; live = the process turns its event loop, depends on nobody; ready =
//! would answer a query now.

use std::sync::Arc;

use futures::future::BoxFuture;

use crate::{drain::Drain, telemetry::Telemetry};

/// What a role tells of itself.
pub trait Health: Send + Sync + 'static {
    /// Opened at least once.
    fn started(&self) -> bool;
    /// Would answer a query now; the error says what is missing. With nothing registered this is an error.
    fn ready(&self) -> BoxFuture<'_, Result<(), String>>;
    /// One JSON object: role, node, versions wanted and served, states, lag, last errors.
    fn status(&self) -> serde_json::Value;
}

/// The pages of one role.
#[derive(Clone)]
pub struct AdminPages {
    /// The role's health.
    pub health: Arc<dyn Health>,
    /// The process' telemetry.
    pub telemetry: Telemetry,
    /// Draining makes it unready.
    pub drain: Drain,
}
