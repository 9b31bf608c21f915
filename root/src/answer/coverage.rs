//! `coverage` of an answer: the account of [`canopy_common::coverage`] with the fetch beside it.
//!
//! The failure this prevents: an answer that names a thousand shards with the same cause, so that nobody can read it,
//! or one that calls itself complete though a stage after the search was cut. Rule: few missing shards are listed one
//! by one; many are grouped by cause, with counts and a sample; the sum of `documents` over `missing` is always what
//! is missing.

use std::collections::BTreeMap;

use canopy_common::coverage::{Coverage, Outcome, ShardOutcome};
use serde::Serialize;

/// Missing or cut shards that are still listed one by one.
const LISTED: usize = 16;
/// Causes that are kept apart; the rest are folded by outcome.
const CAUSES: usize = 24;
/// Longest reason, bytes.
const REASON: usize = 240;

/// What an answer covers.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Everything was searched or proved irrelevant, and no stage was cut.
    pub complete: bool,
    /// Documents of the pinned version.
    pub documents: Documents,
    /// Shards of the corpus by outcome.
    pub shards: Shards,
    /// Phase two.
    pub fetch: Fetch,
    /// Shards whose documents are missing, wholly or in part.
    pub missing: Vec<Missing>,
    /// Shards that answered after cutting their work short.
    pub cut: Vec<CutShards>,
    /// Why waiting ended: `all`, `all_but`, `adaptive`, `deadline` or `budget`.
    pub decision: &'static str,
}

/// Documents of the pinned version: searched + pruned + missing = total.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Documents {
    /// By the manifest.
    pub total: u64,
    /// Considered.
    pub searched: u64,
    /// Proved unable to enter the page.
    pub pruned: u64,
    /// (searched + pruned) / total.
    pub ratio: f64,
    /// Newer than the version, searched beside it; in none of the other numbers.
    pub overlay: u64,
}

/// Shards by outcome; the six outcomes add up to `total`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Shards {
    /// Of the corpus.
    pub total: u32,
    /// That were sent the query.
    pub asked: u32,
    /// Answered, perhaps cut.
    pub answered: u32,
    /// No answer in time.
    pub timed_out: u32,
    /// An error.
    pub failed: u32,
    /// Refused because of load.
    pub shed: u32,
    /// Nobody to ask.
    pub unavailable: u32,
    /// Not asked on purpose.
    pub skipped: u32,
}

/// Documents of the page that phase two delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Fetch {
    /// Hits on the page.
    pub wanted: u32,
    /// Hits with a summary.
    pub filled: u32,
}

/// Shards missing for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Missing {
    /// The shard; a sample when `count` is above 1.
    pub shard: String,
    /// Version asked for, or answered from.
    pub version: u64,
    /// Documents missing, all `count` shards together.
    pub documents: u64,
    /// How it ended.
    pub outcome: &'static str,
    /// In words.
    pub reason: String,
    /// Shards with this cause.
    pub count: u32,
}

/// Shards that cut their work for one cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CutShards {
    /// The shard; a sample when `count` is above 1.
    pub shard: String,
    /// `deadline`, `anytime`, `expansion` or `hits`.
    pub cut: &'static str,
    /// Shards with this cut.
    pub count: u32,
}

impl Report {
    /// The account of one query. `stage_cut`: something after or before the search was cut (expansion, fetch).
    pub fn of(coverage: &Coverage, fetch: Fetch, stage_cut: bool, decision: &'static str) -> Self {
        Self {
            complete: coverage.complete() && !stage_cut && fetch.filled >= fetch.wanted,
            documents: Documents {
                total: coverage.documents_total,
                searched: coverage.documents_searched,
                pruned: coverage.documents_pruned,
                ratio: coverage.ratio(),
                overlay: 0,
            },
            shards: Shards {
                total: coverage.shards_total,
                asked: coverage.shards_asked,
                answered: coverage.answered,
                timed_out: coverage.timed_out,
                failed: coverage.failed,
                shed: coverage.shed,
                unavailable: coverage.unavailable,
                skipped: coverage.skipped,
            },
            fetch,
            missing: missing(&coverage.missing),
            cut: cut(coverage),
            decision,
        }
    }

    /// The same with so many newer documents.
    pub fn beside(mut self, overlay: u64) -> Self {
        self.documents.overlay = overlay;
        self
    }

    /// `searched + pruned` of `total` documents.
    pub fn header(&self) -> String {
        format!("{}/{}", self.documents.searched + self.documents.pruned, self.documents.total)
    }

    /// The most telling cause, in words; empty when nothing is missing.
    pub fn main_cause(&self) -> String {
        let worst = self.missing.iter().max_by_key(|missing| (missing.documents, missing.count));
        worst.map_or_else(String::new, |missing| {
            let reason = if missing.reason.is_empty() { missing.outcome } else { &missing.reason };
            format!("{} ({}): {reason}", missing.shard, missing.outcome)
        })
    }
}

fn documents_missing(line: &ShardOutcome) -> u64 {
    match line.outcome {
        Outcome::Answered { searched, pruned, .. } => {
            line.documents.saturating_sub(searched).saturating_sub(pruned)
        }
        _ => line.documents,
    }
}

fn shortened(reason: &str) -> String {
    let mut end = reason.len().min(REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    if end < reason.len() { format!("{}…", &reason[..end]) } else { reason.to_owned() }
}

fn one(line: &ShardOutcome) -> Missing {
    Missing {
        shard: line.shard.to_string(),
        version: line.version.0,
        documents: documents_missing(line),
        outcome: line.outcome.as_str(),
        reason: shortened(&line.reason),
        count: 1,
    }
}

/// Two reasons that differ only in numbers (shard, port, milliseconds) are one cause.
fn cause(line: &ShardOutcome) -> (&'static str, String) {
    let reason = line.reason.replace(&line.shard.to_string(), "");
    (line.outcome.as_str(), reason.chars().filter(|c| !c.is_ascii_digit()).take(REASON).collect())
}

fn missing(lines: &[ShardOutcome]) -> Vec<Missing> {
    if lines.len() <= LISTED {
        return lines.iter().map(one).collect();
    }
    let mut groups: BTreeMap<(&'static str, String), Missing> = BTreeMap::new();
    for line in lines {
        let add = one(line);
        let mut key = cause(line);
        if !groups.contains_key(&key) && groups.len() >= CAUSES {
            "other causes".clone_into(&mut key.1);
        }
        match groups.get_mut(&key) {
            Some(group) => {
                group.documents += add.documents;
                group.count += 1;
            }
            None => drop(groups.insert(key, add)),
        }
    }
    let mut groups: Vec<Missing> = groups.into_values().collect();
    groups.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.shard.cmp(&b.shard)));
    groups
}

fn cut(coverage: &Coverage) -> Vec<CutShards> {
    let lines = coverage.cut.iter();
    let list = lines.map(|(shard, cut)| CutShards { shard: shard.to_string(), cut: cut.as_str(), count: 1 });
    if coverage.cut.len() <= LISTED {
        return list.collect();
    }
    let mut groups: BTreeMap<&'static str, CutShards> = BTreeMap::new();
    for line in list {
        groups.entry(line.cut).and_modify(|group| group.count += 1).or_insert(line);
    }
    groups.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_common::{
        coverage::Cut,
        error::ErrorClass,
        ids::{ShardId, Version},
    };

    fn line(number: u32, outcome: Outcome, reason: &str) -> ShardOutcome {
        ShardOutcome {
            shard: ShardId::new("main", number),
            version: Version(7),
            documents: 10,
            outcome,
            reason: reason.to_owned(),
        }
    }

    #[test]
    fn a_thousand_shards_with_one_cause_are_one_line() {
        let lines = (0..1000).map(|n| {
            let reason =
                format!("main/{n}: leaf-{} at 10.0.0.{}:7000 refused: {}", n % 8, n % 9, "x".repeat(900));
            line(n, Outcome::Failed(ErrorClass::Internal), &reason)
        });
        let report = Report::of(&Coverage::of(lines), Fetch::default(), false, "all");
        assert_eq!(report.missing.len(), 1);
        let group = &report.missing[0];
        assert_eq!((group.count, group.documents, group.shard.as_str()), (1000, 10_000, "main/0"));
        assert!(serde_json::to_vec(&report).unwrap().len() < 2048);
    }

    #[test]
    fn however_many_causes_the_body_stays_small_and_the_sum_right() {
        let words =
            |n: u32| -> String { (0..60).map(|i| char::from(b'a' + ((n >> (i % 12)) & 7) as u8)).collect() };
        let outcomes =
            [Outcome::TimedOut, Outcome::Shed, Outcome::Unavailable, Outcome::Failed(ErrorClass::DataLoss)];
        let lines =
            (0..4096).map(|n| line(n, outcomes[n as usize % 4].clone(), &(words(n) + &"é".repeat(600))));
        let report = Report::of(&Coverage::of(lines), Fetch::default(), false, "deadline");
        assert!(serde_json::to_vec(&report).unwrap().len() < 16 << 10);
        assert_eq!(report.missing.iter().map(|m| m.documents).sum::<u64>(), 40_960);
        assert_eq!(report.missing.iter().map(|m| m.count).sum::<u32>(), 4096);
    }

    #[test]
    fn a_cut_shard_misses_only_what_it_did_not_see() {
        let cut = Outcome::Answered { searched: 4, pruned: 1, cut: Cut::Deadline };
        let report = Report::of(&Coverage::of([line(3, cut, "")]), Fetch::default(), false, "all");
        assert_eq!((report.missing[0].documents, report.missing[0].outcome), (5, "answered"));
        assert_eq!(report.cut, [CutShards { shard: "main/3".into(), cut: "deadline", count: 1 }]);
        assert_eq!(report.header(), "5/10");
        assert!(!report.complete);
        let newer = report.clone().beside(7);
        assert_eq!((newer.header(), newer.documents.overlay), ("5/10".to_owned(), 7));
        assert_eq!(newer.documents.ratio, report.documents.ratio);
    }

    #[test]
    fn a_fetch_or_stage_that_was_cut_is_not_complete() {
        let whole =
            || Coverage::of([line(0, Outcome::Answered { searched: 10, pruned: 0, cut: Cut::None }, "")]);
        let full = Fetch { wanted: 2, filled: 2 };
        assert!(Report::of(&whole(), full, false, "all").complete);
        assert!(!Report::of(&whole(), Fetch { wanted: 2, filled: 1 }, false, "all").complete);
        assert!(!Report::of(&whole(), full, true, "all").complete);
    }
}
