//! Any subset of leaves is gone: what was searched is exactly what the others hold, every sum adds up, and the hits are
//! those of the documents that are left.

use std::{collections::BTreeMap, time::Duration};

use canopy_format::schema::Schema;
use canopy_tests::{
    api::{Answered, Api},
    cluster::{Cluster, Shape},
    corpus,
    faulty_net::Link,
    publish::Shelf,
    wait::wait_until,
};
use serde_json::Value;

use crate::world::{self, World, corpus_of, with_world};

const LEAVES: u32 = 4;
const SHARDS: u32 = 8;
const EVERY: (&str, &str) = ("query_json", r#"{"match_all":{}}"#);

/// Shards and documents that each leaf holds, and the shard of each document.
struct Holdings {
    documents: BTreeMap<u32, u64>,
    shard_of: BTreeMap<String, u32>,
}

async fn holdings(world: &World) -> Holdings {
    let state = world.shelf.state(&corpus_of(SHARDS)).await;
    let documents = state.manifest.shards.iter().map(|entry| (entry.shard.number, entry.documents)).collect();
    let (mut shard_of, mut cursor) = (BTreeMap::new(), String::new());
    loop {
        let asked = [
            EVERY,
            ("k", "1000"),
            ("snippet", "false"),
            ("timeout_ms", "60000"),
            ("cursor", cursor.as_str()),
        ];
        let page = world.flat.root().search(&corpus_of(SHARDS), &asked).await.ok();
        for hit in page.hits() {
            let shard = hit["shard"].as_str().and_then(|shard| shard.strip_prefix("main/")?.parse().ok());
            shard_of.insert(hit["key"].as_str().unwrap_or_default().to_owned(), shard.expect("a shard"));
        }
        match page.next_cursor() {
            Some(next) => next.clone_into(&mut cursor),
            None => return Holdings { documents, shard_of },
        }
    }
}

async fn ask(api: &Api) -> Answered {
    let asked = [
        ("q", "river garden the"),
        ("k", "200"),
        ("facets", "lang"),
        ("total", "exact"),
        ("completion", "all"),
        ("snippet", "false"),
        ("timeout_ms", "5000"),
    ];
    api.search(&corpus_of(SHARDS), &asked).await
}

fn judge(answered: &Answered, whole: &Answered, dead: u32, holdings: &Holdings) {
    let lost = |shard: u32| dead & (1 << (shard % LEAVES)) != 0;
    let lost_shards: Vec<u32> = (0..SHARDS).filter(|shard| lost(*shard)).collect();
    let lost_documents: u64 = lost_shards.iter().map(|shard| holdings.documents[shard]).sum();
    let all: u64 = holdings.documents.values().sum();
    let what = format!("dead {dead:04b}: {}", answered.json["coverage"]);
    answered.adds_up();
    assert_eq!(answered.documents(), (all - lost_documents, 0, all), "{what}");
    let coverage = &answered.json["coverage"];
    let named: Vec<&str> = coverage["missing"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|line| line["shard"].as_str())
        .collect();
    let expected: Vec<String> = lost_shards.iter().map(|shard| format!("main/{shard}")).collect();
    assert_eq!(named, expected, "{what}");
    assert!(
        coverage["missing"]
            .as_array()
            .into_iter()
            .flatten()
            .all(|line| line["reason"] != "" && line["documents"] != 0),
        "{what}"
    );
    if lost_shards.len() == SHARDS as usize {
        assert_eq!(answered.status, 503, "{}", answered.json);
        assert_eq!(answered.headers["retry-after"], "1");
        assert_eq!(coverage["documents"]["ratio"], 0.0);
        return;
    }
    assert_eq!(answered.status, 200, "{}", answered.json);
    assert_eq!(coverage["shards"]["answered"], SHARDS as usize - lost_shards.len(), "{what}");
    assert_eq!(coverage["complete"], lost_shards.is_empty(), "{what}");
    assert_eq!(answered.degraded(), if lost_shards.is_empty() { vec![] } else { vec!["partial"] }, "{what}");
    let incomplete = !lost_shards.is_empty();
    assert_eq!(answered.json["total"]["lower_bound"], incomplete, "{what}");
    assert_eq!(answered.json["facets"]["lang"]["lower_bound"], incomplete, "{what}");
    // The whole answer holds all matches, so what is left of it is the answer of the rest.
    let left: Vec<_> = whole.places().into_iter().filter(|(key, _)| !lost(holdings.shard_of[key])).collect();
    assert_eq!(answered.places()[..left.len().min(200)], left[..left.len().min(200)], "{what}");
}

async fn every_subset(world: &World, shape: Shape) {
    let holdings = holdings(world).await;
    let (name, shards) = (corpus_of(SHARDS), SHARDS);
    let cluster = Cluster::start(&world.shelf.store, &shape.config(&[(&name, shards)])).await;
    let whole = ask(cluster.root()).await.ok();
    for dead in 0..1_u32 << LEAVES {
        for leaf in 0..LEAVES {
            let link = if dead & (1 << leaf) != 0 { Link::Cut } else { Link::Open };
            cluster.link(&format!("leaf-{leaf}"), link);
        }
        let lost: u64 = holdings
            .documents
            .iter()
            .filter(|(shard, _)| dead & (1 << (*shard % LEAVES)) != 0)
            .map(|(_, documents)| documents)
            .sum();
        let left = holdings.documents.values().sum::<u64>() - lost;
        // A leaf that came back is dialled again by the next call.
        wait_until("documents searched", Duration::from_mins(1), left, || async {
            ask(cluster.root()).await.documents().0
        })
        .await;
        judge(&ask(cluster.root()).await, &whole, dead, &holdings);
    }
    cluster.stop().await;
}

#[test]
fn any_subset_of_leaves_may_be_gone_below_a_root() {
    with_world(|world| every_subset(world, Shape::flat(LEAVES, 1)));
}

#[test]
fn any_subset_of_leaves_may_be_gone_below_aggregators() {
    with_world(|world| every_subset(world, Shape::two_levels(LEAVES, 1)));
}

#[test]
fn with_a_second_replica_no_single_leaf_is_missed() {
    with_world(|world| async {
        let name = corpus_of(SHARDS);
        let cluster =
            Cluster::start(&world.shelf.store, &Shape::two_levels(LEAVES, 2).config(&[(&name, SHARDS)]))
                .await;
        let whole = ask(cluster.root()).await.ok();
        for leaf in 0..LEAVES {
            cluster.link(&format!("leaf-{leaf}"), Link::Cut);
            for _ in 0..5 {
                let answered = ask(cluster.root()).await.ok();
                assert_eq!(answered.places(), whole.places(), "without leaf-{leaf}");
                assert_eq!(
                    answered.degraded(),
                    [""; 0],
                    "without leaf-{leaf}: {}",
                    answered.json["coverage"]
                );
            }
            cluster.link(&format!("leaf-{leaf}"), Link::Open);
        }
        cluster.stop().await;
    });
}

#[test]
fn many_failures_of_one_cause_are_one_line() {
    world::run(async {
        let shelf = Shelf::new();
        shelf.publish("many", &Schema::web(), 40, &corpus::generate(5, 200)).await;
        let cluster = Cluster::start(&shelf.store, &Shape::flat(4, 1).config(&[("many", 40)])).await;
        cluster.link("leaf-1", Link::Cut);
        cluster.link("leaf-2", Link::Cut);
        let asked = [EVERY, ("k", "10"), ("timeout_ms", "5000")];
        let answered = cluster.root().search("many", &asked).await.ok();
        answered.adds_up();
        let missing = answered.json["coverage"]["missing"].as_array().cloned().unwrap_or_default();
        assert!(missing.len() <= 2, "{missing:?}");
        assert_eq!(missing.iter().filter_map(|line| line["count"].as_u64()).sum::<u64>(), 20);
        assert!(answered.json["coverage"].to_string().len() < 4096);
        for leaf in ["leaf-0", "leaf-3"] {
            cluster.link(leaf, Link::Cut);
        }
        let nothing = cluster.root().search("many", &asked).await;
        assert_eq!(nothing.status, 503, "{}", nothing.json);
        nothing.adds_up();
        assert!(nothing.body.len() < 16 << 10);
        assert!(
            nothing.json["error"]["message"].as_str().is_some_and(|message| message.contains("main/")),
            "{}",
            nothing.json
        );
        cluster.stop().await;
    });
}

#[test]
fn a_shard_that_nobody_holds_is_unavailable_not_absent() {
    with_world(|world| async {
        let name = corpus_of(SHARDS);
        let mut config = Shape::flat(LEAVES, 1).config(&[(&name, SHARDS)]);
        for placement in &mut config.topology.placements {
            placement.shards.retain(|shard| shard != "main/7");
        }
        let cluster = Cluster::start(&world.shelf.store, &config).await;
        let answered =
            cluster.root().search(&name, &[EVERY, ("timeout_ms", "60000"), ("total", "exact")]).await.ok();
        answered.adds_up();
        let coverage = &answered.json["coverage"];
        assert_eq!(
            (&coverage["shards"]["unavailable"], &coverage["shards"]["asked"]),
            (&Value::from(1), &Value::from(7)),
            "{coverage}"
        );
        assert_eq!(coverage["missing"][0]["shard"], "main/7");
        assert_eq!(coverage["missing"][0]["outcome"], "unavailable");
        assert_eq!(answered.degraded(), ["partial"]);
        assert_eq!(answered.json["total"]["lower_bound"], true);
        cluster.stop().await;
    });
}
