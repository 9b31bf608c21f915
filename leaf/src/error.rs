//! Errors of the leaf. Bad input names the field at fault; what damages a shard is `DataLoss`, so that the caller tries
//! another replica and this one quarantines its copy.

use std::io;

use canopy_common::{
    error::{Classify, ErrorClass, Failure},
    ids::ShardId,
};
use tantivy::TantivyError;
use thiserror::Error;

/// What went wrong.
#[derive(Debug, Error)]
pub enum Error {
    /// The request is wrong.
    #[error("{message}")]
    Invalid {
        /// The request field, or the corpus field it names.
        field: String,
        /// What is wrong and what to do.
        message: String,
        /// The limit that was exceeded.
        limit: Option<u64>,
    },
    /// The search engine.
    #[error("{what}: {source}")]
    Engine {
        /// Which step.
        what: &'static str,
        /// Why.
        source: TantivyError,
    },
    /// A shard does not hold what its version promises.
    #[error("shard {shard} is damaged: {reason}")]
    Damaged {
        /// The shard.
        shard: ShardId,
        /// What was expected and found.
        reason: String,
    },
    /// Schema, manifest, statistics or store.
    #[error(transparent)]
    Format(#[from] canopy_format::error::Error),
    /// The mapping to the engine.
    #[error(transparent)]
    Indexer(#[from] canopy_indexer::error::Error),
    /// It does not fit.
    #[error(
        "insufficient {what}: shard {shard} needs {} and {} are free; make room, or place it elsewhere",
        amount(what, *need),
        amount(what, *free)
    )]
    NoRoom {
        /// Of what: memory or disk (bytes), file handles, mapped files.
        what: &'static str,
        /// The shard.
        shard: ShardId,
        /// How much is needed.
        need: u64,
        /// How much is free.
        free: u64,
    },
    /// The file system.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// Why.
        source: io::Error,
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

    /// An engine error with its step.
    pub fn engine<E: Into<TantivyError>>(what: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Engine { what, source: source.into() }
    }
}

impl Error {
    /// Whether waiting does not help: somebody has to do something.
    pub fn needs_somebody(&self) -> bool {
        self.everywhere() || self.lacks_room()
    }

    /// Whether it is for want of memory, disk or handles.
    pub fn lacks_room(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            Self::NoRoom { .. } => true,
            Self::Io { source, .. } => matches!(source.kind(), StorageFull | QuotaExceeded | FileTooLarge),
            _ => false,
        }
    }

    /// Whether it is the version's fault and not this leaf's, so that no leaf can do better: what the store holds of it is missing,
    /// damaged, not trusted, or of another build. It is tried again all the same, since a store can be mended.
    pub fn everywhere(&self) -> bool {
        use canopy_format::error::Error as Format;
        match self {
            Self::Format(error) => {
                error.of_the_version() || matches!(error, Format::NoVersion { .. } | Format::Schema(_))
            }
            Self::Invalid { .. } | Self::Indexer(_) => true,
            _ => false,
        }
    }
}

/// So much of memory or disk with its unit; others are counted.
fn amount(what: &str, n: u64) -> String {
    match what {
        "memory" | "disk" if n < 1 << 20 => format!("{n} bytes"),
        "memory" | "disk" => format!("{:.1} MiB", n as f64 / f64::from(1 << 20)),
        _ => n.to_string(),
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Invalid { .. } => ErrorClass::InvalidArgument,
            Self::Engine { source, .. } => match source {
                TantivyError::DataCorruption(_)
                | TantivyError::IoError(_)
                | TantivyError::OpenReadError(_)
                | TantivyError::IncompatibleIndex(_) => ErrorClass::DataLoss,
                _ => ErrorClass::Internal,
            },
            Self::Damaged { .. } => ErrorClass::DataLoss,
            Self::Format(error) => error.class(),
            Self::Indexer(error) => error.class(),
            Self::NoRoom { .. } => ErrorClass::Unavailable,
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
            Error::Damaged { shard, .. } => failure.shard = Some(shard),
            _ => {}
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bad_input_names_its_field_and_damage_asks_for_another_replica() {
        let failure = Failure::from(Error::above("slop", "slop is 900; the limit is 64", 64));
        assert_eq!(failure.class, ErrorClass::InvalidArgument);
        assert_eq!((failure.field.as_deref(), failure.limit), (Some("slop"), Some(64)));
        let damaged = Error::Damaged { shard: ShardId::new("main", 1), reason: "no keys".into() };
        assert!(Failure::from(damaged).class.retryable());
        let full = |kind| Error::Io { path: "cache".into(), source: io::Error::from(kind) };
        assert!(full(io::ErrorKind::StorageFull).needs_somebody());
        assert!(!full(io::ErrorKind::TimedOut).needs_somebody());
        let (file, reason) = ("manifest.json".to_owned(), "not a manifest".to_owned());
        assert!(Error::from(canopy_format::error::Error::Damaged { file, reason }).everywhere());
    }
}
