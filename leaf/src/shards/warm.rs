//! The query that proves a shard: a word of its own dictionary, scored, and the stored document of its best hit read.
//! It touches every kind of file of the shard. The same query answers "would it answer?" for readiness.
//!
//! Then warming: the version's own queries, and, when another version of the shard is served meanwhile, what the leaf was asked
//! of late, in rounds until the new view answers within `WARM_RATIO` of the old one's median. Results are dropped, and so is a
//! panic: a query of death that somebody asked of late must not keep every version away. Without warming the first people after
//! a swap would wait for the disk.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

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

use tokio::time::Instant;

use super::pace::Pace;
use crate::{
    error::{Error, Result},
    fetch::source,
    search_shard,
    stop::Stop,
    view::ShardView,
};

/// Median of the new view over that of the old one that is warm enough.
const WARM_RATIO: f64 = 1.5;
/// Rounds through the sample at most.
const ROUNDS: u32 = 4;

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

/// Runs a probe, on the base alone: what was deleted since is no damage. Errors: no answer, or none of the documents that must
/// be there.
pub fn check(view: &ShardView, probe: &SearchRequest, stop: &Stop) -> std::result::Result<(), Failure> {
    let view = &ShardView::new(view.shard.clone(), view.version, view.base.clone());
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

/// Warming one view that was opened and has proved itself.
pub struct Warming<'a> {
    /// The view.
    pub view: &'a ShardView,
    /// Its version.
    pub manifest: &'a Manifest,
    /// Its shard.
    pub entry: &'a ShardEntry,
    /// How much of a core may be taken.
    pub pace: &'a Pace,
    /// Ends the work.
    pub stop: &'a Stop,
    /// How a view is asked what this leaf was asked of late.
    pub ask: &'a dyn Fn(&ShardView, &SearchRequest, &Stop),
}

impl Warming<'_> {
    /// Runs the version's warm-up queries; what they find does not matter, that they can be run does.
    pub fn queries(&self) -> Result<()> {
        let manifest = self.manifest;
        let analyzer = Analyzer::new();
        let mut languages: Vec<&str> = manifest.languages.keys().map(String::as_str).take(8).collect();
        if languages.is_empty() {
            languages.push(&manifest.schema.default_language);
        }
        let mut steps = self.pace.steps();
        for text in manifest.warmup.iter().take(MAX_WARMUP) {
            let words = analyzer.query(text, &languages);
            let should: Vec<Query> = words.into_iter().flat_map(|word| word.forms).map(term).collect();
            if should.is_empty() || self.stop.now() {
                continue;
            }
            let query = Query { node: Some(Node::Bool(BoolQuery { should, ..Default::default() })) };
            let asked = request(query, manifest, self.entry);
            let result = search_shard::search(self.view, &asked, 0, self.stop);
            if let Some(failure) = result.failure.filter(|failure| failure.class.retryable()) {
                return Err(damaged(&self.view.shard, &format!("warm-up {text:?}: {failure}")));
            }
            steps.rest();
        }
        Ok(())
    }

    /// Asks the new view what this leaf was asked of late, until it answers about as fast as the one `before`. A version
    /// that is slower by nature is not held back for ever: the rounds and the time have an end.
    pub fn sample(&self, sample: &[SearchRequest], before: &ShardView, goes_on: &dyn Fn() -> bool) {
        let Some(usual) = self.round(sample, before, goes_on) else { return };
        for round in 1..=ROUNDS {
            let Some(time) = self.round(sample, self.view, goes_on) else { return };
            let ratio = time.as_secs_f64() / usual.as_secs_f64().max(1e-6);
            tracing::debug!(shard = %self.view.shard, version = %self.view.version, round, ratio, "warming");
            if ratio <= WARM_RATIO {
                return;
            }
        }
    }

    /// Asks `view` all of the sample; the median time. `None`: nothing was asked.
    fn round(
        &self,
        sample: &[SearchRequest],
        view: &ShardView,
        goes_on: &dyn Fn() -> bool,
    ) -> Option<Duration> {
        let mut steps = self.pace.steps();
        let mut times = Vec::with_capacity(sample.len());
        for asked in sample {
            if self.stop.now() || !goes_on() {
                break;
            }
            let shard = ShardRequest {
                shard: view.shard.to_string(),
                k: 10,
                documents: view.documents(),
                after: None,
            };
            let asked = SearchRequest { version: view.version.0, shards: vec![shard], ..asked.clone() };
            let start = Instant::now();
            let _how_it_ends_does_not_matter =
                catch_unwind(AssertUnwindSafe(|| (self.ask)(view, &asked, self.stop)));
            times.push(start.elapsed());
            steps.rest();
        }
        times.sort_unstable();
        times.get(times.len() / 2).copied()
    }
}
