//! What can keep an aggregator from serving. Errors of a search are outcomes, never of this type.

use canopy_common::error::{Classify, ErrorClass};
use thiserror::Error;

/// Why the process cannot serve.
#[derive(Debug, Error)]
pub enum Error {
    /// The gRPC server ended.
    #[error("the grpc server ended: {0}")]
    Grpc(#[from] std::io::Error),
    /// The configuration names this process with another role, or not at all.
    #[error(
        "node {node:?} is not an aggregator of the topology; add it to [topology] nodes with role aggregator"
    )]
    NotInTopology {
        /// Its name.
        node: String,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Grpc(_) => ErrorClass::Unavailable,
            Self::NotInTopology { .. } => ErrorClass::FailedPrecondition,
        }
    }
}
