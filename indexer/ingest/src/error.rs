//! Errors of ingest, for whole calls. What is wrong with one item is its answer and no error.

use canopy_common::error::{Classify, ErrorClass, Failure};
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
pub enum Error {
    /// The request or a setting is wrong.
    #[error("{message}")]
    Invalid {
        /// What is wrong.
        field: String,
        /// Why, and what to do.
        message: String,
        /// The limit that was exceeded.
        limit: Option<u64>,
    },
    /// Not one that is taken here.
    #[error("corpus {corpus:?} is not taken here: {reason}")]
    NoCorpus {
        /// Which.
        corpus: String,
        /// Why.
        reason: String,
    },
    /// It stands still and can't be asked now.
    #[error("corpus {corpus:?} can't be written now: {reason}")]
    NotOpen {
        /// Which.
        corpus: String,
        /// Why.
        reason: String,
    },
    /// No key, or one that is not known.
    #[error("{0}")]
    Unauthenticated(String),
    /// A key without the right.
    #[error("{0}")]
    Forbidden(String),
    /// Refused for now.
    #[error("{reason}")]
    Busy {
        /// Why.
        reason: String,
        /// When to come back, milliseconds.
        retry_after_ms: u64,
    },
    /// The log.
    #[error(transparent)]
    Log(#[from] canopy_log::Error),
    /// The store of versions.
    #[error(transparent)]
    Format(#[from] canopy_format::error::Error),
    /// The file system or the network.
    #[error("{path}: {source}")]
    Io {
        /// The path or address.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Bad input in `field`.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into(), limit: None }
    }

    /// Bad input in `field`, above `limit`.
    pub fn above(field: impl Into<String>, message: impl Into<String>, limit: u64) -> Self {
        Self::Invalid { field: field.into(), message: message.into(), limit: Some(limit) }
    }

    /// A failure of the file system at a path.
    pub fn io(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } => ErrorClass::InvalidArgument,
            Self::NoCorpus { .. } => ErrorClass::NotFound,
            Self::NotOpen { .. } => ErrorClass::Unavailable,
            Self::Unauthenticated(_) => ErrorClass::Unauthenticated,
            Self::Forbidden(_) => ErrorClass::PermissionDenied,
            Self::Busy { .. } => ErrorClass::Quota,
            Self::Log(error) => error.class(),
            Self::Format(error) => error.class(),
            Self::Io { .. } => ErrorClass::Internal,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let mut failure = Self::new(error.class(), error.to_string());
        match error {
            Error::Invalid { field, limit, .. } => {
                failure.field = Some(field);
                failure.limit = limit;
            }
            Error::NoCorpus { .. } => failure.field = Some("corpus".to_owned()),
            Error::Busy { retry_after_ms, .. } => failure.pushback_ms = Some(retry_after_ms),
            _ => {}
        }
        failure
    }
}
