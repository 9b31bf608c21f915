//! Which replica to ask.
//!
//! With every caller's knowledge a little old, always taking "the best of all" makes all callers run to the same node.
//! What keeps them apart is that a call of ours counts as more than one, that costs which are near each other are drawn
//! by lot, and that in a large set only four random replicas are looked at. A choice is made in three steps, each
//! a function of plain numbers: [`eligible`] says who may be asked at all, the nearer zone is preferred until it is worse,
//! and a [`Strategy`] takes one.
//!
//! | strategy | the replica |
//! |---|---|
//! | `adaptive` | the cheapest of up to four random ones; with a session the better of its first two by rendezvous |
//! | `affinity` | the first by rendezvous of session or query; the next one when that is over its share of calls |
//! | `power_of_two` | of two random ones the one with fewer of our calls |
//! | `least_outstanding` | the one with the fewest of our calls |
//! | `round_robin` | the one that was chosen longest ago |
//! | `random` | any |
//!
//! Aggregators stand in rendezvous order of their subtree, and the first two are looked at, so that the connections of
//! each aggregator stay few. Dice come from one stream, so a simulation repeats its choices.

mod affinity;
mod metrics;
mod set;
mod strategy;
mod zone;

use std::sync::atomic::{AtomicU64, Ordering};

use canopy_common::{ids::NodeId, rng::Dice};
use canopy_proto::v1;
use canopy_topology::routing::RoutingSnapshot;
use prost::Message;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use metrics::{PickMetrics, Standings};
pub use strategy::{Candidate, Strategy, Why, choose};

use set::Set;

use crate::{
    breaker::standing::{Eligible, eligible},
    load::Loads,
    plan::Through,
};

/// A choice to make.
#[derive(Clone, Copy)]
pub struct Choosing<'a> {
    /// Zones of the nodes.
    pub routing: &'a RoutingSnapshot,
    /// The replicas of the branch.
    pub candidates: &'a [NodeId],
    /// What they are.
    pub through: Through,
    /// Which of them were asked already.
    pub tried: &'a [u16],
    /// What should find the same replica again: a hash of the session or of the query.
    pub key: Option<u64>,
    /// What the call is for.
    pub purpose: Purpose,
}

/// What a replica is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The first call of a branch: a copy of it can go to another replica. Whoever asks so sends the copy that it is told to send,
    /// or says that it has ended.
    First,
    /// Any other that has to be made.
    Needed,
    /// Extra work, which never goes to an ejected replica.
    Extra,
}

/// The choice that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Index of the candidate.
    pub at: u16,
    /// Why that one.
    pub why: Why,
    /// An ejected or neglected candidate that should get a copy of the call that nobody waits for.
    pub shadow: Option<Shadow>,
}

/// A candidate that should get a copy of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shadow {
    /// Index of the candidate.
    pub at: u16,
    /// It is ejected: only copies can show that it is well again.
    pub ejected: bool,
}

/// Chooses replicas for one node's engine.
pub struct Picker {
    this: NodeId,
    strategy: Strategy,
    dice: Dice,
    turns: AtomicU64,
    /// What it counts.
    pub metrics: PickMetrics,
}

impl Picker {
    /// A picker of node `this`.
    pub fn new(this: NodeId, strategy: Strategy, dice: Dice, metrics: PickMetrics) -> Self {
        Self { this, strategy, dice, turns: AtomicU64::new(0), metrics }
    }

    /// The replica to ask, or `None` when none is left.
    pub fn choose(&self, loads: &Loads, choosing: &Choosing<'_>) -> Option<Choice> {
        let now = loads.now();
        let set = Set::see(loads, choosing, now);
        set.review(now);
        let (these, ejected) = match eligible(&set.members()) {
            Eligible::These(these) => (these, None),
            Eligible::LastResort(_) | Eligible::Panic(_) if choosing.purpose == Purpose::Extra => {
                return None;
            }
            Eligible::LastResort(at) => (vec![at], Some(Why::LastResort)),
            Eligible::Panic(at) => (vec![at], Some(Why::Panic)),
        };
        let zone = zone::of(choosing.routing, &self.this);
        let candidates: Vec<Candidate> = these.iter().map(|at| set.candidate(*at, choosing, zone)).collect();
        let keyed = choosing.key.is_some() || choosing.through == Through::Aggregator;
        let strategy = match choosing.through {
            Through::Leaf => self.strategy,
            Through::Aggregator => Strategy::Adaptive,
        };
        let (at, why) = zone::choose(strategy, &candidates, keyed, &self.dice)?;
        let why = ejected.unwrap_or(why);
        set.loads[usize::from(at)].chosen(self.turns.fetch_add(1, Ordering::Relaxed) + 1);
        self.metrics.chosen(why);
        // Where a key or an order decides, whoever is passed over is not neglected.
        let compared = if strategy == Strategy::Adaptive && !keyed { &candidates[..] } else { &[] };
        let shadow = if choosing.purpose == Purpose::First { set.shadow(at, compared, now) } else { None };
        Some(Choice { at, why, shadow })
    }

    /// Whether a call to a node is withheld, because it refused too many. The last hope is never withheld.
    pub fn withholds(&self, loads: &Loads, node: &NodeId, why: Why) -> bool {
        let withholds = !matches!(why, Why::Panic | Why::LastResort) && loads.of(node).withholds();
        self.metrics.throttled.inc_by(u64::from(withholds));
        withholds
    }

    /// What should find the same replica again, of a branch: the session, if there is one; with `affinity` else the
    /// query. Parts of one set have keys of their own, so that its replicas share the work.
    pub fn key(&self, request: &v1::SearchRequest, branch: usize) -> Option<u64> {
        if !request.session.is_empty() {
            return Some(xxh3_64_with_seed(request.session.as_bytes(), branch as u64));
        }
        let query = request.query.as_ref().filter(|_| self.strategy == Strategy::Affinity)?;
        Some(xxh3_64_with_seed(&query.encode_to_vec(), branch as u64))
    }
}

#[cfg(test)]
mod tests;
