//! What was cut, in the contract's words.
//!
//! The failure this prevents: a stage hits its own limit while every shard has replied, and the answer still calls
//! itself whole. Rule: the list is empty exactly when nothing was cut; each word has one cause, so that a client can
//! act on it:
//!
//! | word | cause |
//! |---|---|
//! | `partial` | documents of some shard are missing, or it kept fewer hits than asked |
//! | `snippets_skipped` | phase two left hits without a summary, or made no snippets because of load |
//! | `stale` | a shard lacks newer documents: its log was lost, or the wanted offsets were not reached in time |
//! | `version_skew` | a shard answered from another version than the pinned one |
//! | `soft_timeout` | a shard stopped at its time share, or waiting for stragglers ended before the deadline |
//! | `expansion_truncated` | a prefix, wildcard or fuzzy word stands for more terms than were searched |
//! | `panic` | every replica of a branch was ejected and the least bad one was tried |

use canopy_aggregator::gather::{Decision, Gathered};
use canopy_common::{
    coverage::{Coverage, Cut, Outcome},
    ids::Version,
};

use super::coverage::Fetch;

/// What the words are decided from.
#[derive(Clone, Copy)]
pub struct Signs<'a> {
    /// The search.
    pub gathered: &'a Gathered,
    /// Its account.
    pub coverage: &'a Coverage,
    /// Phase two.
    pub fetch: Fetch,
    /// An expansion at the root was cut.
    pub truncated: bool,
    /// No snippets were made, because of load.
    pub spared: bool,
    /// The pinned version.
    pub pinned: Version,
    /// A shard lacks newer documents that it should have.
    pub stale: bool,
}

/// The words, in the contract's order.
pub fn reasons(signs: &Signs<'_>) -> Vec<&'static str> {
    let coverage = signs.coverage;
    let cut = |wanted: &[Cut]| coverage.cut.iter().any(|(_, cut)| wanted.contains(cut));
    let left_behind = coverage.missing.iter().any(|line| line.outcome == Outcome::TimedOut);
    let stopped_early =
        matches!(signs.gathered.decision, Some(Decision::Adaptive | Decision::AllBut)) && left_behind;
    let skew = signs.gathered.shards.iter().any(|reply| {
        reply.outcome == canopy_proto::v1::Outcome::Answered as i32 && reply.version != signs.pinned.0
    });
    let all = [
        ("partial", !coverage.missing.is_empty() || cut(&[Cut::Hits])),
        ("snippets_skipped", signs.spared || signs.fetch.filled < signs.fetch.wanted),
        ("stale", signs.stale),
        ("version_skew", skew),
        ("soft_timeout", cut(&[Cut::Deadline, Cut::Anytime]) || stopped_early),
        ("expansion_truncated", signs.truncated || cut(&[Cut::Expansion])),
        ("panic", signs.gathered.panic),
    ];
    all.into_iter().filter(|(_, holds)| *holds).map(|(word, _)| word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_common::{coverage::ShardOutcome, ids::ShardId};
    use canopy_proto::v1;

    fn coverage(outcome: Outcome) -> Coverage {
        let shard = ShardId::new("main", 0);
        Coverage::of([ShardOutcome {
            shard,
            version: Version(3),
            documents: 10,
            outcome,
            reason: String::new(),
        }])
    }

    fn signs<'a>(gathered: &'a Gathered, coverage: &'a Coverage) -> Signs<'a> {
        let fetch = Fetch { wanted: 1, filled: 1 };
        let pinned = Version(3);
        Signs { gathered, coverage, fetch, truncated: false, spared: false, pinned, stale: false }
    }

    fn words(outcome: Outcome, gathered: &Gathered, fetch: Fetch, truncated: bool) -> Vec<&'static str> {
        let coverage = coverage(outcome);
        reasons(&Signs { fetch, truncated, ..signs(gathered, &coverage) })
    }

    #[test]
    fn each_cut_has_its_word_and_a_whole_answer_has_none() {
        let (none, full) = (Gathered::default(), Fetch { wanted: 1, filled: 1 });
        let answered = |searched, cut| Outcome::Answered { searched, pruned: 0, cut };
        assert!(words(answered(10, Cut::None), &none, full, false).is_empty());
        assert_eq!(words(answered(4, Cut::Deadline), &none, full, false), ["partial", "soft_timeout"]);
        assert_eq!(words(answered(10, Cut::Anytime), &none, full, false), ["soft_timeout"]);
        assert_eq!(words(answered(10, Cut::Hits), &none, full, false), ["partial"]);
        assert_eq!(words(answered(10, Cut::Expansion), &none, full, false), ["expansion_truncated"]);
        assert_eq!(words(answered(10, Cut::None), &none, full, true), ["expansion_truncated"]);
        assert_eq!(words(Outcome::TimedOut, &none, full, false), ["partial"]);
        let empty = Fetch { wanted: 3, filled: 2 };
        assert_eq!(words(answered(10, Cut::None), &none, empty, false), ["snippets_skipped"]);
    }

    #[test]
    fn snippets_that_were_spared_are_told() {
        let coverage = coverage(Outcome::Answered { searched: 10, pruned: 0, cut: Cut::None });
        let gathered = Gathered::default();
        let signs = Signs { spared: true, ..signs(&gathered, &coverage) };
        assert_eq!(reasons(&signs), ["snippets_skipped"]);
    }

    #[test]
    fn what_lacks_newer_documents_is_stale_and_whole_all_the_same() {
        let coverage = coverage(Outcome::Answered { searched: 10, pruned: 0, cut: Cut::None });
        let gathered = Gathered::default();
        let signs = Signs { stale: true, ..signs(&gathered, &coverage) };
        assert_eq!(reasons(&signs), ["stale"]);
        assert!(coverage.complete());
    }

    #[test]
    fn leaving_stragglers_behind_is_a_soft_timeout() {
        let adaptive = Gathered { decision: Some(Decision::Adaptive), ..Gathered::default() };
        assert_eq!(words(Outcome::TimedOut, &adaptive, Fetch::default(), false), ["partial", "soft_timeout"]);
        let skipped = Outcome::Skipped { pruned: true };
        assert!(words(skipped, &adaptive, Fetch::default(), false).is_empty());
    }

    #[test]
    fn another_version_and_panic_are_told() {
        let reply =
            v1::ShardReply { outcome: v1::Outcome::Answered as i32, version: 4, ..Default::default() };
        let gathered = Gathered { shards: vec![reply], panic: true, ..Gathered::default() };
        let whole = Outcome::Answered { searched: 10, pruned: 0, cut: Cut::None };
        assert_eq!(words(whole, &gathered, Fetch::default(), false), ["version_skew", "panic"]);
    }
}
