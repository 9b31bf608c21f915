//! Unions, intersections and exclusions of walks.
//!
//! Scoring keeps the order of the message: `must` in order, then `should` in order. Which walk leads an intersection
//! (the cheapest) is a matter of speed only. Optional parts are looked up only for documents that are scored.

use tantivy::{DocId, TERMINATED};

use super::{
    matcher::{Context, Matcher, Part, Walk, open as open_node},
    plan::{Bool, Node, union_of},
    window,
};
use crate::{error::Result, stop::Ticker};

/// Documents that at least `min` of the walks match.
pub struct Union<'a> {
    walks: Vec<Walk<'a>>,
    /// Where each walk stands: one flat array to scan.
    docs: Vec<DocId>,
    min: usize,
    doc: DocId,
    ticker: &'a Ticker<'a>,
}

impl<'a> Union<'a> {
    /// `None` when fewer than `min` walks are left.
    pub fn open(ticker: &'a Ticker<'a>, mut walks: Vec<Walk<'a>>, min: usize) -> Option<Walk<'a>> {
        if walks.len() < min.max(1) {
            return None;
        }
        if walks.len() == 1 {
            return walks.pop();
        }
        if walks.len() == min {
            let scored = walks.len();
            return Intersection::open(walks, scored);
        }
        let docs = walks.iter().map(|walk| walk.doc()).collect();
        let mut union = Self { walks, docs, min, doc: 0, ticker };
        union.settle();
        (union.doc != TERMINATED).then(|| Box::new(union) as Walk<'a>)
    }

    /// Goes to the smallest document that enough walks stand on; those behind it move on.
    fn settle(&mut self) -> DocId {
        loop {
            let first = self.docs.iter().copied().min().unwrap_or(TERMINATED);
            self.doc = first;
            if first == TERMINATED || self.min <= 1 {
                return first;
            }
            if self.docs.iter().filter(|doc| **doc == first).count() >= self.min {
                return first;
            }
            if !self.step(first) {
                self.doc = TERMINATED;
                return TERMINATED;
            }
        }
    }

    /// Moves the walks that stand on `doc`.
    fn step(&mut self, doc: DocId) -> bool {
        for (walk, at) in self.walks.iter_mut().zip(&mut self.docs) {
            if *at == doc {
                *at = walk.advance();
            }
        }
        self.ticker.tick(1 + self.docs.len() as u32 / 16)
    }
}

impl Matcher for Union<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        if self.doc == TERMINATED {
            return TERMINATED;
        }
        if !self.step(self.doc) {
            self.doc = TERMINATED;
            return TERMINATED;
        }
        self.settle()
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc >= target {
            return self.doc;
        }
        for (walk, at) in self.walks.iter_mut().zip(&mut self.docs) {
            if *at < target {
                *at = walk.seek(target);
            }
        }
        self.settle()
    }

    fn cost(&self) -> u64 {
        self.walks.iter().map(|walk| walk.cost()).sum()
    }

    fn score(&mut self, sum: &mut f64) {
        let here = self.doc;
        let walks = self.walks.iter_mut().zip(&self.docs);
        walks.filter(|(_, at)| **at == here).for_each(|(walk, _)| walk.score(sum));
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        let here = self.doc;
        let walks = self.walks.iter_mut().zip(&self.docs);
        walks.filter(|(_, at)| **at == here).for_each(|(walk, _)| walk.explain(parts));
    }
}

/// Documents that all walks match; the first `scored` of them score.
pub struct Intersection<'a> {
    walks: Vec<Walk<'a>>,
    scored: usize,
    /// Indexes of the walks, cheapest first.
    order: Vec<usize>,
    doc: DocId,
}

impl<'a> Intersection<'a> {
    /// `walks` is not empty.
    pub fn open(mut walks: Vec<Walk<'a>>, scored: usize) -> Option<Walk<'a>> {
        if walks.len() == 1 && scored == 1 {
            return walks.pop();
        }
        let mut order: Vec<usize> = (0..walks.len()).collect();
        order.sort_by_key(|at| walks[*at].cost());
        let mut both = Self { walks, scored, order, doc: 0 };
        let first = both.order.first().map_or(TERMINATED, |at| both.walks[*at].doc());
        (both.align(first) != TERMINATED).then(|| Box::new(both) as Walk<'a>)
    }

    /// Moves all walks to the first common document that is not before `doc`, where the leader stands.
    fn align(&mut self, mut doc: DocId) -> DocId {
        'again: while doc != TERMINATED {
            for at in &self.order[1..] {
                let walk = &mut self.walks[*at];
                let found = if walk.doc() < doc { walk.seek(doc) } else { walk.doc() };
                if found > doc {
                    doc =
                        if found == TERMINATED { TERMINATED } else { self.walks[self.order[0]].seek(found) };
                    continue 'again;
                }
            }
            break;
        }
        self.doc = doc;
        doc
    }
}

impl Matcher for Intersection<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        if self.doc == TERMINATED {
            return TERMINATED;
        }
        let next = self.walks[self.order[0]].advance();
        self.align(next)
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc >= target {
            return self.doc;
        }
        let next = self.walks[self.order[0]].seek(target);
        self.align(next)
    }

    fn cost(&self) -> u64 {
        self.order.first().map_or(0, |at| self.walks[*at].cost())
    }

    fn score(&mut self, sum: &mut f64) {
        self.walks[..self.scored].iter_mut().for_each(|walk| walk.score(sum));
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        self.walks[..self.scored].iter_mut().for_each(|walk| walk.explain(parts));
    }
}

/// Documents of `required` that no walk of `excluded` matches; those of `optional` that match score too.
struct Except<'a> {
    required: Walk<'a>,
    optional: Vec<Walk<'a>>,
    excluded: Vec<Walk<'a>>,
    doc: DocId,
}

fn stands_on(walk: &mut Walk<'_>, doc: DocId) -> bool {
    let at = if walk.doc() < doc { walk.seek(doc) } else { walk.doc() };
    at == doc
}

impl Except<'_> {
    fn settle(&mut self, mut doc: DocId) -> DocId {
        while doc != TERMINATED && self.excluded.iter_mut().any(|walk| stands_on(walk, doc)) {
            doc = self.required.advance();
        }
        self.doc = doc;
        doc
    }
}

impl Matcher for Except<'_> {
    fn doc(&self) -> DocId {
        self.doc
    }

    fn advance(&mut self) -> DocId {
        let next = self.required.advance();
        self.settle(next)
    }

    fn seek(&mut self, target: DocId) -> DocId {
        if self.doc >= target {
            return self.doc;
        }
        let next = self.required.seek(target);
        self.settle(next)
    }

    fn cost(&self) -> u64 {
        self.required.cost()
    }

    fn score(&mut self, sum: &mut f64) {
        self.required.score(sum);
        let doc = self.doc;
        self.optional
            .iter_mut()
            .filter_map(|walk| stands_on(walk, doc).then_some(walk))
            .for_each(|w| w.score(sum));
    }

    fn explain(&mut self, parts: &mut Vec<Part>) {
        self.required.explain(parts);
        let doc = self.doc;
        self.optional
            .iter_mut()
            .filter_map(|walk| stands_on(walk, doc).then_some(walk))
            .for_each(|w| w.explain(parts));
    }
}

/// Opens the walks of nodes that all score after what `context` has before it.
fn some<'a>(context: Context<'a>, nodes: &'a [Node]) -> Result<Vec<Walk<'a>>> {
    let mut walks = Vec::with_capacity(nodes.len());
    for (at, node) in nodes.iter().enumerate() {
        let context = if at == 0 { context } else { context.in_parts() };
        walks.extend(open_node(context, node)?);
    }
    Ok(walks)
}

/// Opens the union of `should`.
fn union<'a>(context: Context<'a>, bool: &'a Bool) -> Result<Option<Walk<'a>>> {
    if bool.min == 1
        && bool.should.len() > 1
        && context.in_windows()
        && let Some(leaves) = union_of(&bool.should)
    {
        return window::open(context, &leaves);
    }
    Ok(Union::open(context.ticker, some(context, &bool.should)?, bool.min))
}

/// Opens the walk of a Bool.
pub fn open<'a>(context: Context<'a>, bool: &'a Bool) -> Result<Option<Walk<'a>>> {
    let mut required = some(context, &bool.must)?;
    if required.len() < bool.must.len() {
        return Ok(None);
    }
    let mut optional = Vec::new();
    if bool.min > 0 {
        let context = if bool.must.is_empty() { context } else { context.in_parts() };
        match union(context, bool)? {
            Some(union) => required.push(union),
            None => return Ok(None),
        }
    } else if context.scoring {
        optional = some(context.in_parts(), &bool.should)?;
    }
    let scored = required.len();
    required.extend(some(context.unscored(), &bool.filter)?);
    if required.len() < scored + bool.filter.len() || required.is_empty() {
        return Ok(None);
    }
    let Some(required) = Intersection::open(required, scored) else { return Ok(None) };
    let excluded = some(context.unscored(), &bool.must_not)?;
    if optional.is_empty() && excluded.is_empty() {
        return Ok(Some(required));
    }
    let doc = required.doc();
    let mut except = Except { required, optional, excluded, doc };
    Ok((except.settle(doc) != TERMINATED).then(|| Box::new(except) as Walk<'a>))
}
