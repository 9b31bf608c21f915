//! From documents to versions: the engine index of a shard, the build pipeline and what reads a version back for
//! people. The only crate besides the leaf that links the search engine.

pub mod absorb;
pub mod build;
pub mod diff;
pub mod error;
pub mod index_schema;
pub mod inspect;
pub mod publish;
mod read_back;
pub mod source;
pub mod verify;
