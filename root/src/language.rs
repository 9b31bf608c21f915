//! The query language at the root's side: which text, languages, zone and numbers a query is read with. What reads it
//! is pure and in [`crate::query`].
//!
//! A query with patterns walks the dictionary, up to a quarter of its deadline: that happens on a blocking thread, so
//! that it holds up nobody else. So does looking for what a word that no document has may have meant. All others take
//! microseconds and stay where they are.

use std::sync::Arc;

use canopy_common::{
    deadline::Deadline,
    error::{ErrorClass, Failure},
};
use canopy_format::analysis::Analyzer;
use canopy_proto::v1::QueryRequest;

use crate::{
    query::{self, Newer, Parsed, QueryContext, Source, dates, languages, suggest},
    versions::CorpusState,
};

/// What stays the same for all queries of a root.
#[derive(Clone)]
pub struct Reader {
    /// The analysis.
    pub analyzer: Analyzer,
    /// Terms that one pattern may become.
    pub max_expansions: usize,
}

impl Reader {
    /// Reads the request's query against its version.
    pub async fn read(
        &self,
        request: &QueryRequest,
        corpus: &Arc<CorpusState>,
        deadline: Deadline,
        now_us: i64,
    ) -> Result<Parsed, Failure> {
        if request.q.is_empty() && request.query_json.is_empty() && request.filter.is_empty() {
            return Err(Failure::invalid(
                "q",
                "there is nothing to search for; send q, query_json or filter",
            ));
        }
        if !walks_the_dictionary(request) {
            return self.read_here(request, corpus, deadline, now_us);
        }
        let (reader, request, corpus) = (self.clone(), request.clone(), corpus.clone());
        let reading =
            tokio::task::spawn_blocking(move || reader.read_here(&request, &corpus, deadline, now_us));
        // Threads may be taken by others: the deadline holds in their queue, too.
        let read = tokio::time::timeout_at(deadline.instant(), reading).await;
        let read =
            read.map_err(|_| Failure::new(ErrorClass::DeadlineExceeded, "no time left to read the query"))?;
        read.map_err(|_| Failure::new(ErrorClass::Internal, "the query could not be read"))?
    }

    /// Adds what words that no document has may have meant; within a tenth of the time left, or not at all.
    pub async fn suggest(
        &self,
        parsed: &mut Parsed,
        request: &QueryRequest,
        corpus: &Arc<CorpusState>,
        deadline: Deadline,
        now_us: i64,
    ) {
        if !parsed.unknown_word || request.q.is_empty() {
            return;
        }
        let (reader, request, corpus) = (self.clone(), request.clone(), corpus.clone());
        let looking = tokio::task::spawn_blocking(move || {
            let context = reader.context(&request, &corpus, deadline, now_us).ok()?;
            suggest::suggest(&request.q, &context)
        });
        if let Ok(Ok(found)) = tokio::time::timeout(deadline.remaining() / 10, looking).await {
            parsed.warnings.extend(found);
        }
    }

    fn context<'a>(
        &'a self,
        request: &'a QueryRequest,
        corpus: &'a CorpusState,
        deadline: Deadline,
        now_us: i64,
    ) -> Result<QueryContext<'a>, Failure> {
        let manifest = &corpus.manifest;
        Ok(QueryContext {
            schema: &manifest.schema,
            statistics: &corpus.statistics,
            analyzer: &self.analyzer,
            languages: languages::choose(
                &manifest.languages,
                &request.lang,
                &manifest.schema.default_language,
            )?,
            hint: &request.lang,
            corpus_languages: &manifest.languages,
            deadline,
            time_zone: dates::time_zone(&request.tz)?,
            now_us,
            max_expansions: self.max_expansions,
            newer: match manifest.whole || !manifest.log.is_empty() {
                _ if request.freshness == "base" => Newer::None,
                true => Newer::Are,
                false => Newer::May,
            },
        })
    }

    fn read_here(
        &self,
        request: &QueryRequest,
        corpus: &CorpusState,
        deadline: Deadline,
        now_us: i64,
    ) -> Result<Parsed, Failure> {
        let context = self.context(request, corpus, deadline, now_us)?;
        let source = if request.query_json.is_empty() {
            Source::Text(&request.q)
        } else {
            Source::Json(&request.query_json)
        };
        let parsed = query::parse(source, &request.filter, request.min_should_match, &context);
        parsed.map_err(named_as_sent)
    }
}

/// The strict language calls its root `query`; the parameter is `query_json`.
fn named_as_sent(mut failure: Failure) -> Failure {
    if let Some(field) = &failure.field
        && (field == "query" || field.starts_with("query."))
    {
        failure.field = Some(field.replacen("query", "query_json", 1));
    }
    failure
}

fn walks_the_dictionary(request: &QueryRequest) -> bool {
    let json = &request.query_json;
    request.q.contains(['*', '?', '~'])
        || ["prefix", "wildcard", "fuzzy"].iter().any(|kind| json.contains(kind))
}
