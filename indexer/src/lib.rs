//! From documents to versions: the engine index of a shard, the build pipeline and what reads a version back for
//! people. The only crate besides the leaf that links the search engine.

pub mod build;
pub mod error;
pub mod index_schema;
mod read_back;
