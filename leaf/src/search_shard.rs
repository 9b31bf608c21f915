//! One shard's part of a search: request and view in, hits and the shard's account out. Blocking; runs on a search
//! thread. Knows neither the network nor the runtime.
//!
//! Which path: flat unions and intersections of terms, by score, without facets, collapse or cursor, go the pruned way
//! unless an exact total is asked; everything else, and what is so small that the engine's preparations would cost more
//! than the walk, goes the exhaustive way. Both give the same list to the bit.
//! `freshness` says which parts of the overlay are seen; what a newer document replaced stays hidden under any.

use canopy_common::error::Failure;
use canopy_format::schema::Kind;
use canopy_proto::{convert, v1, validate};
use tokio::time::Instant;

use crate::{
    collect::{
        Found, Piece,
        exhaustive::{self, Collected, Wanted},
        facets::Facet,
        sort::Sorting,
    },
    error::{Error, Result},
    query::{Numbers, Plan, compile, fields::value_field},
    stop::{Stop, Ticker},
    view::ShardView,
};

mod path;

use path::{Path, SMALL, Small};

/// Bounded totals count to here.
pub const BOUND: u64 = 1000;
/// Largest weight of the static prior.
pub const MAX_PRIOR_WEIGHT: f32 = 1e6;

/// What a shard answers.
#[derive(Debug, Clone, Default)]
pub struct ShardResult {
    /// In result order, at most the `k` asked.
    pub hits: Vec<v1::Hit>,
    /// The account. `node`, `lease`, `queue_us` and `lag_ms` are for the caller to fill.
    pub reply: v1::ShardReply,
    /// Why the shard failed; bad input is the same for every shard, so it may end the whole call.
    pub failure: Option<Failure>,
}

impl ShardResult {
    /// A shard that failed.
    pub fn failed(shard_index: u32, failure: Failure) -> Self {
        let reply = v1::ShardReply {
            shard: shard_index,
            outcome: v1::Outcome::Failed as i32,
            error_class: failure.class as u32,
            reason: failure.message.clone(),
            ..Default::default()
        };
        Self { hits: Vec::new(), reply, failure: Some(failure) }
    }
}

/// Searches one shard. `shard_index` is the shard's place in `request.shards`. When `stop` fires, what was found so far
/// is the answer, with `CUT_DEADLINE` and the exact number of documents considered.
pub fn search(view: &ShardView, request: &v1::SearchRequest, shard_index: u32, stop: &Stop) -> ShardResult {
    search_by(view, request, shard_index, stop, SMALL)
}

/// [`search`] with the number of postings up to which a flat query is walked; tests force either path with it.
pub(crate) fn search_by(
    view: &ShardView,
    request: &v1::SearchRequest,
    shard_index: u32,
    stop: &Stop,
    small: Small,
) -> ShardResult {
    let started = Instant::now();
    let mut result = answer(view, request, shard_index, stop, small).unwrap_or_else(|error| {
        ShardResult::failed(shard_index, Failure::from(error).with_shard(view.shard.clone()))
    });
    result.reply.version = view.version.0;
    result.reply.search_us = started.elapsed().as_micros() as u64;
    result
}

fn answer(
    view: &ShardView,
    request: &v1::SearchRequest,
    shard_index: u32,
    stop: &Stop,
    small: Small,
) -> Result<ShardResult> {
    let missing = |what: &str| Error::invalid(what, format!("the request has no {what}"));
    let shard = request.shards.get(shard_index as usize).ok_or_else(|| missing("shards"))?;
    if shard.k > validate::MAX_K {
        let message = format!("k is {}; the limit is {}", shard.k, validate::MAX_K);
        return Err(Error::above("k", message, validate::MAX_K.into()));
    }
    let query = request.query.as_ref().ok_or_else(|| missing("query"))?;
    let statistics = request.statistics.as_ref().ok_or_else(|| missing("statistics"))?;
    let plan = compile(&view.base.schema, &Numbers::new(statistics), query)?;
    let wanted = wanted(view, request, shard)?;
    let ticker = Ticker::new(stop);
    let mode = v1::TotalMode::try_from(request.total).unwrap_or_default();
    let done = run(view, &plan, wanted, mode, small, &ticker)?;
    let cut = if done.stopped {
        v1::Cut::Deadline
    } else if Plan::truncated(query) {
        v1::Cut::Expansion
    } else {
        v1::Cut::None
    };
    let base = view.base.segments.len() as u32;
    let offsets = view.offsets.iter().map(|(&partition, &offset)| v1::PartitionOffset { partition, offset });
    let reply = v1::ShardReply {
        shard: shard_index,
        outcome: v1::Outcome::Answered as i32,
        cut: cut as i32,
        offsets: offsets.collect(),
        documents_searched: done.searched,
        documents_overlay: done.overlay,
        stale: view.lag.stale() || !view.reached(&request.wanted_offsets),
        total: done.total,
        total_is_lower_bound: done.at_least,
        facets: done.facets,
        ..Default::default()
    };
    let hits = done.found.into_iter().map(|found| found.into_hit(shard_index, base)).collect();
    Ok(ShardResult { hits, reply, failure: None })
}

fn wanted(view: &ShardView, request: &v1::SearchRequest, shard: &v1::ShardRequest) -> Result<Wanted> {
    let schema = &view.base.schema;
    let prior_weight = request.stages.as_ref().map_or(0.0, |stages| stages.prior_weight);
    if !(0.0..=MAX_PRIOR_WEIGHT).contains(&prior_weight) {
        let message = format!("prior_weight is {prior_weight}; it must be 0 to {MAX_PRIOR_WEIGHT}");
        return Err(Error::above("stages.prior_weight", message, MAX_PRIOR_WEIGHT as u64));
    }
    let sorting = Sorting::new(schema, &request.sort)?;
    let after = shard.after.as_ref().map(|after| sorting.after(after)).transpose()?;
    let mut collapse = None;
    if !request.collapse.is_empty() {
        let field = value_field(schema, &request.collapse)?;
        if !matches!(field.kind, Kind::Keyword | Kind::Map) {
            let message =
                format!("field {:?} is {}; collapse needs a keyword", field.name, field.kind.name());
            return Err(Error::invalid(&field.name, message));
        }
        collapse = Some(field);
    }
    let facets = Facet::read(schema, &request.facets)?;
    let prior_weight = prior_weight.into();
    let (k, freshness) = (shard.k as usize, request.freshness());
    Ok(Wanted { k, prior_weight, sorting, after, collapse, facets, freshness, enough: None })
}

impl Found {
    /// `base`: how many segments the base has.
    fn into_hit(self, shard: u32, base: u32) -> v1::Hit {
        let (key_high, key_low) = self.key.parts();
        v1::Hit {
            shard,
            key_high,
            key_low,
            score: self.score,
            sort: self.values.iter().map(convert::sort_value_to_wire).collect(),
            address: ShardView::pack(self.segment, self.doc),
            overlay: self.segment >= base,
            collapse: self.collapse,
            stage: 0,
        }
    }
}

/// What a shard found.
struct Done {
    found: Vec<Found>,
    total: u64,
    at_least: bool,
    facets: Vec<v1::FacetCounts>,
    searched: u64,
    overlay: u64,
    stopped: bool,
}

fn run(
    view: &ShardView,
    plan: &Plan,
    mut wanted: Wanted,
    mode: v1::TotalMode,
    small: Small,
    ticker: &Ticker<'_>,
) -> Result<Done> {
    let by_score = !wanted.sorting.values && wanted.after.is_none() && wanted.collapse.is_none();
    let flat = if by_score && wanted.facets.is_empty() && wanted.k > 0 { plan.flat() } else { None };
    if let Some((flat, leaves)) = &flat
        && let Some(path) = Path::choose(view, plan, *flat, leaves, &wanted, mode, small)?
    {
        return path.run(view, plan, wanted, mode, ticker);
    }
    if wanted.k == 0 && wanted.facets.is_empty() {
        match mode {
            v1::TotalMode::TotalNone => wanted.enough = Some(0),
            v1::TotalMode::TotalBounded => wanted.enough = Some(BOUND + 1),
            v1::TotalMode::TotalExact => {}
        }
        if wanted.enough == Some(0) {
            let (found, facets) = (Vec::new(), Vec::new());
            let searched = view.documents();
            let overlay = Piece::overlay(view, wanted.freshness).map(|piece| piece.live()).sum();
            return Ok(Done { found, total: 0, at_least: true, facets, searched, overlay, stopped: false });
        }
    }
    let collected = exhaustive::collect(view, plan, &wanted, ticker)?;
    Ok(Done::of(view, collected, mode))
}

impl Done {
    fn of(view: &ShardView, collected: Collected, mode: v1::TotalMode) -> Self {
        let Collected { found, total, facets, searched, overlay, stopped, resume } = collected;
        let exact = !stopped && resume.is_none();
        let (total, at_least) = match mode {
            v1::TotalMode::TotalNone => (0, true),
            v1::TotalMode::TotalExact => (total, !exact),
            v1::TotalMode::TotalBounded => (total.min(BOUND), !exact || total > BOUND),
        };
        // Stopping because enough was counted is not a cut.
        let searched = if resume.is_some() { view.documents() } else { searched };
        Self { found, total, at_least, facets, searched, overlay, stopped }
    }
}

#[cfg(test)]
mod tests;
