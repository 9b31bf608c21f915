//! Hedges over many searches: `auto` finds a delay that the budget pays for, and keeps off where it would do harm; the
//! same seed gives the same history.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_aggregator::{config::GatherConfig, hedge::HedgeMode};
use canopy_common::rng::Dice;
use canopy_proto::v1;
use canopy_tests::{
    invariants::check,
    model_corpus::ModelCorpus,
    model_leaf::Script,
    model_tree::{ModelTree, Shape},
};
use tokio::time::Instant;

fn ms(n: f64) -> Duration {
    Duration::from_secs_f64(n / 1000.0)
}

/// One shard a leaf, two replicas each.
fn tree(leaves: usize, seed: u64, gather: GatherConfig) -> ModelTree {
    let corpus = Arc::new(ModelCorpus::generate(seed, leaves, 20));
    ModelTree::new(corpus, &Shape { leaves, replicas: 2, gather, seed, ..Default::default() })
}

/// What one search did.
#[derive(Debug, Clone, PartialEq)]
struct Line {
    took: Duration,
    attempts: u32,
    hedges: u32,
    nodes: Vec<String>,
}

/// Searches, one after the other; each leaf takes `latency` of it and the dice for each search.
async fn run(
    tree: &ModelTree,
    searches: usize,
    mode: HedgeMode,
    latency: impl Fn(usize, &Dice) -> Duration,
) -> Vec<Line> {
    let dice = Dice::seeded(77);
    let all = v1::Completion { mode: v1::completion::Mode::All as i32, ..Default::default() };
    let mut lines = Vec::new();
    for _ in 0..searches {
        for (number, leaf) in tree.leaves.iter().enumerate() {
            let start = latency(number, &dice);
            leaf.script(|script| *script = Script { start, shard: Duration::ZERO, ..Default::default() });
        }
        let request = v1::SearchRequest {
            hedge: Some(mode.to_wire()),
            completion: Some(all),
            ..tree.corpus.request(tree.query(), 10)
        };
        let start = Instant::now();
        let gathered = tree.search(request.clone(), ms(2000.0)).await;
        let took = start.elapsed();
        assert!(check(&tree.corpus, &request, &gathered).complete());
        lines.push(Line {
            took,
            attempts: gathered.tail.attempts,
            hedges: gathered.tail.hedges,
            nodes: gathered.shards.iter().map(|shard| shard.node.clone()).collect(),
        });
    }
    lines
}

fn quantile(lines: &[Line], q: f64) -> f64 {
    let mut took: Vec<Duration> = lines.iter().map(|line| line.took).collect();
    took.sort();
    took[((took.len() - 1) as f64 * q) as usize].as_secs_f64() * 1000.0
}

fn extra(tree: &ModelTree, lines: &[Line]) -> f64 {
    let started: u64 = tree.leaves.iter().map(|leaf| leaf.seen.searches.load(Ordering::SeqCst)).sum();
    started as f64 / (lines.len() * tree.leaves.len()) as f64 - 1.0
}

/// 50 to 150 ms, and one in 200 takes 1 s: long, so that the grain of the timer does not show.
fn with_stalls(_: usize, dice: &Dice) -> Duration {
    if dice.below(200) == 0 { ms(1000.0) } else { ms(50.0 + 100.0 * dice.unit()) }
}

#[tokio::test(start_paused = true)]
async fn auto_takes_the_stalls_away_for_what_the_budget_allows() {
    let (off, auto) = (tree(50, 1, GatherConfig::default()), tree(50, 1, GatherConfig::default()));
    let plain = run(&off, 600, HedgeMode::Off, with_stalls).await;
    let hedged = run(&auto, 600, HedgeMode::Auto, with_stalls).await;
    assert!(extra(&off, &plain) == 0.0);
    let extra = extra(&auto, &hedged);
    assert!((0.005..=0.0555).contains(&extra), "{extra}");
    let (before, after) = (quantile(&plain, 0.99), quantile(&hedged[100..], 0.99));
    assert!(after < 0.4 * before, "{after} of {before}");
    let metrics = &auto.gatherer.hedging().metrics;
    assert!(metrics.denied.get() < metrics.sent.get() / 20);
    assert_eq!(metrics.sent.get(), metrics.won.get() + metrics.lost.get() + metrics.failed.get());
    let status = auto.gatherer.hedging().status();
    let planned = &status["classes"][0]["planned"][0];
    assert!((130.0..160.0).contains(&planned["delay_ms"].as_f64().unwrap()), "{status}");
}

#[tokio::test(start_paused = true)]
async fn one_slow_leaf_of_twenty_does_not_set_the_latency_of_every_query() {
    let (healthy, sick) = (tree(20, 2, GatherConfig::default()), tree(20, 2, GatherConfig::default()));
    let usual = |_: usize, dice: &Dice| ms(5.0 + 20.0 * dice.unit());
    let slow = |number: usize, dice: &Dice| usual(number, dice) * if number == 7 { 10 } else { 1 };
    let before = run(&healthy, 1000, HedgeMode::Auto, usual).await;
    let after = run(&sick, 1000, HedgeMode::Auto, slow).await;
    let (before, p99) = (quantile(&before, 0.99), quantile(&after[100..], 0.99));
    assert!(p99 <= 1.5 * before, "{p99} of {before}");
    assert!(extra(&sick, &after) <= 0.065, "{}", extra(&sick, &after));
}

#[tokio::test(start_paused = true)]
async fn when_everything_is_slow_nothing_is_added() {
    let tree = tree(20, 3, GatherConfig::default());
    run(&tree, 300, HedgeMode::Auto, with_stalls).await;
    let hedges = |lines: &[Line]| lines.iter().map(|line| line.hedges).sum::<u32>();
    let slow = run(&tree, 100, HedgeMode::Auto, |_, dice| ms(500.0 + 200.0 * dice.unit())).await;
    // The first seconds are not known to be slow yet.
    assert_eq!(hedges(&slow[10..]), 0, "{}", hedges(&slow));
}

#[tokio::test(start_paused = true)]
async fn the_same_seed_gives_the_same_history() {
    for mode in [HedgeMode::Auto, HedgeMode::Quantile(0.9), HedgeMode::Factor(2)] {
        let history = async |seed| {
            let tree = tree(10, seed, GatherConfig { extra_work: 0.2, ..Default::default() });
            run(&tree, 300, mode, with_stalls).await
        };
        let (one, again, other) = (history(5).await, history(5).await, history(6).await);
        assert_eq!(one, again, "{mode}");
        // Both replicas are asked at once: whose turn it was first does not show.
        if mode != HedgeMode::Factor(2) {
            assert_ne!(one, other, "{mode}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn settings_are_swapped_while_it_runs() {
    let tree = tree(10, 4, GatherConfig { hedge: HedgeMode::Off, ..Default::default() });
    let silent = || v1::SearchRequest { hedge: None, ..tree.corpus.request(tree.query(), 10) };
    for leaf in &tree.leaves {
        leaf.script(|script| script.start = ms(40.0));
    }
    assert_eq!(tree.search(silent(), ms(300.0)).await.tail.hedges, 0);
    let settings = (*tree.gather.get()).clone();
    tree.gather.set(GatherConfig { hedge: HedgeMode::Delay(ms(10.0)), ..settings });
    assert_eq!(tree.search(silent(), ms(300.0)).await.tail.hedges, 10);
}

#[tokio::test(start_paused = true)]
async fn a_subtree_is_asked_again_only_when_it_is_later_than_ever_and_pays_for_all_its_shards() {
    let corpus = Arc::new(ModelCorpus::generate(6, 16, 20));
    let gather = GatherConfig {
        fanout_max: 4,
        branch_shards: 1,
        extra_work_floor: 0,
        extra_work_burst: 20,
        ..Default::default()
    };
    let shape = Shape { leaves: 8, replicas: 2, aggregators: 3, gather, ..Default::default() };
    let tree = ModelTree::new(corpus, &shape);
    run(&tree, 150, HedgeMode::Auto, |_, dice| ms(10.0 + 10.0 * dice.unit())).await;
    let sent = &tree.gatherer.hedging().metrics.sent;
    // One in a hundred is later than the p99 of what was seen before; four subtrees a search.
    let usual = sent.get();
    assert!(usual <= 10, "{usual}");
    let late = run(&tree, 20, HedgeMode::Auto, |_, _| ms(300.0)).await;
    let hedges = sent.get() - usual;
    // 4 tokens each of 20 that were saved up, and 1 % of 16 shards a search.
    assert!((1..=6).contains(&hedges), "{hedges} {:?}", late[0]);
    assert!(tree.gatherer.hedging().metrics.denied.get() > 0);
}
