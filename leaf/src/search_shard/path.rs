//! Which way a flat query goes, and the pruned way.
//!
//! A bounded total counts to [`BOUND`]. For a union the largest term proves it or the whole is small; an intersection is
//! walked until enough matches were seen, and the engine takes over from there with the page so far. So is a union when
//! its largest term could have all its documents above the bound among the hidden ones.
//!
//! The overlay is walked before the base: its matches are added to the total, and the best of them are the page so far.

use canopy_proto::v1;
use tantivy::postings::TermInfo;

use super::{BOUND, Done};
use crate::{
    collect::{
        exhaustive::{self, Wanted},
        pruned::{self, Request},
    },
    error::Result,
    query::{
        Leaf, Plan,
        plan::Flat,
        pruned::{MAX_CLAUSES, MAX_LEAD, MAX_POSTINGS, Slack},
    },
    stop::Ticker,
    view::ShardView,
};

/// Flat queries of so little work are walked: what the engine prepares for a query costs as much. Measured: a union's
/// postings, and those of an intersection's rarest term for two clauses and for more.
pub(super) const SMALL: Small = Small { union: 64, pair: 512, many: 4096 };

/// See [`SMALL`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Small {
    /// Postings of a union.
    pub union: u64,
    /// Postings of the rarer of two terms.
    pub pair: u64,
    /// Postings of the rarest of several terms.
    pub many: u64,
}

/// The pruned path of a query that is fit for it.
pub(super) struct Path<'a> {
    flat: Flat,
    leaves: &'a [&'a Leaf],
    slack: Vec<Slack>,
    /// Per segment, where the postings of each leaf are.
    terms: Vec<Vec<Option<TermInfo>>>,
    matches: Matches,
}

/// What the postings tell of the base's matches without a walk.
#[derive(Debug, Clone, Copy)]
enum Matches {
    NotAsked,
    Exactly(u64),
    AboveBound,
    /// Nothing: it is walked until enough were seen.
    Unknown,
}

impl<'a> Path<'a> {
    /// `None`: the exhaustive path is the right one.
    pub fn choose(
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
        let sum: u64 = postings.iter().sum();
        let least = postings.iter().copied().min().unwrap_or(0);
        let (work, small, limit) = match (flat, leaves.len()) {
            (Flat::And, 2) => (least, small.pair, MAX_LEAD),
            (Flat::And, 3..) => (least, small.many, MAX_LEAD),
            _ => (sum, small.union, MAX_POSTINGS),
        };
        let hidden = view.tombstones.len();
        if work <= small || work > limit || !counts_allow(flat, &postings, hidden, mode) {
            return Ok(None);
        }
        let most = postings.iter().copied().max().unwrap_or(0);
        let matches = match (mode, leaves.len()) {
            (v1::TotalMode::TotalNone, _) => Matches::NotAsked,
            (v1::TotalMode::TotalExact, _) => Matches::Exactly(sum),
            (v1::TotalMode::TotalBounded, 1) if hidden == 0 => Matches::Exactly(sum),
            (v1::TotalMode::TotalBounded, 2..) if flat == Flat::And => Matches::Unknown,
            (v1::TotalMode::TotalBounded, _) if most.saturating_sub(hidden) > BOUND => Matches::AboveBound,
            (v1::TotalMode::TotalBounded, _) => Matches::Unknown,
        };
        let prior = |max: f64| if wanted.prior_weight > 0.0 { wanted.prior_weight * max } else { 0.0 };
        let mut slack = Vec::with_capacity(view.base.segments.len());
        for segment in &view.base.segments {
            match Slack::of(plan, leaves, segment, prior(segment.max_static_rank)) {
                Some(known) => slack.push(known),
                None => return Ok(None),
            }
        }
        Ok(Some(Self { flat, leaves, slack, terms, matches }))
    }

    pub fn run(
        &self,
        view: &ShardView,
        plan: &Plan,
        mut wanted: Wanted,
        mode: v1::TotalMode,
        ticker: &Ticker<'_>,
    ) -> Result<Done> {
        let mut start = (0, 0);
        let collected = if matches!(self.matches, Matches::Unknown) {
            wanted.enough = Some(BOUND + 1);
            let collected = exhaustive::collect(view, plan, &wanted, ticker)?;
            let Some(resume) = collected.resume else { return Ok(Done::of(view, collected, mode)) };
            start = resume;
            collected
        } else {
            exhaustive::overlay(view, plan, &wanted, ticker)?
        };
        let newer = collected.total;
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
        let done = pruned::collect(view, &request, collected.found, start, ticker)?;
        let (total, more) = match (self.matches, mode) {
            (Matches::NotAsked, _) => (0, true),
            (Matches::Exactly(base), v1::TotalMode::TotalExact) => (base + newer, false),
            (Matches::Exactly(base), _) => ((base + newer).min(BOUND), base + newer > BOUND),
            (Matches::AboveBound | Matches::Unknown, _) => (BOUND, true),
        };
        Ok(Done {
            found: done.found,
            total,
            at_least: more || done.stopped,
            facets: Vec::new(),
            searched: done.searched,
            overlay: collected.overlay,
            stopped: done.stopped,
        })
    }
}

/// Whether the total that is asked for can be had without looking at every match: none; that of one term with nothing
/// hidden; more than the bound, proved by one term of a union; or that of an intersection, or of a union of which some
/// matches may be hidden, which are walked first.
fn counts_allow(flat: Flat, postings: &[u64], hidden: u64, mode: v1::TotalMode) -> bool {
    let one = postings.len() == 1 && hidden == 0;
    let most = postings.iter().copied().max().unwrap_or(0);
    match mode {
        v1::TotalMode::TotalNone => true,
        v1::TotalMode::TotalExact => one,
        v1::TotalMode::TotalBounded => {
            one || (flat == Flat::And && postings.len() > 1)
                || most.saturating_sub(hidden) > BOUND
                || (hidden > 0 && most > BOUND)
        }
    }
}
