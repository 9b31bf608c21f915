//! Which replica to ask.
//!
//! With every caller's knowledge a little old, always taking "the best of all" makes all callers run to the same node,
//! while the better of two random ones comes close to the best without the herd. A choice is made in three steps, each
//! a function of plain numbers: `eligible` says who may be asked at all, the nearer zone is preferred until it is worse,
//! and a [`Strategy`] takes one.
//!
//! | strategy | the replica |
//! |---|---|
//! | `adaptive` | the cheaper of two; with a session the two are its first by rendezvous, else random |
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
mod strategy;
mod zone;

use std::sync::atomic::{AtomicU64, Ordering};

use canopy_common::{ids::NodeId, rng::Dice};
use canopy_proto::v1;
use canopy_topology::routing::RoutingSnapshot;
use prost::Message;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

pub use metrics::PickMetrics;
pub use strategy::{Candidate, Strategy, Why, choose};

use crate::{
    load::{Loads, typical},
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
}

/// The choice that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Choice {
    /// Index of the candidate.
    pub at: u16,
    /// Why that one.
    pub why: Why,
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

    /// The replica to ask, or `None` when all were tried.
    pub fn choose(&self, loads: &Loads, choosing: &Choosing<'_>) -> Option<Choice> {
        let now = Instant::now();
        let known: Vec<_> = choosing.candidates.iter().take(usize::from(u16::MAX)).enumerate().collect();
        let left: Vec<_> =
            known.into_iter().filter(|(at, _)| !choosing.tried.contains(&(*at as u16))).collect();
        let seen: Vec<_> = left.iter().map(|(_, node)| loads.of(node).stands(left.len(), now)).collect();
        let typical = typical(seen.iter().map(|seen| &seen.reading));
        let zone = zone::of(choosing.routing, &self.this);
        let keyed = choosing.key.is_some() || choosing.through == Through::Aggregator;
        let candidates: Vec<Candidate> = left
            .iter()
            .zip(&seen)
            .map(|((at, node), seen)| Candidate {
                at: *at as u16,
                own: seen.own,
                pressure: f64::from(seen.own) + seen.reading.others,
                cost: seen.reading.cost(seen.own, typical),
                idle: seen.reading.idle(typical),
                rank: match choosing.key {
                    Some(key) if choosing.through == Through::Leaf => {
                        xxh3_64_with_seed(node.0.as_bytes(), key)
                    }
                    _ => u64::MAX - *at as u64,
                },
                turn: seen.turn,
                ramping: seen.ramping,
                capped: seen.capped,
                near: zone.is_none_or(|zone| zone::of(choosing.routing, node) == Some(zone)),
            })
            .collect();
        let strategy = match choosing.through {
            Through::Leaf => self.strategy,
            Through::Aggregator => Strategy::Adaptive,
        };
        let (at, why) = zone::choose(strategy, &candidates, keyed, &self.dice)?;
        let turn = self.turns.fetch_add(1, Ordering::Relaxed) + 1;
        loads.of(&choosing.candidates[usize::from(at)]).chosen(turn);
        self.metrics.chosen(why);
        Some(Choice { at, why })
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
