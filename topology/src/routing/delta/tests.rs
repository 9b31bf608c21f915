//! Applying a delta gives the next snapshot, whatever changed; and what it costs in a large tree.

use proptest::prelude::*;

use super::*;
use crate::{config::Role, routing::Node};

fn node(at: usize) -> Node {
    let address = format!("leaf-{at}.example:7000");
    Node { role: Role::Leaf, address, admin: String::new(), zone: ["a", "b", "c"][at % 3].to_owned() }
}

fn name(at: usize) -> NodeId {
    format!("leaf-{at:05}").as_str().into()
}

/// `shards` shards of `replicas` replicas, each on a leaf of its own, in one version.
fn fleet(shards: usize, replicas: usize) -> RoutingSnapshot {
    let list =
        |shard: usize| -> Arc<[NodeId]> { (0..replicas).map(|row| name(shard * replicas + row)).collect() };
    let all: Replicas = (0..shards).map(|shard| (ShardId::new("main", shard as u32), list(shard))).collect();
    let versions = [(Version(1), VersionRouting { wanted: all.clone(), held: all })].into();
    let pins = vec![Pin { version: Version(1), share: 10_000 }];
    let corpus = CorpusRouting { pins, versions, ..CorpusRouting::default() };
    RoutingSnapshot {
        epoch: Epoch(1),
        nodes: (0..shards * replicas).map(|at| (name(at), node(at))).collect(),
        corpora: [("web".to_owned(), corpus)].into(),
        ..RoutingSnapshot::default()
    }
}

fn next(old: &RoutingSnapshot, change: impl FnOnce(&mut RoutingSnapshot)) -> RoutingSnapshot {
    let mut next = old.clone();
    next.epoch.0 += 1;
    change(&mut next);
    next
}

fn web(snapshot: &mut RoutingSnapshot) -> &mut CorpusRouting {
    snapshot.corpora.entry("web".to_owned()).or_default()
}

/// Sends what changed; its bytes.
fn sent(old: &RoutingSnapshot, new: &RoutingSnapshot) -> usize {
    let bytes = RoutingDelta::between(old, new).to_json();
    let delta = RoutingDelta::from_json(&bytes).unwrap();
    assert_eq!(delta.apply(old).as_ref(), Ok(new));
    bytes.len()
}

#[test]
fn a_tree_of_20000_leaves_is_sent_in_small_pieces() {
    let tree = fleet(200, 100);
    let whole = tree.to_json().len();
    let without = |replicas: &mut Replicas, leaf: &NodeId| {
        let shard = ShardId::new("main", 7);
        let left: Vec<NodeId> = replicas[&shard].iter().filter(|it| *it != leaf).cloned().collect();
        replicas.insert(shard, left.into());
    };
    let lost = sent(
        &tree,
        &next(&tree, |tree| {
            let leaf = name(742);
            tree.nodes.remove(&leaf);
            without(&mut web(tree).versions.get_mut(&Version(1)).unwrap().held, &leaf);
        }),
    );
    let pins = sent(
        &tree,
        &next(&tree, |tree| {
            web(tree).pins =
                vec![Pin { version: Version(2), share: 100 }, Pin { version: Version(1), share: 9_900 }];
            web(tree).trial =
                Some(Trial { version: Version(2), control: Version(1), shadow: 0, compared: 100, gate: 7 });
        }),
    );
    let staged = next(&tree, |tree| {
        let wanted = web(tree).versions[&Version(1)].wanted.clone();
        web(tree).versions.insert(Version(2), VersionRouting { wanted, held: Replicas::new() });
    });
    let second = sent(&tree, &staged);
    let row = |snapshot: &RoutingSnapshot, rows: usize| {
        next(snapshot, |tree| {
            let routing = web(tree).versions.get_mut(&Version(2)).unwrap();
            routing.held =
                routing.wanted.iter().map(|(shard, nodes)| (shard.clone(), nodes[..rows].into())).collect();
        })
    };
    let (first, second_row) = (row(&staged, 1), row(&row(&staged, 1), 2));
    let warm = sent(&first, &second_row);
    println!("whole {whole}, lost {lost}, pins {pins}, second version {second}, a row warm {warm} bytes");
    assert!(whole > 1_500_000 && lost < 300 && pins < 300 && warm < 25_000, "{whole} {lost} {pins} {warm}");
    assert!(second < 500_000, "{second}");
}

#[test]
fn what_comes_late_twice_or_after_a_gap_is_refused() {
    let one = fleet(2, 2);
    let two = next(&one, |tree| web(tree).pins.clear());
    let three = next(&two, |tree| {
        tree.nodes.remove(&name(0));
    });
    let (first, second) = (RoutingDelta::between(&one, &two), RoutingDelta::between(&two, &three));
    assert_eq!(second.apply(&one), Err(DeltaError::Gap { at: 1, from: 2 }));
    assert_eq!(first.apply(&two), Err(DeltaError::Old { at: 2, to: 2 }));
    assert_eq!(first.apply(&three), Err(DeltaError::Old { at: 3, to: 2 }));
    assert_eq!(RoutingDelta::between(&one, &three).apply(&one), Ok(three.clone()), "from any to any later");
    let other = next(&one, |tree| tree.nodes.clear());
    assert!(matches!(second.apply(&other), Err(DeltaError::Unfit { .. })));
    for bad in ["", "{}", r#"{"from":1,"to":2,"extra":0}"#] {
        assert!(RoutingDelta::from_json(bad.as_bytes()).is_err(), "{bad}");
    }
}

#[test]
fn an_edit_that_does_not_fit_is_refused() {
    let list = [name(1), name(2)];
    let some = |out: &[usize], into: &[(usize, usize)]| Edit::Some {
        out: out.iter().map(|at| name(*at)).collect(),
        into: into.iter().map(|(at, node)| (*at, name(*node))).collect(),
    };
    assert_eq!(some(&[1], &[(0, 3)]).apply(Some(&list)), Ok(Some(vec![name(3), name(2)])));
    for bad in [some(&[3], &[]), some(&[], &[(3, 4)]), some(&[], &[(0, 2)])] {
        assert!(bad.apply(Some(&list)).is_err(), "{bad:?}");
        assert!(bad.apply(None).is_err(), "{bad:?}");
    }
}

/// A snapshot out of few names, so that two of them have much in common.
fn any_snapshot(epoch: u64) -> impl Strategy<Value = RoutingSnapshot> {
    let list = prop::collection::vec(0..8_usize, 1..6).prop_map(|nodes| {
        let mut seen = BTreeSet::new();
        nodes.into_iter().filter(|at| seen.insert(*at)).map(name).collect::<Vec<_>>()
    });
    let replicas = prop::collection::btree_map(0..5_u32, list, 0..5).prop_map(|lists| -> Replicas {
        lists.into_iter().map(|(shard, nodes)| (ShardId::new("main", shard), nodes.into())).collect()
    });
    let version =
        (replicas.clone(), replicas.clone()).prop_map(|(wanted, held)| VersionRouting { wanted, held });
    let versions = prop::collection::btree_map((1..4_u64).prop_map(Version), version, 0..3);
    let corpus = (replicas, versions, prop::option::of(1..3_u64), 0..3_u32).prop_map(
        |(shards, versions, fixed, pins)| {
            let pins = (0..pins).map(|at| Pin { version: Version(u64::from(at) + 1), share: 100 }).collect();
            CorpusRouting {
                version: fixed.map(Version),
                shards,
                pins,
                trial: None,
                placed_shards: 0,
                versions,
            }
        },
    );
    let corpora = prop::collection::btree_map(
        prop::sample::select(vec!["web".to_owned(), "news".to_owned()]),
        corpus,
        0..3,
    );
    let nodes = prop::collection::btree_map((0..8_usize).prop_map(name), (0..3_usize).prop_map(node), 0..8);
    let why = prop::sample::select(vec![Last::Faulty, Last::Leaving]);
    let last = prop::collection::btree_map((0..8_usize).prop_map(name), why, 0..4);
    (nodes, corpora, last).prop_map(move |(nodes, corpora, last)| RoutingSnapshot {
        epoch: Epoch(epoch),
        nodes,
        corpora,
        last,
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn applying_gives_the_next_snapshot_with_shared_lists(old in any_snapshot(3), new in any_snapshot(5)) {
        let delta = RoutingDelta::from_json(&RoutingDelta::between(&old, &new).to_json()).unwrap();
        let applied = delta.apply(&old).unwrap();
        prop_assert_eq!(&applied, &new);
        for corpus in applied.corpora.values() {
            for routing in corpus.versions.values() {
                for (a, left) in &routing.held {
                    for (b, right) in &routing.held {
                        let changed = old.corpora.values().all(|it| it.versions.values().all(|it| it.held != routing.held));
                        prop_assert!(!changed || left != right || Arc::ptr_eq(left, right), "{} {}", a, b);
                    }
                }
            }
        }
    }
}
