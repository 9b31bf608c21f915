//! Every shard is planned exactly once, whatever the placement; levels shrink.

use std::collections::BTreeSet;

use canopy_common::ids::Version;
use canopy_topology::{
    config::{NodeConfig, Placement, TopologyConfig},
    routing::{RoutingSnapshot, VersionRouting},
};

use super::*;

fn node(id: String, role: Role, port: usize) -> NodeConfig {
    NodeConfig { id, role, address: format!("h:{port}"), admin: String::new(), zone: String::new() }
}

/// `rows` placements of `each` shards with `replicas` leaves of their own, and some aggregators.
fn routing(rows: usize, each: usize, replicas: usize, aggregators: usize) -> RoutingSnapshot {
    let leaf = |row: usize, replica: usize| format!("leaf-{row}-{replica}");
    let mut topology = TopologyConfig::default();
    for row in 0..rows {
        let names: Vec<String> = (0..replicas).map(|replica| leaf(row, replica)).collect();
        for name in &names {
            let port = topology.nodes.len() + 1;
            topology.nodes.push(node(name.clone(), Role::Leaf, port));
        }
        topology.placements.push(Placement {
            corpus: "web".into(),
            shards: (0..each).map(|n| format!("main/{}", row * each + n)).collect(),
            replicas: names,
            version: 0,
        });
    }
    for number in 0..aggregators {
        let port = topology.nodes.len() + 1;
        topology.nodes.push(node(format!("agg-{number}"), Role::Aggregator, port));
    }
    RoutingSnapshot::from_static(&topology).unwrap()
}

fn request(shards: usize, level: u32) -> v1::SearchRequest {
    let shard = |n| v1::ShardRequest { shard: format!("main/{n}"), ..Default::default() };
    v1::SearchRequest {
        corpus: "web".into(),
        shards: (0..shards).map(shard).collect(),
        level,
        ..Default::default()
    }
}

fn config(fanout_max: u32, branch_shards: u32) -> GatherConfig {
    GatherConfig { fanout_max, branch_shards, ..Default::default() }
}

fn planned(
    routing: &RoutingSnapshot,
    request: &v1::SearchRequest,
    config: &GatherConfig,
    this: &NodeId,
) -> Plan {
    let corpus = routing.corpora.get(&request.corpus);
    plan(routing, corpus.and_then(|corpus| corpus.holders(Version(request.version))), request, config, this)
}

fn all_once(plan: &Plan, shards: usize) {
    let planned = plan.branches.iter().flat_map(|branch| branch.shards.iter().copied());
    let mut seen: Vec<u32> = planned.chain(plan.unplaced.iter().map(|entry| entry.0)).collect();
    seen.sort_unstable();
    assert_eq!(seen, (0..shards as u32).collect::<Vec<_>>());
}

#[test]
fn shards_with_the_same_replicas_are_one_branch() {
    let plan = planned(&routing(4, 16, 2, 0), &request(64, 0), &config(64, 32), &"root".into());
    all_once(&plan, 64);
    assert_eq!(plan.branches.len(), 4);
    assert!(plan.branches.iter().all(|branch| branch.shards.len() == 16 && branch.candidates.len() == 2));
}

#[test]
fn the_order_in_which_replicas_are_listed_does_not_split_a_set() {
    let mut snapshot = routing(1, 2, 2, 0);
    let corpus = snapshot.corpora.get_mut("web").unwrap();
    let turned: Arc<[NodeId]> = ["leaf-0-1".into(), "leaf-0-0".into()].into();
    corpus.shards.insert(ShardId::new("main", 1), turned);
    let plan = planned(&snapshot, &request(2, 0), &config(64, 32), &"root".into());
    assert_eq!(plan.branches.len(), 1);
}

#[test]
fn a_large_set_is_split_evenly() {
    let plan = planned(&routing(1, 100, 3, 0), &request(100, 0), &config(64, 32), &"root".into());
    all_once(&plan, 100);
    let sizes: Vec<usize> = plan.branches.iter().map(|branch| branch.shards.len()).collect();
    assert_eq!(sizes, [25, 25, 25, 25]);
}

#[test]
fn what_nobody_holds_is_unplaced_with_a_reason() {
    let mut wrong = request(4, 0);
    wrong.shards[1].shard = "other/0".into();
    wrong.shards[2].shard = "nonsense".into();
    let snapshot = routing(1, 4, 1, 0);
    let found = planned(&snapshot, &wrong, &config(64, 32), &"root".into());
    all_once(&found, 4);
    let reasons: Vec<&str> = found.unplaced.iter().map(|entry| entry.1.as_str()).collect();
    assert_eq!(reasons, ["no leaf holds other/0", "\"nonsense\" is not a shard name"]);
    wrong.corpus = "nope".into();
    let found = planned(&snapshot, &wrong, &config(64, 32), &"root".into());
    all_once(&found, 4);
    assert_eq!((found.branches.len(), found.unplaced.len()), (0, 4));
}

#[test]
fn too_many_branches_become_few_even_subtrees_that_exclude_the_node_itself() {
    let snapshot = routing(130, 1, 1, 3);
    let flat = planned(&snapshot, &request(130, 0), &config(130, 32), &"root".into());
    assert_eq!(flat.branches.len(), 130);
    let deep = planned(&snapshot, &request(130, 0), &config(64, 32), &"agg-1".into());
    all_once(&deep, 130);
    let sizes: Vec<usize> = deep.branches.iter().map(|branch| branch.shards.len()).collect();
    assert_eq!(sizes, [43, 43, 44]);
    for branch in &deep.branches {
        assert_eq!(branch.through, Through::Aggregator);
        assert_eq!(branch.candidates.len(), 2);
        assert!(!branch.candidates.contains(&"agg-1".into()));
    }
}

#[test]
fn levels_shrink_to_leaves_and_end_by_the_level_limit() {
    let snapshot = routing(1000, 1, 1, 5);
    for fanout in [2, 3, 10, 64] {
        let mut open = vec![request(1000, 0)];
        let mut reached = BTreeSet::new();
        while let Some(asked) = open.pop() {
            assert!(asked.level < MAX_LEVEL, "fanout {fanout}");
            let plan = planned(&snapshot, &asked, &config(fanout, 32), &"root".into());
            for branch in plan.branches {
                let shards: Vec<_> =
                    branch.shards.iter().map(|at| asked.shards[*at as usize].clone()).collect();
                match branch.through {
                    Through::Leaf => reached.extend(shards.into_iter().map(|shard| shard.shard)),
                    Through::Aggregator => {
                        assert!(shards.len() < asked.shards.len());
                        open.push(v1::SearchRequest { shards, level: asked.level + 1, ..request(0, 0) });
                    }
                }
            }
        }
        assert_eq!(reached.len(), 1000, "fanout {fanout}");
    }
}

#[test]
fn the_same_subtree_goes_to_the_same_aggregators_and_losing_one_moves_little() {
    let all: Vec<NodeId> = (0..10).map(|n| NodeId::from(format!("agg-{n}").as_str())).collect();
    let nine: Vec<&NodeId> = all.iter().skip(1).collect();
    let all: Vec<&NodeId> = all.iter().collect();
    let first = |of: &[&NodeId], n: u32| rendezvous("web", &format!("main/{n}"), of)[0].clone();
    let moved = (0..1000).filter(|n| first(&all, *n) != first(&nine, *n));
    let moved = moved.inspect(|n| assert_eq!(first(&all, *n), "agg-0".into())).count();
    assert!((60..140).contains(&moved), "{moved}");
}

#[test]
fn both_arms_of_a_comparison_get_the_same_branches() {
    let mut snapshot = routing(3, 8, 4, 0);
    let corpus = snapshot.corpora.get_mut("web").unwrap();
    let all = std::mem::take(&mut corpus.shards);
    let one_row = all.iter().map(|(shard, leaves)| (shard.clone(), leaves[1..2].into())).collect();
    let held = |held| VersionRouting { held, ..VersionRouting::default() };
    corpus.versions = [(Version(1), held(all)), (Version(2), held(one_row))].into();
    let (snapshot, together) = (Arc::new(snapshot), Together::default());
    let branches = |version, beside| {
        let asked = request(24, 0);
        let holders = together.holders(&snapshot, "web", Version(version), Version(beside));
        let plan = plan(&snapshot, holders.as_deref(), &asked, &config(64, 32), &"root".into());
        all_once(&plan, 24);
        assert!(plan.unplaced.is_empty());
        plan.branches
    };
    assert_eq!(branches(1, 2), branches(2, 1));
    assert!(branches(1, 2).iter().all(|branch| branch.candidates.len() == 1));
    assert!(branches(1, 0).iter().all(|branch| branch.candidates.len() == 4));
    assert_eq!(branches(2, 0), branches(2, 1));
}
