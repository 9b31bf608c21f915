//! What a version is on disk and how text becomes terms: schema, analysis, layout, manifest and its signature, statistics,
//! store, query log. Shared by the build, the leaf and the root; links no search engine, so that the root stays small.

pub mod analysis;
pub mod checksum;
pub mod document;
pub mod error;
pub mod graves;
pub mod layout;
pub mod manifest;
pub mod newest;
pub mod operation;
pub mod query_log;
pub mod schema;
pub mod signature;
pub mod statistics;
pub mod store;
pub mod token;
