//! `[leaf.overlay]` of the configuration.

use canopy_common::config::{Size, Time};
use serde::{Deserialize, Serialize};

/// What happens beyond the bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Policy {
    /// Everything is searchable; parts beyond the bounds are left out of searches with `freshness=indexed`.
    #[default]
    Serve,
    /// New documents are kept in the log only until a version has absorbed them. Deletes, and replacements of documents that
    /// are seen, hide these all the same.
    Defer,
}

/// The section.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OverlayConfig {
    /// How often what came is made searchable. Shorter is fresher and costs about 2 ms of a core each time. Default: 200ms.
    pub refresh: Time,
    /// How often it is saved, so that a restart replays what came since. Default: 1min.
    pub checkpoint: Time,
    /// A leaf that starts is not ready while it is further behind. Default: 5s.
    pub max_lag: Time,
    /// Documents of one shard beyond which the policy says what happens. Default: 200000.
    pub max_documents: u64,
    /// Memory of one shard's overlay beyond which the policy says what happens. Default: 1GiB.
    pub max_bytes: Size,
    /// What happens beyond: serve, defer. Default: serve.
    pub policy: Policy,
    /// Deleted documents are written out of memory and checkpoints after this time. Default: 10min.
    pub purge: Time,
}

impl Default for OverlayConfig {
    fn default() -> Self {
        Self {
            refresh: Time::ms(200),
            checkpoint: Time::ms(60_000),
            max_lag: Time::ms(5000),
            max_documents: 200_000,
            max_bytes: Size(1 << 30),
            policy: Policy::Serve,
            purge: Time::ms(600_000),
        }
    }
}

impl OverlayConfig {
    /// What is wrong with it, by key.
    pub fn problems(&self) -> Vec<(String, String)> {
        let mut found = Vec::new();
        for (key, value, low, high) in [
            ("refresh", self.refresh, 10, 60_000),
            ("checkpoint", self.checkpoint, 1000, 3_600_000),
            ("max_lag", self.max_lag, 100, 3_600_000),
            ("purge", self.purge, 1000, 24 * 3_600_000),
        ] {
            let (low, high) = (Time::ms(low), Time::ms(high));
            if value < low || value > high {
                found.push((key.to_owned(), format!("{value} is outside {low}..{high}")));
            }
        }
        if !(1..=100_000_000).contains(&self.max_documents) {
            let reason = format!("{} is outside 1..100000000", self.max_documents);
            found.push(("max_documents".to_owned(), reason));
        }
        if self.max_bytes < Size(1 << 20) {
            found.push(("max_bytes".to_owned(), format!("{} is below 1MiB", self.max_bytes)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_bounded() {
        assert!(OverlayConfig::default().problems().is_empty());
        let (none, long) = (Time::ms(0), Time::ms(25 * 3_600_000));
        for (wild, keys) in [(none, 4), (long, 4)] {
            let wild = OverlayConfig {
                refresh: wild,
                checkpoint: wild,
                max_lag: wild,
                purge: wild,
                max_documents: 0,
                max_bytes: Size(1),
                policy: Policy::Defer,
            };
            assert_eq!(wild.problems().len(), keys + 2, "{:?}", wild.problems());
        }
        let read: OverlayConfig = toml_like(r#"{"policy":"defer","refresh":"50ms","max_bytes":"2GiB"}"#);
        assert_eq!((read.policy, read.refresh, read.max_bytes), (Policy::Defer, Time::ms(50), Size(2 << 30)));
    }

    fn toml_like(json: &str) -> OverlayConfig {
        serde_json::from_str(json).unwrap()
    }
}
