//! The replicas of a branch as they are at one instant.

use std::sync::Arc;

use canopy_topology::routing::Last;
use tokio::time::Instant;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Candidate, Choosing, Shadow, zone};
use crate::{
    breaker::{
        probation::{Others, Verdict},
        standing::{Ejected, Member},
    },
    load::{Load, Loads, Seen, Typical, typical},
    plan::Through,
};

/// Why the topology service has replicas asked after the others; empty: it says nothing of any. Where it thinks ill of all of them
/// the least bad count as well.
fn told(choosing: &Choosing<'_>, known: usize) -> Vec<Option<Ejected>> {
    let last = &choosing.routing.last;
    if last.is_empty() {
        return Vec::new();
    }
    let why: Vec<Option<Last>> =
        choosing.candidates[..known].iter().map(|node| last.get(node).copied()).collect();
    let best = why.iter().min().copied().flatten();
    let ejected = |why: Option<Last>| match why? {
        why if Some(why) == best => None,
        Last::Faulty => Some(Ejected::Told),
        Last::Leaving => Some(Ejected::Draining),
    };
    why.into_iter().map(ejected).collect()
}

/// All replicas of a branch; indexes are the branch's.
pub(super) struct Set {
    pub(super) loads: Vec<Arc<Load>>,
    seen: Vec<Seen>,
    tried: Vec<bool>,
    /// What the topology service says of each.
    told: Vec<Option<Ejected>>,
    typical: Option<Typical>,
}

impl Set {
    pub(super) fn see(loads: &Loads, choosing: &Choosing<'_>, now: Instant) -> Self {
        let known = choosing.candidates.len().min(usize::from(u16::MAX));
        let tried: Vec<bool> = (0..known as u16).map(|at| choosing.tried.contains(&at)).collect();
        let left = tried.iter().filter(|tried| !**tried).count();
        let loads: Vec<Arc<Load>> = choosing.candidates[..known].iter().map(|node| loads.of(node)).collect();
        let seen = loads.iter().zip(&tried);
        let seen = seen.map(|(load, tried)| if *tried { load.seen(now) } else { load.stands(left, now) });
        let seen: Vec<Seen> = seen.collect();
        let typical = typical(seen.iter().map(|seen| &seen.reading));
        Self { loads, seen, tried, told: told(choosing, known), typical }
    }

    /// Judges those of whom a window of answers is full against the others.
    pub(super) fn review(&self, now: Instant) {
        for at in (0..self.seen.len()).filter(|at| self.seen[*at].due) {
            let others = || (0..self.seen.len()).filter(|other| *other != at).map(|other| &self.seen[other]);
            let readings = others().filter(|seen| seen.ejected.is_none()).map(|seen| &seen.reading);
            let others = typical(readings.clone()).and_then(|Typical { response, relative, .. }| {
                let queued = readings.filter(|reading| reading.wait + reading.penalty > response / 2.0);
                Some(Others { relative: relative?, response, calm: queued.count() == 0 })
            });
            match self.loads[at].review(others, now) {
                Verdict::Stays => {}
                verdict => tracing::info!(?verdict, replica = at, "probation of a slow replica"),
            }
        }
    }

    pub(super) fn members(&self) -> Vec<Member> {
        let member = |(at, seen): (usize, &Seen)| Member {
            tried: self.tried[at],
            ejected: seen.ejected.or(self.told.get(at).copied().flatten()),
            cost: seen.reading.cost(seen.own, self.typical),
        };
        self.seen.iter().enumerate().map(member).collect()
    }

    pub(super) fn candidate(&self, at: usize, choosing: &Choosing<'_>, zone: Option<&str>) -> Candidate {
        let (seen, node) = (&self.seen[at], &choosing.candidates[at]);
        Candidate {
            at: at as u16,
            own: seen.own,
            pressure: f64::from(seen.own) + seen.reading.others,
            cost: seen.reading.cost(seen.own, self.typical),
            expected: seen.reading.expected(seen.own, self.typical),
            idle: seen.reading.idle(self.typical),
            rank: match choosing.key {
                Some(key) if choosing.through == Through::Leaf => xxh3_64_with_seed(node.0.as_bytes(), key),
                _ => u64::MAX - at as u64,
            },
            turn: seen.turn,
            ramping: seen.ramping,
            capped: seen.capped,
            near: zone.is_none_or(|zone| zone::of(choosing.routing, node) == Some(zone)),
        }
    }

    /// An ejected replica other than the chosen one that should get a copy of the call; else, of the replicas `compared` by what a
    /// call to them costs, a neglected one.
    pub(super) fn shadow(&self, chosen: u16, compared: &[Candidate], now: Instant) -> Option<Shadow> {
        let ejected = (0..self.seen.len()).filter(|at| self.seen[*at].ejected.is_some());
        let ejected = ejected
            .filter(|at| *at != usize::from(chosen))
            .find(|at| self.loads[*at].passed_over(now))
            .map(|at| Shadow { at: at as u16, ejected: true });
        ejected.or_else(|| {
            let mut others = compared.iter().filter(|candidate| candidate.at != chosen && candidate.near);
            let neglected = others.find(|other| self.seen[usize::from(other.at)].neglected)?;
            Some(Shadow { at: neglected.at, ejected: false })
        })
    }
}
