//! Plan, pick, gather, merge: the one scatter-gather engine, and the aggregator service around it. The root uses the
//! same engine.

pub mod breaker;
pub mod canary;
pub mod config;
pub mod endpoints;
pub mod error;
pub mod fetch;
pub mod gather;
pub mod health;
pub mod hedge;
pub mod load;
pub mod merge;
pub mod metrics;
pub mod pace;
pub mod pick;
pub mod plan;
pub mod policies;
pub mod search;
pub mod server;
pub mod throttle;

pub use error::{Error, Result};
pub use server::{AggregatorServe, serve};
