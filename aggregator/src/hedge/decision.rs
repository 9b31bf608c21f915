//! What is asked of a class, and what it answers: the words between the loop and the policies.

use std::time::Duration;

use super::{delay::Delays, mode::HedgeMode};

/// Why a branch is not hedged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The mode is `off`.
    Off,
    /// There is nobody else to ask, or no further attempt allowed.
    Alone,
    /// Too little was seen of these subtrees.
    Unknown,
    /// Everything is slow.
    Slowdown,
    /// A node asked to be left alone.
    Pushback,
    /// Attempts wait in queues.
    Load,
    /// Hedges do not win.
    NeverWins,
}

impl Why {
    /// The word on status pages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Alone => "alone",
            Self::Unknown => "unknown",
            Self::Slowdown => "slowdown",
            Self::Pushback => "pushback",
            Self::Load => "load",
            Self::NeverWins => "never_wins",
        }
    }
}

/// What a branch does beside its first attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Decision {
    /// Nothing.
    Nothing(Why),
    /// That many attempts at once.
    Copies(u32),
    /// Hedges after these delays; `learned` from what was seen, which must go on.
    After {
        /// When.
        delays: Delays,
        /// Whether some are withheld to keep seeing.
        learned: bool,
    },
    /// A tied second attempt after this delay.
    Tied(Duration),
}

/// What a branch is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Asked {
    /// The mode of its query.
    pub mode: HedgeMode,
    /// Branches of the query.
    pub branches: u32,
    /// Who may be asked.
    pub replicas: usize,
    /// Extra attempts allowed per branch.
    pub budget: f64,
    /// The bucket is below half: no delay gets shorter.
    pub frozen: bool,
    /// It asks an aggregator for a subtree.
    pub subtree: bool,
    /// Finest grain of the timers.
    pub grain: Duration,
}
