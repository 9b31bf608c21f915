//! Errors of the log. A failed append names whether it may be tried again; a failed read names what is gone or damaged, so that
//! whoever follows the log never goes on behind a hole as if nothing had been there. Cloneable, because one failed write is
//! the answer to every operation of its batch. Units: bytes, offsets.

use canopy_common::error::{Classify, ErrorClass};
use thiserror::Error;

/// What went wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Error {
    /// The wanted offset is not kept any more, or was never written.
    #[error(
        "partition {partition} holds offsets {first} to {end}, not {wanted}: it was trimmed, or made anew"
    )]
    Lost {
        /// The partition.
        partition: u32,
        /// The offset asked for.
        wanted: u64,
        /// Oldest one that is kept.
        first: u64,
        /// Next one to be written.
        end: u64,
    },
    /// The log is not the one that was opened. Sticky: this handle must be given up and the log opened again.
    #[error("the log was made anew ({reason}); offsets of {was} mean nothing there: open it again")]
    Replaced {
        /// Epoch of the log that was opened.
        was: String,
        /// How it was noticed.
        reason: String,
    },
    /// Bytes of the log are not what was written.
    #[error("{file} is damaged at byte {byte}: {reason}")]
    Damaged {
        /// File, or stream.
        file: String,
        /// Where.
        byte: u64,
        /// First offset that can't be read; 0 when it is of no partition.
        offset: u64,
        /// What was expected.
        reason: String,
    },
    /// There is no room.
    #[error("no room in the log: it needs {needs} bytes, {free} are free ({reserve} are kept for deletes)")]
    Full {
        /// Bytes of the batch.
        needs: u64,
        /// Bytes that could be written.
        free: u64,
        /// Bytes that only deletes may use.
        reserve: u64,
    },
    /// Written by another release.
    #[error("{file} has format {found}; this build knows {known}: run the matching release")]
    OtherFormat {
        /// The file.
        file: String,
        /// Its format.
        found: u32,
        /// This build's.
        known: u32,
    },
    /// Another process has it.
    #[error("{0} is in use by another process; one log has one writer")]
    Locked(String),
    /// A setting or an argument is out of bounds.
    #[error("{field}: {reason}")]
    Invalid {
        /// What is wrong.
        field: &'static str,
        /// Why, with the limit.
        reason: String,
    },
    /// A record of the log can't be understood.
    #[error("record: {field}: {reason}")]
    Record {
        /// The part at fault.
        field: String,
        /// Why.
        reason: String,
    },
    /// The file system failed.
    #[error("{path}: {reason}")]
    Io {
        /// The path.
        path: String,
        /// Why.
        reason: String,
    },
    /// The server can't be reached, or did not answer in time. What was being written may be durable: write it again with its id.
    #[error("the log's server does not answer: {0}")]
    Away(String),
    /// The log was closed.
    #[error("the log is closed")]
    Closed,
}

impl Error {
    /// A failure of the file system at a path.
    pub fn io(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Io { path: path.display().to_string(), reason: error.to_string() }
    }

    /// A wrong setting or argument.
    pub fn invalid(field: &'static str, reason: impl Into<String>) -> Self {
        Self::Invalid { field, reason: reason.into() }
    }

    /// Whether the same append may succeed later without anybody changing it.
    pub fn again(&self) -> bool {
        matches!(
            self,
            Self::Full { .. } | Self::Io { .. } | Self::Away(_) | Self::Replaced { .. } | Self::Closed
        )
    }
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Lost { .. } | Self::Replaced { .. } | Self::OtherFormat { .. } | Self::Locked(_) => {
                ErrorClass::FailedPrecondition
            }
            Self::Damaged { .. } => ErrorClass::DataLoss,
            Self::Full { .. } => ErrorClass::Overloaded,
            Self::Invalid { .. } | Self::Record { .. } => ErrorClass::InvalidArgument,
            Self::Io { .. } => ErrorClass::Internal,
            Self::Away(_) | Self::Closed => ErrorClass::Unavailable,
        }
    }
}
