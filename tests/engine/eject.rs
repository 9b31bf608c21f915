//! Who is not asked for a while: replicas that fail, hang or are far slower than their set; what keeps enough of a set in
//! use; how each comes back by itself; and what a caller withholds of its own accord.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_aggregator::{
    breaker::standing::Standing, config::GatherConfig, gather::Gathered, hedge::HedgeMode,
};
use canopy_common::error::ErrorClass;
use canopy_proto::v1;
use canopy_tests::{
    invariants::check,
    model_corpus::ModelCorpus,
    model_leaf::{Fault, Script},
    model_tree::{ModelTree, Shape},
};
use tokio::task::JoinSet;

const BUDGET: Duration = Duration::from_millis(200);
const MS: fn(u64) -> Duration = Duration::from_millis;

fn shape(replicas: usize) -> Shape {
    let gather = GatherConfig { hedge: HedgeMode::Off, ..GatherConfig::default() };
    Shape { leaves: replicas, replicas, gather, ..Default::default() }
}

/// One shard on so many leaves, asked without hedges.
fn tree(replicas: usize) -> ModelTree {
    ModelTree::new(Arc::new(ModelCorpus::generate(5, 1, 10)), &shape(replicas))
}

fn searches(tree: &ModelTree) -> Vec<u64> {
    tree.leaves.iter().map(|leaf| leaf.seen.searches.load(Ordering::SeqCst)).collect()
}

fn standing(tree: &ModelTree, leaf: usize) -> Standing {
    tree.gatherer.loads().of(&format!("leaf-{leaf}").as_str().into()).standing()
}

async fn ask(tree: &ModelTree) -> Gathered {
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), BUDGET).await;
    check(&tree.corpus, &request, &gathered);
    gathered
}

fn complete(gathered: &Gathered) -> bool {
    gathered.shards.iter().all(|shard| shard.outcome == v1::Outcome::Answered as i32)
}

/// Asks so often, that far apart; how many were complete.
async fn ask_often(tree: &ModelTree, times: usize, apart: Duration) -> usize {
    let mut whole = 0;
    for _ in 0..times {
        whole += usize::from(complete(&ask(tree).await));
        tokio::time::sleep(apart).await;
    }
    whole
}

/// Asks so often, that far apart, without waiting for the answers; these, once all are here.
async fn ask_at_once(tree: &ModelTree, times: usize, apart: Duration) -> Vec<Gathered> {
    let mut running = JoinSet::new();
    for _ in 0..times {
        let (engine, routing) = (tree.gatherer.clone(), tree.routing.clone());
        let (context, request) = (tree.context(BUDGET), tree.corpus.request(tree.query(), 10));
        running.spawn(async move { engine.search(&context, &routing, Arc::new(request)).await });
        tokio::time::sleep(apart).await;
    }
    running.join_all().await
}

fn script(tree: &ModelTree, leaf: usize, change: impl FnOnce(&mut Script)) {
    tree.leaves[leaf].script(change);
}

#[tokio::test(start_paused = true)]
async fn when_all_replicas_are_ejected_one_is_tried_and_the_answer_says_panic() {
    for class in [ErrorClass::Unavailable, ErrorClass::Internal, ErrorClass::DataLoss] {
        let tree = tree(2);
        (0..2).for_each(|leaf| script(&tree, leaf, |script| script.fault = Fault::Refuse(class)));
        let first = ask(&tree).await;
        assert!(!first.panic, "nobody was ejected yet");
        ask_often(&tree, 40, MS(20)).await;
        assert_eq!((standing(&tree, 0), standing(&tree, 1)), (Standing::Faulty, Standing::Faulty), "{class}");
        let before: u64 = searches(&tree).iter().sum();
        let gathered = ask(&tree).await;
        // What fails but is reached still counts as half of the set in use.
        assert_eq!(gathered.panic, class != ErrorClass::DataLoss, "{class}");
        assert!(searches(&tree).iter().sum::<u64>() > before, "{class}: somebody was asked");
        (0..2).for_each(|leaf| script(&tree, leaf, |script| script.fault = Fault::None));
        let whole = ask_often(&tree, 100, MS(20)).await;
        assert!(whole >= 99, "{class}: {whole} of 100 after they came back");
        assert!(!ask(&tree).await.panic);
        assert!(standing(&tree, 0) != Standing::Faulty || standing(&tree, 1) != Standing::Faulty);
    }
}

#[tokio::test(start_paused = true)]
async fn panic_below_is_told_above() {
    let gather =
        GatherConfig { fanout_max: 2, branch_shards: 1, hedge: HedgeMode::Off, ..Default::default() };
    let corpus = Arc::new(ModelCorpus::generate(5, 6, 10));
    let tree = ModelTree::new(corpus, &Shape { leaves: 3, replicas: 2, aggregators: 2, gather, seed: 1 });
    (0..3)
        .for_each(|leaf| script(&tree, leaf, |script| script.fault = Fault::Refuse(ErrorClass::Unavailable)));
    for _ in 0..20 {
        ask(&tree).await;
    }
    let gathered = ask(&tree).await;
    assert!(gathered.panic && gathered.tail.panics > 0, "{:?}", gathered.tail);
}

#[tokio::test(start_paused = true)]
async fn the_last_replica_is_never_ejected() {
    for fault in [Fault::Refuse(ErrorClass::Unavailable), Fault::Refuse(ErrorClass::DataLoss), Fault::Hang(0)]
    {
        let tree = tree(1);
        script(&tree, 0, |script| script.fault = fault);
        for asked in 1..=60 {
            assert!(!ask(&tree).await.panic);
            assert_eq!(searches(&tree)[0], asked, "{fault:?}: every query asks it");
        }
        script(&tree, 0, |script| script.fault = Fault::None);
        assert_eq!(ask_often(&tree, 5, MS(1)).await, 5, "{fault:?}");
        assert_ne!(standing(&tree, 0), Standing::Faulty, "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_gone_costs_a_few_queries_and_comes_back_by_shadows() {
    for fault in [Fault::Refuse(ErrorClass::Unavailable), Fault::Hang(0)] {
        let tree = tree(2);
        assert_eq!(ask_often(&tree, 100, MS(10)).await, 100);
        script(&tree, 1, |script| script.fault = fault);
        ask_often(&tree, 6000, MS(10)).await;
        let hung = fault == Fault::Hang(0);
        assert!(hung || standing(&tree, 1) == Standing::Faulty, "{fault:?}");
        let (before, whole) = (searches(&tree), ask_often(&tree, 600, MS(10)).await);
        let asked = searches(&tree)[1] - before[1];
        println!("{fault:?}: {asked} of 600 calls went to it, {whole} queries were complete");
        assert!(asked <= 24 && whole >= 576, "{fault:?}: {asked} asked, {whole} complete");
        script(&tree, 1, |script| script.fault = Fault::None);
        // The longest time a breaker stays open, and slow start.
        assert_eq!(ask_often(&tree, 2500, MS(10)).await, 2500, "{fault:?}");
        assert_eq!(standing(&tree, 1), Standing::Healthy, "{fault:?}");
        let before = searches(&tree);
        ask_often(&tree, 200, MS(10)).await;
        assert!(searches(&tree)[1] - before[1] > 60, "{fault:?}: it has its share again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_replica_that_is_far_slower_is_used_by_shadows_only_and_comes_back() {
    let tree = tree(3);
    (0..3).for_each(|leaf| script(&tree, leaf, |script| script.start = MS(8)));
    ask_at_once(&tree, 2000, MS(4)).await;
    script(&tree, 2, |script| script.start = MS(80));
    ask_at_once(&tree, 8000, MS(4)).await;
    assert_eq!(standing(&tree, 2), Standing::SubHealthy);
    let before = searches(&tree);
    let answers = ask_at_once(&tree, 1000, MS(4)).await;
    for gathered in &answers {
        assert!(complete(gathered));
        assert!(
            gathered.children[0].as_ref().is_some_and(|leaf| *leaf.0 != *"leaf-2"),
            "nobody waits for it"
        );
    }
    let probes: u32 = answers.iter().map(|gathered| gathered.tail.probes).sum();
    let asked = searches(&tree)[2] - before[2];
    println!("on probation: {asked} shadows in 1,000 queries");
    assert!((5..=11).contains(&asked) && u64::from(probes) == asked, "{asked}");
    script(&tree, 2, |script| script.start = MS(8));
    ask_at_once(&tree, 8000, MS(4)).await;
    assert_eq!(standing(&tree, 2), Standing::Healthy);
    let before = searches(&tree);
    ask_at_once(&tree, 600, MS(4)).await;
    assert!(searches(&tree)[2] - before[2] > 100, "it has its share again");
}

#[tokio::test(start_paused = true)]
async fn never_below_half_of_a_set_and_no_flapping() {
    let tree = tree(4);
    (0..4).for_each(|leaf| script(&tree, leaf, |script| script.start = MS(8)));
    ask_at_once(&tree, 2000, MS(4)).await;
    // Three of four become slow, one after the other.
    for slow in 1..4 {
        script(&tree, slow, |script| script.start = MS(90));
        ask_at_once(&tree, 8000, MS(4)).await;
    }
    let before = searches(&tree);
    ask_at_once(&tree, 500, MS(2)).await;
    let used: Vec<u64> = searches(&tree).iter().zip(&before).map(|(now, before)| now - before).collect();
    println!("three of four are slow, one after the other; of 500 queries each got {used:?}");
    assert!(used.iter().filter(|calls| **calls > 20).count() >= 2, "{used:?}");

    // One that swings around the bound stays where it is.
    let tree = self::tree(3);
    (0..3).for_each(|leaf| script(&tree, leaf, |script| script.start = MS(8)));
    let (mut last, mut changes) = (Standing::Warming, 0);
    for round in 0..60 {
        script(&tree, 2, |script| script.start = MS(if round % 2 == 0 { 20 } else { 28 }));
        ask_at_once(&tree, 100, MS(10)).await;
        let now = standing(&tree, 2);
        changes += u32::from(now != last && last != Standing::Warming);
        last = now;
    }
    println!("a minute around the bound: {changes} changes of standing");
    assert!(changes <= 2, "{changes}");
}

#[tokio::test(start_paused = true)]
async fn a_node_that_refuses_everything_is_asked_less_and_is_not_called_faulty() {
    let tree = tree(1);
    script(&tree, 0, |script| script.fault = Fault::Refuse(ErrorClass::Overloaded));
    let (mut local, mut sent) = (0, 0);
    for number in 0..3000 {
        let before = searches(&tree)[0];
        let gathered = ask(&tree).await;
        tokio::time::sleep(MS(4)).await;
        assert_eq!(gathered.shards[0].outcome, v1::Outcome::Shed as i32);
        if number >= 1000 {
            sent += searches(&tree)[0] - before;
            local += u64::from(gathered.tail.throttled);
            let said = gathered.shards[0].reason.contains("local");
            assert_eq!(said, gathered.tail.throttled > 0, "{}", gathered.shards[0].reason);
        }
    }
    println!("a node that refuses all of 200 queries/s: {sent} of 2,000 sent, {local} withheld");
    assert!((100..=320).contains(&sent) && sent + local == 2000, "{sent} {local}");
    assert_ne!(standing(&tree, 0), Standing::Faulty);
    script(&tree, 0, |script| script.fault = Fault::None);
    ask_often(&tree, 4000, MS(4)).await;
    assert_eq!(ask_often(&tree, 200, MS(4)).await, 200, "it recovers by itself");
}

#[tokio::test(start_paused = true)]
async fn what_one_replica_refuses_goes_to_the_other() {
    let tree = tree(2);
    script(&tree, 0, |script| script.fault = Fault::Refuse(ErrorClass::Overloaded));
    assert_eq!(ask_often(&tree, 2000, MS(4)).await, 2000);
    assert_ne!(standing(&tree, 0), Standing::Faulty, "busy is not broken");
}

#[tokio::test(start_paused = true)]
async fn metrics_and_status_tell_who_stands_how() {
    let tree = tree(2);
    script(&tree, 1, |script| script.fault = Fault::Refuse(ErrorClass::Unavailable));
    ask_often(&tree, 4000, MS(20)).await;
    let text = canopy_common::telemetry::metrics::text(&tree.telemetry.registry);
    for line in [
        "canopy_root_nodes{standing=\"faulty\"} 1",
        "canopy_root_panics_total 0",
        "canopy_root_throttled_total 0",
        "canopy_root_picks_total{why=\"cost\"}",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let status = tree.gatherer.loads().status();
    assert_eq!(status["leaf-1"]["standing"], "faulty");
    assert!(status["leaf-0"]["response_ms"].as_f64().is_some_and(|ms| ms > 1.0), "{status}");
}
