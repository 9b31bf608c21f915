//! No leaf holds more whole shards than its share, rounded up, where that can be had.
//!
//! The failure this prevents: of 8 replicas on 4 equal leaves one, three, three and one. Each is a shard from its share, which
//! a bound on the distance from the share lets pass, and two leaves do half as much again as they should. Rule: a
//! leaf that could give its smallest shard away and still have its share gives one, to a leaf that is not in that place by
//! taking it; where none may take one of its shards (zones, a replica of it there already), over others, each of which
//! passes one on. Every move ends so with one replica less above a share, so it ends, and moves no more than there is to
//! move.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::{loads::Loads, place::can_hold};

/// Leaves that are looked at for one shard before the leaf is left as it is.
const LOOKED_AT: usize = 256;

/// A shard from one leaf to another.
type Step = (usize, usize, usize);

/// Moves what has to be moved.
pub fn whole(loads: &mut Loads<'_>) {
    let mut over: Vec<usize> = (0..loads.leaves.len()).filter(|leaf| is_over(loads, *leaf)).collect();
    // The fullest first, since it has most to give.
    over.sort_by(|a, b| loads.leaves[*b].fullness().total_cmp(&loads.leaves[*a].fullness()));
    let mut vain = BTreeSet::new();
    for leaf in over {
        while is_over(loads, leaf) && relieve(loads, leaf, &mut vain) {}
    }
}

/// Whether it would still have its share without its smallest shard.
fn is_over(loads: &Loads<'_>, leaf: usize) -> bool {
    let load = &loads.leaves[leaf];
    let smallest = load.held.iter().map(|item| loads.items[*item].needs.memory).min();
    // Of a leaf that is emptied, what it can't give is not above its share.
    load.target > 0.0
        && smallest.is_some_and(|smallest| {
            // Shares are sums of fractions: what is one to nine digits is one.
            load.memory.saturating_sub(smallest) as f64 >= load.target * (1.0 - 1e-9)
        })
}

/// Moves one shard away, over others where need be; false: nothing could be done. `vain`: leaves from which no way leads
/// anywhere since the last move.
fn relieve(loads: &mut Loads<'_>, leaf: usize, vain: &mut BTreeSet<usize>) -> bool {
    let emptiest = emptiest(loads);
    let mut came: BTreeMap<usize, Step> = BTreeMap::new();
    let mut open = VecDeque::from([leaf]);
    while let Some(from) = open.pop_front() {
        for to in emptiest.iter().copied() {
            if to == leaf || came.contains_key(&to) || vain.contains(&to) {
                continue;
            }
            let Some(item) = passes(loads, from, to) else { continue };
            came.insert(to, (item, from, to));
            if takes(loads, to) && along(loads, &way(&came, leaf, to)) {
                vain.clear();
                return true;
            }
            open.push_back(to);
        }
    }
    vain.extend(came.into_keys());
    false
}

/// The leaves that are looked at, the emptiest first.
fn emptiest(loads: &Loads<'_>) -> Vec<usize> {
    let fuller = |a: &usize, b: &usize| {
        loads.leaves[*a].fullness().total_cmp(&loads.leaves[*b].fullness()).then(a.cmp(b))
    };
    let mut all: Vec<usize> =
        (0..loads.leaves.len()).filter(|leaf| loads.leaves[*leaf].target > 0.0).collect();
    if all.len() > LOOKED_AT {
        all.select_nth_unstable_by(LOOKED_AT, fuller);
        all.truncate(LOOKED_AT);
    }
    all.sort_unstable_by(fuller);
    all
}

/// Whether it has less than its share, so that one more is not above it.
fn takes(loads: &Loads<'_>, leaf: usize) -> bool {
    let load = &loads.leaves[leaf];
    (load.memory as f64) < load.target * (1.0 - 1e-9)
}

/// The steps from the one leaf to the other.
fn way(came: &BTreeMap<usize, Step>, from: usize, to: usize) -> Vec<Step> {
    let (mut steps, mut at) = (Vec::new(), to);
    while at != from {
        let Some(step) = came.get(&at) else { break };
        steps.push(*step);
        at = step.1;
    }
    steps
}

/// The smallest shard that one may give to the other; whether there is room shows when its turn comes.
fn passes(loads: &Loads<'_>, from: usize, to: usize) -> Option<usize> {
    let may = |item: &usize| {
        let it = &loads.items[*item];
        loads.leaves[to].allowed(it.group)
            && !loads.leaves[to].held.contains(item)
            && spread(loads, *item, from, to)
    };
    let held = loads.leaves[from].held.iter().copied();
    held.filter(may).min_by_key(|item| (loads.items[*item].needs.memory, *item))
}

/// Whether no zone gets more of a shard than an even spread needs.
fn spread(loads: &Loads<'_>, item: usize, from: usize, to: usize) -> bool {
    let [old, new] = [from, to].map(|leaf| loads.leaves[leaf].leaf.zone.as_str());
    old == new || loads.in_zone(item, new) < loads.items[item].zone_limit
}

/// Takes these steps, the last leaf's first; none of them when one can't be taken, or when another leaf than the first was
/// relieved at the cost of one that is over then.
fn along(loads: &mut Loads<'_>, steps: &[Step]) -> bool {
    let before: Vec<bool> = steps.iter().map(|(_, _, to)| is_over(loads, *to)).collect();
    let mut taken = 0;
    for (item, from, to) in steps.iter().copied() {
        let can = loads.leaves[from].held.contains(&item)
            && can_hold(loads, item, to)
            && spread(loads, item, from, to);
        if !can {
            break;
        }
        loads.replace(item, from, to);
        taken += 1;
    }
    let worse = |(step, before): (&Step, &bool)| !before && is_over(loads, step.2);
    if taken == steps.len() && !steps.iter().zip(&before).any(worse) {
        return true;
    }
    for (item, from, to) in steps.iter().copied().take(taken).rev() {
        loads.replace(item, to, from);
    }
    false
}
