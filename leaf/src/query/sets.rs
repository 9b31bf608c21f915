//! Unions and intersections of walks. Which walk leads an intersection (the cheapest) is a matter of speed only: scores
//! are added in the order of the walks.

use tantivy::{DocId, TERMINATED};

use super::matcher::{Matcher, Part, Walk};
use crate::stop::Ticker;

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
