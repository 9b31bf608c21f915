//! The answer put together from all that a query brought. Pure: the same parts give the same page.

use canopy_aggregator::gather::Gathered;
use canopy_common::coverage::Coverage;
use canopy_proto::{convert, v1};

use crate::{
    account,
    answer::{
        Answer, Report, Tail, Total, Warning,
        degraded::{self, Signs},
        hits::Page,
        sums,
    },
    cursors::Cursor,
    request::Wanted,
    search::Asked,
    versions::CorpusState,
};

/// What the page is made from, beside the search and the fetch.
pub struct Sheet<'a> {
    /// The query as it arrived.
    pub asked: &'a Asked,
    /// As it was checked.
    pub wanted: &'a Wanted,
    /// The version it was answered from.
    pub corpus: &'a CorpusState,
    /// As it was sent.
    pub request: &'a v1::SearchRequest,
    /// What was searched.
    pub coverage: &'a Coverage,
    /// An expansion was cut at the root.
    pub truncated: bool,
    /// Snippets were wanted and not made, because of load.
    pub spared: bool,
    /// The query can match nothing, so that no shard was asked.
    pub nothing: bool,
    /// What was odd about the text.
    pub warnings: Vec<Warning>,
}

/// The answer, with its times still to be set.
pub fn assemble(
    sheet: &Sheet<'_>,
    gathered: &Gathered,
    hits: &[v1::Hit],
    documents: &[v1::FetchedDocument],
) -> Answer {
    let (wanted, corpus) = (sheet.wanted, sheet.corpus);
    let shards: Vec<_> = corpus.shards.iter().map(|(shard, _)| shard.clone()).collect();
    let page = Page {
        schema: &corpus.manifest.schema,
        shards: &shards,
        replies: &gathered.shards,
        sort: &wanted.sort,
        hidden: wanted.fields.is_empty().then_some(corpus.manifest.schema.key.as_str()),
        explain: wanted.explain,
    };
    let (shown, fetch) = page.fill(hits, documents);
    let cut = sheet.truncated || sheet.spared;
    let report = Report::of(sheet.coverage, fetch, cut, account::decision(gathered));
    let report = report.beside(sums::overlay(&gathered.shards));
    let signs = Signs {
        gathered,
        coverage: sheet.coverage,
        fetch,
        truncated: sheet.truncated,
        spared: sheet.spared,
        pinned: corpus.manifest.version,
        stale: sums::stale(&sheet.request.wanted_offsets, &gathered.shards),
    };
    // Counting ends with the search: a snippet that failed makes no count smaller.
    let counted = sheet.coverage.complete() && !sheet.truncated;
    let before = wanted.cursor.as_ref().map_or(wanted.offset, |cursor| cursor.position);
    let end = before.saturating_add(hits.len() as u32);
    let seen = if hits.is_empty() { 0 } else { u64::from(end) };
    let replies: &[v1::ShardReply] = if sheet.nothing { &[] } else { &gathered.shards };
    let total = sums::total(wanted.total, replies, seen, counted);
    let tail = &gathered.tail;
    Answer {
        query_id: sheet.asked.query.to_string(),
        took_ms: 0.0,
        deadline_ms: deadline_ms(sheet),
        hits: shown,
        facets: sums::facets(&wanted.facets, replies, counted),
        next_cursor: next_cursor(sheet, hits, end, &total),
        total,
        warnings: sheet.warnings.clone(),
        degraded: degraded::reasons(&signs),
        coverage: report,
        version: sums::versions(corpus.manifest.version.0, &gathered.shards),
        offset: sums::lag(&gathered.shards),
        tail: Tail {
            attempts: tail.attempts,
            hedges: tail.hedges,
            hedges_won: tail.hedges_won,
            retries: tail.retries,
            budget_denied: tail.budget_denied,
        },
        trace: None,
    }
}

fn deadline_ms(sheet: &Sheet<'_>) -> u64 {
    let timeout = sheet.wanted.timeout;
    sheet.asked.limit.map_or(timeout, |limit| limit.min(timeout)).as_millis() as u64
}

/// A full page may have a next one, unless the exact total says that this was the last.
fn next_cursor(sheet: &Sheet<'_>, hits: &[v1::Hit], end: u32, total: &Total) -> Option<String> {
    let last = hits.last().filter(|_| hits.len() == sheet.wanted.k as usize)?;
    if !total.lower_bound && u64::from(end) >= total.value {
        return None;
    }
    let cursor = Cursor {
        version: sheet.corpus.manifest.version,
        fingerprint: sheet.wanted.fingerprint,
        position: end,
        place: convert::sort_key(last),
    };
    Some(cursor.write(&sheet.corpus.manifest.corpus))
}
