//! SIGHUP: the configuration is read again, from the same file and the same assignments. Settings of `[gather]` (hedges, budget,
//! completion, limits of a query), for all corpora and for single ones, and of `[root.query_log]` are policies and take effect
//! with the next query;
//! everything else, and which replica strategy is used, is part of how a process was started and waits for its next start,
//! and is named as such.
//!
//! Every change is a log line with the value before and after, so that the log tells which policy a query ran under. A
//! configuration with problems changes nothing.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
};

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::{config::Loaded, tree::Policies};

/// Sections whose settings take effect at once.
const LIVE: [&str; 2] = ["gather.", "root.query_log."];
/// Keys of them that are read once.
const AT_START: [&str; 1] = ["gather.pick"];
/// The value of a setting that a corpus does not have of its own.
const NOT_SET: &str = "(not set)";

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
    let (old, new) = (old.settings(), new.settings());
    let keys: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let value = |settings: &BTreeMap<String, String>, key| {
        settings.get(key).map_or_else(|| NOT_SET.to_owned(), String::clone)
    };
    let changed = keys.into_iter().filter(|key| old.get(*key) != new.get(*key));
    changed
        .map(|key| {
            let live =
                LIVE.iter().any(|section| key.starts_with(section)) && !AT_START.contains(&key.as_str());
            Change { key: key.clone(), from: value(&old, key), to: value(&new, key), live }
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
    /// Takes the signal over; the process was started with `now`.
    pub fn listen(source: &'a Source, now: Loaded) -> Result<Self> {
        Ok(Self { source, now, hangup: signal(SignalKind::hangup())? })
    }

    /// The next policies that are in order.
    pub async fn next(&mut self) -> Policies {
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
            let policies = Policies::of(&new.config);
            self.now = new;
            return policies;
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
        let text = "[gather]\nhedge = 'off'\npick = 'random'\nreserve = '50ms'\n[leaf]\nthreads = 3\n\
                    [root]\ndegrade = false\n[root.query_log]\nsample = 0.5\n";
        std::fs::write(&source.file, text).unwrap();
        let new = source.read();
        assert!(new.problems.is_empty(), "{:?}", new.problems);
        let told: Vec<(String, bool)> =
            changes(&old, &new).into_iter().map(|change| (change.key, change.live)).collect();
        // What is assigned on the command line stays.
        assert_eq!(
            told,
            [
                ("gather.hedge".into(), true),
                ("gather.pick".into(), false),
                ("leaf.threads".into(), false),
                ("root.degrade".into(), false),
                ("root.query_log.sample".into(), true)
            ]
        );
    }

    #[test]
    fn changes_of_a_corpus_are_named_one_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let source = Source { file: dir.path().join("c.toml"), set: Vec::new() };
        let read = |text: &str| {
            std::fs::write(&source.file, text).unwrap();
            source.read()
        };
        let old = read("[gather.corpora.news]\nhedge = 'off'\nextra_work = 0.2\n");
        let new = read("[gather.corpora.news]\nextra_work = 0.3\n[gather.corpora.web]\nmax_attempts = 2\n");
        let told: Vec<String> = changes(&old, &new)
            .into_iter()
            .map(|change| format!("{} {} {} {}", change.key, change.from, change.to, change.live))
            .collect();
        assert_eq!(
            told,
            [
                "gather.corpora.news.extra_work 0.2 0.3 true",
                "gather.corpora.news.hedge \"off\" (not set) true",
                "gather.corpora.web.max_attempts (not set) 2 true"
            ]
        );
        let wrong = read("[gather.corpora.news]\nhegde = 'off'\n");
        assert_eq!(wrong.problems[0].key, "gather.corpora.news.hegde");
    }
}
