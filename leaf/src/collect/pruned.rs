//! The first k by score of a flat query, with the engine skipping what can't be among them.
//!
//! The engine reports candidates with its own score. From it and the bound of its error follow a lowest and a highest
//! canonical score. The k-th best *lowest* so far is the floor: what can't reach it is dropped, and the engine's threshold
//! follows it (minus the bounds of [`Slack`]), across segments. Candidates are scored canonically when the segment ends,
//! or when there are too many of them (all documents alike: then the k best by key hash are kept and the rest
//! forgotten), so memory is bounded by k, never by the number of ties.

use std::{cmp::Reverse, collections::BinaryHeap};

use canopy_common::ids::KeyHash;
use tantivy::{DocId, Score};

use super::{Found, Mask};
use crate::{
    error::{Error, Result},
    query::{
        Leaf, Plan,
        plan::Flat,
        pruned::{Slack, weight},
    },
    rescore::{Rescorer, prior},
    stop::Ticker,
    view::{Segment, ShardView},
};

/// Candidates that wait for their canonical score: at least this many, and 4 k.
const WAITING: usize = 1024;

/// A flat query and what is wanted of it.
pub struct Request<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// How the leaves combine.
    pub flat: Flat,
    /// The leaves in scoring order.
    pub leaves: &'a [&'a Leaf],
    /// Hits; at least 1.
    pub k: usize,
    /// The static prior's weight.
    pub prior_weight: f64,
    /// One per segment.
    pub slack: &'a [Slack],
}

/// What was found.
pub struct Pruned {
    /// First comes first.
    pub found: Vec<Found>,
    /// Documents considered.
    pub searched: u64,
    /// Time was up.
    pub stopped: bool,
}

/// Searches all segments; `known` are documents with their final scores, all those before `start` (segment, document)
/// that can matter.
pub fn collect(
    view: &ShardView,
    request: &Request<'_>,
    known: Vec<Found>,
    start: (usize, DocId),
    ticker: &Ticker<'_>,
) -> Result<Pruned> {
    let weight = weight(&view.base.searcher, request.plan, request.flat, request.leaves)?;
    let mut page = Page::new(request.k, known);
    let mut searched = 0;
    for (ord, segment) in view.base.segments.iter().enumerate() {
        if ord < start.0 {
            searched += u64::from(segment.documents());
            continue;
        }
        if !ticker.look() {
            break;
        }
        let from = if ord == start.0 { start.1 } else { 0 };
        let mut run = Run::open(view, request, segment, ord, from, &mut page)?;
        let threshold = run.threshold();
        let walked = weight
            .for_each_pruning(threshold, &segment.reader, &mut |doc, score| run.offer(doc, score, ticker));
        walked.map_err(Error::engine("search"))?;
        run.settle()?;
        if let Some(error) = run.failed {
            return Err(error);
        }
        searched += u64::from(if ticker.stopped() { run.next.max(from) } else { segment.documents() });
        if ticker.stopped() {
            break;
        }
    }
    Ok(Pruned { found: page.kept, searched, stopped: ticker.stopped() })
}

/// The page so far, over all segments.
struct Page {
    k: usize,
    /// Scored canonically; sorted, at most k after each settling.
    kept: Vec<Found>,
    /// The k best lowest scores.
    lowest: BinaryHeap<Reverse<Lowest>>,
}

/// A score that has an order; never NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Lowest(f64);
impl Eq for Lowest {}
impl PartialOrd for Lowest {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Lowest {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

impl Page {
    fn new(k: usize, known: Vec<Found>) -> Self {
        let mut page = Self { k: k.max(1), kept: known, lowest: BinaryHeap::new() };
        page.trim();
        page
    }

    fn floor(&self) -> f64 {
        if self.lowest.len() < self.k {
            f64::NEG_INFINITY
        } else {
            self.lowest.peek().map_or(0.0, |low| low.0.0)
        }
    }

    fn push(&mut self, lowest: f64) {
        if self.lowest.len() < self.k {
            self.lowest.push(Reverse(Lowest(lowest)));
        } else if let Some(mut last) = self.lowest.peek_mut()
            && lowest > last.0.0
        {
            *last = Reverse(Lowest(lowest));
        }
    }

    /// Keeps the first k of what is scored, and takes the floor from them.
    fn trim(&mut self) {
        let place = |hit: &Found| (Reverse(Lowest(hit.score.into())), hit.key);
        self.kept.sort_unstable_by(|a, b| place(a).cmp(&place(b)));
        self.kept.truncate(self.k);
        self.lowest.clear();
        self.lowest.extend(self.kept.iter().map(|hit| Reverse(Lowest(hit.score.into()))));
    }
}

/// One segment's part.
struct Run<'a> {
    request: &'a Request<'a>,
    segment: &'a Segment,
    ord: u32,
    mask: Mask<'a>,
    slack: Slack,
    page: &'a mut Page,
    rescorer: Option<Rescorer<'a>>,
    /// Candidates with their highest score, in document order.
    waiting: Vec<(DocId, f64)>,
    limit: usize,
    /// Documents before it were considered already.
    from: DocId,
    /// Behind the last document the engine reported.
    next: DocId,
    docs: Vec<DocId>,
    scores: Vec<f32>,
    failed: Option<Error>,
}

impl<'a> Run<'a> {
    fn open(
        view: &'a ShardView,
        request: &'a Request<'a>,
        segment: &'a Segment,
        ord: usize,
        from: DocId,
        page: &'a mut Page,
    ) -> Result<Self> {
        let slack =
            *request.slack.get(ord).ok_or_else(|| Error::invalid("view", "a segment has no slack"))?;
        Ok(Self {
            request,
            segment,
            ord: ord as u32,
            mask: Mask::of(view, segment),
            slack,
            limit: WAITING.max(request.k.saturating_mul(4)),
            page,
            rescorer: None,
            waiting: Vec::new(),
            from,
            next: 0,
            docs: Vec::new(),
            scores: Vec::new(),
            failed: None,
        })
    }

    fn threshold(&self) -> Score {
        self.slack.threshold(self.page.floor())
    }

    /// A candidate of the engine; the threshold for the next.
    fn offer(&mut self, doc: DocId, score: Score, ticker: &Ticker<'_>) -> Score {
        // The engine did not say how far it skipped; a step is far less than a document.
        let steps = 16 + (doc - self.next.min(doc)) / 16;
        if !ticker.tick(steps) || self.failed.is_some() {
            return Score::INFINITY;
        }
        self.next = doc + 1;
        if doc >= self.from && !self.mask.hides(doc) {
            let score = f64::from(score);
            let error = self.slack.error(score);
            let middle = score + prior(self.segment, doc, self.request.prior_weight);
            if middle + error >= self.page.floor() {
                self.page.push(middle - error);
                self.waiting.push((doc, middle + error));
                if self.waiting.len() >= self.limit {
                    self.shrink();
                }
            }
        }
        self.threshold()
    }

    /// Drops candidates that fell below the floor; scores the others when that was not enough.
    fn shrink(&mut self) {
        let floor = self.page.floor();
        self.waiting.retain(|(_, highest)| *highest >= floor);
        if self.waiting.len() * 2 > self.limit
            && let Err(error) = self.settle()
        {
            self.failed = Some(error);
        }
    }

    /// Scores the candidates canonically and keeps the first k.
    fn settle(&mut self) -> Result<()> {
        let floor = self.page.floor();
        self.docs.clear();
        self.docs.extend(self.waiting.drain(..).filter(|(_, highest)| *highest >= floor).map(|(doc, _)| doc));
        if self.docs.is_empty() {
            return Ok(());
        }
        if self.rescorer.is_none() {
            let Request { plan, leaves, prior_weight, .. } = self.request;
            self.rescorer = Some(Rescorer::open(plan, leaves, self.segment, *prior_weight)?);
        }
        if let Some(rescorer) = &mut self.rescorer {
            rescorer.score(&self.docs, &mut self.scores);
        }
        for (doc, score) in self.docs.iter().zip(&self.scores) {
            let key: KeyHash = self.segment.key(*doc);
            let (values, collapse) = (Vec::new(), String::new());
            self.page.kept.push(Found { values, score: *score, key, segment: self.ord, doc: *doc, collapse });
        }
        self.page.trim();
        Ok(())
    }
}
