//! A leaf: holds verified shards of immutable versions, searches them on its own threads until the deadline, and
//! fetches what a page shows.

pub mod error;
pub mod executor;
pub mod search_shard;
pub mod stop;
pub mod view;
