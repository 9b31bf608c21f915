//! The strategies as plain functions: candidates in, an index out. The lab runs the same functions.

use canopy_common::rng::Dice;
use serde::{Deserialize, Serialize};

use super::affinity;

/// Costs within this factor of each other are drawn by lot, so that callers do not all see the same winner.
const JITTER: f64 = 0.4;
/// Most candidates that `adaptive` looks at.
const LOOKED_AT: usize = 4;

/// How a replica is chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// The cheapest of up to four.
    #[default]
    Adaptive,
    /// Any.
    Random,
    /// The first by rendezvous, with bounded load.
    Affinity,
    /// The one chosen longest ago.
    RoundRobin,
    /// The one with the fewest of our calls.
    LeastOutstanding,
    /// Of two random ones the one with fewer of our calls.
    PowerOfTwo,
}

/// Why a replica was chosen: a closed list of words, for the counters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// No other was left.
    Only,
    /// It was cheaper than another.
    Cost,
    /// It is the first by rendezvous.
    Affinity,
    /// The first by rendezvous had too much to do.
    Spill,
    /// By the rule of a strategy that does not look at costs.
    Rule,
    /// The replicas of this zone were worse.
    Zone,
    /// Every candidate was ejected, and it was the least bad.
    Panic,
    /// All that may be asked were tried; it was ejected.
    LastResort,
}

impl Why {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 8] = [
        Self::Only,
        Self::Cost,
        Self::Affinity,
        Self::Spill,
        Self::Rule,
        Self::Zone,
        Self::Panic,
        Self::LastResort,
    ];

    /// The label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Only => "only",
            Self::Cost => "cost",
            Self::Affinity => "affinity",
            Self::Spill => "spill",
            Self::Rule => "rule",
            Self::Zone => "zone",
            Self::Panic => "panic",
            Self::LastResort => "last_resort",
        }
    }
}

/// A replica as a choice sees it: plain numbers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Candidate {
    /// Index in the branch.
    pub at: u16,
    /// Our calls in flight there.
    pub own: u32,
    /// All calls in flight there, as far as known.
    pub pressure: f64,
    /// What one more call costs (see [`crate::load`]).
    pub cost: f64,
    /// How long one more call would take, about, microseconds.
    pub expected: f64,
    /// The cost if it had no calls.
    pub idle: f64,
    /// Place by rendezvous: the largest is first.
    pub rank: u64,
    /// When it was chosen last; 0: never.
    pub turn: u64,
    /// In slow start.
    pub ramping: bool,
    /// In slow start and over its share.
    pub capped: bool,
    /// In the zone of the caller.
    pub near: bool,
}

/// Index in `candidates` of the one to ask; `keyed` when their rank means something. `None` when there is none.
pub fn choose(
    strategy: Strategy,
    candidates: &[Candidate],
    keyed: bool,
    dice: &Dice,
) -> Option<(usize, Why)> {
    match candidates.len() {
        0 => return None,
        1 => return Some((0, Why::Only)),
        _ => {}
    }
    Some(match strategy {
        Strategy::Adaptive => adaptive(candidates, keyed, dice),
        Strategy::Affinity if keyed => affinity::bounded(candidates),
        Strategy::Random | Strategy::Affinity => (dice.below(candidates.len() as u64) as usize, Why::Rule),
        Strategy::RoundRobin => (least(candidates, dice, |candidate| candidate.turn), Why::Rule),
        Strategy::LeastOutstanding => {
            (least(candidates, dice, |candidate| u64::from(candidate.own)), Why::Rule)
        }
        Strategy::PowerOfTwo => {
            let (a, b) = two(candidates.len(), dice);
            (if candidates[b].own < candidates[a].own { b } else { a }, Why::Rule)
        }
    })
}

/// The cheapest of a few. A replica in slow start that has had its share stands back, unless all are new.
fn adaptive(candidates: &[Candidate], keyed: bool, dice: &Dice) -> (usize, Why) {
    if candidates.iter().any(|candidate| candidate.capped && candidate.ramping)
        && candidates.iter().any(|candidate| !candidate.ramping)
    {
        let open: Vec<usize> = (0..candidates.len()).filter(|at| !candidates[*at].capped).collect();
        let some: Vec<Candidate> = open.iter().map(|at| candidates[*at]).collect();
        let (at, why) = if some.len() == 1 { (0, Why::Cost) } else { of_a_few(&some, keyed, dice) };
        return (open[at], why);
    }
    of_a_few(candidates, keyed, dice)
}

fn of_a_few(candidates: &[Candidate], keyed: bool, dice: &Dice) -> (usize, Why) {
    if keyed {
        return affinity::of_first_two(candidates);
    }
    let mut all: Vec<usize> = (0..candidates.len()).collect();
    let looked_at = all.len().min(LOOKED_AT);
    let mut best: Option<(usize, f64)> = None;
    for place in 0..looked_at {
        let left = (all.len() - place) as u64;
        all.swap(place, place + dice.below(left) as usize);
        let cost = candidates[all[place]].cost * (1.0 + JITTER * (dice.unit() - 0.5));
        if best.is_none_or(|(_, least)| cost < least) {
            best = Some((all[place], cost));
        }
    }
    (best.map_or(0, |(at, _)| at), Why::Cost)
}

/// Two different random indexes.
fn two(len: usize, dice: &Dice) -> (usize, usize) {
    let first = dice.below(len as u64) as usize;
    let second = dice.below(len as u64 - 1) as usize;
    (first, second + usize::from(second >= first))
}

/// Index of the least by `by`; ties by lot.
fn least(candidates: &[Candidate], dice: &Dice, by: impl Fn(&Candidate) -> u64) -> usize {
    let best = candidates.iter().map(&by).min().unwrap_or(0);
    let all: Vec<usize> = (0..candidates.len()).filter(|at| by(&candidates[*at]) == best).collect();
    all[dice.below(all.len() as u64) as usize]
}
