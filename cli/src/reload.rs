//! SIGHUP: the configuration is read again, from the same file and the same assignments. Settings of `[gather]` (hedges, budget,
//! completion, limits of a query) are policies and take effect with the next query; everything else, and which replica
//! strategy is used, is part of how a process was started and waits for its next start, and is named as such.
//!
//! Every change is a log line with the value before and after, so that the log tells which policy a query ran under. A
//! configuration with problems changes nothing.

use std::path::PathBuf;

use anyhow::Result;
use canopy_aggregator::config::GatherConfig;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::config::Loaded;

/// Keys of `[gather]` that are read once.
const AT_START: [&str; 1] = ["gather.pick"];

/// Where a configuration comes from.
pub struct Source {
    /// The file.
    pub file: PathBuf,
    /// `--set`.
    pub set: Vec<String>,
}

impl Source {
    /// Reads it.
    pub fn read(&self) -> Loaded {
        Loaded::read(Some(&self.file), &self.set)
    }
}

/// A setting that is not what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Change {
    key: String,
    from: String,
    to: String,
    /// It takes effect now.
    live: bool,
}

fn changes(old: &Loaded, new: &Loaded) -> Vec<Change> {
    let pairs = old.print().into_iter().zip(new.print());
    let changed = pairs.filter(|(old, new)| old.1 != new.1);
    changed
        .map(|((key, from, _), (_, to, _))| {
            let live = key.starts_with("gather.") && !AT_START.contains(&key.as_str());
            Change { key, from, to, live }
        })
        .collect()
}

/// Reads the configuration again at each SIGHUP.
pub struct Reload<'a> {
    source: &'a Source,
    now: Loaded,
    hangup: Signal,
}

impl<'a> Reload<'a> {
    /// Takes the signal over.
    pub fn listen(source: &'a Source) -> Result<Self> {
        Ok(Self { source, now: source.read(), hangup: signal(SignalKind::hangup())? })
    }

    /// The next settings of `[gather]` that are in order.
    pub async fn next(&mut self) -> GatherConfig {
        loop {
            self.hangup.recv().await;
            let new = self.source.read();
            if !new.problems.is_empty() {
                let problems: Vec<String> = new.problems.iter().map(ToString::to_string).collect();
                tracing::error!(problems = problems.join("; "), "the configuration was not reloaded");
                continue;
            }
            let changes = changes(&self.now, &new);
            for Change { key, from, to, live } in &changes {
                if *live {
                    tracing::info!(key, from, to, "setting reloaded");
                } else {
                    tracing::warn!(key, from, to, "setting changed; it takes effect at the next start");
                }
            }
            tracing::info!(changes = changes.len(), "configuration read again");
            let gather = new.config.gather.clone();
            self.now = new;
            return gather;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named_and_told_apart_by_when_they_count() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source { file: dir.path().join("c.toml"), set: vec!["gather.reserve=30ms".into()] };
        std::fs::write(&source.file, "[gather]\nhedge = 'auto'\n").unwrap();
        let old = source.read();
        let text = "[gather]\nhedge = 'off'\npick = 'random'\nreserve = '50ms'\n[leaf]\nthreads = 3\n";
        std::fs::write(&source.file, text).unwrap();
        let new = source.read();
        assert!(new.problems.is_empty(), "{:?}", new.problems);
        let told: Vec<(String, bool)> =
            changes(&old, &new).into_iter().map(|change| (change.key, change.live)).collect();
        // What is assigned on the command line stays.
        assert_eq!(
            told,
            [("gather.hedge".into(), true), ("gather.pick".into(), false), ("leaf.threads".into(), false)]
        );
    }
}
