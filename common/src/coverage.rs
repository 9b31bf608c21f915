//! What an answer covers, exactly. Every asked shard ends in one outcome; coverage is a fold over them and nothing
//! else, at every level, so that a shard can neither be lost nor counted twice.
//!
//! The failure this prevents: engines that report full coverage because nothing was searched, or that count
//! "successful" and "failed" and lose the shard that was neither. Rule: answered + timed_out + failed + shed +
//! unavailable + skipped = shards of the corpus, and searched + pruned + missing = documents of the pinned version.
//! Units: whole documents and whole shards, never percentages.

use crate::{
    error::ErrorClass,
    ids::{ShardId, Version},
};

/// What was cut from the work of a shard that did answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Hash)]
pub enum Cut {
    /// Nothing.
    #[default]
    None,
    /// The deadline came before all documents were seen.
    Deadline,
    /// The time share of the anytime search was used up.
    Anytime,
    /// A term expansion stopped at its limit.
    Expansion,
    /// Fewer hits than asked were kept.
    Hits,
}

impl Cut {
    /// The word in the API.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Deadline => "deadline",
            Self::Anytime => "anytime",
            Self::Expansion => "expansion",
            Self::Hits => "hits",
        }
    }
}

/// How one asked shard ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It answered; counts are documents of the base version.
    Answered {
        /// Documents that were considered.
        searched: u64,
        /// Documents proved unable to enter the page.
        pruned: u64,
        /// What was cut.
        cut: Cut,
    },
    /// No answer before the deadline or before completion fired.
    TimedOut,
    /// An error.
    Failed(ErrorClass),
    /// Refused before work because of load.
    Shed,
    /// No replica could be asked.
    Unavailable,
    /// Not asked on purpose; `pruned` tells that it provably had nothing for the page.
    Skipped {
        /// Proved unable to enter the page.
        pruned: bool,
    },
}

impl Outcome {
    /// The word in the API.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Answered { .. } => "answered",
            Self::TimedOut => "timed_out",
            Self::Failed(_) => "failed",
            Self::Shed => "shed",
            Self::Unavailable => "unavailable",
            Self::Skipped { .. } => "skipped",
        }
    }
}

/// One shard's line in the account.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardOutcome {
    /// The shard.
    pub shard: ShardId,
    /// Version it answered from, or the pinned one.
    pub version: Version,
    /// Documents of the shard in the pinned version, by the manifest.
    pub documents: u64,
    /// How it ended.
    pub outcome: Outcome,
    /// In words, for people; empty when answered.
    pub reason: String,
}

/// Sums over the outcomes of all shards of a corpus.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Coverage {
    /// Documents of the pinned version.
    pub documents_total: u64,
    /// Documents considered.
    pub documents_searched: u64,
    /// Documents proved unable to enter the page.
    pub documents_pruned: u64,
    /// Shards of the corpus.
    pub shards_total: u32,
    /// Shards that were sent the query (all that are not skipped or unavailable).
    pub shards_asked: u32,
    /// Shards by outcome.
    pub answered: u32,
    /// See [`Outcome::TimedOut`].
    pub timed_out: u32,
    /// See [`Outcome::Failed`].
    pub failed: u32,
    /// See [`Outcome::Shed`].
    pub shed: u32,
    /// See [`Outcome::Unavailable`].
    pub unavailable: u32,
    /// See [`Outcome::Skipped`].
    pub skipped: u32,
    /// Answered shards whose work was cut.
    pub cut: Vec<(ShardId, Cut)>,
    /// Every shard that is missing documents, in the order given.
    pub missing: Vec<ShardOutcome>,
}

impl Coverage {
    /// Folds the outcomes of all shards of the corpus. A shard that claims more documents than it has is clamped, so
    /// that a faulty leaf can't make an answer look whole.
    pub fn of(outcomes: impl IntoIterator<Item = ShardOutcome>) -> Self {
        let mut sum = Self::default();
        for line in outcomes {
            sum.add(line);
        }
        sum
    }

    fn add(&mut self, line: ShardOutcome) {
        self.shards_total += 1;
        self.documents_total += line.documents;
        let mut whole = false;
        match line.outcome {
            Outcome::Answered { searched, pruned, cut } => {
                self.answered += 1;
                self.shards_asked += 1;
                let searched = searched.min(line.documents);
                let pruned = pruned.min(line.documents - searched);
                self.documents_searched += searched;
                self.documents_pruned += pruned;
                whole = searched + pruned == line.documents;
                if cut != Cut::None {
                    self.cut.push((line.shard.clone(), cut));
                }
            }
            Outcome::TimedOut => {
                self.timed_out += 1;
                self.shards_asked += 1;
            }
            Outcome::Failed(_) => {
                self.failed += 1;
                self.shards_asked += 1;
            }
            Outcome::Shed => {
                self.shed += 1;
                self.shards_asked += 1;
            }
            Outcome::Unavailable => self.unavailable += 1,
            Outcome::Skipped { pruned } => {
                self.skipped += 1;
                if pruned {
                    self.documents_pruned += line.documents;
                    whole = true;
                }
            }
        }
        // An empty shard that did not answer still has to be named.
        let settled = matches!(line.outcome, Outcome::Answered { .. } | Outcome::Skipped { pruned: true });
        if !(whole && settled) {
            self.missing.push(line);
        }
    }

    /// Documents neither searched nor pruned.
    pub fn documents_missing(&self) -> u64 {
        self.documents_total - self.documents_searched - self.documents_pruned
    }

    /// Nothing is missing and nothing was cut. An answer in which no shard answered is never complete.
    pub fn complete(&self) -> bool {
        self.missing.is_empty()
            && self.cut.is_empty()
            && self.documents_missing() == 0
            && (self.answered > 0 || self.skipped == self.shards_total)
            && self.shards_total > 0
    }

    /// (searched + pruned) / total; 0 of 0 is 1 only when every shard answered.
    pub fn ratio(&self) -> f64 {
        if self.documents_total == 0 {
            return if self.complete() { 1.0 } else { 0.0 };
        }
        (self.documents_searched + self.documents_pruned) as f64 / self.documents_total as f64
    }

    /// Whether the shard counts add up (invariant 1).
    pub fn adds_up(&self) -> bool {
        self.answered + self.timed_out + self.failed + self.shed + self.unavailable + self.skipped
            == self.shards_total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(number: u32, documents: u64, outcome: Outcome) -> ShardOutcome {
        ShardOutcome {
            shard: ShardId::new("main", number),
            version: Version(1),
            documents,
            outcome,
            reason: String::new(),
        }
    }

    #[test]
    fn nothing_searched_is_coverage_zero() {
        let none = Coverage::of((0..4).map(|n| line(n, 10, Outcome::TimedOut)));
        assert_eq!(none.ratio(), 0.0);
        assert!(!none.complete() && none.adds_up());
        assert_eq!(none.missing.len(), 4);
        assert!(!Coverage::default().complete());
    }

    #[test]
    fn a_leaf_that_claims_too_much_is_clamped() {
        let whole = Outcome::Answered { searched: 99, pruned: 99, cut: Cut::None };
        let sum = Coverage::of([line(0, 10, whole)]);
        assert_eq!((sum.documents_searched, sum.documents_pruned), (10, 0));
        assert!(sum.complete());
    }

    #[test]
    fn a_cut_is_never_complete() {
        let cut = Outcome::Answered { searched: 10, pruned: 0, cut: Cut::Expansion };
        assert!(!Coverage::of([line(0, 10, cut)]).complete());
    }

    #[test]
    fn an_empty_shard_that_failed_is_named() {
        let sum = Coverage::of([line(0, 0, Outcome::Failed(ErrorClass::Internal))]);
        assert!(!sum.complete());
        assert_eq!(sum.missing.len(), 1);
        assert_eq!(sum.ratio(), 0.0);
    }

    #[test]
    fn pruned_shards_are_complete() {
        let sum = Coverage::of([
            line(0, 10, Outcome::Answered { searched: 10, pruned: 0, cut: Cut::None }),
            line(1, 90, Outcome::Skipped { pruned: true }),
        ]);
        assert!(sum.complete());
        assert_eq!(sum.ratio(), 1.0);
    }
}
