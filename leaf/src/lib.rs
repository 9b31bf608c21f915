//! A leaf: holds verified shards of immutable versions, searches them on its own threads until the deadline, and
//! fetches what a page shows.

pub mod executor;
