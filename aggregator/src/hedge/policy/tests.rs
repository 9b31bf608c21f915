//! Classes tell queries apart and are bounded; one due hedge in a thousand is withheld; what is denied is counted.

use canopy_common::rng::Dice;
use prometheus::Registry;

use super::*;
use crate::{
    config::GatherConfig,
    pace::{Clock, Pace},
};

fn hedging(seed: u64) -> Hedging {
    following(GatherConfig::default().into(), seed)
}

fn following(config: Live<GatherConfig>, seed: u64) -> Hedging {
    Hedging::new(
        config,
        Dice::seeded(seed),
        HedgeMetrics::new("root", &Registry::new()),
        Clock::new(Pace::default()),
    )
}

fn word() -> v1::Query {
    v1::Query { node: Some(Node::Term(v1::TermQuery::default())) }
}

fn all_of(must: Vec<v1::Query>, filter: Vec<v1::Query>) -> v1::Query {
    v1::Query { node: Some(Node::Bool(v1::BoolQuery { must, filter, ..Default::default() })) }
}

#[test]
fn queries_that_cost_alike_share_a_class() {
    let request = |query: v1::Query, k: u32, sorted: bool| v1::SearchRequest {
        query: Some(query),
        shards: vec![v1::ShardRequest { k, ..Default::default() }],
        sort: if sorted { vec![v1::SortBy::default()] } else { Vec::new() },
        ..Default::default()
    };
    let cost = |query, k, sorted| cost(&request(query, k, sorted));
    let words = |count| all_of(vec![word(); count], vec![]);
    assert_eq!(cost(word(), 10, false), cost(words(1), 10, false));
    assert_eq!(cost(words(2), 10, false), cost(words(3), 10, false));
    assert_eq!(cost(words(32), 10, false), cost(words(4000), 10, false));
    let nested = all_of(vec![words(2), words(2)], vec![word(); 50]);
    assert_eq!(cost(nested, 10, false), cost(words(4), 10, false));
    let costs = [
        cost(word(), 10, false),
        cost(words(2), 10, false),
        cost(words(8), 10, false),
        cost(word(), 10, true),
        cost(word(), 1000, false),
        cost(word(), 1000, true),
    ];
    for (at, one) in costs.iter().enumerate() {
        assert!(!costs[..at].contains(one), "{costs:?}");
    }
    assert_eq!(super::cost(&v1::SearchRequest::default()), 0);
    assert_eq!(group("web", "main/3"), group("web", "main/77"));
    assert_ne!(group("web", "main/3"), group("web", "news/3"));
    assert_ne!(group("web", "main/3"), group("wet", "main/3"));
}

#[tokio::test(start_paused = true)]
async fn classes_are_bounded_and_the_rest_share_one() {
    let hedging = hedging(1);
    let key = |group| ClassKey { group, ..ClassKey::default() };
    let first = hedging.class(key(1));
    for group in 0..10_000 {
        hedging.class(key(group));
    }
    assert!(hedging.classes.read().len() <= CLASSES + 2);
    assert!(Arc::ptr_eq(&first, &hedging.class(key(1))));
    assert!(Arc::ptr_eq(&hedging.class(key(8888)), &hedging.class(key(9999))));
    assert!(hedging.status()["classes"].as_array().unwrap().len() <= CLASSES + 2);
    // Those of yesterday make room for those of today; what is in use stays.
    for _ in 0..20 {
        tokio::time::advance(UNUSED / 10).await;
        assert!(Arc::ptr_eq(&first, &hedging.class(key(1))));
    }
    let today = hedging.class(key(8888));
    assert!(!Arc::ptr_eq(&today, &hedging.class(key(9999))));
    assert!(Arc::ptr_eq(&first, &hedging.class(key(1))));
    assert!(hedging.classes.read().len() < 10);
}

#[tokio::test(start_paused = true)]
async fn one_due_hedge_in_a_thousand_is_withheld_and_seeds_repeat() {
    let run = |seed| {
        let hedging = hedging(seed);
        let config = HedgeConfig { ratio: 1.0, ..(*hedging.config()).clone() };
        let due = (0..20_000).map(|_| {
            hedging.asked(&config, 2.0);
            hedging.may_hedge(&config, 1, true)
        });
        let due: Vec<_> = due.collect();
        let withheld = due.iter().filter(|due| **due == Err(Refusal::Withheld)).count();
        assert_eq!(hedging.metrics.withheld.get() as usize, withheld);
        assert_eq!(hedging.metrics.denied.get(), 0);
        (due, withheld)
    };
    let (due, withheld) = run(7);
    assert!((8..40).contains(&withheld), "{withheld}");
    assert!(run(7).0 == due && run(8).0 != due);
}

#[tokio::test(start_paused = true)]
async fn an_empty_bucket_denies_and_counts_and_new_settings_hold_from_then_on() {
    let live = Live::from(GatherConfig::default());
    let hedging = following(live.clone(), 1);
    let config = hedging.config();
    assert!((0..256).all(|_| hedging.may_hedge(&config, 1, false).is_ok()));
    assert_eq!(hedging.may_hedge(&config, 1, false), Err(Refusal::Denied));
    assert!(!hedging.spend(&config, 1));
    assert_eq!(hedging.metrics.denied.get(), 2);
    live.set(GatherConfig { hedge: crate::hedge::HedgeMode::Off, ..Default::default() });
    let changed = HedgeConfig { mode: crate::hedge::HedgeMode::Off, ..(*config).clone() };
    assert_eq!(*hedging.config(), changed);
}
