//! Errors of building and examining versions.

use canopy_common::error::{Classify, ErrorClass};
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
pub enum Error {
    /// Schema, manifest, statistics or store.
    #[error(transparent)]
    Format(#[from] canopy_format::error::Error),
    /// The search engine.
    #[error("{what}: {source}")]
    Engine {
        /// Which shard or step.
        what: String,
        /// Why.
        source: tantivy::TantivyError,
    },
    /// The file system.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
    /// A setting is out of bounds.
    #[error("{field}: {reason}")]
    Invalid {
        /// What is wrong.
        field: &'static str,
        /// Why, with the limit and what to do.
        reason: String,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An engine error with its place.
    pub fn engine(what: impl Into<String>) -> impl FnOnce(tantivy::TantivyError) -> Self {
        move |source| Self::Engine { what: what.into(), source }
    }

    /// A file system error with its path.
    pub fn io(path: impl AsRef<std::path::Path>) -> impl FnOnce(std::io::Error) -> Self {
        let path = path.as_ref().display().to_string();
        move |source| Self::Io { path, source }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Format(error) => error.class(),
            Self::Engine { .. } | Self::Io { .. } => ErrorClass::Internal,
            Self::Invalid { .. } => ErrorClass::InvalidArgument,
        }
    }
}
