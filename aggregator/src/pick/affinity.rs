//! The same key finds the same replica again: its caches are warm, and the pages of one session come from one place.
//!
//! Rendezvous: each replica has a hash with the key, the largest is first; losing a replica moves only its own keys.
//! Stickiness alone makes hot spots (one key may be all the traffic), so load is bounded: a replica takes a key only
//! while its calls are below 1.25 x the mean of the set, rounded up; over that the key goes to the next by rendezvous,
//! and only if all are over it to the one with the fewest calls.

use super::strategy::{Candidate, Why};

/// Part of the mean load that one replica may have.
const BOUND: f64 = 1.25;
/// A key stays with its first replica until that is, its queue apart, so many times as costly as the second.
const STAY: f64 = 2.0;

fn bound(candidates: &[Candidate]) -> f64 {
    let all: f64 = candidates.iter().map(|candidate| candidate.pressure).sum();
    (BOUND * (all + 1.0) / candidates.len() as f64).ceil()
}

/// Indexes by rendezvous, first those within the bound, then the others by their calls.
fn order(candidates: &[Candidate]) -> Vec<usize> {
    let bound = bound(candidates);
    let mut order: Vec<usize> = (0..candidates.len()).collect();
    order.sort_by(|a, b| {
        let (a, b) = (&candidates[*a], &candidates[*b]);
        let over = |candidate: &Candidate| candidate.pressure + 1.0 > bound;
        let by_calls = if over(a) { a.pressure.total_cmp(&b.pressure) } else { std::cmp::Ordering::Equal };
        over(a).cmp(&over(b)).then(by_calls).then(b.rank.cmp(&a.rank))
    });
    order
}

fn home(candidates: &[Candidate]) -> Option<u64> {
    candidates.iter().map(|candidate| candidate.rank).max()
}

/// The first by rendezvous that is within its bound.
pub fn bounded(candidates: &[Candidate]) -> (usize, Why) {
    let at = order(candidates).first().copied().unwrap_or(0);
    let why = if Some(candidates[at].rank) == home(candidates) { Why::Affinity } else { Why::Spill };
    (at, why)
}

/// Of the first two by rendezvous within their bounds, the first unless it is much slower or fails: queues are the bound's
/// business, else the first call in flight would send a session elsewhere.
pub fn of_first_two(candidates: &[Candidate]) -> (usize, Why) {
    let order = order(candidates);
    let (first, second) = (order.first().copied().unwrap_or(0), order.get(1).copied().unwrap_or(0));
    let at = if candidates[first].idle > STAY * candidates[second].idle { second } else { first };
    let why = if Some(candidates[at].rank) == home(candidates) { Why::Affinity } else { Why::Spill };
    (at, why)
}
