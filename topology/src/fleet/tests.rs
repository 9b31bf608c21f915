//! Plans that were worked out by hand, and tails that are known exactly.

use super::*;

const LEAF: LeafLatency =
    LeafLatency { base_ms: 2.0, ms_per_million: 0.15, sigma: 0.5, hiccups: 0.005, hiccup_ms: 200.0 };

fn demand() -> Demand {
    Demand {
        documents: 8_000_000_000,
        documents_per_shard: 40_000_000,
        queries_per_second: 150_000.0,
        queries_per_replica: 2_500.0,
        headroom: 0.3,
        fan_out: 60,
        leaf: LEAF,
        quantile: 0.99,
    }
}

#[test]
fn eight_thousand_million_documents() {
    let fleet = plan(&demand()).unwrap();
    assert_eq!((fleet.shards, fleet.replicas, fleet.leaves), (200, 78, 15_600));
    assert_eq!((fleet.levels, fleet.subtrees, fleet.shards_per_subtree), (1, 4, 50));
    assert!((fleet.leaf_quantile - 0.999_949_7).abs() < 1e-7);
    assert_eq!((fleet.growth.more_documents_shards, fleet.growth.more_documents_leaves), (20, 1_560));
    assert!((fleet.growth.more_documents_moved - 20.0 / 220.0).abs() < 1e-12);
    // 85.8 replicas.
    assert_eq!((fleet.growth.more_queries_replicas, fleet.growth.more_queries_leaves), (8, 1_600));
}

#[test]
fn ten_thousand_million_documents() {
    let asked = Demand {
        documents: 10_000_000_000,
        documents_per_shard: 50_000_000,
        queries_per_second: 200_000.0,
        queries_per_replica: 2_000.0,
        headroom: 0.0,
        ..demand()
    };
    let fleet = plan(&asked).unwrap();
    assert_eq!((fleet.shards, fleet.replicas, fleet.leaves), (200, 100, 20_000));
}

#[test]
fn levels_keep_every_fan_out() {
    for (shards, fan_out, expected) in [
        (1, 60, (0, 1)),
        (60, 60, (0, 60)),
        (61, 60, (1, 2)),
        (3_600, 60, (1, 60)),
        (3_601, 60, (2, 2)),
        (8, 2, (2, 2)),
    ] {
        assert_eq!(tree(shards, fan_out), expected, "{shards} by {fan_out}");
    }
}

#[test]
fn the_tail_of_the_root_is_the_exact_one() {
    // Mean 8 ms, sigma 0.5, 0.5 % of 180 to 220 ms.
    let tail = Tail { body: Body { mean_ms: 8.0, sigma: 0.5 }, hiccups: 0.005, hiccup_ms: 200.0 };
    let close = |value: f64, known: f64| assert!((value / known - 1.0).abs() < 0.01, "{value} {known}");
    close(tail.quantile_ms(0.95), 16.5);
    close(tail.quantile_ms(0.99), 25.6);
    close(tail.root_ms(0.5, 100, None), 29.9);
    close(tail.root_ms(0.99, 100, None), 219.0);
    let delay = Some(tail.quantile_ms(0.95));
    close(tail.root_ms(0.99, 10, delay), 28.9);
    close(tail.root_ms(0.99, 100, delay), 37.8);
    close(tail.root_ms(0.99, 200, delay), 42.3);
    close(tail.root_ms(0.5, 100, delay), 23.4);
}

#[test]
fn nonsense_is_named() {
    let bad = Demand {
        documents: 0,
        documents_per_shard: 0,
        queries_per_second: f64::NAN,
        queries_per_replica: 0.0,
        headroom: -1.0,
        fan_out: 1,
        leaf: LeafLatency { base_ms: 0.0, ms_per_million: 0.0, sigma: 0.0, hiccups: 1.0, hiccup_ms: 0.0 },
        quantile: 1.0,
    };
    let fields: Vec<String> = plan(&bad).unwrap_err().into_iter().map(|(field, _)| field).collect();
    let expected = [
        "documents",
        "documents_per_shard",
        "queries_per_second",
        "queries_per_replica",
        "headroom",
        "fan_out",
        "quantile",
        "leaf.base_ms",
        "leaf.sigma",
        "leaf.hiccups",
        "leaf.hiccup_ms",
    ];
    assert_eq!(fields, expected);
    assert!(plan(&Demand { documents_per_shard: 1, ..demand() }).is_err());
}
