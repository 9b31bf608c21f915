//! Shapes of queries that were never seen before, tried on one leaf first (off by default).
//!
//! A shape is the structure of a query without its words: kinds of clauses, fields, order, facets, and how many tokens there
//! are by powers of two. Rules: an unseen shape is tried once (see [`canopy_aggregator::canary`]); those that come meanwhile
//! wait for the verdict, of one try at most; a shape that cost a leaf is refused for a minute and then tried again, since
//! leaves die for other reasons too; a try that says nothing settles nothing. Memory is bounded: the oldest shape is forgotten,
//! and merely tried again. A policy value and, around it, the waiting.

use std::{
    collections::{BTreeMap, VecDeque},
    hash::{Hash, Hasher},
    time::Duration,
};

use canopy_aggregator::{canary::Sign, gather::Gatherer};
use canopy_common::{collections::Fixed, request::RequestContext};
use canopy_proto::v1::{self, query::Node};
use canopy_topology::routing::RoutingSnapshot;
use parking_lot::Mutex;
use tokio::{sync::Notify, time::Instant};

use crate::error::{Error, Result};

/// Shapes remembered.
const MOST: usize = 8192;
/// How long a shape that cost a leaf is refused.
const REFUSED: Duration = Duration::from_mins(1);

/// What is known of a shape.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Known {
    Trying,
    Lives,
    Died(Instant),
}

/// What to do with a query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Send it to all.
    Go,
    /// Try it on one leaf; then tell.
    Try,
    /// It is being tried.
    Wait,
    /// It cost a leaf.
    Refuse,
}

/// What is known of all shapes. A value.
#[derive(Debug, Default)]
pub struct Shapes {
    known: BTreeMap<u64, Known>,
    order: VecDeque<u64>,
}

impl Shapes {
    /// What to do with a query of this shape; [`Verdict::Try`] is said to one only.
    pub fn ask(&mut self, shape: u64, now: Instant) -> Verdict {
        match self.known.get(&shape) {
            Some(Known::Lives) => Verdict::Go,
            Some(Known::Trying) => Verdict::Wait,
            Some(Known::Died(at)) if now.saturating_duration_since(*at) < REFUSED => Verdict::Refuse,
            Some(Known::Died(_)) | None => {
                self.put(shape, Known::Trying);
                Verdict::Try
            }
        }
    }

    fn put(&mut self, shape: u64, known: Known) {
        if self.known.insert(shape, known).is_none() {
            self.order.push_back(shape);
        }
        while self.order.len() > MOST {
            let oldest = self.order.pop_front();
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
    }

    /// How the try went.
    pub fn told(&mut self, shape: u64, sign: &Sign, now: Instant) {
        match sign {
            Sign::Lives => self.put(shape, Known::Lives),
            Sign::Died(_) => self.put(shape, Known::Died(now)),
            Sign::Unknown => {
                self.known.remove(&shape);
                self.order.retain(|known| *known != shape);
            }
        }
    }
}

/// The canary of a root.
#[derive(Default)]
pub struct Canary {
    shapes: Mutex<Shapes>,
    decided: Notify,
}

/// Settles a try that was dropped halfway.
struct Trying<'a> {
    canary: &'a Canary,
    shape: u64,
    sign: Sign,
}

impl Drop for Trying<'_> {
    fn drop(&mut self) {
        self.canary.shapes.lock().told(self.shape, &self.sign, Instant::now());
        self.canary.decided.notify_waiters();
    }
}

impl Canary {
    /// Returns when the query may go to all leaves; an error when its shape cost one.
    pub async fn pass(
        &self,
        gatherer: &Gatherer,
        context: &RequestContext,
        routing: &RoutingSnapshot,
        request: &v1::SearchRequest,
        draw: u64,
    ) -> Result<()> {
        let shape = shape(request);
        let mut waited = false;
        loop {
            let decided = self.decided.notified();
            tokio::pin!(decided);
            // Listen before asking, so that no verdict is missed in between.
            decided.as_mut().enable();
            let verdict = self.shapes.lock().ask(shape, Instant::now());
            match verdict {
                Verdict::Go => return Ok(()),
                Verdict::Refuse => return Err(Error::Deadly),
                // The try it waited for said nothing, and whoever made it went on. One is made again; the others do not
                // wait for one after the other.
                Verdict::Wait if waited => return Ok(()),
                Verdict::Wait => {
                    waited = true;
                    let until = context.deadline.instant();
                    if tokio::time::timeout_at(until, decided).await.is_err() {
                        return Ok(());
                    }
                }
                Verdict::Try => {
                    let mut trying = Trying { canary: self, shape, sign: Sign::Unknown };
                    trying.sign = gatherer.canary(context, routing, request, draw).await;
                    match &trying.sign {
                        Sign::Lives | Sign::Unknown => return Ok(()),
                        Sign::Died(why) => {
                            tracing::error!(query = %context.query, shape, why, "a leaf was lost to a query of a new shape");
                            return Err(Error::Deadly);
                        }
                    }
                }
            }
        }
    }
}

/// The shape of a query.
pub fn shape(request: &v1::SearchRequest) -> u64 {
    let mut hash = Fixed::default();
    let some = |count: usize| usize::BITS - count.leading_zeros();
    (&request.corpus, &request.collapse, request.total, request.freshness).hash(&mut hash);
    for by in &request.sort {
        (&by.field, by.descending).hash(&mut hash);
    }
    for facet in &request.facets {
        (&facet.field, some(facet.size as usize), facet.exact).hash(&mut hash);
    }
    let most = request.shards.first().map_or(0, |shard| some(shard.k as usize));
    let after = request.shards.first().is_some_and(|shard| shard.after.is_some());
    (most, after).hash(&mut hash);
    // Preorder with the number of children, without recursion.
    let mut open: Vec<&v1::Query> = request.query.iter().collect();
    while let Some(query) = open.pop() {
        match &query.node {
            None => 0.hash(&mut hash),
            Some(Node::Bool(clause)) => {
                let lists = [&clause.must, &clause.should, &clause.must_not, &clause.filter];
                (1, lists.map(Vec::len), clause.min_should_match).hash(&mut hash);
                open.extend(lists.into_iter().flatten());
            }
            Some(Node::Term(term)) => (2, &term.field, some(term.tokens.len())).hash(&mut hash),
            Some(Node::Phrase(phrase)) => {
                let longest = phrase.alternatives.iter().map(|tokens| tokens.tokens.len()).max();
                (3, &phrase.field, some(phrase.alternatives.len()), longest, phrase.slop).hash(&mut hash);
            }
            Some(Node::Range(range)) => {
                (4, &range.field, range.lower.is_some(), range.upper.is_some()).hash(&mut hash);
            }
            Some(Node::Expanded(expanded)) => {
                (5, &expanded.field, some(expanded.tokens.len())).hash(&mut hash);
            }
            Some(Node::Keyword(keyword)) => (6, &keyword.field, some(keyword.values.len())).hash(&mut hash),
            Some(Node::All(_)) => 7.hash(&mut hash),
            Some(Node::None(_)) => 8.hash(&mut hash),
        }
    }
    hash.finish()
}

#[cfg(test)]
mod tests;
