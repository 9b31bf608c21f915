//! Ingest: takes operations over HTTP and gRPC, checks them by the build's own code, makes them durable in the log of their
//! corpus, and lets leaves follow that log.
//!
//! The failure this prevents: a writer that is told "taken" of what is nowhere, or not told which of a thousand lines was bad.
//! Rules: every item has an answer of its own, in order; what is said to be applied is durable; what is refused for its content
//! is kept with its reason (dead letters) and stops nothing behind it; what is refused for lack of room says so, and may be
//! sent again.

pub mod config;
pub mod corpora;
mod dead;
pub mod engine;
mod erase;
pub mod error;
mod feed;
mod followers;
mod grpc;
mod health;
mod http;
mod keys;
mod lines;
mod metrics;
mod plan;
mod pressure;
mod producers;
mod serve;
mod tail;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod trim;
mod write;

pub use config::IngestConfig;
pub use serve::{IngestServe, serve};
