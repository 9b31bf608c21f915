//! Hedges, one at a time: when they go out, with what, to whom, what becomes of the loser, and that all of it is counted.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_aggregator::{config::GatherConfig, gather::Gathered, hedge::HedgeMode};
use canopy_common::error::ErrorClass;
use canopy_proto::v1;
use canopy_tests::{
    invariants::{check, running},
    model_corpus::ModelCorpus,
    model_leaf::{Fault, Script},
    model_tree::{ModelTree, Shape},
};
use tokio::time::Instant;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// `replicas` leaves that all hold the same four shards.
fn tree(replicas: usize, gather: GatherConfig) -> ModelTree {
    let corpus = Arc::new(ModelCorpus::generate(11, 4, 60));
    ModelTree::new(corpus, &Shape { leaves: replicas, replicas, gather, ..Default::default() })
}

fn request(tree: &ModelTree, mode: HedgeMode) -> v1::SearchRequest {
    let all = v1::Completion { mode: v1::completion::Mode::All as i32, ..Default::default() };
    v1::SearchRequest {
        hedge: Some(mode.to_wire()),
        completion: Some(all),
        trace: true,
        ..tree.corpus.request(tree.query(), 10)
    }
}

async fn ask(tree: &ModelTree, mode: HedgeMode, budget: Duration) -> (Gathered, Duration) {
    let request = request(tree, mode);
    let start = Instant::now();
    let gathered = tree.search(request.clone(), budget).await;
    let took = start.elapsed();
    check(&tree.corpus, &request, &gathered);
    (gathered, took)
}

fn whole(gathered: &Gathered) -> bool {
    gathered.shards.iter().all(|shard| shard.outcome == v1::Outcome::Answered as i32)
}

fn all(tree: &ModelTree, script: Script) {
    for leaf in &tree.leaves {
        leaf.script(|now| *now = script);
    }
}

fn searches(tree: &ModelTree) -> u64 {
    tree.leaves.iter().map(|leaf| leaf.seen.searches.load(Ordering::SeqCst)).sum()
}

/// `sent`, `won`, `lost`, `failed` of the root's engine.
fn counted(tree: &ModelTree) -> [u64; 4] {
    let metrics = &tree.gatherer.hedging().metrics;
    [metrics.sent.get(), metrics.won.get(), metrics.lost.get(), metrics.failed.get()]
}

fn fates(gathered: &Gathered) -> Vec<(String, &str)> {
    let kind = |span: &v1::Span| span.name.rsplit(", ").next().unwrap_or_default().to_owned();
    gathered.spans.iter().map(|span| (kind(span), span.fate.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn a_late_branch_is_asked_of_the_other_replica_and_the_loser_is_stopped_at_once() {
    let tree = tree(2, GatherConfig::default());
    tree.leaves[0].script(|script| script.fault = Fault::Hang(0));
    let mut hedged = 0;
    // Not so many that it is neglected and gets a copy.
    for _ in 0..15 {
        let (gathered, took) = ask(&tree, HedgeMode::Delay(ms(20)), ms(300)).await;
        assert!(whole(&gathered));
        assert_eq!(running(&tree), 0, "the loser is dropped");
        if gathered.tail.hedges > 0 {
            hedged += 1;
            assert!((ms(20)..=ms(27)).contains(&took), "{took:?}");
            assert_eq!((gathered.tail.attempts, gathered.tail.hedges_won), (2, 1));
            assert_eq!(fates(&gathered), [("first".to_owned(), "lost"), ("hedge".to_owned(), "won")]);
        } else {
            assert!(took < ms(20), "{took:?}");
        }
    }
    assert!(hedged > 0);
    assert_eq!(counted(&tree), [hedged, hedged, 0, 0]);
}

#[tokio::test(start_paused = true)]
async fn a_hedge_asks_only_for_the_shards_that_are_open() {
    let tree = tree(2, GatherConfig::default());
    all(&tree, Script { batch: 1, fault: Fault::Hang(3), ..Default::default() });
    let (gathered, took) = ask(&tree, HedgeMode::Delay(ms(20)), ms(300)).await;
    assert!(whole(&gathered) && took <= ms(24), "{took:?}");
    let mut shards: Vec<u64> =
        tree.leaves.iter().map(|leaf| leaf.seen.shards.load(Ordering::SeqCst)).collect();
    shards.sort_unstable();
    assert_eq!(shards, [1, 4]);
    assert_eq!(fates(&gathered), [("first".to_owned(), "won"), ("hedge".to_owned(), "won")]);
}

#[tokio::test(start_paused = true)]
async fn the_first_one_may_still_win_and_then_the_hedge_lost() {
    let tree = tree(2, GatherConfig::default());
    all(&tree, Script { start: ms(30), ..Default::default() });
    let (gathered, took) = ask(&tree, HedgeMode::Delay(ms(20)), ms(300)).await;
    assert!(whole(&gathered) && took <= ms(36), "{took:?}");
    assert_eq!(fates(&gathered), [("first".to_owned(), "won"), ("hedge".to_owned(), "lost")]);
    assert_eq!((counted(&tree), running(&tree)), ([1, 0, 1, 0], 0));
}

#[tokio::test(start_paused = true)]
async fn what_the_twin_settled_is_stopped_at_the_other_and_the_rest_goes_on() {
    let tree = tree(2, GatherConfig::default());
    // Each sends one shard every 30 ms; the hedge starts 20 ms later, so both go on side by side.
    all(&tree, Script { start: ms(1), shard: ms(30), batch: 1, ..Default::default() });
    let (gathered, _) = ask(&tree, HedgeMode::Delay(ms(20)), ms(300)).await;
    assert!(whole(&gathered));
    let told: u64 = tree.leaves.iter().map(|leaf| leaf.seen.cancelled.load(Ordering::SeqCst)).sum();
    assert!((1..=8).contains(&told), "{told}");
    assert_eq!(running(&tree), 0);
}

#[tokio::test(start_paused = true)]
async fn there_are_never_more_than_three_attempts() {
    for (replicas, most, expected) in [(2, 3, 2), (3, 3, 3), (6, 3, 3), (6, 2, 2), (6, 1, 1)] {
        for mode in [HedgeMode::Delay(ms(20)), HedgeMode::Factor(3)] {
            let tree = tree(replicas, GatherConfig { max_attempts: most, ..Default::default() });
            all(&tree, Script { fault: Fault::Hang(0), ..Default::default() });
            let (gathered, took) = ask(&tree, mode, ms(300)).await;
            assert_eq!(u64::from(gathered.tail.attempts), expected, "{replicas} {most} {mode}");
            assert_eq!((searches(&tree), took), (expected, ms(260)));
            assert_eq!((counted(&tree), running(&tree)), ([expected - 1, 0, expected - 1, 0], 0));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn copies_go_out_at_once_and_the_fastest_wins() {
    let tree = tree(3, GatherConfig::default());
    for (leaf, start) in tree.leaves.iter().zip([60, 5, 40]) {
        leaf.script(|script| script.start = ms(start));
    }
    let (gathered, took) = ask(&tree, HedgeMode::Factor(3), ms(300)).await;
    assert!(whole(&gathered) && took <= ms(11), "{took:?}");
    assert_eq!((searches(&tree), gathered.tail.hedges, running(&tree)), (3, 2, 0));
    let [sent, won, lost, failed] = counted(&tree);
    assert_eq!((sent, won + lost + failed), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn off_means_off() {
    let tree = tree(2, GatherConfig { hedge: HedgeMode::Delay(ms(5)), ..Default::default() });
    all(&tree, Script { start: ms(50), ..Default::default() });
    let (gathered, _) = ask(&tree, HedgeMode::Off, ms(300)).await;
    assert_eq!((gathered.tail.attempts, searches(&tree)), (1, 1));
    // A request that says nothing gets what is configured.
    let silent = v1::SearchRequest { hedge: None, ..request(&tree, HedgeMode::Off) };
    assert_eq!(tree.search(silent, ms(300)).await.tail.hedges, 1);
}

#[tokio::test(start_paused = true)]
async fn each_attempt_carries_only_the_time_that_is_left() {
    let tree = tree(3, GatherConfig { reserve: canopy_common::config::Time::ms(1), ..Default::default() });
    all(&tree, Script { fault: Fault::Hang(0), ..Default::default() });
    ask(&tree, HedgeMode::Delay(ms(100)), ms(250)).await;
    let mut budgets: Vec<Duration> =
        tree.leaves.iter().flat_map(|leaf| leaf.seen.budgets.lock().clone()).collect();
    budgets.sort();
    assert_eq!(budgets.len(), 3);
    for (budget, most) in budgets.iter().zip([50, 150, 250]) {
        assert!(*budget <= ms(most) && *budget >= ms(most - 10), "{budget:?} of {most}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_error_of_one_does_not_end_what_its_twin_is_still_doing() {
    for class in [ErrorClass::InvalidArgument, ErrorClass::DataLoss, ErrorClass::Overloaded] {
        let tree = tree(2, GatherConfig::default());
        // Whoever is asked second fails at once; whoever is asked first needs 60 ms.
        all(&tree, Script { start: ms(60), ..Default::default() });
        let search = ask(&tree, HedgeMode::Delay(ms(20)), ms(300));
        let spoil = async {
            tokio::time::sleep(ms(10)).await;
            all(&tree, Script { start: ms(1), fault: Fault::Refuse(class), ..Default::default() });
        };
        let ((gathered, took), ()) = tokio::join!(search, spoil);
        assert!(whole(&gathered) && (ms(60)..ms(70)).contains(&took), "{class}: {took:?}");
        assert_eq!(fates(&gathered), [("first".to_owned(), "won"), ("hedge".to_owned(), "failed")]);
        assert_eq!(counted(&tree), [1, 0, 0, 1]);
    }
}

#[tokio::test(start_paused = true)]
async fn when_both_failed_the_third_is_asked_at_once() {
    let tree = tree(3, GatherConfig::default());
    all(&tree, Script { start: ms(60), fault: Fault::Refuse(ErrorClass::Internal), ..Default::default() });
    let search = ask(&tree, HedgeMode::Delay(ms(40)), ms(300));
    let heal = async {
        tokio::time::sleep(ms(70)).await;
        all(&tree, Script::default());
    };
    let ((gathered, took), ()) = tokio::join!(search, heal);
    // The first failed at 60, its twin at 100; a second hedge was due at 80 and needs none of them.
    assert!(whole(&gathered) && took < ms(110), "{took:?} {:?}", fates(&gathered));
    assert_eq!(gathered.tail.attempts, 3);
}

#[tokio::test(start_paused = true)]
async fn an_empty_budget_denies_hedges_and_retries_and_harms_nobody() {
    let poor =
        GatherConfig { extra_work: 0.0, extra_work_floor: 0, extra_work_burst: 1, ..Default::default() };
    let tree = tree(2, poor);
    all(&tree, Script { start: ms(50), ..Default::default() });
    for _ in 0..5 {
        let (gathered, took) = ask(&tree, HedgeMode::Delay(ms(20)), ms(300)).await;
        assert!(whole(&gathered) && took >= ms(50));
        // The second hedge would have been due later; each is denied once.
        assert!((1..=2).contains(&gathered.tail.budget_denied), "{:?}", gathered.tail);
        assert_eq!(gathered.tail.attempts, 1);
    }
    assert_eq!(counted(&tree), [0; 4]);
    let before = tree.gatherer.loads().of(&"leaf-1".into()).response();
    tree.leaves[0].script(|script| script.fault = Fault::Refuse(ErrorClass::Internal));
    tree.leaves[1].script(|script| script.fault = Fault::Refuse(ErrorClass::Internal));
    let (gathered, _) = ask(&tree, HedgeMode::Off, ms(300)).await;
    assert_eq!((gathered.tail.attempts, gathered.tail.budget_denied), (1, 1));
    let reason = &gathered.shards[0].reason;
    assert!(reason.contains("INTERNAL") && reason.contains("budget for extra work"), "{reason}");
    assert_eq!(gathered.shards[0].outcome, v1::Outcome::Failed as i32);
    // Whoever was not asked because of it is not blamed for it.
    let after = tree.gatherer.loads().of(&"leaf-1".into()).response();
    assert!(before == after || searches(&tree) == 6);
}

#[tokio::test(start_paused = true)]
async fn searches_that_are_dropped_in_the_middle_are_counted_too() {
    let tree = tree(3, GatherConfig { extra_work: 1.0, ..Default::default() });
    let faults = [
        Fault::None,
        Fault::Hang(0),
        Fault::Hang(2),
        Fault::Fail(ErrorClass::Internal, 1),
        Fault::Refuse(ErrorClass::Overloaded),
        Fault::ShardFails(ErrorClass::DataLoss, 1),
    ];
    for n in 0..300_u64 {
        for leaf in &tree.leaves {
            let fault = faults[tree.dice.below(6) as usize];
            let start = ms(tree.dice.below(80));
            leaf.script(|script| *script = Script { start, fault, batch: 1, ..Default::default() });
        }
        let mode = if n % 7 == 0 { HedgeMode::Factor(3) } else { HedgeMode::Delay(ms(15)) };
        let search = tree.search(request(&tree, mode), ms(250));
        let patience = ms(tree.dice.below(300));
        let _dropped_or_not = tokio::time::timeout(patience, search).await;
        let [sent, won, lost, failed] = counted(&tree);
        assert_eq!(sent, won + lost + failed, "after search {n}");
        assert_eq!(running(&tree), 0);
    }
    let [sent, won, lost, failed] = counted(&tree);
    assert!(sent > 100 && won > 10 && lost > 10 && failed > 10, "{sent} {won} {lost} {failed}");
}
