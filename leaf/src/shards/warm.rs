//! The query that proves a shard: a word of its own dictionary, scored, and the stored document of its best hit read.
//! It touches every kind of file of the shard. The same query answers "would it answer?" for readiness.

use canopy_common::{error::Failure, ids::ShardId};
use canopy_format::{
    analysis::Analyzer,
    manifest::{MAX_WARMUP, Manifest, ShardEntry},
    schema::SEARCH_FIELD,
};
use canopy_proto::v1::{
    BoolQuery, FieldStatistics, MatchAll, Outcome, Query, SearchRequest, ShardRequest, Statistics, TermQuery,
    TermStatistics, query::Node,
};

use crate::{
    error::{Error, Result},
    fetch::source,
    search_shard,
    stop::Stop,
    view::ShardView,
};

/// Makes the probe of a freshly opened shard: a word that it has, or everything when it has no words.
pub fn probe(view: &ShardView, manifest: &Manifest, entry: &ShardEntry) -> Result<SearchRequest> {
    let query = match first_word(view)? {
        Some(word) => term(word),
        None => Query { node: Some(Node::All(MatchAll {})) },
    };
    Ok(request(query, manifest, entry))
}

fn first_word(view: &ShardView) -> Result<Option<String>> {
    let step = Error::engine("read dictionary");
    for segment in &view.base.segments {
        let Some(text) = segment.text(view.base.schema.search) else { continue };
        let mut terms = text.postings.terms().stream().map_err(step)?;
        return Ok(terms.advance().then(|| String::from_utf8_lossy(terms.key()).into_owned()));
    }
    Ok(None)
}

fn term(word: String) -> Query {
    Query { node: Some(Node::Term(TermQuery { field: SEARCH_FIELD.into(), tokens: vec![word], boost: 1.0 })) }
}

fn request(query: Query, manifest: &Manifest, entry: &ShardEntry) -> SearchRequest {
    let tokens = manifest.statistics.tokens.get(SEARCH_FIELD).copied().unwrap_or(0);
    let mut open = vec![&query];
    let mut terms = Vec::new();
    while let Some(query) = open.pop() {
        match &query.node {
            Some(Node::Bool(b)) => open.extend(&b.should),
            Some(Node::Term(term)) => terms.extend(term.tokens.iter().map(|token| TermStatistics {
                field: SEARCH_FIELD.into(),
                token: token.clone(),
                documents: 1,
            })),
            _ => {}
        }
    }
    SearchRequest {
        corpus: manifest.corpus.clone(),
        version: manifest.version.0,
        statistics: Some(Statistics {
            id: manifest.statistics.id.clone(),
            documents: manifest.statistics.documents,
            fields: vec![FieldStatistics { field: SEARCH_FIELD.into(), tokens }],
            terms,
        }),
        shards: vec![ShardRequest {
            shard: entry.shard.to_string(),
            k: 10,
            documents: entry.documents,
            after: None,
        }],
        query: Some(query),
        ..Default::default()
    }
}

/// Runs a probe. Errors: no answer, or none of the documents that must be there.
pub fn check(view: &ShardView, probe: &SearchRequest, stop: &Stop) -> std::result::Result<(), Failure> {
    let result = search_shard::search(view, probe, 0, stop);
    if let Some(failure) = result.failure {
        return Err(failure);
    }
    let unanswered = |reason: &str| Failure::from(damaged(&view.shard, reason));
    if result.reply.outcome != Outcome::Answered as i32 {
        return Err(unanswered(&format!("a probe was not answered: {}", result.reply.reason)));
    }
    let Some(hit) = result.hits.first() else {
        let cut = result.reply.cut != 0;
        return if view.documents() == 0 || cut { Ok(()) } else { Err(unanswered("a probe found nothing")) };
    };
    let address = view.unpack(hit.address).ok_or_else(|| unanswered("a hit has no document"))?;
    source::read(view, address)?;
    Ok(())
}

fn damaged(shard: &ShardId, reason: &str) -> Error {
    Error::Damaged { shard: shard.clone(), reason: reason.to_owned() }
}

/// Runs the version's warm-up queries; what they find does not matter, that they can be run does.
pub fn run(view: &ShardView, manifest: &Manifest, entry: &ShardEntry, stop: &Stop) -> Result<()> {
    let analyzer = Analyzer::new();
    let mut languages: Vec<&str> = manifest.languages.keys().map(String::as_str).take(8).collect();
    if languages.is_empty() {
        languages.push(&manifest.schema.default_language);
    }
    for text in manifest.warmup.iter().take(MAX_WARMUP) {
        let words = analyzer.query(text, &languages);
        let should: Vec<Query> = words.into_iter().flat_map(|word| word.forms).map(term).collect();
        if should.is_empty() || stop.now() {
            continue;
        }
        let query = Query { node: Some(Node::Bool(BoolQuery { should, ..Default::default() })) };
        let result = search_shard::search(view, &request(query, manifest, entry), 0, stop);
        if let Some(failure) = result.failure.filter(|failure| failure.class.retryable()) {
            return Err(damaged(&view.shard, &format!("warm-up {text:?}: {failure}")));
        }
    }
    Ok(())
}
