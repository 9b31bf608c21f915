//! What can go wrong in a lab: settings without meaning, a chart that can't be written.

use std::fmt::Display;

use canopy_common::error::{Classify, ErrorClass};
use thiserror::Error;

/// Why a lab did not run.
#[derive(Debug, Error)]
pub enum Error {
    /// A setting has no meaning.
    #[error("{field}: {why}")]
    Setting {
        /// Its name on the command line.
        field: &'static str,
        /// What is wrong, and what to do.
        why: String,
    },
    /// The runtime of an arm can't start.
    #[error("the runtime of an arm can't start: {0}")]
    Runtime(#[from] std::io::Error),
    /// An arm ended without a result; says which seed repeats it.
    #[error(
        "an arm ended without a result; this is a fault of the lab or of the engine, which its seed repeats: {0}"
    )]
    Lost(String),
    /// The chart could not be drawn.
    #[error("the chart can't be drawn: {0}")]
    Chart(String),
}

/// Result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A setting without meaning.
    pub fn setting(field: &'static str, why: impl Into<String>) -> Self {
        Self::Setting { field, why: why.into() }
    }

    /// Refuses a value outside `low..high`; a number that is none is outside.
    pub fn within<T: PartialOrd + Display>(field: &'static str, value: T, low: T, high: T) -> Result<()> {
        if low <= value && value <= high {
            return Ok(());
        }
        Err(Self::setting(field, format!("{value} is outside {low}..{high}")))
    }
}

impl Classify for Error {
    fn class(&self) -> ErrorClass {
        match self {
            Self::Setting { .. } => ErrorClass::InvalidArgument,
            Self::Runtime(_) | Self::Lost(_) | Self::Chart(_) => ErrorClass::Internal,
        }
    }
}
