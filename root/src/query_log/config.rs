//! `[root.query_log]`: where the query log goes, and how much of it there is.

use canopy_common::config::Size;
use serde::{Deserialize, Serialize};

/// The settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct QueryLogConfig {
    /// File; `{node}` in it stands for the root's name, so that several roots of one process or directory have a file each.
    /// Empty: no log. Default: empty.
    pub path: String,
    /// Part of the queries that is logged. Default: 0.01.
    pub sample: f64,
    /// A file that is larger is closed and the next one begun. Default: 64MiB.
    pub max_file: Size,
    /// Closed files that are kept. Default: 4.
    pub keep: u32,
}

impl Default for QueryLogConfig {
    fn default() -> Self {
        Self { path: String::new(), sample: 0.01, max_file: Size(64 << 20), keep: 4 }
    }
}

impl QueryLogConfig {
    /// What is out of bounds: key within the section, and why.
    pub fn problems(&self) -> Vec<(String, String)> {
        let rows = [
            ("path", self.path.len() <= 4096, "1..4096 bytes"),
            ("sample", (0.0..=1.0).contains(&self.sample), "0..1"),
            ("max_file", (64 << 10..=16 << 30).contains(&self.max_file.0), "64KiB..16GiB"),
            ("keep", self.keep <= 1000, "0..1000"),
        ];
        let outside = rows.into_iter().filter(|(_, inside, _)| !inside);
        outside.map(|(key, _, bounds)| (format!("query_log.{key}"), format!("is outside {bounds}"))).collect()
    }
}
