//! Layering of configuration values and the account of where each came from.

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// The documented default.
    Default,
    /// The file.
    File(String),
    /// An environment variable.
    Environment(String),
    /// `--set`.
    Argument,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `leaf.threads`.
    pub key: String,
    /// What is wrong and what would be right.
    pub reason: String,
    /// Where the value came from.
    pub origin: Origin,
}

/// A role's section of the file.
pub trait Section: serde::Serialize + serde::de::DeserializeOwned + Default {
    /// Bounds and nonsense: (key within the section, reason).
    fn problems(&self) -> Vec<(String, String)>;
}

/// Raw values, layered.
#[derive(Debug, Clone, Default)]
pub struct Layers {}
