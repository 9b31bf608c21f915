//! A leaf: holds verified shards of immutable versions, searches them on its own threads until the deadline, and
//! fetches what a page shows.

pub mod call;
pub mod calls;
pub mod collect;
pub mod config;
pub mod error;
pub mod executor;
pub mod explain;
pub mod fault;
pub mod fetch;
#[cfg(test)]
pub mod fixture;
pub mod health;
pub mod lease;
pub mod load;
pub mod metrics;
pub mod node;
pub mod overlay;
pub mod query;
pub mod recent;
pub mod reply;
pub mod rescore;
pub mod search;
pub mod search_shard;
pub mod serve;
pub mod shards;
pub mod snippet;
pub mod stop;
#[cfg(test)]
mod testing;
pub mod tie;
pub mod view;

pub use serve::{LeafServe, serve};
