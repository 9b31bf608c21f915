//! Makes a placement from the last one: keep, spread, fill, level, and no leaf a whole shard above its share.

use std::collections::BTreeMap;

use canopy_common::ids::NodeId;

use super::{
    desired::{CorpusShard, Desired},
    level::{SLACK, level},
    loads::{Item, Loads},
    ring::Ring,
    whole::whole,
};

/// Passes until nothing moves any more: what the last rule moved may give an earlier one something to do, and a placement that
/// is made again shall move nothing.
const SETTLES: usize = 8;

/// Leaves of each shard, in rows.
pub type Placed = BTreeMap<CorpusShard, Vec<NodeId>>;

/// A placement.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placement {
    /// Who holds what.
    pub placed: Placed,
    /// What could not be met, in words.
    pub unmet: Vec<String>,
}

/// Places what is desired, moving as little as can be of the last placement. Errors: every problem of `desired`, as
/// `(key, reason)`.
pub fn place(desired: &Desired, last: &Placed) -> Result<Placement, Vec<(String, String)>> {
    let problems = desired.problems();
    if !problems.is_empty() {
        return Err(problems);
    }
    let mut placement = arrange(desired, last);
    for _ in 0..SETTLES {
        let again = arrange(desired, &placement.placed);
        if again.placed == placement.placed {
            break;
        }
        placement = again;
    }
    Ok(placement)
}

/// One pass of all rules.
fn arrange(desired: &Desired, last: &Placed) -> Placement {
    let mut loads = Loads::new(desired);
    keep(&mut loads, last);
    let ring = ring(&loads);
    spread(&mut loads, &ring);
    fill(&mut loads, &ring);
    level(&mut loads);
    whole(&mut loads);
    result(&loads)
}

fn ring(loads: &Loads<'_>) -> Ring {
    let usable = || loads.leaves.iter().enumerate().filter(|(_, load)| !load.leaf.draining);
    let mean = usable().map(|(_, load)| load.target).sum::<f64>() / usable().count().max(1) as f64;
    let share = move |target: f64| if mean > 0.0 { target / mean } else { 1.0 };
    Ring::new(usable().map(|(at, load)| (at, load.id, share(load.target))))
}

/// What still fits stays; of too many replicas those go whose zone is fullest, then those whose leaf is.
fn keep(loads: &mut Loads<'_>, last: &Placed) {
    for item in 0..loads.items.len() {
        let Some(nodes) = last.get(&loads.items[item].shard) else { continue };
        for node in nodes {
            let Some(leaf) = loads.numbers.get(node).copied() else { continue };
            let (load, it) = (&loads.leaves[leaf], &loads.items[item]);
            if load.allowed(it.group) && load.fits(&it.needs) && !load.held.contains(&item) {
                loads.add(item, leaf);
            }
        }
    }
    for item in 0..loads.items.len() {
        while loads.items[item].on.len() > loads.items[item].replicas {
            let crowd = |leaf: &usize| {
                let load = &loads.leaves[*leaf];
                (loads.in_zone(item, &load.leaf.zone), (load.fullness() * 1e6) as u64)
            };
            let Some(surplus) = loads.items[item].on.iter().copied().max_by_key(crowd) else { break };
            loads.remove(item, surplus);
        }
    }
}

/// Moves replicas out of zones that have more of a shard than an even spread needs, where another zone has room.
fn spread(loads: &mut Loads<'_>, ring: &Ring) {
    for item in 0..loads.items.len() {
        for row in (0..loads.items[item].on.len()).rev() {
            let (leaf, limit) = (loads.items[item].on[row], loads.items[item].zone_limit);
            if loads.in_zone(item, &loads.leaves[leaf].leaf.zone) <= limit {
                continue;
            }
            let better = ring.from(&loads.items[item].shard, row).find(|other| {
                can_hold(loads, item, *other)
                    && has_room(loads, item, *other)
                    && loads.in_zone(item, &loads.leaves[*other].leaf.zone) < limit
            });
            if let Some(better) = better {
                loads.replace(item, leaf, better);
            }
        }
    }
}

/// Finds leaves for what is missing, largest shards first.
fn fill(loads: &mut Loads<'_>, ring: &Ring) {
    let mut order: Vec<usize> = (0..loads.items.len()).collect();
    order.sort_by_key(|item| std::cmp::Reverse(loads.items[*item].needs.memory));
    for item in order {
        for row in loads.items[item].on.len()..loads.items[item].replicas {
            let (mut best, mut leaf) = (0, None);
            for other in ring.from(&loads.items[item].shard, row) {
                if !can_hold(loads, item, other) {
                    continue;
                }
                let spread =
                    loads.in_zone(item, &loads.leaves[other].leaf.zone) < loads.items[item].zone_limit;
                // The spread over zones goes before the balance.
                let worth = 1 + 2 * u8::from(spread) + u8::from(has_room(loads, item, other));
                if worth > best {
                    (best, leaf) = (worth, Some(other));
                }
                if best == 4 {
                    break;
                }
            }
            match leaf {
                Some(leaf) => loads.add(item, leaf),
                None => break,
            }
        }
    }
}

/// Whether the leaf may and can hold one more replica of the shard.
pub(super) fn can_hold(loads: &Loads<'_>, item: usize, leaf: usize) -> bool {
    let (load, it) = (&loads.leaves[leaf], &loads.items[item]);
    load.allowed(it.group) && load.fits(&it.needs) && !load.held.contains(&item)
}

/// Whether it stays within its share by taking it, or comes nearer to it.
fn has_room(loads: &Loads<'_>, item: usize, leaf: usize) -> bool {
    let (load, bytes) = (&loads.leaves[leaf], loads.items[item].needs.memory);
    load.fullness_with(bytes) <= 1.0 + SLACK || load.fullness_with(bytes.div_ceil(2)) <= 1.0
}

fn allowed(loads: &Loads<'_>, item: &Item<'_>) -> usize {
    loads.leaves.iter().filter(|load| load.allowed(item.group)).count()
}

fn class(item: &Item<'_>) -> String {
    item.group.class.as_deref().map_or(String::new(), |class| format!(" of class {class:?}"))
}

/// Groups of which a shard is to have more replicas than there are leaves, each once: a leaf holds a shard once.
fn too_few(loads: &Loads<'_>) -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str), (&Item<'_>, usize, usize)> = BTreeMap::new();
    for item in loads.items.iter().filter(|item| item.on.len() < item.replicas) {
        let allowed = allowed(loads, item);
        if allowed < item.replicas {
            let key = (&*item.group.corpus, item.group.name.as_str());
            groups.entry(key).or_insert((item, allowed, 0)).2 += 1;
        }
    }
    let line = |(item, allowed, shards): (&Item<'_>, usize, usize)| {
        let wanted = item.replicas;
        format!(
            "too few leaves: {shards} shards of {} want {wanted} replicas each, on as many leaves, and there are {allowed} leaves{} \
             that may hold them; add {} or ask for fewer replicas",
            item.group.name,
            class(item),
            wanted - allowed
        )
    };
    groups.into_values().map(line).collect()
}

fn result(loads: &Loads<'_>) -> Placement {
    let (mut placed, mut unmet) = (Placed::new(), too_few(loads));
    for (number, item) in loads.items.iter().enumerate() {
        let (shard, wanted, has) = (&item.shard, item.replicas, item.on.len());
        // Asked of every leaf: only where it is needed.
        let allowed = if has < wanted { allowed(loads, item) } else { 0 };
        if has < wanted && allowed >= wanted {
            unmet.push(format!(
                "{shard} has {has} of {wanted} replicas: of {allowed} leaves{} no other has {} bytes of memory and {} of disk \
                 free; add leaves or ask for fewer replicas",
                class(item),
                item.needs.memory,
                item.needs.disk
            ));
        }
        let zones: std::collections::BTreeSet<&str> =
            item.on.iter().map(|leaf| loads.leaves[*leaf].leaf.zone.as_str()).collect();
        let crowded = zones.into_iter().find(|zone| loads.in_zone(number, zone) > item.zone_limit);
        if let Some(zone) = crowded {
            let count = loads.in_zone(number, zone);
            unmet.push(format!(
                "{shard} has {count} of {has} replicas in zone {zone:?}; other zones have no room"
            ));
        }
        placed.insert(shard.clone(), item.on.iter().map(|leaf| loads.leaves[*leaf].id.clone()).collect());
    }
    Placement { placed, unmet }
}
