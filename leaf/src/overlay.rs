//! The overlay of a shard: what was written after its version was cut, replayed from the log into memory and laid over the
//! base by atomic views.
//!
//! `Source` (log) -> [`follow`] (loop, one per resident shard of a version) -> [`apply`] (records -> [`state`], [`mod@write`],
//! hidden bits, tombstones) -> view. [`merge`] keeps its parts few, [`checkpoint`] keeps it over a restart, [`config`]
//! bounds it. Rules: the loop waits, threads that give way to searches work; a view is published as a whole; what can't be
//! applied is a dead letter and stops nothing.

pub mod apply;
pub mod checkpoint;
pub mod config;
pub mod follow;
pub mod ground;
pub mod measure;
pub mod merge;
pub mod part;
pub mod source;
pub mod state;
pub mod write;

pub use config::{OverlayConfig, Policy};
pub use follow::{Follower, Following};
pub use source::{Grpc, Source};

#[cfg(test)]
mod tests;
