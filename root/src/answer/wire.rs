//! The answer as the public gRPC message: the same values under the same names.

use canopy_proto::v1;
use serde::Serialize;

use super::{Answer, Facet, Hit, Report};

fn text(value: Option<&impl Serialize>) -> String {
    value.and_then(|value| serde_json::to_string(value).ok()).unwrap_or_default()
}

impl From<Answer> for v1::QueryAnswer {
    fn from(answer: Answer) -> Self {
        Self {
            query_id: answer.query_id,
            took_ms: answer.took_ms,
            deadline_ms: answer.deadline_ms as u32,
            hits: answer.hits.into_iter().map(hit).collect(),
            total: Some(v1::AnswerTotal {
                value: answer.total.value,
                relation: answer.total.relation.to_owned(),
                lower_bound: answer.total.lower_bound,
            }),
            facets: answer.facets.into_iter().map(facet).collect(),
            next_cursor: answer.next_cursor.unwrap_or_default(),
            warnings: answer
                .warnings
                .into_iter()
                .map(|warning| v1::AnswerWarning { code: warning.code, message: warning.message })
                .collect(),
            coverage: Some(coverage(answer.coverage)),
            degraded: answer.degraded.into_iter().map(str::to_owned).collect(),
            version: Some(v1::AnswerVersion {
                wanted: answer.version.wanted,
                min: answer.version.min,
                max: answer.version.max,
            }),
            offset: Some(v1::AnswerOffset {
                min_lag_ms: answer.offset.min_lag_ms,
                max_lag_ms: answer.offset.max_lag_ms,
            }),
            tail: Some(v1::AnswerTail {
                attempts: answer.tail.attempts,
                hedges: answer.tail.hedges,
                hedges_won: answer.tail.hedges_won,
                retries: answer.tail.retries,
                budget_denied: answer.tail.budget_denied,
            }),
            trace_json: text(answer.trace.as_ref()),
        }
    }
}

fn hit(hit: Hit) -> v1::AnswerHit {
    v1::AnswerHit {
        score: if hit.score.is_finite() { hit.score } else { 0.0 },
        fields_json: text(Some(&hit.fields)),
        explain_json: text(hit.explain.as_ref()),
        key: hit.key,
        title: hit.title,
        snippet: hit.snippet,
        shard: hit.shard,
        version: hit.version,
        source: hit.source.to_owned(),
    }
}

fn facet((field, facet): (String, Facet)) -> v1::AnswerFacet {
    let values = facet.values.into_iter().map(|value| v1::AnswerFacetValue {
        value: value.value,
        count: value.count,
        error_bound: value.error_bound,
    });
    v1::AnswerFacet { field, values: values.collect(), lower_bound: facet.lower_bound }
}

fn coverage(report: Report) -> v1::AnswerCoverage {
    let (documents, shards) = (report.documents, report.shards);
    let missing = report.missing.into_iter().map(|missing| v1::AnswerMissing {
        shard: missing.shard,
        version: missing.version,
        documents: missing.documents,
        outcome: missing.outcome.to_owned(),
        reason: missing.reason,
    });
    let cut = report.cut.into_iter().map(|cut| v1::AnswerCut { shard: cut.shard, cut: cut.cut.to_owned() });
    v1::AnswerCoverage {
        complete: report.complete,
        documents_total: documents.total,
        documents_searched: documents.searched,
        documents_pruned: documents.pruned,
        documents_overlay: documents.overlay,
        ratio: documents.ratio,
        shards_total: shards.total,
        shards_asked: shards.asked,
        answered: shards.answered,
        timed_out: shards.timed_out,
        failed: shards.failed,
        shed: shards.shed,
        unavailable: shards.unavailable,
        skipped: shards.skipped,
        fetch_wanted: report.fetch.wanted,
        fetch_filled: report.fetch.filled,
        missing: missing.collect(),
        cut: cut.collect(),
        decision: report.decision.to_owned(),
    }
}
