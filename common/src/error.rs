//! Errors are classes at the border and types inside. A class decides what happens next (retry elsewhere, tell the
//! client, give up); the crate's own error type keeps the details. The one mapping to gRPC is in [`crate::rpc`]'s
//! `status`, the one to HTTP is here.

use std::fmt;

use crate::ids::ShardId;

/// What kind of failure it was: all that a caller may branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ErrorClass {
    /// The request is wrong; it will be wrong elsewhere too.
    InvalidArgument = 1,
    /// No such corpus, version or document.
    NotFound = 2,
    /// Right request, wrong state: wrong epoch, version not held, feature not enabled.
    FailedPrecondition = 3,
    /// Time was up.
    DeadlineExceeded = 4,
    /// The caller left or has what it wanted.
    Cancelled = 5,
    /// Refused because of load; provably not started.
    Overloaded = 6,
    /// Could not be reached, or is going away; provably not started.
    Unavailable = 7,
    /// Stored data is damaged.
    DataLoss = 8,
    /// A fault of ours.
    Internal = 9,
    /// No valid credentials.
    Unauthenticated = 10,
    /// Credentials without the right.
    PermissionDenied = 11,
    /// Above the caller's quota.
    Quota = 12,
}

impl ErrorClass {
    /// From the wire; a class this build does not know is `Internal` (rolling upgrade).
    pub fn from_wire(number: u32) -> Self {
        match number {
            1 => Self::InvalidArgument,
            2 => Self::NotFound,
            3 => Self::FailedPrecondition,
            4 => Self::DeadlineExceeded,
            5 => Self::Cancelled,
            6 => Self::Overloaded,
            7 => Self::Unavailable,
            8 => Self::DataLoss,
            10 => Self::Unauthenticated,
            11 => Self::PermissionDenied,
            12 => Self::Quota,
            _ => Self::Internal,
        }
    }

    /// The code in error bodies.
    pub fn code(self) -> &'static str {
        match self {
            Self::InvalidArgument => "INVALID_ARGUMENT",
            Self::NotFound => "NOT_FOUND",
            Self::FailedPrecondition => "FAILED_PRECONDITION",
            Self::DeadlineExceeded => "DEADLINE_EXCEEDED",
            Self::Cancelled => "CANCELLED",
            Self::Overloaded => "OVERLOADED",
            Self::Unavailable => "UNAVAILABLE",
            Self::DataLoss => "DATA_LOSS",
            Self::Internal => "INTERNAL",
            Self::Unauthenticated => "UNAUTHENTICATED",
            Self::PermissionDenied => "PERMISSION_DENIED",
            Self::Quota => "QUOTA",
        }
    }

    /// The HTTP status.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidArgument | Self::FailedPrecondition => 400,
            Self::Unauthenticated => 401,
            Self::PermissionDenied => 403,
            Self::NotFound => 404,
            Self::Quota => 429,
            Self::Cancelled => 499,
            Self::DataLoss | Self::Internal => 500,
            Self::Overloaded | Self::Unavailable => 503,
            Self::DeadlineExceeded => 504,
        }
    }

    /// Whether another replica may succeed where this one failed. Never after the deadline, never on bad input.
    pub fn retryable(self) -> bool {
        matches!(
            self,
            Self::Overloaded
                | Self::Unavailable
                | Self::DataLoss
                | Self::Internal
                | Self::FailedPrecondition
                | Self::NotFound
        )
    }

    /// Whether the work provably never started, so that a retry costs no extra work.
    pub fn never_started(self) -> bool {
        matches!(self, Self::Overloaded | Self::Unavailable)
    }
}

impl fmt::Display for ErrorClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

/// Maps a crate's error type to its class.
pub trait Classify {
    /// The class of this error.
    fn class(&self) -> ErrorClass;
}

/// A failure as it crosses a border: class, words, and the details that callers use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The class.
    pub class: ErrorClass,
    /// What happened and what to do, in words.
    pub message: String,
    /// The request field at fault.
    pub field: Option<String>,
    /// The limit that was exceeded.
    pub limit: Option<u64>,
    /// The shard concerned.
    pub shard: Option<ShardId>,
    /// How long the caller should stay away, milliseconds.
    pub pushback_ms: Option<u64>,
}

impl Failure {
    /// A failure of `class`.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), field: None, limit: None, shard: None, pushback_ms: None }
    }

    /// Bad input in `field`.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: Some(field.into()), ..Self::new(ErrorClass::InvalidArgument, message) }
    }

    /// Adds the limit that was exceeded.
    pub fn with_limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Adds the shard concerned.
    pub fn with_shard(mut self, shard: ShardId) -> Self {
        self.shard = Some(shard);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.class, self.message)
    }
}

impl std::error::Error for Failure {}

impl Classify for Failure {
    fn class(&self) -> ErrorClass {
        self.class
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_survive_the_wire() {
        for number in 1..=12 {
            assert_eq!(ErrorClass::from_wire(number) as u32, number);
        }
        assert_eq!(ErrorClass::from_wire(4711), ErrorClass::Internal);
    }
}
