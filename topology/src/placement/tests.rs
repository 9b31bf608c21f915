//! Placements of real sizes, and of random ones.

use std::collections::BTreeSet;

use canopy_common::ids::NodeId;
use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

fn leaf(zone: &str, gib: u64) -> Leaf {
    let capacity = Capacity { memory: gib * GIB, disk: gib * GIB, cores: 8 };
    Leaf { zone: zone.to_owned(), class: String::new(), capacity, draining: false }
}

fn name(at: usize) -> NodeId {
    format!("leaf-{at:03}").as_str().into()
}

/// Leaves in three zones, in turn.
fn leaves(count: usize, gib: u64) -> std::collections::BTreeMap<NodeId, Leaf> {
    (0..count).map(|at| (name(at), leaf(["a", "b", "c"][at % 3], gib))).collect()
}

fn group(shards: usize, replicas: u32) -> Group {
    let needs = |at: usize| {
        let bytes = GIB + (at as u64 * 37 % 100) * GIB / 400; // 1 to 1.25 GiB
        ShardNeeds { memory: bytes, disk: bytes, replicas: None }
    };
    let shards = (0..shards).map(needs).collect();
    Group { corpus: "web".into(), name: "main".to_owned(), class: None, replicas, shards }
}

fn fleet(count: usize, shards: usize, replicas: u32) -> Desired {
    Desired { leaves: leaves(count, 1 << 20), groups: vec![group(shards, replicas)] }
}

fn placed(desired: &Desired, last: &Placed) -> Placed {
    let made = place(desired, last).unwrap();
    assert_eq!(made.unmet, Vec::<String>::new());
    check(desired, &made.placed);
    made.placed
}

/// What holds of every placement.
fn check(desired: &Desired, placed: &Placed) {
    let mut disk = std::collections::BTreeMap::<&NodeId, u64>::new();
    for group in &desired.groups {
        for (number, needs) in group.shards.iter().enumerate() {
            let on = &placed[&group.shard(number)];
            assert!(on.len() <= group.replicas_of(needs));
            assert_eq!(on.iter().collect::<BTreeSet<_>>().len(), on.len(), "two on one leaf: {on:?}");
            for node in on {
                let leaf = &desired.leaves[node];
                assert!(!leaf.draining && group.class.as_ref().is_none_or(|class| *class == leaf.class));
                *disk.entry(node).or_default() += needs.disk;
            }
        }
    }
    for (node, held) in disk {
        assert!(held <= desired.leaves[node].capacity.disk, "{node} holds {held}");
    }
}

/// Fullest and emptiest leaf, as parts of the mean.
fn balance(desired: &Desired, placed: &Placed) -> (f64, f64) {
    let mut held: std::collections::BTreeMap<&NodeId, f64> =
        desired.leaves.iter().filter(|(_, leaf)| !leaf.draining).map(|(node, _)| (node, 0.0)).collect();
    for group in &desired.groups {
        for (number, needs) in group.shards.iter().enumerate() {
            for node in &placed[&group.shard(number)] {
                *held.get_mut(node).unwrap() += needs.memory as f64;
            }
        }
    }
    let mean = held.values().sum::<f64>() / held.len() as f64;
    let fold = |start: f64, f: fn(f64, f64) -> f64| held.values().map(|it| it / mean).fold(start, f);
    (fold(0.0, f64::max), fold(f64::INFINITY, f64::min))
}

#[test]
fn a_placement_is_balanced_and_spread_over_zones() {
    let desired = fleet(20, 200, 2);
    let first = placed(&desired, &Placed::new());
    let (most, least) = balance(&desired, &first);
    println!("{least:.3} to {most:.3}");
    assert!(most <= 1.06 && least >= 0.94, "{least} to {most}");
    for on in first.values() {
        assert_ne!(desired.leaves[&on[0]].zone, desired.leaves[&on[1]].zone, "{on:?}");
    }
    assert_eq!(placed(&desired, &first), first, "made again, nothing moves");
}

#[test]
fn one_leaf_more_of_20_moves_at_most_6_per_cent_and_gets_its_share() {
    for (shards, replicas) in [(200, 2), (120, 3), (1024, 1)] {
        let mut desired = fleet(20, shards, replicas);
        let last = placed(&desired, &Placed::new());
        // The third zone has a leaf less; shards with three replicas have one in each.
        desired.leaves.insert("newcomer".into(), leaf("c", 1 << 20));
        let next = placed(&desired, &last);
        let moves = plan(&desired, &last, &next);
        let (most, least) = balance(&desired, &next);
        println!("{shards} x {replicas}: {:.2} % moved, {least:.3} to {most:.3}", moves.moved() * 100.0);
        assert!(moves.moved() <= 0.06, "{}", moves.moved());
        assert!(moves.moved() >= 0.04, "it stays empty: {}", moves.moved());
        assert!(most <= 1.07 && least >= 0.93, "{least} to {most}");
    }
}

/// Shards of one size.
fn alike(count: usize, shards: usize, replicas: u32) -> Desired {
    let mut desired = fleet(count, shards, replicas);
    desired.groups[0].shards.iter_mut().for_each(|it| (it.memory, it.disk) = (GIB, GIB));
    desired
}

/// Shards on each leaf.
fn counts(desired: &Desired, placed: &Placed) -> Vec<usize> {
    let on = |node| placed.values().filter(|on| on.contains(node)).count();
    desired.leaves.keys().map(on).collect()
}

#[test]
fn no_leaf_stays_a_whole_shard_above_its_share() {
    let desired = alike(4, 8, 1);
    let [a, b, c, d] = [0, 1, 2, 3].map(name);
    let uneven: Placed = [&a, &b, &b, &b, &c, &c, &c, &d]
        .into_iter()
        .enumerate()
        .map(|(number, node)| (desired.groups[0].shard(number), vec![node.clone()]))
        .collect();
    let next = placed(&desired, &uneven);
    assert_eq!(counts(&desired, &next), [2; 4]);
    assert_eq!(plan(&desired, &uneven, &next).moves.len(), 2);
    // A small leaf takes its one, though it is fuller by it than the large one was.
    let mut desired = alike(3, 20, 1);
    for (leaf, cores) in desired.leaves.values_mut().zip([10, 9, 1]) {
        leaf.capacity.cores = cores;
    }
    let uneven: Placed = (0..20)
        .map(|number| (desired.groups[0].shard(number), vec![name(usize::from(number < 9))]))
        .collect();
    assert_eq!(counts(&desired, &placed(&desired, &uneven)), [10, 9, 1]);
}

#[test]
fn a_shard_goes_over_a_third_leaf_when_the_zones_ask_for_it() {
    // Everything on the first leaf has its other replica in the zone of the second, which is the one that is empty.
    let mut desired = alike(3, 6, 2);
    let ids = ["a", "b", "c"].map(|zone| desired.leaves.values().position(|leaf| leaf.zone == zone));
    assert_eq!(ids, [Some(0), Some(1), Some(2)]);
    desired.leaves.insert(name(3), leaf("b", 1 << 20));
    let [a, b, c] = [0, 1, 2].map(name);
    let on = [[&a, &b], [&a, &b], [&a, &b], [&a, &b], [&b, &c], [&b, &c]];
    let uneven: Placed = on
        .into_iter()
        .enumerate()
        .map(|(number, on)| (desired.groups[0].shard(number), on.map(Clone::clone).to_vec()))
        .collect();
    let next = placed(&desired, &uneven);
    assert_eq!(counts(&desired, &next), [3; 4]);
    for on in next.values() {
        assert_ne!(desired.leaves[&on[0]].zone, desired.leaves[&on[1]].zone, "{on:?}");
    }
}

#[test]
fn the_loss_of_a_leaf_moves_about_what_it_held() {
    let mut desired = fleet(20, 200, 2);
    let last = placed(&desired, &Placed::new());
    desired.leaves.remove(&name(7));
    let moves = plan(&desired, &last, &placed(&desired, &last));
    assert!((0.045..=0.065).contains(&moves.moved()), "{}", moves.moved());
    assert!(moves.moves.iter().all(|it| it.drop != Some(name(7))), "it is gone");
    // Emptying one on purpose does the same, and its copies stay until the new ones answer.
    let mut desired = fleet(20, 200, 2);
    desired.leaves.get_mut(&name(7)).unwrap().draining = true;
    let next = placed(&desired, &last);
    let moves = plan(&desired, &last, &next);
    assert!((0.045..=0.065).contains(&moves.moved()), "{}", moves.moved());
    let emptied = moves.moves.iter().filter(|it| it.drop == Some(name(7))).count();
    assert_eq!(emptied, last.values().filter(|on| on.contains(&name(7))).count());
    assert!(next.values().all(|on| !on.contains(&name(7))));
}

#[test]
fn larger_leaves_hold_more_and_hardware_is_chosen() {
    let mut desired = fleet(12, 300, 2);
    desired.leaves.values_mut().take(6).for_each(|leaf| leaf.capacity.memory *= 2);
    let made = placed(&desired, &Placed::new());
    let held = |node: &NodeId| made.values().filter(|on| on.contains(node)).count() as f64;
    // Their disks are no larger.
    assert!(
        (1.2..1.8).contains(&(held(&name(0)) / held(&name(11)))),
        "{} {}",
        held(&name(0)),
        held(&name(11))
    );
    desired
        .leaves
        .values_mut()
        .take(6)
        .for_each(|leaf| leaf.capacity = Capacity { disk: leaf.capacity.memory, cores: 16, ..leaf.capacity });
    let made = placed(&desired, &Placed::new());
    let held = |node: &NodeId| made.values().filter(|on| on.contains(node)).count() as f64;
    assert!((held(&name(0)) / held(&name(11)) - 2.0).abs() < 0.3, "{} {}", held(&name(0)), held(&name(11)));

    desired.leaves.values_mut().take(4).for_each(|leaf| "nvme".clone_into(&mut leaf.class));
    let mut hot = group(20, 3);
    (hot.name, hot.class) = ("hot".to_owned(), Some("nvme".to_owned()));
    desired.groups.push(hot);
    placed(&desired, &made);
}

#[test]
fn a_hot_shard_gets_more_replicas_and_nothing_else_moves() {
    let mut desired = fleet(20, 100, 2);
    let last = placed(&desired, &Placed::new());
    desired.groups[0].shards[3].replicas = Some(5);
    let next = placed(&desired, &last);
    let moves = plan(&desired, &last, &next);
    assert_eq!(next[&desired.groups[0].shard(3)].len(), 5);
    assert_eq!(next[&desired.groups[0].shard(3)][..2], last[&desired.groups[0].shard(3)][..], "rows stay");
    assert!(moves.moves.len() <= 5, "{:?}", moves.moves);
    desired.groups[0].shards[3].replicas = None;
    assert_eq!(placed(&desired, &next)[&desired.groups[0].shard(3)].len(), 2);
}

#[test]
fn crowded_zones_are_relieved_when_there_is_room() {
    let mut desired = fleet(6, 30, 2);
    desired.leaves.values_mut().for_each(|leaf| leaf.zone = "a".to_owned());
    let last = placed(&desired, &Placed::new());
    for at in 6..12 {
        desired.leaves.insert(name(at), leaf("b", 1 << 20));
    }
    let next = placed(&desired, &last);
    for on in next.values() {
        assert_ne!(desired.leaves[&on[0]].zone, desired.leaves[&on[1]].zone);
    }
}

#[test]
fn what_cannot_be_met_is_said_and_the_rest_is_placed() {
    let mut desired = fleet(2, 10, 3);
    let made = place(&desired, &Placed::new()).unwrap();
    let [few] = &made.unmet[..] else { panic!("once, not for each shard: {:?}", made.unmet) };
    assert!(few.contains("too few leaves: 10 shards of main want 3 replicas"), "{few}");
    assert!(few.contains("there are 2 leaves") && !few.contains("bytes"), "{few}");
    assert!(made.placed.values().all(|on| on.len() == 2));
    desired.groups[0].replicas = 1;
    desired.leaves.values_mut().for_each(|leaf| leaf.capacity.disk = 3 * GIB);
    let made = place(&desired, &Placed::new()).unwrap();
    check(&desired, &made.placed);
    assert!(!made.unmet.is_empty() && made.unmet.len() < 8, "{:?}", made.unmet);
    desired.groups[0].replicas = 0;
    desired.groups.push(desired.groups[0].clone());
    desired.groups[1].shards.clear();
    let keys: BTreeSet<String> =
        place(&desired, &Placed::new()).unwrap_err().into_iter().map(|(key, _)| key).collect();
    assert_eq!(
        keys.into_iter().collect::<Vec<_>>(),
        ["groups[0].replicas", "groups[1].name", "groups[1].shards"]
    );
}

#[test]
fn a_fleet_of_15_600_leaves_with_one_replica_each() {
    let needs = ShardNeeds { memory: GIB, disk: GIB, replicas: None };
    let main = Group { shards: vec![needs; 200], ..group(1, 78) };
    let desired = Desired { leaves: leaves(15_600, 2), groups: vec![main] };
    let first = placed(&desired, &Placed::new());
    assert_eq!(balance(&desired, &first), (1.0, 1.0));
    let mut less = desired.clone();
    less.leaves.remove(&name(1_234));
    less.leaves.insert("spare".into(), leaf("a", 2));
    let next = placed(&less, &first);
    assert_eq!(plan(&less, &first, &next).moves.len(), 1);
}

#[test]
fn the_order_of_the_ring_is_pinned_for_ever() {
    let made = placed(&fleet(6, 4, 2), &Placed::new());
    let list: Vec<String> = made.iter().map(|(shard, on)| format!("{shard} {} {}", on[0], on[1])).collect();
    let expected = [
        "web:main/0 leaf-003 leaf-002",
        "web:main/1 leaf-001 leaf-003",
        "web:main/2 leaf-000 leaf-002",
        "web:main/3 leaf-005 leaf-004",
    ];
    assert_eq!(list, expected);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn no_leaf_is_a_whole_shard_above_its_share_where_that_can_be_had(
        cores in prop::collection::vec(1..9_u32, 1..20),
        shards in 1..60_usize,
        replicas in 1..4_u32,
        shuffle in prop::collection::vec(0..20_usize, 60),
    ) {
        let mut desired = alike(cores.len(), shards, replicas);
        for (leaf, cores) in desired.leaves.values_mut().zip(&cores) {
            "a".clone_into(&mut leaf.zone);
            leaf.capacity.cores = *cores;
        }
        let sum: u32 = cores.iter().sum();
        let all = shards * replicas.min(cores.len() as u32) as usize;
        // Memory and disk are alike, so a share goes by the scarcest: cores where there are fewer than on average.
        let parts: Vec<f64> =
            cores.iter().map(|it| (f64::from(*it) / f64::from(sum)).min(1.0 / cores.len() as f64)).collect();
        let whole: f64 = parts.iter().sum();
        let most: Vec<usize> = parts
            .iter()
            .map(|part| (part / whole * (shards * replicas as usize) as f64 - 1e-6).ceil() as usize)
            .collect();
        // Each leaf holds a shard once at most.
        prop_assume!(most.iter().map(|most| *most.min(&shards)).sum::<usize>() >= all);
        prop_assume!(most.iter().all(|most| *most <= shards) && all == shards * replicas as usize);
        let from: Placed = (0..shards)
            .map(|number| (desired.groups[0].shard(number), vec![name(shuffle[number] % cores.len())]))
            .collect();
        for last in [Placed::new(), from] {
            let next = place(&desired, &last).unwrap();
            check(&desired, &next.placed);
            let held = counts(&desired, &next.placed);
            prop_assert!(held.iter().zip(&most).all(|(held, most)| held <= most), "{held:?} of {most:?}");
            prop_assert_eq!(&place(&desired, &next.placed).unwrap().placed, &next.placed, "made again, nothing moves");
        }
    }

    #[test]
    fn zones_of_one_size_are_filled_evenly_and_a_leaf_more_moves_little(
        per_zone in 2..7_usize,
        shards in 20..300_usize,
        replicas in 1..4_u32,
    ) {
        let desired = alike(per_zone * 3, shards, replicas);
        let most = (shards * replicas as usize).div_ceil(per_zone * 3);
        let first = placed(&desired, &Placed::new());
        let held = counts(&desired, &first);
        prop_assert!(held.iter().all(|held| *held <= most), "{held:?} of {most}");
        let mut more = alike(20, shards, replicas);
        more.leaves.values_mut().for_each(|leaf| "a".clone_into(&mut leaf.zone));
        let last = placed(&more, &Placed::new());
        more.leaves.insert("newcomer".into(), leaf("a", 1 << 20));
        let next = placed(&more, &last);
        let moved = plan(&more, &last, &next).moved();
        prop_assert!(moved <= 0.06, "{moved}");
        let most = (shards * replicas as usize).div_ceil(21);
        let held = counts(&more, &next);
        prop_assert!(held.iter().all(|held| *held <= most), "{held:?} of {most}");
    }

    #[test]
    fn whatever_comes_and_goes_the_rules_hold(
        count in 1..24_usize,
        shards in 1..60_usize,
        replicas in 1..5_u32,
        gib in prop::collection::vec(1..200_u64, 24),
        changes in prop::collection::vec((any::<bool>(), 0..24_usize, 1..5_u32), 1..6),
    ) {
        let mut desired = fleet(count, shards, replicas);
        for (leaf, gib) in desired.leaves.values_mut().zip(&gib) {
            (leaf.capacity.memory, leaf.capacity.disk) = (gib * GIB, gib * GIB);
        }
        let mut last = Placed::new();
        for (joins, at, replicas) in changes {
            let next = place(&desired, &last).unwrap();
            check(&desired, &next.placed);
            let again = place(&desired, &next.placed).unwrap();
            prop_assert_eq!(&again.placed, &place(&desired, &next.placed).unwrap().placed);
            // At no moment fewer replicas than the smaller of before and after.
            let moves = plan(&desired, &last, &next.placed);
            let mut held = last.clone();
            for on in held.values_mut() {
                on.retain(|node| desired.leaves.contains_key(node));
            }
            for shard in next.placed.keys() {
                held.entry(shard.clone()).or_default();
            }
            let before = held.clone();
            for step in moves.steps() {
                match step {
                    PlanStep::Load(shard, node) => held.entry(shard.clone()).or_default().push(node.clone()),
                    PlanStep::Drop(shard, node) => held.get_mut(shard).unwrap().retain(|it| it != node),
                }
                for (shard, on) in &held {
                    let old = before.get(shard).map_or(0, Vec::len);
                    let new = next.placed.get(shard).map_or(0, Vec::len);
                    prop_assert!(on.len() >= old.min(new), "{}", shard);
                }
            }
            let set = |placed: &Placed| -> Vec<BTreeSet<NodeId>> {
                placed.values().map(|on| on.iter().cloned().collect()).collect()
            };
            prop_assert_eq!(set(&held), set(&next.placed));
            last = next.placed;
            if joins {
                desired.leaves.insert(name(100 + at), leaf("d", 100));
            } else {
                desired.leaves.remove(&name(at));
            }
            desired.groups[0].replicas = replicas;
        }
    }
}
