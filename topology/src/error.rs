//! Errors of the topology service and of nodes that follow it.

use canopy_common::error::{Classify, ErrorClass, Failure};
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
pub enum Error {
    /// The store's file.
    #[error("topology store {path}: {reason}")]
    Store {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
    /// The store took no write: another service leads by now.
    #[error("another topology service leads by now; nothing was changed")]
    Deposed,
    /// Another service leads.
    #[error("the topology service {node} at {address} leads; ask that one")]
    Follows {
        /// Its name.
        node: String,
        /// gRPC `host:port`.
        address: String,
    },
    /// No service leads, as far as this one knows.
    #[error("no topology service leads now: {0}; queries go on as they are")]
    Leaderless(String),
    /// A document in the store is not what this build wrote.
    #[error("the topology store holds {key:?} in a form that this build can't read: {reason}")]
    Document {
        /// Which document.
        key: String,
        /// Why.
        reason: String,
    },
    /// A field of a call.
    #[error("{message}")]
    Invalid {
        /// Which field.
        field: String,
        /// What is wrong and what to do.
        message: String,
    },
    /// A command that can't be done as things are.
    #[error("{0}")]
    Refused(String),
    /// A command without the service's token.
    #[error("{0}")]
    Unauthenticated(String),
    /// A listener.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: std::io::Error,
    },
}

/// Result of this crate's service.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A bad field.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), message: message.into() }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Store { .. } | Self::Deposed | Self::Leaderless(_) | Self::Io { .. } => {
                ErrorClass::Unavailable
            }
            Self::Unauthenticated(_) => ErrorClass::Unauthenticated,
            Self::Document { .. } => ErrorClass::DataLoss,
            Self::Invalid { .. } => ErrorClass::InvalidArgument,
            Self::Follows { .. } | Self::Refused(_) => ErrorClass::FailedPrecondition,
        }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let failure = Self::new(error.class(), error.to_string());
        match error {
            Error::Invalid { field, .. } => Self { field: Some(field), ..failure },
            _ => failure,
        }
    }
}
