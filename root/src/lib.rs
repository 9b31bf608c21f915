//! The root: HTTP and gRPC front door, the query language, and the search page. It reads a query once, sends it to the
//! tree through the scatter-gather engine, and says exactly what its answer covers.
//!
//! Life of a query, by file: `http` or `grpc` -> `search` -> `pin` -> `ask` -> `request` -> `language` and `query` -> `plan` ->
//! (engine) -> `account` -> `fetch` -> `page` and `answer`.

pub mod account;
pub mod answer;
pub mod ask;
pub mod canary;
pub mod config;
pub mod critical_path;
pub mod cursors;
pub mod error;
pub mod fetch;
#[cfg(test)]
mod fixture;
pub mod follow;
pub mod grpc;
pub mod health;
pub mod http;
pub mod incidents;
pub mod judging;
pub mod ladder;
pub mod language;
pub mod metrics;
pub mod page;
pub mod pages;
pub mod pin;
pub mod plan;
pub mod query;
pub mod query_log;
pub mod record;
pub mod request;
pub mod search;
pub mod serve;
pub mod timeline;
pub mod trial;
pub mod versions;

pub use config::RootConfig;
pub use error::{Error, Result};
pub use serve::{RootServe, serve};
