//! Which replica is asked: shares of replicas that differ, callers that do not know of each other, sessions, zones. The
//! leaves have workers and queues; minutes of their time take no time here.

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_aggregator::{
    config::GatherConfig,
    gather::{Gathered, Gatherer},
    hedge::HedgeMode,
    pick::Strategy,
};
use canopy_common::{error::ErrorClass, rng::Dice};
use canopy_proto::v1;
use canopy_tests::{
    invariants::places,
    model_corpus::ModelCorpus,
    model_leaf::Fault,
    model_tree::{ModelTree, Shape},
};
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

const BUDGET: Duration = Duration::from_millis(400);
const MS: fn(u64) -> Duration = Duration::from_millis;

/// One shard on so many leaves, asked without hedges.
fn tree(replicas: usize, pick: Strategy) -> ModelTree {
    let corpus = Arc::new(ModelCorpus::generate(5, 1, 100));
    let gather = GatherConfig { pick, hedge: HedgeMode::Off, ..GatherConfig::default() };
    let tree = ModelTree::new(corpus, &Shape { leaves: replicas, replicas, gather, ..Default::default() });
    for leaf in &tree.leaves {
        leaf.script(|script| script.shard = Duration::ZERO);
    }
    tree
}

fn callers(tree: &ModelTree, count: u64) -> Vec<Arc<Gatherer>> {
    (0..count).map(|number| tree.caller(number)).collect()
}

fn searches(tree: &ModelTree) -> Vec<u64> {
    tree.leaves.iter().map(|leaf| leaf.seen.searches.load(Ordering::SeqCst)).collect()
}

/// How many of the searches since `before` each leaf got.
fn since(tree: &ModelTree, before: &[u64]) -> Vec<u64> {
    searches(tree).iter().zip(before).map(|(now, before)| now - before).collect()
}

fn max_over_mean(shares: &[u64]) -> f64 {
    let max = shares.iter().copied().max().unwrap_or(0) as f64;
    max * shares.len() as f64 / shares.iter().sum::<u64>() as f64
}

/// An open loop: queries at random instants, `rate` per second, spread over the callers. Times of all, sorted.
async fn offer(
    tree: &ModelTree,
    callers: &[Arc<Gatherer>],
    rate: f64,
    count: usize,
    seed: u64,
) -> Vec<Duration> {
    let dice = Dice::seeded(seed);
    let (mut running, mut at) = (JoinSet::new(), Instant::now());
    for _ in 0..count {
        at += Duration::from_secs_f64(-(1.0 - dice.unit()).ln() / rate);
        sleep_until(at).await;
        let engine = callers[dice.below(callers.len() as u64) as usize].clone();
        let (context, routing) = (tree.context(BUDGET), tree.routing.clone());
        let request = Arc::new(tree.corpus.request(context.query, 10));
        running.spawn(async move {
            let began = Instant::now();
            engine.search(&context, &routing, request).await;
            began.elapsed()
        });
    }
    let mut times = running.join_all().await;
    times.sort_unstable();
    times
}

fn p99(times: &[Duration]) -> Duration {
    times[times.len() * 99 / 100]
}

#[tokio::test(start_paused = true)]
async fn callers_that_do_not_know_of_each_other_do_not_run_to_one_replica() {
    let tree = tree(3, Strategy::Adaptive);
    for leaf in &tree.leaves {
        leaf.script(|script| script.start = MS(5));
        leaf.workers(2);
    }
    let callers = callers(&tree, 8);
    offer(&tree, &callers, 400.0, 2000, 1).await;
    let (mut worst, mut sum, before) = (0.0_f64, 0.0, searches(&tree));
    for burst in 0..50 {
        let before = searches(&tree);
        // All of a burst is sent within a tenth of one service time.
        offer(&tree, &callers, 96_000.0, 48, 100 + burst).await;
        tokio::time::sleep(MS(100)).await;
        let ratio = max_over_mean(&since(&tree, &before));
        (worst, sum) = (worst.max(ratio), sum + ratio);
    }
    let all = max_over_mean(&since(&tree, &before));
    println!(
        "8 callers, 3 equal replicas, 50 bursts of 48: max/mean {all:.3}, of a burst {:.3}, worst {worst:.3}",
        sum / 50.0
    );
    assert!(all <= 1.1, "{all}");
    assert!(sum / 50.0 <= 1.3, "{}", sum / 50.0);
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_fails_at_once_gets_next_to_nothing() {
    for (rate, count) in [(20.0, 1), (200.0, 1), (100.0, 8), (200.0, 8)] {
        let tree = tree(3, Strategy::Adaptive);
        for (number, leaf) in tree.leaves.iter().enumerate() {
            leaf.script(|script| script.start = MS(if number == 0 { 1 } else { 20 }));
        }
        let callers = callers(&tree, count);
        offer(&tree, &callers, rate, (4.0 * rate) as usize, 1).await;
        tree.leaves[0].script(|script| script.fault = Fault::Refuse(ErrorClass::Unavailable));
        offer(&tree, &callers, rate, (2.0 * rate) as usize, 2).await;
        let before = searches(&tree);
        offer(&tree, &callers, rate, (10.0 * rate) as usize, 3).await;
        let shares = since(&tree, &before);
        let share = shares[0] as f64 / shares.iter().sum::<u64>() as f64;
        println!(
            "fails in 1 ms beside two that answer in 20 ms, {count} callers, {rate} queries/s: {:.2} % after 2 s",
            100.0 * share
        );
        assert!(share < 0.05, "{count} callers, {rate}/s: {shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_fresh_replica_gets_at_most_its_share_in_its_first_second() {
    let mut tree = tree(3, Strategy::Adaptive);
    for leaf in &tree.leaves {
        leaf.script(|script| script.start = MS(8));
        leaf.workers(1);
    }
    let whole = tree.routing.clone();
    let mut routing = (*whole).clone();
    for replicas in routing.corpora.get_mut("web").unwrap().shards.values_mut() {
        *replicas = replicas[..2].to_vec().into();
    }
    tree.routing = Arc::new(routing);
    let callers = callers(&tree, 8);
    // Two are at 80 % of what they can do; an idle third one looks like the best by far.
    offer(&tree, &callers, 200.0, 3000, 1).await;
    tree.routing = whole;
    let mut shares = Vec::new();
    for second in 0..12 {
        let before = searches(&tree);
        offer(&tree, &callers, 200.0, 200, 10 + second).await;
        let now = since(&tree, &before);
        shares.push(3.0 * now[2] as f64 / now.iter().sum::<u64>() as f64);
    }
    println!("a fresh replica's part of its fair share, by second: {shares:.2?}");
    assert!(shares[0] <= 1.2, "{shares:?}");
    assert!(shares[1..10].iter().all(|share| *share <= 1.25), "{shares:?}");
    assert!(shares[11] >= 0.8, "{shares:?}");
}

#[tokio::test(start_paused = true)]
async fn replicas_that_are_added_under_load_get_their_part() {
    let mut tree = tree(4, Strategy::Adaptive);
    for leaf in &tree.leaves {
        leaf.script(|script| script.start = MS(8));
        leaf.workers(2);
    }
    let whole = tree.routing.clone();
    let mut routing = (*whole).clone();
    for replicas in routing.corpora.get_mut("web").unwrap().shards.values_mut() {
        *replicas = replicas[..2].to_vec().into();
    }
    tree.routing = Arc::new(routing);
    let callers = callers(&tree, 4);
    offer(&tree, &callers, 250.0, 1500, 1).await;
    tree.routing = whole;
    offer(&tree, &callers, 250.0, 3000, 2).await;
    let before = searches(&tree);
    offer(&tree, &callers, 250.0, 2000, 3).await;
    let shares: Vec<f64> = since(&tree, &before).iter().map(|calls| *calls as f64 / 2000.0).collect();
    println!("two replicas became four 12 s ago; each gets {shares:.3?}");
    assert!(shares.iter().all(|share| (0.225..=0.275).contains(share)), "{shares:?}");
}

#[tokio::test(start_paused = true)]
async fn one_slow_replica_of_three_is_asked_less_and_costs_the_tail_little() {
    let mut tails = BTreeMap::new();
    for pick in [Strategy::Adaptive, Strategy::PowerOfTwo, Strategy::LeastOutstanding] {
        for slow in [8, 24] {
            let tree = tree(3, pick);
            for (number, leaf) in tree.leaves.iter().enumerate() {
                leaf.script(|script| script.start = MS(if number == 2 { slow } else { 8 }));
                leaf.workers(1);
            }
            let callers = callers(&tree, 20);
            offer(&tree, &callers, 225.0, 3000, 1).await;
            let before = searches(&tree);
            let times = offer(&tree, &callers, 225.0, 6000, 2).await;
            let shares = since(&tree, &before);
            let share = shares[2] as f64 / shares.iter().sum::<u64>() as f64;
            println!(
                "{pick:?}, third replica {slow} ms: its share {:.1} %, p99 {:?}",
                100.0 * share,
                p99(&times)
            );
            tails.insert((pick as u8, slow), (p99(&times), share));
        }
    }
    let of = |pick: Strategy, slow| tails[&(pick as u8, slow)];
    let (slow, share) = of(Strategy::Adaptive, 24);
    assert!(share < 0.2, "{share}");
    assert!(slow * 100 <= of(Strategy::LeastOutstanding, 24).0 * 28, "{tails:?}");
    assert!(slow <= of(Strategy::Adaptive, 8).0 * 3, "{tails:?}");
}

#[tokio::test(start_paused = true)]
async fn one_slow_leaf_of_twenty_does_not_set_the_latency_of_all() {
    let mut tails = Vec::new();
    for slow in [8, 80] {
        let corpus = Arc::new(ModelCorpus::generate(5, 20, 4));
        let gather = GatherConfig { enough_coverage: 1.0, ..GatherConfig::default() };
        let tree = ModelTree::new(corpus, &Shape { leaves: 20, replicas: 2, gather, ..Default::default() });
        for (number, leaf) in tree.leaves.iter().enumerate() {
            leaf.script(|script| script.start = MS(if number == 7 { slow } else { 8 }));
        }
        let callers = callers(&tree, 1);
        offer(&tree, &callers, 100.0, 1500, 1).await;
        let before: u64 = searches(&tree).iter().sum();
        let times = offer(&tree, &callers, 100.0, 1000, 2).await;
        let attempts = searches(&tree).iter().sum::<u64>() - before;
        println!(
            "one of 20 leaves at {slow} ms: p50 {:?}, p99 {:?}, {attempts} attempts",
            times[500],
            p99(&times)
        );
        assert!(attempts <= 21_000, "{attempts}");
        tails.push(p99(&times));
    }
    assert!(tails[1] * 2 <= tails[0] * 3, "{tails:?}");
}

/// The first `k` hits for a session.
async fn page(tree: &ModelTree, session: &str, k: u32) -> Gathered {
    let context = tree.context(BUDGET);
    let request = v1::SearchRequest { session: session.to_owned(), ..tree.corpus.request(context.query, k) };
    tree.gatherer.search(&context, &tree.routing, Arc::new(request)).await
}

#[tokio::test(start_paused = true)]
async fn the_pages_of_a_session_come_from_one_replica_and_sessions_spread() {
    for pick in [Strategy::Adaptive, Strategy::Affinity] {
        let tree = tree(3, pick);
        let mut homes = BTreeMap::new();
        for user in 0..60 {
            let session = format!("user {user}");
            let first = page(&tree, &session, 4).await;
            let second = page(&tree, &session, 8).await;
            assert_eq!(first.children, second.children, "{pick:?}");
            assert_eq!(places(&first.hits), places(&second.hits)[..4]);
            *homes.entry(first.children[0].clone()).or_insert(0) += 1;
        }
        assert_eq!(homes.len(), 3, "{homes:?}");
        assert!(homes.values().all(|sessions| *sessions >= 8), "{pick:?}: {homes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_session_that_is_all_the_traffic_is_spread() {
    for pick in [Strategy::Adaptive, Strategy::Affinity] {
        let tree = Arc::new(tree(3, pick));
        for leaf in &tree.leaves {
            leaf.script(|script| script.start = MS(10));
            leaf.workers(1);
        }
        let mut running = JoinSet::new();
        for number in 0..600 {
            let tree = tree.clone();
            running.spawn(async move {
                tokio::time::sleep(MS(5) * number).await;
                page(&tree, "everyone", 5).await.hits.len()
            });
        }
        // 200 queries/s, twice what one replica can do.
        assert!(running.join_all().await.iter().all(|hits| *hits > 0), "{pick:?}");
        let mut shares = searches(&tree);
        println!("{pick:?}: one session, 200 queries/s, 100/s a replica: {shares:?}");
        shares.sort_unstable();
        assert!(shares[2] <= 330 && shares[1] >= 100, "{pick:?}: {shares:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_leaving_is_left_alone_and_missed_by_nobody() {
    let tree = tree(3, Strategy::Adaptive);
    let callers = callers(&tree, 2);
    offer(&tree, &callers, 100.0, 200, 1).await;
    tree.leaves[1].script(|script| script.draining = true);
    offer(&tree, &callers, 100.0, 50, 2).await;
    let before = searches(&tree);
    offer(&tree, &callers, 100.0, 200, 3).await;
    // Each of the two asks it once a second whether it is back.
    assert!(since(&tree, &before)[1] <= 4);
    // Back under the same name.
    tree.leaves[1].script(|script| script.draining = false);
    offer(&tree, &callers, 100.0, 2000, 4).await;
    let before = searches(&tree);
    offer(&tree, &callers, 100.0, 300, 5).await;
    assert!(since(&tree, &before)[1] > 50);
}
