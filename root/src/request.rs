//! A request after all checks: bounds, words and names, for HTTP and gRPC alike. Nothing is allocated or computed by a
//! client's numbers before this.
//!
//! Rule: what is out of bounds is refused by field and limit; what needs a part that is not there yet says so, rather
//! than being ignored; a default is never infinite: an absent or zero deadline is the configured one.

use std::time::Duration;

use canopy_common::{
    error::{ErrorClass, Failure},
    ids::{QueryId, Version},
    request::Priority,
};
use canopy_format::{
    schema::{Kind, Schema},
    token::MAX_TOKEN_BYTES,
};
use canopy_proto::v1::{self, QueryRequest};
use xxhash_rust::xxh3::{Xxh3Default, xxh3_64};

use crate::{
    config::{DEFAULT_PROFILE, MAX_TIMEOUT_MS, RootConfig},
    cursors::Cursor,
    error::Error,
    query,
    versions::{Choice, CorpusState},
};

mod modes;
mod offsets;

/// Longest filters, bytes together.
const MAX_FILTER_BYTES: usize = 16 << 10;

/// A checked request.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// Hits on this page.
    pub k: u32,
    /// Hits to pass over.
    pub offset: u32,
    /// Where the last page ended.
    pub cursor: Option<Cursor>,
    /// Of the parameters that decide the order, for the next cursor.
    pub fingerprint: u64,
    /// The deadline.
    pub timeout: Duration,
    /// Class of service.
    pub priority: Priority,
    /// Below this the answer is an error.
    pub min_coverage: f64,
    /// When waiting ends.
    pub completion: v1::Completion,
    /// How to count.
    pub total: v1::TotalMode,
    /// Hedging.
    pub hedge: Option<v1::HedgeMode>,
    /// How fresh.
    pub freshness: v1::Freshness,
    /// What shards have to have read of the log first.
    pub offsets: Vec<v1::PartitionOffset>,
    /// Order.
    pub sort: Vec<v1::SortBy>,
    /// Facets.
    pub facets: Vec<v1::FacetBy>,
    /// Keyword field of which a page shows each value once; empty: none.
    pub collapse: String,
    /// Fields of the answer; empty: none.
    pub fields: Vec<String>,
    /// Whether snippets are made.
    pub snippet: bool,
    /// Stages.
    pub stages: v1::Stages,
    /// Score breakdown.
    pub explain: bool,
    /// Timeline.
    pub trace: bool,
    /// Searches with the same one go to the same replicas while these can; empty: none.
    pub session: String,
}

fn not_enabled(field: &str, message: &str) -> Failure {
    Failure { field: Some(field.to_owned()), ..Failure::new(ErrorClass::FailedPrecondition, message) }
}

fn at_most(field: &str, value: u64, limit: u64) -> Result<(), Failure> {
    if value <= limit {
        return Ok(());
    }
    Err(Failure::invalid(field, format!("{field} is {value}; the limit is {limit}")).with_limit(limit))
}

impl Wanted {
    /// Checks a request against the corpus it names.
    pub fn check(request: &QueryRequest, corpus: &CorpusState, config: &RootConfig) -> Result<Self, Error> {
        lengths(request)?;
        features(request)?;
        let schema = &corpus.manifest.schema;
        let fingerprint = fingerprint(request);
        let (k, offset, cursor) = page(request, corpus, config, fingerprint)?;
        let freshness = modes::freshness(&request.freshness)?;
        let offsets = offsets::wanted(&request.min_offset, freshness, &corpus.manifest)?;
        // A shard that waits on purpose is no straggler.
        let completion = match request.completion.as_str() {
            "" if !offsets.is_empty() => "all",
            asked => asked,
        };
        let wanted = Self {
            k,
            offset,
            cursor,
            fingerprint,
            timeout: timeout(request.timeout_ms, config)?,
            priority: modes::priority(&request.priority)?,
            min_coverage: min_coverage(request.min_coverage)?,
            completion: v1::Completion {
                min_coverage: request.min_coverage,
                ..modes::completion(completion, corpus.shards.len())?
            },
            total: modes::total(&request.total)?,
            hedge: modes::hedge(&request.hedge, config.operator_parameters)?,
            freshness,
            offsets,
            sort: query::sort::parse(&request.sort, schema)?,
            facets: query::facets::parse(&request.facets, config.facet_size, schema)?,
            collapse: query::fields::collapse(&request.collapse, schema)?,
            fields: fields(&request.fields, schema)?,
            snippet: request.snippet.unwrap_or(true),
            stages: stages(&request.profile, config)?,
            explain: request.explain,
            trace: request.trace,
            session: request.session.clone(),
        };
        wanted.check_size(corpus, config)?;
        Ok(wanted)
    }

    /// Bytes that one hit of the answer takes, estimated from the version's average lengths.
    pub fn bytes_per_hit(&self, corpus: &CorpusState, config: &RootConfig) -> u64 {
        let snippet = if self.snippet { 8 * u64::from(config.snippet_chars) } else { 0 };
        let explain = if self.explain { 2048 } else { 0 };
        let fields: u64 = self.fields.iter().map(|field| corpus.average_bytes(field)).sum();
        512 + snippet + explain + fields
    }

    fn check_size(&self, corpus: &CorpusState, config: &RootConfig) -> Result<(), Failure> {
        let each = self.bytes_per_hit(corpus, config);
        let limit = config.max_answer.0;
        if u64::from(self.k) * each <= limit {
            return Ok(());
        }
        let message = format!(
            "{} hits of about {each} bytes exceed the largest answer of {limit} bytes; ask for a smaller k or \
             fewer fields",
            self.k
        );
        Err(Failure::invalid("k", message).with_limit((limit / each).max(1)))
    }
}

fn lengths(request: &QueryRequest) -> Result<(), Failure> {
    let length = |text: &str| text.len() as u64;
    at_most("q", length(&request.q), query::MAX_TEXT_BYTES as u64)?;
    at_most("query_json", length(&request.query_json), query::MAX_JSON_BYTES as u64)?;
    at_most("session", length(&request.session), canopy_proto::validate::MAX_SESSION as u64)?;
    at_most("min_offset", length(&request.min_offset), MAX_TOKEN_BYTES as u64)?;
    at_most("min_should_match", u64::from(request.min_should_match), query::MAX_TERMS as u64)?;
    at_most("filter", request.filter.iter().map(|filter| length(filter)).sum(), MAX_FILTER_BYTES as u64)?;
    if !request.q.is_empty() && !request.query_json.is_empty() {
        return Err(Failure::invalid("query_json", "q and query_json exclude each other; send one of them"));
    }
    Ok(())
}

/// What a later part brings is refused by name, never ignored.
fn features(request: &QueryRequest) -> Result<(), Failure> {
    match request.mode.as_str() {
        "" | "text" => Ok(()),
        "vector" | "hybrid" => {
            Err(not_enabled("mode", "vector search is not enabled here; use mode=text or leave it out"))
        }
        other => Err(modes::unknown("mode", other, "text")),
    }
}

/// What decides the version of a query: the version it names, else the one of its cursor, else a number that is the
/// same for all queries of a session.
pub fn choice(request: &QueryRequest, query: QueryId) -> Result<Choice, Error> {
    if request.version > 0 {
        return Ok(Choice::Named(Version(request.version)));
    }
    // With an offset it is refused, which is said where pages are checked.
    if !request.cursor.is_empty() && request.offset == 0 {
        let cursor = Cursor::read(&request.cursor, &request.corpus, fingerprint(request))?;
        return Ok(Choice::Cursor(cursor.version));
    }
    let by = if request.session.is_empty() { &query.0[..] } else { request.session.as_bytes() };
    Ok(Choice::Pinned(xxh3_64(by)))
}

fn page(
    request: &QueryRequest,
    corpus: &CorpusState,
    config: &RootConfig,
    fingerprint: u64,
) -> Result<(u32, u32, Option<Cursor>), Error> {
    let k = request.k.unwrap_or(10.min(config.max_k));
    at_most("k", u64::from(k), u64::from(config.max_k))?;
    if request.cursor.is_empty() {
        let end = u64::from(request.offset) + u64::from(k);
        if end > u64::from(config.max_offset) {
            let message = format!(
                "offset + k is {end}; the limit is {}; go on from there with the cursor that each answer \
                 gives as next_cursor",
                config.max_offset
            );
            return Err(Failure::invalid("offset", message).with_limit(u64::from(config.max_offset)).into());
        }
        return Ok((k, request.offset, None));
    }
    if request.offset > 0 {
        return Err(
            Failure::invalid("offset", "cursor and offset exclude each other; send one of them").into()
        );
    }
    let cursor = Cursor::read(&request.cursor, &request.corpus, fingerprint)?;
    if cursor.version != corpus.manifest.version {
        return Err(Error::CursorExpired(cursor.version));
    }
    if request.collapse.is_empty() {
        return Ok((k, 0, Some(cursor)));
    }
    // What was collapsed into a hit of an earlier page must not show on this one, so the earlier pages are gathered
    // again and passed over.
    let end = u64::from(cursor.position) + u64::from(k);
    at_most("cursor", end, u64::from(config.max_offset))?;
    Ok((k, cursor.position, Some(cursor)))
}

fn timeout(asked_ms: u32, config: &RootConfig) -> Result<Duration, Failure> {
    at_most("timeout_ms", u64::from(asked_ms), u64::from(MAX_TIMEOUT_MS))?;
    Ok(match asked_ms {
        0 => config.default_timeout.0,
        ms => Duration::from_millis(u64::from(ms)),
    })
}

fn min_coverage(asked: f64) -> Result<f64, Failure> {
    if (0.0..=1.0).contains(&asked) {
        return Ok(asked);
    }
    Err(Failure::invalid("min_coverage", format!("min_coverage is {asked}; it is a share from 0 to 1"))
        .with_limit(1))
}

/// Fields of the answer; when the client names none, all that are shown and short.
fn fields(text: &str, schema: &Schema) -> Result<Vec<String>, Failure> {
    if !text.trim().is_empty() {
        return query::fields::parse(text, schema);
    }
    let short = schema.fields.iter().filter(|field| field.show && field.kind != Kind::Text);
    let names = short.map(|field| field.name.clone()).filter(|name| *name != schema.key);
    Ok(names.take(query::fields::MAX_FIELDS).collect())
}

fn stages(profile: &str, config: &RootConfig) -> Result<v1::Stages, Failure> {
    let name = if profile.is_empty() { DEFAULT_PROFILE } else { profile };
    let Some(found) = config.profiles.get(name) else {
        let known: Vec<&str> = config.profiles.keys().map(String::as_str).collect();
        return Err(modes::unknown("profile", name, &known.join(", ")));
    };
    Ok(v1::Stages { profile: name.to_owned(), prior_weight: found.prior_weight, l1_window: 0, l2_window: 0 })
}

/// Of everything that decides which hits come in which order. Page size, facets and fields may change between pages.
fn fingerprint(request: &QueryRequest) -> u64 {
    let mut hash = Xxh3Default::new();
    let mut add = |text: &str| {
        hash.update(&(text.len() as u64).to_le_bytes());
        hash.update(text.as_bytes());
    };
    // The default in words is the default. A token decides when a page is made, not what follows what.
    let freshness = if request.freshness == "realtime" { "" } else { request.freshness.as_str() };
    add(freshness);
    let parts = [
        &request.q,
        &request.query_json,
        &request.sort,
        &request.collapse,
        &request.profile,
        &request.mode,
        &request.lang,
        &request.tz,
    ];
    parts.into_iter().chain(&request.filter).for_each(|part| add(part));
    add(&request.min_should_match.to_string());
    hash.digest()
}

#[cfg(test)]
mod tests;
