//! Moves shards from the fullest to the emptiest leaf until each is near its share.
//!
//! Only leaves further from their share than 5 %, and than a shard of mean size, start a move, and each move makes the two
//! more alike than they were, so it ends and moves little. A leaf that joins is the emptiest: it gets its share, from
//! the fullest.

use std::collections::BTreeSet;

use super::{loads::Loads, place::can_hold};

/// How far from its share a leaf may be.
pub const SLACK: f64 = 0.05;
/// Partners that are tried for one leaf before it is left as it is.
const PARTNERS: usize = 256;

/// Moves what has to be moved.
pub fn level(loads: &mut Loads<'_>) {
    let mut order: BTreeSet<(u64, usize)> = (0..loads.leaves.len())
        .filter(|leaf| loads.leaves[*leaf].target > 0.0)
        .map(|leaf| (rank(loads, leaf), leaf))
        .collect();
    let mut done: BTreeSet<usize> = BTreeSet::new();
    let most = loads.items.iter().map(|item| item.on.len()).sum::<usize>();
    let bytes = loads.leaves.iter().map(|leaf| leaf.memory as f64).sum::<f64>();
    let shard = bytes / most.max(1) as f64;
    // Each turn moves a shard or leaves a leaf as it is; a shard may pass over several.
    for _ in 0..=most * 2 + loads.leaves.len() {
        let worst = |low: bool| {
            let mut open = order.iter().filter(|(_, leaf)| !done.contains(leaf));
            let (_, leaf) = *(if low { open.next() } else { open.next_back() })?;
            let fullness = loads.leaves[leaf].fullness();
            let off = if low { 1.0 - fullness } else { fullness - 1.0 };
            (off > SLACK.max(shard / loads.leaves[leaf].target)).then_some((leaf, off))
        };
        let found = match (worst(true), worst(false)) {
            (Some((low, under)), Some((_, over))) if under >= over => (low, true),
            (_, Some((high, _))) => (high, false),
            (Some((low, _)), None) => (low, true),
            (None, None) => return,
        };
        let (leaf, low) = found;
        let partners: Vec<usize> = if low {
            order.iter().rev().map(|(_, other)| *other).take(PARTNERS).collect()
        } else {
            order.iter().map(|(_, other)| *other).take(PARTNERS).collect()
        };
        let mut pairs = partners.into_iter().map(|other| if low { (other, leaf) } else { (leaf, other) });
        let Some((item, from, to)) =
            pairs.find_map(|(from, to)| Some((shard_to_move(loads, from, to)?, from, to)))
        else {
            done.insert(leaf);
            continue;
        };
        for leaf in [from, to] {
            order.remove(&(rank(loads, leaf), leaf));
        }
        loads.replace(item, from, to);
        for leaf in [from, to] {
            order.insert((rank(loads, leaf), leaf));
        }
    }
}

/// Fullness as a number that can be ordered.
fn rank(loads: &Loads<'_>, leaf: usize) -> u64 {
    (loads.leaves[leaf].fullness() * 1e9) as u64
}

/// The largest shard whose move makes the two leaves more alike and no zone more crowded than an even spread needs.
fn shard_to_move(loads: &Loads<'_>, from: usize, to: usize) -> Option<usize> {
    if from == to {
        return None;
    }
    let (giver, taker) = (&loads.leaves[from], &loads.leaves[to]);
    let zones = [giver.leaf.zone.as_str(), taker.leaf.zone.as_str()];
    let fits = |item: &usize| {
        let it = &loads.items[*item];
        let same_zone = zones[0] == zones[1];
        // After it, the taker must be less full than the giver was.
        taker.fullness_with(it.needs.memory) + 1e-9 < giver.fullness()
            && can_hold(loads, *item, to)
            && (same_zone || loads.in_zone(*item, zones[1]) < it.zone_limit)
    };
    giver
        .held
        .iter()
        .copied()
        .filter(fits)
        .max_by_key(|item| (loads.items[*item].needs.memory, std::cmp::Reverse(*item)))
}
