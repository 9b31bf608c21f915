//! Errors of reading and writing versions.

use canopy_common::{
    error::{Classify, ErrorClass},
    ids::Version,
};
use thiserror::Error;

/// What went wrong with a schema, manifest, statistics or store.
#[derive(Debug, Error)]
pub enum Error {
    /// Bad schema text; all problems, one a line.
    #[error("schema is not valid: {0}")]
    Schema(String),
    /// A file does not hold what its manifest or format promises.
    #[error("{file} is damaged: {reason}")]
    Damaged {
        /// Path within the store.
        file: String,
        /// What was expected and found.
        reason: String,
    },
    /// Written by a newer build.
    #[error("{file} has format {found}; this build reads up to {known}; upgrade this node first")]
    NewerFormat {
        /// Path within the store.
        file: String,
        /// Format of the file.
        found: u32,
        /// Newest format this build reads.
        known: u32,
    },
    /// Its texts were analysed by other rules than this build's.
    #[error(
        "{corpus} {version} was built with analysis {found}; this node knows {known}: rebuild the version, or run the \
         matching release"
    )]
    OtherAnalysis {
        /// The corpus.
        corpus: String,
        /// The version.
        version: Version,
        /// Rules of the version.
        found: String,
        /// Rules of this build.
        known: String,
    },
    /// Nobody whose versions are taken signed it.
    #[error("{corpus} {version} is not trusted: {reason}; see [store] verify_keys")]
    Untrusted {
        /// The corpus.
        corpus: String,
        /// The version.
        version: Version,
        /// What is wrong.
        reason: String,
    },
    /// Somebody signed it, or another one of its number, and it is not what was signed.
    #[error(
        "{corpus} {version} is not trusted: {reason}; don't sign it as it is: compare it with its publisher's copy, and publish \
         that again"
    )]
    Changed {
        /// The corpus.
        corpus: String,
        /// The version.
        version: Version,
        /// What is wrong.
        reason: String,
    },
    /// No such corpus.
    #[error("corpus {0:?} does not exist in this store; `canopy corpus list` shows those that do")]
    NoCorpus(String),
    /// No such version.
    #[error("{corpus} has no {version}; `canopy index list` shows its versions")]
    NoVersion {
        /// The corpus.
        corpus: String,
        /// The version asked for.
        version: Version,
    },
    /// A corpus without any complete version.
    #[error("{0} has no complete version yet; build one with `canopy index build`")]
    NoVersionYet(String),
    /// It exists already.
    #[error("{0} exists already")]
    Exists(String),
    /// A name, number or setting is out of bounds.
    #[error("{field}: {reason}")]
    Invalid {
        /// What is wrong.
        field: &'static str,
        /// Why, with the limit.
        reason: String,
    },
    /// The store failed.
    #[error("store: {0}")]
    Store(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The file system failed.
    #[error("{path}: {source}")]
    Io {
        /// The path.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl Error {
    /// Whether a version itself is at fault, not the way to it: another attempt would end the same.
    pub fn of_the_version(&self) -> bool {
        matches!(
            self,
            Self::Damaged { .. }
                | Self::NewerFormat { .. }
                | Self::OtherAnalysis { .. }
                | Self::Untrusted { .. }
                | Self::Changed { .. }
        )
    }

    /// Whether the store could not be asked, so that it said nothing.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Store(_))
    }

    /// A failure of the file system at a path.
    pub fn io(path: &std::path::Path, source: std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), source }
    }
}

impl From<object_store::Error> for Error {
    fn from(error: object_store::Error) -> Self {
        match error {
            // The library's wrapper says nothing but the name of its type.
            object_store::Error::Generic { source, .. } => Self::Store(source),
            other => Self::Store(Box::new(other)),
        }
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Schema(_) | Self::Invalid { .. } => ErrorClass::InvalidArgument,
            Self::Damaged { .. } => ErrorClass::DataLoss,
            Self::NewerFormat { .. }
            | Self::OtherAnalysis { .. }
            | Self::Untrusted { .. }
            | Self::Changed { .. }
            | Self::NoVersionYet(_)
            | Self::Exists(_) => ErrorClass::FailedPrecondition,
            Self::NoCorpus(_) | Self::NoVersion { .. } => ErrorClass::NotFound,
            Self::Store(_) | Self::Io { .. } => ErrorClass::Internal,
        }
    }
}
