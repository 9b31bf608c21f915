//! What is kept of a query after its answer: slow ones with all their times in the ring behind `/debug/slow`, failed
//! and partial ones as one log line per incident.

use canopy_aggregator::gather::attempt::Step;
use canopy_common::error::Classify;
use serde_json::json;

use crate::{
    answer::Answer,
    critical_path,
    error::{Error, Result},
    search::{Asked, Root, Trail},
    timeline,
};

/// Longest query text kept, characters.
const TEXT: usize = 200;
/// Attempts kept, those that ended last first.
const ATTEMPTS: usize = 64;

/// Records one query.
pub fn keep(root: &Root, asked: &Asked, trail: &Trail, result: &Result<Answer>) {
    let took_ms = trail.timeline.took_ms();
    log(root, asked, took_ms, result);
    let refused =
        matches!(result, Err(Error::Refused(_) | Error::UnknownCorpus(_) | Error::CursorExpired(_)));
    if refused || took_ms < root.config.slow_threshold.0.as_secs_f64() * 1000.0 {
        return;
    }
    let (outcome, report, degraded) = match result {
        Ok(answer) => ("answered", Some(&answer.coverage), answer.degraded.clone()),
        Err(error) => (error.code(), error.report(), Vec::new()),
    };
    let corpus = &trail.corpus;
    let shards = corpus.as_ref().map(|corpus| timeline::shards(&corpus.shards, &trail.gathered));
    let mut steps: Vec<&Step> = trail.gathered.steps.iter().collect();
    steps.sort_by_key(|step| std::cmp::Reverse(step.end_us()));
    let steps = steps.into_iter();
    let text = if asked.request.q.is_empty() { &asked.request.query_json } else { &asked.request.q };
    root.slow.push(json!({
        "query_id": asked.query.to_string(),
        "corpus": asked.request.corpus,
        "q": text.chars().take(TEXT).collect::<String>(),
        "k": asked.request.k,
        "version": corpus.as_ref().map(|corpus| corpus.manifest.version),
        "took_ms": took_ms,
        "outcome": outcome,
        "degraded": degraded,
        "coverage": report,
        "phases": trail.timeline.phases(),
        "shards": shards,
        "critical_path": critical_path::of(&trail.timeline, &trail.gathered, (took_ms * 1000.0).round() as u64),
        "attempts": steps.take(ATTEMPTS).map(Step::record).collect::<Vec<_>>(),
    }));
}

fn log(root: &Root, asked: &Asked, took_ms: f64, result: &Result<Answer>) {
    let query = asked.query;
    let corpus = asked.request.corpus.as_str();
    match result {
        Ok(answer) if answer.degraded.is_empty() => tracing::debug!(%query, corpus, took_ms, "answered"),
        Ok(answer) => {
            let Some(unlogged) = root.incidents.due("partial") else { return };
            let covered = answer.coverage_header();
            let cause = answer.coverage.main_cause();
            let degraded = answer.degraded.join(",");
            tracing::warn!(%query, corpus, took_ms, covered, degraded, cause, unlogged, "answered in part");
        }
        Err(error) if error.class().http_status() < 500 && error.http_status() < 500 => {
            tracing::debug!(%query, corpus, took_ms, %error, "refused");
        }
        Err(error) => {
            let Some(unlogged) = root.incidents.due(error.code()) else { return };
            tracing::warn!(%query, corpus, took_ms, code = error.code(), %error, unlogged, "no answer");
        }
    }
}
