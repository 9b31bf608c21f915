//! Up to where the log may go: everything since the oldest cut of any complete version stays, because any of them may be served
//! again (rollback), and a leaf replays from the cut of what it serves.
//!
//! The failure this prevents: a rollback to a version whose operations since are gone. Rules: a version without a cut of this log
//! holds nothing of it; so does one of another log. No versions, or one that can't be read: nothing is trimmed, aloud.

use std::{collections::BTreeMap, sync::Arc};

use canopy_common::ids::Version;
use canopy_format::store::VersionStore;
use canopy_log::Range;
use parking_lot::Mutex;
use serde_json::json;

use crate::{error::Result, feed::Feed};

/// What a version holds of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// Which version.
    pub version: Version,
    /// Of which log; empty: none.
    pub log: String,
    /// Next offset by partition.
    pub offsets: BTreeMap<u32, u64>,
    /// Schema of the version.
    pub schema_id: String,
}

impl Cut {
    /// Next offset of a partition of a log that the version does not hold.
    pub fn of(&self, epoch: &str, partition: u32) -> u64 {
        if self.log == epoch { self.offsets.get(&partition).copied().unwrap_or(0) } else { 0 }
    }
}

/// Cuts of the complete versions of a corpus; manifests never change, so each is read once.
#[derive(Default)]
pub struct Cuts(Mutex<BTreeMap<Version, Arc<Cut>>>);

impl Cuts {
    /// All of them, oldest version first.
    pub async fn all(&self, store: &VersionStore, corpus: &str) -> Result<Vec<Arc<Cut>>> {
        let versions = store.versions(corpus).await?;
        self.0.lock().retain(|version, _| versions.contains(version));
        let mut cuts = Vec::with_capacity(versions.len());
        for version in versions {
            let known = self.0.lock().get(&version).cloned();
            let cut = if let Some(cut) = known {
                cut
            } else {
                let manifest = store.manifest(corpus, version).await?;
                let (log, offsets, schema_id) = (manifest.log, manifest.cut, manifest.schema_id);
                Arc::new(Cut { version, log, offsets, schema_id })
            };
            self.0.lock().insert(version, cut.clone());
            cuts.push(cut);
        }
        Ok(cuts)
    }
}

/// Offsets below which no version needs anything, where that lets anything go.
pub fn bounds(cuts: &[Arc<Cut>], epoch: &str, ranges: &[Range]) -> BTreeMap<u32, u64> {
    let mut before = BTreeMap::new();
    for (partition, range) in (0..).zip(ranges) {
        let needed = cuts.iter().map(|cut| cut.of(epoch, partition)).min().unwrap_or(0).min(range.end);
        if needed > range.first {
            before.insert(partition, needed);
        }
    }
    before
}

/// What was trimmed last.
#[derive(Debug, Default)]
pub struct Trimmed {
    at_us: i64,
    before: BTreeMap<u32, u64>,
    oldest: Option<Version>,
    failed: Option<String>,
}

impl Trimmed {
    /// For operators.
    pub fn status(&self) -> serde_json::Value {
        let before: BTreeMap<_, _> = self
            .before
            .iter()
            .map(|(partition, offset)| (partition.to_string(), offset.to_string()))
            .collect();
        json!({
            "at_us": self.at_us.to_string(),
            "before": before,
            "oldest_version": self.oldest,
            "failed": self.failed,
        })
    }
}

/// Trims the log of a corpus once.
pub async fn trim(feed: &Feed, cuts: Result<Vec<Arc<Cut>>>) {
    let done = async {
        let cuts = cuts?;
        let before = bounds(&cuts, &feed.log.epoch(), &feed.ranges().await?);
        if !before.is_empty() {
            feed.log.trim(before.clone()).await?;
            let ranges = feed.ranges().await?;
            let mut producers = feed.producers.lock();
            (0..).zip(ranges).for_each(|(partition, range)| producers.trimmed(partition, range.first));
        }
        let needs = |cut: &&Arc<Cut>| cut.offsets.values().sum::<u64>();
        Ok((before, cuts.iter().min_by_key(needs).map(|cut| cut.version)))
    };
    let done: Result<_> = done.await;
    let mut trimmed = feed.trimmed.lock();
    trimmed.at_us = feed.around.clock.now_us();
    match done {
        Ok((before, oldest)) => {
            trimmed.before.extend(before);
            (trimmed.oldest, trimmed.failed) = (oldest, None);
        }
        Err(error) => {
            tracing::warn!(corpus = feed.name, %error, "the log is not trimmed; it grows until this is mended");
            trimmed.failed = Some(error.to_string());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(version: u64, log: &str, offsets: &[(u32, u64)]) -> Arc<Cut> {
        let offsets = offsets.iter().copied().collect();
        Arc::new(Cut { version: Version(version), log: log.to_owned(), offsets, schema_id: String::new() })
    }

    #[test]
    fn what_any_version_needs_is_kept() {
        let ranges = [Range { first: 0, end: 10 }, Range { first: 5, end: 10 }];
        let bounds = |cuts: &[Arc<Cut>]| bounds(cuts, "a", &ranges).into_iter().collect::<Vec<_>>();
        let (old, new) = (cut(1, "a", &[(0, 4), (1, 6)]), cut(2, "a", &[(0, 7), (1, 9)]));
        assert_eq!(bounds(&[old.clone(), new.clone()]), [(0, 4), (1, 6)]);
        assert_eq!(bounds(std::slice::from_ref(&new)), [(0, 7), (1, 9)]);
        assert_eq!(bounds(&[]), [], "no versions");
        assert_eq!(bounds(&[new.clone(), cut(3, "", &[])]), [], "one that was built without a cut");
        assert_eq!(bounds(&[new.clone(), cut(3, "b", &[(0, 99), (1, 99)])]), [], "one of another log");
        assert_eq!(bounds(&[cut(3, "a", &[(0, 4)])]), [(0, 4)], "a partition that is not named");
        assert_eq!(
            bounds(&[cut(3, "a", &[(0, 99), (1, 5)])]),
            [(0, 10)],
            "never beyond the end, nor for nothing"
        );
    }
}
