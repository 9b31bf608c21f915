//! The answer as clients see it: one typed value, printed as JSON over HTTP and copied field by field to gRPC. The
//! names here are the contract: fields may be added, never renamed.
//!
//! Units: `_ms` are milliseconds; `documents` are whole documents of the base version; 64-bit values of documents are
//! strings, because a JSON number beyond 2^53 loses its last digits in many clients.

pub mod coverage;
pub mod degraded;
pub mod hits;
pub mod sums;
pub mod wire;

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

pub use coverage::Report;

/// One page of results and what it covers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// 32 hex digits; the name of the query in logs, traces and `/debug/slow`.
    pub query_id: String,
    /// By the root's clock, from the arrival of the request to the writing of this answer.
    pub took_ms: f64,
    /// The deadline in effect.
    pub deadline_ms: u64,
    /// Best first.
    pub hits: Vec<Hit>,
    /// How many documents match.
    pub total: Total,
    /// By field name.
    pub facets: BTreeMap<String, Facet>,
    /// For the next page; null on the last.
    pub next_cursor: Option<String>,
    /// What was odd about the query text.
    pub warnings: Vec<Warning>,
    /// What was searched and what is missing.
    pub coverage: Report,
    /// What was cut, in the contract's words; empty exactly when nothing was.
    pub degraded: Vec<&'static str>,
    /// Versions that answered.
    pub version: Versions,
    /// How far the overlays that answered are behind the log.
    pub offset: Lag,
    /// What the tail cost.
    pub tail: Tail,
    /// Timeline of the tree, when asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace: Option<Value>,
}

/// One result.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct Hit {
    /// The document's key; empty when the summary is missing.
    pub key: String,
    /// Plain text.
    pub title: String,
    /// HTML: escaped text with matches in `<b>`.
    pub snippet: String,
    /// The same fragment as plain text.
    pub snippet_text: String,
    /// Matches: byte ranges in `snippet_text`.
    pub snippet_ranges: Vec<(u32, u32)>,
    /// Higher is better; 0 when the query has nothing to score.
    #[serde(serialize_with = "finite")]
    pub score: f32,
    /// The fields asked for.
    pub fields: Map<String, Value>,
    /// Where it came from.
    pub shard: String,
    /// The version it came from.
    pub version: u64,
    /// `base` or `overlay`.
    pub source: &'static str,
    /// Phase two did not deliver: key, title, snippet and fields are empty.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub summary_missing: bool,
    /// Hash of the key, hex, when the summary is missing.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key_hash: String,
    /// Values sorted by, when a sort was asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub sort: Vec<Value>,
    /// Value of the collapse field, when asked.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub collapse: String,
    /// Score breakdown and provenance, when asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub explain: Option<Value>,
}

/// Scores are finite by construction; should one not be, it is 0 rather than invalid JSON.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn finite<S: Serializer>(score: &f32, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f32(if score.is_finite() { *score } else { 0.0 })
}

/// Number of matching documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Total {
    /// At least or exactly this many.
    pub value: u64,
    /// `eq` or `gte`.
    pub relation: &'static str,
    /// True when `relation` is `gte`, be it for the mode or for what is missing.
    pub lower_bound: bool,
}

/// Counts of one facet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Facet {
    /// Most frequent first.
    pub values: Vec<FacetValue>,
    /// Something is missing: counts are lower bounds.
    pub lower_bound: bool,
}

/// One value of a facet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct FacetValue {
    /// The value as text.
    pub value: String,
    /// Matching documents that have it.
    pub count: u64,
    /// The true count is at most `count + error_bound`, over the shards that answered.
    pub error_bound: u64,
}

/// Something about the query text that was read leniently.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// For programs.
    pub code: String,
    /// For people.
    pub message: String,
    /// With `did_you_mean`: the whole query text as it may have been meant.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub query: String,
}

impl From<&crate::query::Warning> for Warning {
    fn from(warning: &crate::query::Warning) -> Self {
        let (code, message) = (warning.code.to_owned(), warning.message.clone());
        Self { code, message, query: warning.query.clone() }
    }
}

/// Versions that answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Versions {
    /// The pinned one.
    pub wanted: u64,
    /// Oldest that answered.
    pub min: u64,
    /// Newest that answered.
    pub max: u64,
}

/// Lag of the overlays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Lag {
    /// Of the freshest shard.
    pub min_lag_ms: u64,
    /// Of the stalest shard.
    pub max_lag_ms: u64,
}

/// Attempts and what they were for, all levels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Tail {
    /// Calls sent.
    pub attempts: u32,
    /// Of these, hedges.
    pub hedges: u32,
    /// Hedges that answered first.
    pub hedges_won: u32,
    /// Of the attempts, retries.
    pub retries: u32,
    /// Hedges and retries that the budget refused.
    pub budget_denied: u32,
}

impl Answer {
    /// `searched + pruned` of `total` documents, for the header.
    pub fn coverage_header(&self) -> String {
        self.coverage.header()
    }

    /// The body.
    pub fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec(self).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
