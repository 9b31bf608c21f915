//! What was searched, and whether that is an answer at all.
//!
//! Rule: the account is kept over the manifest's shards, so that one that nobody holds or that the engine lost is
//! missing, never absent. No answer from any shard is an error with coverage 0: a page of nothing must not look like
//! a corpus without matches.

use canopy_aggregator::gather::{Decision, Gathered};
use canopy_common::{
    coverage::{Coverage, Cut, Outcome, ShardOutcome},
    error::ErrorClass,
    ids::Version,
};
use canopy_proto::{convert, v1};

use crate::{
    answer::{Report, coverage::Fetch, sums},
    error::{Error, Result},
    versions::CorpusState,
};

/// The account of a search over all shards of a version.
pub fn of(corpus: &CorpusState, gathered: &Gathered) -> Coverage {
    let pinned = corpus.manifest.version;
    let lines = corpus.shards.iter().enumerate().map(|(i, (shard, documents))| {
        let lost =
            || (Outcome::Failed(ErrorClass::Internal), pinned, "the engine lost this shard".to_owned());
        let reply = gathered.shards.get(i);
        let (outcome, version, reason) = reply.map_or_else(lost, |reply| {
            let version = if reply.version > 0 { Version(reply.version) } else { pinned };
            (convert::outcome(reply), version, reply.reason.clone())
        });
        let mut line = ShardOutcome { shard: shard.clone(), version, documents: *documents, outcome, reason };
        if line.reason.is_empty() {
            line.reason = reason_of(&line.outcome);
        }
        line
    });
    Coverage::of(lines)
}

/// For shards that say nothing themselves.
fn reason_of(outcome: &Outcome) -> String {
    match outcome {
        Outcome::Answered { cut: Cut::None, .. } | Outcome::Skipped { .. } => String::new(),
        Outcome::Answered { cut, .. } => format!("stopped early: {}", cut.as_str()),
        Outcome::TimedOut => "no answer in time".to_owned(),
        Outcome::Failed(class) => class.code().to_lowercase(),
        Outcome::Shed => "refused because of load".to_owned(),
        Outcome::Unavailable => "no replica could be asked".to_owned(),
    }
}

/// The result of a query that can match nothing: no shard need be asked, and all of them are proved to be without a
/// match.
pub fn nothing_to_find(request: &v1::SearchRequest) -> Gathered {
    let skipped = request.shards.iter().enumerate().map(|(i, shard)| v1::ShardReply {
        shard: i as u32,
        outcome: v1::Outcome::Skipped as i32,
        version: request.version,
        documents_pruned: shard.documents.max(1),
        reason: "the query can match nothing".to_owned(),
        ..Default::default()
    });
    Gathered {
        shards: skipped.collect(),
        children: vec![None; request.shards.len()],
        decision: Some(Decision::All),
        ..Gathered::default()
    }
}

/// The word for why waiting ended.
pub fn decision(gathered: &Gathered) -> &'static str {
    gathered.decision.unwrap_or(Decision::Deadline).as_str()
}

/// Refuses what is not an answer: nothing answered, or less than the client asked for.
pub fn judge(coverage: &Coverage, gathered: &Gathered, min_coverage: f64) -> Result<()> {
    let report = || {
        let report = Report::of(coverage, Fetch::default(), false, decision(gathered));
        Box::new(report.beside(sums::overlay(&gathered.shards)))
    };
    let considered = coverage.documents_searched + coverage.documents_pruned;
    let all_cut_at_nothing =
        considered == 0 && coverage.documents_total > 0 && coverage.cut.len() as u32 == coverage.answered;
    if coverage.answered == 0 && coverage.skipped < coverage.shards_total
        || all_cut_at_nothing && coverage.answered > 0
    {
        return Err(Error::NothingAnswered { class: class(coverage), report: report() });
    }
    if coverage.ratio() < min_coverage {
        return Err(Error::UnderCoverage { wanted: min_coverage, report: report() });
    }
    Ok(())
}

/// What to tell when nothing answered: time first, since waiting longer may help; then load; then what failed.
fn class(coverage: &Coverage) -> ErrorClass {
    if coverage.timed_out > 0 || coverage.answered > 0 {
        return ErrorClass::DeadlineExceeded;
    }
    if coverage.shed > 0 {
        return ErrorClass::Overloaded;
    }
    let failed = coverage.missing.iter().find_map(|line| match line.outcome {
        Outcome::Failed(class) => Some(class),
        _ => None,
    });
    match failed {
        _ if coverage.unavailable > 0 => ErrorClass::Unavailable,
        Some(ErrorClass::DeadlineExceeded | ErrorClass::Cancelled) => ErrorClass::DeadlineExceeded,
        // The shards' state, not the client's fault.
        Some(ErrorClass::FailedPrecondition | ErrorClass::NotFound | ErrorClass::Unavailable) | None => {
            ErrorClass::Unavailable
        }
        Some(class) => class,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use canopy_common::ids::ShardId;

    fn coverage(outcomes: &[Outcome]) -> Coverage {
        Coverage::of(outcomes.iter().enumerate().map(|(i, outcome)| ShardOutcome {
            shard: ShardId::new("main", i as u32),
            version: Version(1),
            documents: 10,
            outcome: outcome.clone(),
            reason: String::new(),
        }))
    }

    fn status(outcomes: &[Outcome], min_coverage: f64) -> u16 {
        let judged = judge(&coverage(outcomes), &Gathered::default(), min_coverage);
        judged.map_or_else(|error| error.http_status(), |()| 200)
    }

    #[test]
    fn nothing_answered_is_an_error_with_coverage_zero() {
        let cut = Outcome::Answered { searched: 0, pruned: 0, cut: Cut::Deadline };
        let failed = Outcome::Failed(ErrorClass::Internal);
        assert_eq!(status(&[Outcome::TimedOut, failed.clone()], 0.0), 504);
        assert_eq!(status(&[cut.clone(), cut], 0.0), 504);
        assert_eq!(status(&[Outcome::Shed, Outcome::Unavailable], 0.0), 503);
        assert_eq!(status(&[Outcome::Unavailable], 0.0), 503);
        assert_eq!(status(&[Outcome::Failed(ErrorClass::FailedPrecondition)], 0.0), 503);
        assert_eq!(status(&[failed], 0.0), 500);
        let judged = judge(&coverage(&[Outcome::TimedOut]), &Gathered::default(), 0.0).unwrap_err();
        let report = judged.report().unwrap();
        assert_eq!((report.documents.ratio, report.complete), (0.0, false));
        assert!(judged.to_string().contains("main/0 (timed_out)"), "{judged}");
    }

    #[test]
    fn min_coverage_is_a_floor() {
        let whole = Outcome::Answered { searched: 10, pruned: 0, cut: Cut::None };
        let half = [whole.clone(), Outcome::Failed(ErrorClass::DataLoss)];
        assert_eq!(status(&half, 0.0), 200);
        assert_eq!(status(&half, 0.5), 200);
        assert_eq!(status(&half, 0.51), 503);
        assert_eq!(status(&[whole], 1.0), 200);
    }

    #[test]
    fn a_query_that_can_match_nothing_is_complete() {
        let asked = v1::ShardRequest { documents: 0, ..Default::default() };
        let request = v1::SearchRequest { shards: vec![asked; 2], version: 3, ..Default::default() };
        let gathered = nothing_to_find(&request);
        let lines = gathered.shards.iter().map(convert::outcome).collect::<Vec<_>>();
        let coverage = coverage(&lines);
        assert!(coverage.complete() && judge(&coverage, &gathered, 1.0).is_ok());
    }
}
