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
    /// A record or a temporary file does not hold what it should.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// Which file or shard.
        what: String,
        /// What was expected and found.
        reason: String,
    },
    /// Two keys have one 128-bit hash.
    #[error("keys {first:?} and {second:?} have the same hash; remove one of them from the input")]
    KeyCollision {
        /// One key.
        first: String,
        /// The other.
        second: String,
    },
    /// Too many records were rejected.
    #[error(
        "{rejected} of {read} records were rejected, more than the limit of {limit_percent} %{}{}; \
         mend the input{} or raise --max-rejects",
        first.as_ref().map(|first| format!("; the first: {first}")).unwrap_or_default(),
        file.as_ref().map(|file| format!("; all of them: {file}")).unwrap_or_default(),
        if file.is_none() { " (--reject-file FILE lists all)" } else { "" },
    )]
    Rejects {
        /// Rejected records.
        rejected: u64,
        /// Records read.
        read: u64,
        /// The limit, percent.
        limit_percent: f64,
        /// The reject file.
        file: Option<String>,
        /// The first rejected record, with its place.
        first: Option<String>,
    },
    /// Input files end too early.
    #[error(
        "{files} input file{} could not be read to the end, so documents may be missing; the first: {first}; fetch {} \
         again, or pass --force to publish without the rest",
        if *files == 1 { "" } else { "s" },
        if *files == 1 { "it" } else { "them" },
    )]
    DamagedInput {
        /// How many.
        files: u64,
        /// The first, with the place and the reason.
        first: String,
    },
    /// No document at all.
    #[error(
        "the input has no document ({read} records read, {rejected} rejected); pass --force to publish an empty version"
    )]
    Empty {
        /// Records read.
        read: u64,
        /// Rejected records.
        rejected: u64,
    },
    /// Far fewer documents than the version before.
    #[error(
        "{documents} documents are fewer than half of the {before} of {parent}; pass --force if that is meant"
    )]
    Shrunken {
        /// Documents of this build.
        documents: u64,
        /// Documents of the parent.
        before: u64,
        /// The parent.
        parent: canopy_common::ids::Version,
    },
    /// The newest version can't be brought up to date from the log.
    #[error("{version} can't absorb the log: {reason}")]
    Unfit {
        /// The version.
        version: canopy_common::ids::Version,
        /// Why not.
        reason: crate::absorb::Unfit,
    },
    /// The log can't be read.
    #[error("the log can't be read: {0}")]
    Log(String),
    /// It was asked to stop.
    #[error("the build was cancelled; nothing was published")]
    Cancelled,
    /// A thread of the build panicked: a fault of ours.
    #[error("a build thread failed unexpectedly; please report this with the log")]
    Panicked,
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
            Self::Engine { .. } | Self::Io { .. } | Self::Panicked => ErrorClass::Internal,
            Self::Damaged { .. } | Self::DamagedInput { .. } => ErrorClass::DataLoss,
            Self::Cancelled => ErrorClass::Cancelled,
            Self::Rejects { .. } | Self::KeyCollision { .. } | Self::Empty { .. } | Self::Invalid { .. } => {
                ErrorClass::InvalidArgument
            }
            Self::Shrunken { .. } | Self::Unfit { .. } => ErrorClass::FailedPrecondition,
            Self::Log(_) => ErrorClass::Unavailable,
        }
    }
}
