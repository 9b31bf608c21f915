//! Why there is no answer. A partial answer is not an error: it is an answer that says what is missing.
//!
//! Rule: whoever gets an error learns the field and limit at fault, or the coverage that was reached, and what to do.

use std::io;

use canopy_common::{
    error::{Classify, ErrorClass, Failure},
    ids::Version,
    limit::Refusal,
};
use thiserror::Error;

use crate::answer::Report;

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why there is no answer, or no root.
#[derive(Debug, Error)]
pub enum Error {
    /// Bad input, or something that is not enabled.
    #[error("{}", .0.message)]
    Refused(#[from] Failure),
    /// No such corpus.
    #[error("there is no corpus {0:?}; GET /v1 lists those that exist")]
    UnknownCorpus(String),
    /// The root has not opened it yet.
    #[error("{corpus} is not open here yet: {why}; try again shortly")]
    NotOpen {
        /// The corpus.
        corpus: String,
        /// What it waits for.
        why: String,
    },
    /// The cursor's version is gone.
    #[error("the cursor belongs to {0}, which has been retired; search again without a cursor")]
    CursorExpired(Version),
    /// Too many queries at once, or too little time among them; refused before any work.
    #[error("{}", busy(.0))]
    Busy(Refusal),
    /// A query of this shape was tried on one leaf, which was lost.
    #[error(
        "the first query of this form lost a leaf, so it is not sent to the others; try another form, or again later"
    )]
    Deadly,
    /// Less was searched than the client asked for.
    #[error("coverage {:.4} is below min_coverage {wanted}{}", .report.documents.ratio, because(.report))]
    UnderCoverage {
        /// What was asked for.
        wanted: f64,
        /// What was reached.
        report: Box<Report>,
    },
    /// No shard answered.
    #[error("no shard answered{}", because(.report))]
    NothingAnswered {
        /// Of the commonest failure.
        class: ErrorClass,
        /// Coverage 0 and why.
        report: Box<Report>,
    },
    /// Time was up before the search began or while it was read.
    #[error("the deadline of {0} ms passed before the search could start")]
    TooLate(u64),
    /// A version could not be read.
    #[error(transparent)]
    Version(#[from] canopy_format::error::Error),
    /// A listener or a cache directory failed.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: String,
        /// Why it failed.
        source: io::Error,
    },
}

fn because(report: &Report) -> String {
    let cause = report.main_cause();
    if cause.is_empty() { cause } else { format!("; {cause}") }
}

fn busy(refusal: &Refusal) -> String {
    match refusal {
        Refusal::Full(limit) => {
            format!("{limit} queries are running here, which is the limit; try again shortly")
        }
        Refusal::TooLate(left, p90) => format!(
            "{left:?} are left, and many queries that run here take up to {p90:?}; allow more time or try again shortly"
        ),
    }
}

impl Error {
    /// The code in error bodies.
    pub fn code(&self) -> &'static str {
        match self {
            Self::CursorExpired(_) => "CURSOR_EXPIRED",
            _ => self.class().code(),
        }
    }

    /// The HTTP status.
    pub fn http_status(&self) -> u16 {
        match self {
            Self::CursorExpired(_) => 410,
            Self::Refused(failure) if failure.field.as_deref() == Some("body") && failure.limit.is_some() => {
                413
            }
            Self::UnderCoverage { .. } | Self::NotOpen { .. } => 503,
            _ => self.class().http_status(),
        }
    }

    /// The account, where the search got that far.
    pub fn report(&self) -> Option<&Report> {
        match self {
            Self::UnderCoverage { report, .. } | Self::NothingAnswered { report, .. } => Some(report),
            _ => None,
        }
    }

    /// How it crosses the border.
    pub fn failure(&self) -> Failure {
        match self {
            Self::Refused(failure) => failure.clone(),
            Self::CursorExpired(_) => {
                Failure { field: Some("cursor".to_owned()), ..Failure::new(self.class(), self.to_string()) }
            }
            _ => Failure::new(self.class(), self.to_string()),
        }
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Refused(failure) => failure.class,
            Self::UnknownCorpus(_) => ErrorClass::NotFound,
            Self::CursorExpired(_) => ErrorClass::FailedPrecondition,
            Self::NotOpen { .. } | Self::UnderCoverage { .. } | Self::Deadly => ErrorClass::Unavailable,
            Self::Busy(_) => ErrorClass::Overloaded,
            Self::NothingAnswered { class, .. } => *class,
            Self::TooLate(_) => ErrorClass::DeadlineExceeded,
            Self::Version(error) => error.class(),
            Self::Io { .. } => ErrorClass::Internal,
        }
    }
}
