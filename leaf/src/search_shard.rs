//! One shard's part of a search: request and view in, hits and the shard's account out. Blocking; runs on a search
//! thread. Knows neither the network nor the runtime.
//!
//! Which path: flat unions and intersections of terms, by score, without facets, collapse or cursor, go the pruned way
//! unless an exact total is asked; everything else, and what is so small that the engine's preparations would cost more
//! than the walk, goes the exhaustive way. Both give the same list to the bit.
//!
//! A bounded total counts to [`BOUND`]. For a union the largest term proves it or the whole is small; an intersection is
//! walked until enough matches were seen, and the engine takes over from there with the page so far.

use canopy_common::error::Failure;
use canopy_format::schema::Kind;
use canopy_proto::{convert, v1, validate};
use tantivy::postings::TermInfo;
use tokio::time::Instant;

use crate::{
    collect::{
        Found,
        exhaustive::{self, Collected, Wanted},
        facets::Facet,
        pruned::{self, Request},
        sort::Sorting,
    },
    error::{Error, Result},
    query::{
        Leaf, Numbers, Plan, compile,
        fields::value_field,
        plan::Flat,
        pruned::{MAX_CLAUSES, MAX_LEAD, MAX_POSTINGS, Slack},
    },
    stop::{Stop, Ticker},
    view::ShardView,
};

/// Bounded totals count to here.
pub const BOUND: u64 = 1000;
/// Largest weight of the static prior.
pub const MAX_PRIOR_WEIGHT: f32 = 1e6;
/// Flat queries of so little work are walked: what the engine prepares for a query costs as much. Measured: a union's
/// postings, and those of an intersection's rarest term for two clauses and for more.
const SMALL: Small = Small { union: 64, pair: 512, many: 4096 };

/// See [`SMALL`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Small {
    union: u64,
    pair: u64,
    many: u64,
}

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
    let offsets = view.offsets.iter().map(|(&partition, &offset)| v1::PartitionOffset { partition, offset });
    let reply = v1::ShardReply {
        shard: shard_index,
        outcome: v1::Outcome::Answered as i32,
        cut: cut as i32,
        offsets: offsets.collect(),
        documents_searched: done.searched,
        total: done.total,
        total_is_lower_bound: done.at_least,
        facets: done.facets,
        ..Default::default()
    };
    let hits = done.found.into_iter().map(|found| found.into_hit(shard_index)).collect();
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
    Ok(Wanted { k: shard.k as usize, prior_weight, sorting, after, collapse, facets, enough: None })
}

impl Found {
    fn into_hit(self, shard: u32) -> v1::Hit {
        let (key_high, key_low) = self.key.parts();
        v1::Hit {
            shard,
            key_high,
            key_low,
            score: self.score,
            sort: self.values.iter().map(convert::sort_value_to_wire).collect(),
            address: ShardView::pack(self.segment, self.doc),
            overlay: false,
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
            return Ok(Done { found, total: 0, at_least: true, facets, searched, stopped: false });
        }
    }
    let collected = exhaustive::collect(view, plan, &wanted, ticker)?;
    Ok(Done::of(view, collected, mode))
}

impl Done {
    fn of(view: &ShardView, collected: Collected, mode: v1::TotalMode) -> Self {
        let Collected { found, total, facets, searched, stopped, resume } = collected;
        let exact = !stopped && resume.is_none();
        let (total, at_least) = match mode {
            v1::TotalMode::TotalNone => (0, true),
            v1::TotalMode::TotalExact => (total, !exact),
            v1::TotalMode::TotalBounded => (total.min(BOUND), !exact || total > BOUND),
        };
        // Stopping because enough was counted is not a cut.
        let searched = if resume.is_some() { view.documents() } else { searched };
        Self { found, total, at_least, facets, searched, stopped }
    }
}

/// The pruned path of a query that is fit for it.
struct Path<'a> {
    flat: Flat,
    leaves: &'a [&'a Leaf],
    slack: Vec<Slack>,
    /// Per segment, where the postings of each leaf are.
    terms: Vec<Vec<Option<TermInfo>>>,
    /// Matches, where the postings tell without a walk: (value, more than that).
    total: Option<(u64, bool)>,
}

impl<'a> Path<'a> {
    /// `None`: the exhaustive path is the right one.
    fn choose(
        view: &ShardView,
        plan: &Plan,
        flat: Flat,
        leaves: &'a [&'a Leaf],
        wanted: &Wanted,
        mode: v1::TotalMode,
        small: Small,
    ) -> Result<Option<Self>> {
        if leaves.len() > MAX_CLAUSES {
            return Ok(None);
        }
        let mut terms = Vec::with_capacity(view.base.segments.len());
        let mut postings = vec![0_u64; leaves.len()];
        for segment in &view.base.segments {
            let found = leaves.iter().map(|leaf| segment.term(&leaf.term)).collect::<Result<Vec<_>>>()?;
            for (sum, term) in postings.iter_mut().zip(&found) {
                *sum += term.as_ref().map_or(0, |term| u64::from(term.doc_freq));
            }
            terms.push(found);
        }
        let (least, most) = postings.iter().fold((u64::MAX, 0), |(a, b), n| (a.min(*n), b.max(*n)));
        let sum: u64 = postings.iter().sum();
        let (work, limit) = if flat == Flat::And { (least, MAX_LEAD) } else { (sum, MAX_POSTINGS) };
        let small = match (flat, leaves.len()) {
            (Flat::And, 2) => small.pair,
            (Flat::And, 3..) => small.many,
            _ => small.union,
        };
        if work <= small || work > limit {
            return Ok(None);
        }
        let total = match (mode, flat, leaves.len()) {
            (v1::TotalMode::TotalNone, _, _) => Some((0, true)),
            (v1::TotalMode::TotalExact, _, 1) if view.tombstones.is_empty() => Some((sum, false)),
            (v1::TotalMode::TotalExact, _, _) => return Ok(None),
            (v1::TotalMode::TotalBounded, Flat::And, 2..) => None,
            (v1::TotalMode::TotalBounded, _, _) => {
                if most.saturating_sub(view.tombstones.len()) <= BOUND {
                    return Ok(None);
                }
                Some((BOUND, true))
            }
        };
        let prior = |max: f64| if wanted.prior_weight > 0.0 { wanted.prior_weight * max } else { 0.0 };
        let mut slack = Vec::with_capacity(view.base.segments.len());
        for segment in &view.base.segments {
            match Slack::of(plan, leaves, segment, prior(segment.max_static_rank)) {
                Some(known) => slack.push(known),
                None => return Ok(None),
            }
        }
        Ok(Some(Self { flat, leaves, slack, terms, total }))
    }

    fn run(
        &self,
        view: &ShardView,
        plan: &Plan,
        mut wanted: Wanted,
        mode: v1::TotalMode,
        ticker: &Ticker<'_>,
    ) -> Result<Done> {
        let (mut known, mut start) = (Vec::new(), (0, 0));
        let mut total = self.total;
        if total.is_none() {
            wanted.enough = Some(BOUND + 1);
            let collected = exhaustive::collect(view, plan, &wanted, ticker)?;
            let Some(resume) = collected.resume else { return Ok(Done::of(view, collected, mode)) };
            (known, start) = (collected.found, resume);
            total = Some((BOUND, true));
        }
        let Wanted { k, prior_weight, .. } = wanted;
        let request = Request {
            plan,
            flat: self.flat,
            leaves: self.leaves,
            k,
            prior_weight,
            slack: &self.slack,
            terms: &self.terms,
        };
        let done = pruned::collect(view, &request, known, start, ticker)?;
        let (total, at_least) = total.unwrap_or((0, true));
        let facets = Vec::new();
        Ok(Done {
            found: done.found,
            total,
            at_least,
            facets,
            searched: done.searched,
            stopped: done.stopped,
        })
    }
}

#[cfg(test)]
mod tests;
