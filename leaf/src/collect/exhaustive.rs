//! Looks at every match of a plan: counts it, and keeps the first k in the order asked.
//!
//! The walk asks the clock; when it says stop, the document at hand is thrown away (its score may lack a part, an
//! excluded word may not have been looked up) and everything before it stands. Scores are computed only where the
//! order or the hit needs them.

use canopy_common::topk::SortKey;
use canopy_proto::v1;
use tantivy::{DocId, TERMINATED};

use super::{
    Found, Piece,
    facets::{Facet, SegmentCounts, finish},
    keep::Keep,
    sort::Sorting,
};
use crate::{
    error::Result,
    query::{
        Plan,
        fields::ValueField,
        matcher::{self, Batch, Context, Walk},
    },
    rescore::{prior, round},
    stop::Ticker,
    view::ShardView,
};

/// What a request wants of a shard.
pub struct Wanted {
    /// Hits.
    pub k: usize,
    /// The static prior's weight.
    pub prior_weight: f64,
    /// Order.
    pub sorting: Sorting,
    /// Only hits strictly after this place.
    pub after: Option<SortKey>,
    /// At most one hit per value of this field. Applied to what is after the cursor, so that it is the same for any
    /// number of shards.
    pub collapse: Option<ValueField>,
    /// Facets.
    pub facets: Vec<Facet>,
    /// Which parts of the overlay.
    pub freshness: v1::Freshness,
    /// Stop when so many matches were counted; the overlay is walked to its end.
    pub enough: Option<u64>,
}

/// What was found.
#[derive(Default)]
pub struct Collected {
    /// First comes first.
    pub found: Vec<Found>,
    /// Matches.
    pub total: u64,
    /// Facets.
    pub facets: Vec<v1::FacetCounts>,
    /// Base documents considered, hidden ones too.
    pub searched: u64,
    /// Live overlay documents considered.
    pub overlay: u64,
    /// Time was up.
    pub stopped: bool,
    /// Enough matches were counted before the end: (base segment, next document).
    pub resume: Option<(usize, DocId)>,
}

/// Collects from the overlay, then from the base.
pub fn collect(view: &ShardView, plan: &Plan, wanted: &Wanted, ticker: &Ticker<'_>) -> Result<Collected> {
    let mut all = Collected::default();
    let mut counts = walk(Piece::overlay(view, wanted.freshness), plan, wanted, ticker, &mut all)?;
    let enough = wanted.enough.is_some_and(|enough| all.total >= enough);
    if enough && !ticker.stopped() {
        all.resume = Some((0, 0));
    } else {
        counts.extend(walk(Piece::base(view), plan, wanted, ticker, &mut all)?);
    }
    all.end(wanted, counts, ticker)
}

/// Collects from the overlay alone.
pub fn overlay(view: &ShardView, plan: &Plan, wanted: &Wanted, ticker: &Ticker<'_>) -> Result<Collected> {
    let mut all = Collected::default();
    let counts = walk(Piece::overlay(view, wanted.freshness), plan, wanted, ticker, &mut all)?;
    all.end(wanted, counts, ticker)
}

/// Walks some segments; their facet counts.
fn walk<'a>(
    pieces: impl Iterator<Item = Piece<'a>>,
    plan: &Plan,
    wanted: &Wanted,
    ticker: &Ticker<'_>,
    all: &mut Collected,
) -> Result<Vec<SegmentCounts>> {
    let mut counts = Vec::new();
    for piece in pieces {
        if !ticker.look() {
            break;
        }
        let mut run = Run::open(wanted, piece)?;
        run.walk(plan, ticker, all)?;
        all.found.extend(run.keep.found(piece.ord)?);
        counts.push(run.counts);
        if ticker.stopped() || all.resume.is_some() {
            break;
        }
    }
    Ok(counts)
}

impl Collected {
    fn end(mut self, wanted: &Wanted, counts: Vec<SegmentCounts>, ticker: &Ticker<'_>) -> Result<Self> {
        self.stopped = ticker.stopped();
        if counts.len() > 1 {
            merge(&mut self.found, wanted);
        }
        self.facets = finish(&wanted.facets, counts)?;
        Ok(self)
    }
}

/// Brings the lists of several segments together.
fn merge(found: &mut Vec<Found>, wanted: &Wanted) {
    let order = wanted.sorting.order();
    let mut keyed: Vec<(SortKey, Found)> = found.drain(..).map(|hit| (hit.sort_key(), hit)).collect();
    keyed.sort_by(|a, b| order.cmp(&a.0, &b.0));
    let mut seen = std::collections::BTreeSet::new();
    let first = |hit: &Found| hit.collapse.is_empty() || seen.insert(hit.collapse.clone());
    found.extend(keyed.into_iter().map(|(_, hit)| hit).filter(first).take(wanted.k));
}

impl Found {
    /// Where it stands.
    pub fn sort_key(&self) -> SortKey {
        SortKey { stage: 0, values: self.values.clone(), score: self.score, key: self.key }
    }
}

/// One segment's part.
struct Run<'a> {
    wanted: &'a Wanted,
    piece: Piece<'a>,
    counts: SegmentCounts,
    keep: Keep<'a>,
}

impl<'a> Run<'a> {
    fn open(wanted: &'a Wanted, piece: Piece<'a>) -> Result<Self> {
        let counts = SegmentCounts::open(&wanted.facets, piece.segment)?;
        let keep = Keep::open(wanted, piece.segment)?;
        Ok(Self { wanted, piece, counts, keep })
    }

    fn walk(&mut self, plan: &Plan, ticker: &Ticker<'_>, all: &mut Collected) -> Result<()> {
        let Piece { segment, overlay, .. } = self.piece;
        let scoring = self.wanted.k > 0;
        let walk =
            matcher::open(Context::new(plan, segment, ticker, scoring).in_overlay(overlay), &plan.root)?;
        if ticker.stopped() {
            return Ok(());
        }
        let mut considered = 0;
        if let Some(walk) = walk {
            considered = if self.wanted.sorting.by_score() || !scoring {
                self.batches(walk, ticker, all)
            } else {
                self.singles(walk, ticker, all)
            };
        }
        let end = if ticker.stopped() { considered } else { segment.documents() };
        if overlay {
            all.overlay += self.piece.mask.live(end);
        } else if all.resume.is_none() {
            all.searched += u64::from(end);
        }
        Ok(())
    }

    /// Takes the matches in batches with their sums; the end of what was considered. A batch that the ticker cut short
    /// is thrown away whole.
    fn batches(&mut self, mut walk: Walk<'_>, ticker: &Ticker<'_>, all: &mut Collected) -> DocId {
        let Piece { segment, mask, .. } = self.piece;
        let scoring = self.wanted.k > 0;
        let mut batch = Batch::new(scoring);
        let mut considered = 0;
        loop {
            walk.fill(&mut batch);
            if ticker.stopped() || batch.docs().is_empty() {
                return considered;
            }
            for (doc, sum) in batch.iter().filter(|(doc, _)| !mask.hides(*doc)) {
                if scoring {
                    let score = round(sum + prior(segment, doc, self.wanted.prior_weight));
                    if score >= self.keep.least {
                        self.keep.offer(doc, score, &mut || Some(score));
                    }
                }
                if self.count(doc, all) {
                    return considered;
                }
            }
            considered = batch.docs().last().map_or(considered, |doc| doc + 1);
        }
    }

    /// Takes the matches one by one, scoring only those that enter.
    fn singles(&mut self, mut walk: Walk<'_>, ticker: &Ticker<'_>, all: &mut Collected) -> DocId {
        let Piece { segment, mask, .. } = self.piece;
        let prior_weight = self.wanted.prior_weight;
        let mut considered = 0;
        let mut doc = walk.doc();
        while doc != TERMINATED {
            if !mask.hides(doc) {
                self.keep.offer(doc, 0.0, &mut || {
                    let mut sum = 0.0;
                    walk.score(&mut sum);
                    // One that the ticker cut short is scored in part.
                    (!ticker.stopped()).then(|| round(sum + prior(segment, doc, prior_weight)))
                });
                if ticker.stopped() || self.count(doc, all) {
                    break;
                }
            }
            considered = doc + 1;
            doc = walk.advance();
        }
        considered
    }

    /// Counts a match; whether that was enough.
    #[inline]
    fn count(&mut self, doc: DocId, all: &mut Collected) -> bool {
        all.total += 1;
        self.counts.count(doc);
        if !self.piece.overlay && Some(all.total) == self.wanted.enough {
            all.resume = Some((self.piece.ord as usize, doc + 1));
        }
        all.resume.is_some()
    }
}
