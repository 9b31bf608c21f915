//! The first k by score of a flat query, with the engine skipping what can't be among them.
//!
//! The engine reports candidates with its own score. From it and the bound of its error follow a lowest and a highest
//! canonical score. The k-th best *lowest* so far is the floor: what can't reach it is dropped, and the engine's threshold
//! follows it (minus the bounds of [`Slack`]), across segments. Candidates are scored canonically when the segment ends,
//! or when there are too many of them (all documents alike: then the k best by key hash are kept and the rest
//! forgotten), so memory is bounded by k, never by the number of ties.

use tantivy::{DocId, Score, postings::TermInfo};

use super::{Found, Mask, Piece, page::Page};
use crate::{
    error::{Error, Result},
    query::{
        Leaf, Plan,
        plan::Flat,
        pruned::{Slack, weight},
    },
    rescore::{Rescorer, Single, prior},
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
    /// Per segment, where the postings of each leaf are.
    pub terms: &'a [Vec<Option<TermInfo>>],
}

/// What was found.
pub struct Pruned {
    /// First comes first.
    pub found: Vec<Found>,
    /// Base documents considered.
    pub searched: u64,
    /// Time was up.
    pub stopped: bool,
}

/// Searches all segments of the base; `known` are documents with their final scores, all those before `start` (segment, document)
/// that can matter: the overlay's among them.
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
    for piece in Piece::base(view) {
        let (ord, segment) = (piece.ord as usize, piece.segment);
        if ord < start.0 {
            searched += u64::from(segment.documents());
            continue;
        }
        if !ticker.look() {
            break;
        }
        let from = if ord == start.0 { start.1 } else { 0 };
        let mut run = Run::open(request, piece, from, &mut page)?;
        let walked = weight.for_each_pruning(run.threshold, &segment.reader, &mut |doc, score| {
            run.offer(doc, score, ticker)
        });
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

/// A candidate that waits for its canonical score.
#[derive(Debug, Clone, Copy)]
struct Waiting {
    doc: DocId,
    /// The engine's score.
    score: Score,
    /// Its canonical score is not above this.
    highest: f64,
}

/// One segment's part.
struct Run<'a> {
    request: &'a Request<'a>,
    segment: &'a Segment,
    ord: u32,
    mask: Mask<'a>,
    slack: Slack,
    page: &'a mut Page,
    scorer: Option<Scorer<'a>>,
    /// In document order.
    waiting: Vec<Waiting>,
    limit: usize,
    /// What the engine's scores have to beat.
    threshold: Score,
    /// Documents before it were considered already.
    from: DocId,
    /// Behind the last document the engine reported.
    next: DocId,
    failed: Option<Error>,
}

impl<'a> Run<'a> {
    fn open(request: &'a Request<'a>, piece: Piece<'a>, from: DocId, page: &'a mut Page) -> Result<Self> {
        let Piece { ord, segment, mask, .. } = piece;
        let slack = *request
            .slack
            .get(ord as usize)
            .ok_or_else(|| Error::invalid("view", "a segment has no slack"))?;
        Ok(Self {
            request,
            segment,
            ord,
            mask,
            threshold: slack.threshold(page.floor),
            slack,
            limit: WAITING.max(request.k.saturating_mul(4)),
            page,
            scorer: None,
            waiting: Vec::with_capacity(request.k.min(WAITING) * 4),
            from,
            next: 0,
            failed: None,
        })
    }

    /// A candidate of the engine; the threshold for the next.
    fn offer(&mut self, doc: DocId, score: Score, ticker: &Ticker<'_>) -> Score {
        // The engine did not say how far it skipped; a step is far less than a document.
        let steps = 16 + (doc - self.next.min(doc)) / 16;
        if !ticker.tick(steps) || self.failed.is_some() {
            return Score::INFINITY;
        }
        self.next = doc + 1;
        if doc < self.from || self.mask.hides(doc) {
            return self.threshold;
        }
        let error = self.slack.error(score.into());
        let middle = f64::from(score) + prior(self.segment, doc, self.request.prior_weight);
        let highest = middle + error;
        if highest >= self.page.floor {
            self.waiting.push(Waiting { doc, score, highest });
            let full = self.waiting.len() >= self.limit;
            if self.page.push(middle - error) | full {
                if full {
                    self.shrink();
                }
                self.threshold = self.slack.threshold(self.page.floor);
            }
        }
        self.threshold
    }

    /// Drops candidates that fell below the floor; scores the others when that was not enough.
    fn shrink(&mut self) {
        let floor = self.page.floor;
        self.waiting.retain(|candidate| candidate.highest >= floor);
        if self.waiting.len() * 2 > self.limit
            && let Err(error) = self.settle()
        {
            self.failed = Some(error);
        }
    }

    /// Scores the candidates canonically and keeps the first k.
    fn settle(&mut self) -> Result<()> {
        let floor = self.page.floor;
        self.waiting.retain(|candidate| candidate.highest >= floor);
        if self.waiting.is_empty() {
            return Ok(());
        }
        if self.scorer.is_none() {
            self.scorer = Some(self.open_scorer());
        }
        let docs: Vec<DocId> = self.waiting.iter().map(|candidate| candidate.doc).collect();
        let keys = self.segment.keys(&docs);
        let mut scores = Vec::with_capacity(docs.len());
        match &mut self.scorer {
            Some(Scorer::Postings(rescorer)) => rescorer.score(&docs, &mut scores)?,
            Some(Scorer::Single(single)) => {
                let waiting = self.waiting.iter().map(|candidate| (candidate.doc, candidate.score));
                single.score(waiting, &mut scores)?;
            }
            None => {}
        }
        for ((doc, score), key) in docs.into_iter().zip(scores).zip(keys) {
            let (values, collapse) = (Vec::new(), String::new());
            self.page.kept.push(Found { values, score, key, segment: self.ord, doc, collapse });
        }
        self.waiting.clear();
        self.page.trim();
        Ok(())
    }

    fn open_scorer(&self) -> Scorer<'a> {
        let Request { plan, leaves, prior_weight, terms, .. } = self.request;
        let terms = terms.get(self.ord as usize).map_or(&[][..], Vec::as_slice);
        let rescorer = Rescorer::new(plan, leaves, terms, self.segment, *prior_weight);
        match leaves {
            [leaf] => Scorer::Single(Single::new(plan, leaf, rescorer)),
            _ => Scorer::Postings(rescorer),
        }
    }
}

/// Where canonical scores come from.
enum Scorer<'a> {
    Postings(Rescorer<'a>),
    Single(Single<'a>),
}
