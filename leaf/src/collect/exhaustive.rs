//! Looks at every match of a plan: counts it, and keeps the first k in the order asked.
//!
//! The walk asks the clock; when it says stop, the document at hand is thrown away (its score may lack a part, an
//! excluded word may not have been looked up) and everything before it stands. Scores are computed only where the
//! order or the hit needs them.

use canopy_common::topk::SortKey;
use canopy_proto::v1;
use tantivy::{DocId, TERMINATED};

use super::{
    Found, Mask,
    facets::{Facet, SegmentCounts, finish},
    grouped::Grouped,
    sort::{SegmentSorting, Sorting},
    top::{Entry, Place, Top},
};
use crate::{
    error::Result,
    query::{
        Plan,
        fields::ValueField,
        matcher::{self, Context, Walk},
    },
    rescore::{prior, round},
    stop::Ticker,
    view::{FieldColumn, Segment, ShardView},
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
    /// Stop when so many matches were counted.
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
    /// Documents considered, hidden ones too.
    pub searched: u64,
    /// Time was up.
    pub stopped: bool,
    /// Enough matches were counted before the end: (segment, next document).
    pub resume: Option<(usize, DocId)>,
}

/// Collects from all segments.
pub fn collect(view: &ShardView, plan: &Plan, wanted: &Wanted, ticker: &Ticker<'_>) -> Result<Collected> {
    let mut all = Collected::default();
    let mut counts = Vec::new();
    for (ord, segment) in view.base.segments.iter().enumerate() {
        if !ticker.look() {
            break;
        }
        let mut run = Run::open(wanted, segment, ord)?;
        run.walk(view, plan, ticker, &mut all)?;
        let (found, counted) = run.found()?;
        all.found.extend(found);
        counts.push(counted);
        if ticker.stopped() || all.resume.is_some() {
            break;
        }
    }
    all.stopped = ticker.stopped();
    all.facets = finish(&wanted.facets, counts)?;
    if view.base.segments.len() > 1 {
        merge(&mut all.found, wanted);
    }
    Ok(all)
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
    segment: &'a Segment,
    ord: usize,
    sorting: SegmentSorting,
    after: Option<(u128, Option<Box<[u128]>>)>,
    groups: Option<FieldColumn>,
    counts: SegmentCounts,
    keep: Keep,
    by_score: bool,
    /// Plain order by score: lower scores can't enter.
    least: f32,
}

enum Keep {
    Nothing,
    Top(Top),
    Grouped(Grouped),
}

impl<'a> Run<'a> {
    fn open(wanted: &'a Wanted, segment: &'a Segment, ord: usize) -> Result<Self> {
        let sorting = wanted.sorting.in_segment(segment)?;
        let after = wanted.after.as_ref().map(|after| sorting.place_of(after)).transpose()?;
        let mut groups = None;
        if let Some(field) = &wanted.collapse {
            groups = segment.columns(&field.name)?.into_iter().find(|column| column.words.is_some());
        }
        let counts = SegmentCounts::open(&wanted.facets, segment)?;
        let keep = match (wanted.k, &groups) {
            (0, _) => Keep::Nothing,
            (k, None) => Keep::Top(Top::new(k)),
            (k, Some(_)) => Keep::Grouped(Grouped::new(k)),
        };
        let by_score = wanted.sorting.by_score();
        Ok(Self {
            wanted,
            segment,
            ord,
            sorting,
            after,
            groups,
            counts,
            keep,
            by_score,
            least: f32::NEG_INFINITY,
        })
    }

    fn walk(
        &mut self,
        view: &ShardView,
        plan: &Plan,
        ticker: &Ticker<'_>,
        all: &mut Collected,
    ) -> Result<()> {
        let scoring = self.wanted.k > 0;
        let walk = matcher::open(Context::new(plan, self.segment, ticker, scoring), &plan.root)?;
        if ticker.stopped() {
            return Ok(());
        }
        let mask = Mask::of(view, self.segment);
        let mut considered = 0;
        if let Some(mut walk) = walk {
            let mut doc = walk.doc();
            while doc != TERMINATED {
                if !mask.hides(doc) {
                    self.offer(doc, &mut walk, ticker);
                    if ticker.stopped() {
                        break;
                    }
                    all.total += 1;
                    self.counts.count(doc);
                    if Some(all.total) == self.wanted.enough {
                        all.resume = Some((self.ord, doc + 1));
                        return Ok(());
                    }
                }
                considered = doc + 1;
                doc = walk.advance();
            }
        }
        all.searched += u64::from(if ticker.stopped() { considered } else { self.segment.documents() });
        Ok(())
    }

    /// Offers a match. One that the ticker cut short is scored in part, so it is never pushed.
    fn offer(&mut self, doc: DocId, walk: &mut Walk<'_>, ticker: &Ticker<'_>) {
        let by_score = self.by_score;
        let mut score = if by_score { self.score(doc, walk) } else { 0.0 };
        if score < self.least {
            return;
        }
        let worst = match &self.keep {
            Keep::Nothing => return,
            Keep::Top(top) => top.worst(),
            Keep::Grouped(grouped) => grouped.worst(),
        };
        let first = self.sorting.first(doc, score);
        if worst.is_some_and(|worst| worst.first < first)
            || self.after.as_ref().is_some_and(|after| first < after.0)
        {
            return;
        }
        let place = Place { first, rest: self.sorting.rest(doc, score), key: self.segment.key(doc) };
        if worst.is_some_and(|worst| *worst <= place) || !self.is_after(&place) {
            return;
        }
        if !by_score {
            score = self.score(doc, walk);
        }
        if ticker.stopped() {
            return;
        }
        let entry = Entry { place, doc, score };
        match &mut self.keep {
            Keep::Nothing => {}
            Keep::Top(top) => {
                top.push(entry);
                if !self.wanted.sorting.values
                    && let Some(worst) = top.worst_entry()
                {
                    self.least = worst.score;
                }
            }
            Keep::Grouped(grouped) => {
                grouped.push(entry, self.groups.as_ref().and_then(|column| column.values.first(doc)));
            }
        }
    }

    fn is_after(&self, place: &Place) -> bool {
        let (Some((first, rest)), Some(after)) = (&self.after, &self.wanted.after) else { return true };
        (place.first, &place.rest, place.key) > (*first, rest, after.key)
    }

    fn score(&self, doc: DocId, walk: &mut Walk<'_>) -> f32 {
        let mut sum = 0.0;
        walk.score(&mut sum);
        round(sum + prior(self.segment, doc, self.wanted.prior_weight))
    }

    /// The segment's list, in values.
    fn found(self) -> Result<(Vec<Found>, SegmentCounts)> {
        let entries = match self.keep {
            Keep::Nothing => Vec::new(),
            Keep::Top(top) => top.into_sorted().into_iter().map(|entry| (entry, None)).collect(),
            Keep::Grouped(grouped) => grouped.into_sorted(),
        };
        let mut found = Vec::with_capacity(entries.len());
        for (Entry { place, doc, score }, group) in entries {
            let mut values = Vec::new();
            if self.wanted.sorting.values {
                values = self.sorting.values(place.first, place.rest.as_deref())?;
            }
            let collapse = match (&self.groups, group) {
                (Some(column), Some(ord)) => column.word(ord)?,
                _ => String::new(),
            };
            found.push(Found { values, score, key: place.key, segment: self.ord as u32, doc, collapse });
        }
        Ok((found, self.counts))
    }
}
