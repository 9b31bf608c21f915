//! One deadline, shrinking on the way down; the answer is out by it, and says exactly what is missing and why.

use std::{sync::Arc, time::Duration};

use canopy_aggregator::{config::GatherConfig, gather::Decision, hedge::HedgeMode};
use canopy_common::coverage::Cut;
use canopy_proto::v1;
use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::{Fault, Script},
    model_tree::{ModelTree, Shape},
};
use tokio::time::Instant;

use canopy_tests::invariants::check;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn tree(shards: usize, shape: Shape) -> ModelTree {
    ModelTree::new(Arc::new(ModelCorpus::generate(5, shards, 50)), &shape)
}

/// Ten leaves with one shard each; all answer at `at`, but the last.
fn ten(enough_coverage: f64, at: u64, last: Script) -> ModelTree {
    let gather = GatherConfig { enough_coverage, ..Default::default() };
    let corpus = ModelCorpus::even(3, 10, 10);
    let tree =
        ModelTree::new(Arc::new(corpus), &Shape { leaves: 10, replicas: 1, gather, ..Default::default() });
    for leaf in &tree.leaves {
        leaf.script(|script| *script = Script { start: ms(at), shard: ms(0), ..Default::default() });
    }
    tree.leaves[9].script(|script| *script = last);
    tree
}

#[tokio::test(start_paused = true)]
async fn adaptive_gives_up_on_a_straggler_after_a_fifth_of_the_time_left() {
    let hangs = Script { fault: Fault::Hang(0), ..Default::default() };
    let tree = ten(0.9, 100, hangs);
    let request = tree.corpus.request(tree.query(), 10);
    let start = Instant::now();
    let gathered = tree.search(request.clone(), ms(500)).await;
    let took = start.elapsed();
    assert!((ms(180)..=ms(220)).contains(&took), "{took:?}");
    assert_eq!(gathered.decision, Some(Decision::Adaptive));
    let coverage = check(&tree.corpus, &request, &gathered);
    assert_eq!((coverage.answered, coverage.timed_out), (9, 1));
    assert!((coverage.ratio() - 0.9).abs() < 1e-9);
    assert!(gathered.shards[9].reason.starts_with("leaf-9: "), "{}", gathered.shards[9].reason);

    let late = Script { start: ms(150), shard: ms(0), ..Default::default() };
    let tree = ten(0.9, 100, late);
    let gathered = tree.search(request.clone(), ms(500)).await;
    assert_eq!(gathered.decision, Some(Decision::All));
    assert!(check(&tree.corpus, &request, &gathered).complete());
}

#[tokio::test(start_paused = true)]
async fn a_frozen_leaf_costs_its_documents_and_not_the_deadline() {
    let tree = tree(16, Shape { replicas: 1, ..Default::default() });
    tree.leaves[2].script(|script| script.fault = Fault::Hang(0));
    let mut request = tree.corpus.request(tree.query(), 10);
    request.completion =
        Some(v1::Completion { mode: v1::completion::Mode::All as i32, ..Default::default() });
    let start = Instant::now();
    let gathered = tree.search(request.clone(), ms(200)).await;
    assert_eq!(start.elapsed(), ms(160));
    assert_eq!(gathered.decision, Some(Decision::Deadline));
    let coverage = check(&tree.corpus, &request, &gathered);
    assert_eq!((coverage.answered, coverage.timed_out), (12, 4));
    let frozen: u64 = (0..4).map(|n| request.shards[4 * n + 2].documents).sum();
    assert_eq!(coverage.documents_searched, tree.corpus.documents() - frozen);
    assert_eq!(gathered.shards[2].reason, "leaf-2: no answer before the deadline");
}

#[tokio::test(start_paused = true)]
async fn when_nothing_answers_coverage_is_zero_and_the_answer_in_time() {
    let tree = tree(50, Shape { leaves: 50, replicas: 1, ..Default::default() });
    for leaf in &tree.leaves {
        leaf.script(|script| script.start = Duration::from_mins(1));
    }
    let request = tree.corpus.request(tree.query(), 10);
    let start = Instant::now();
    let gathered = tree.search(request.clone(), ms(300)).await;
    assert_eq!(start.elapsed(), ms(260));
    let coverage = check(&tree.corpus, &request, &gathered);
    assert_eq!((coverage.timed_out, coverage.documents_searched), (50, 0));
    assert!(coverage.ratio() == 0.0 && !coverage.complete());
}

#[tokio::test(start_paused = true)]
async fn work_cut_at_the_deadline_is_answered_with_its_cut_and_is_no_failure() {
    let tree = tree(4, Shape { replicas: 1, ..Default::default() });
    for leaf in &tree.leaves {
        leaf.script(|script| {
            script.shard = Duration::from_secs(1);
            script.honours_deadline = true;
        });
    }
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), ms(400)).await;
    let coverage = check(&tree.corpus, &request, &gathered);
    assert_eq!((coverage.answered, coverage.failed, coverage.timed_out), (4, 0, 0));
    assert_eq!(coverage.cut.len(), 4);
    assert!(coverage.cut.iter().all(|entry| entry.1 == Cut::Deadline) && !coverage.complete());
    assert!(coverage.documents_searched > 0);
}

#[tokio::test(start_paused = true)]
async fn every_hop_and_every_attempt_sees_less_time() {
    // Aggregators between: root 250 ms, reserve 40, and a first try that fails after 100 ms.
    let gather = GatherConfig { fanout_max: 2, hedge: HedgeMode::Off, ..Default::default() };
    let tree = tree(8, Shape { aggregators: 2, gather, ..Default::default() });
    for leaf in &tree.leaves {
        leaf.script(|script| {
            script.start = ms(100);
            script.fault = Fault::Fail(canopy_common::error::ErrorClass::Internal, 0);
        });
    }
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), ms(250)).await;
    check(&tree.corpus, &request, &gathered);
    let mut budgets: Vec<Duration> =
        tree.leaves.iter().flat_map(|leaf| leaf.seen.budgets.lock().clone()).collect();
    budgets.sort();
    let (second, first): (Vec<Duration>, Vec<Duration>) =
        budgets.iter().partition(|budget| **budget < ms(150));
    assert!(!first.is_empty() && !second.is_empty(), "{budgets:?}");
    assert!(first.iter().all(|budget| *budget < ms(206)), "{first:?}");
    assert!(second.iter().all(|budget| *budget < ms(106)), "{second:?}");
}

#[tokio::test(start_paused = true)]
async fn a_query_without_time_asks_nobody() {
    let tree = tree(8, Shape::default());
    let request = tree.corpus.request(tree.query(), 10);
    let gathered = tree.search(request.clone(), Duration::ZERO).await;
    let coverage = check(&tree.corpus, &request, &gathered);
    assert_eq!(coverage.timed_out, 8);
    let asked: u64 =
        tree.leaves.iter().map(|leaf| leaf.seen.searches.load(std::sync::atomic::Ordering::SeqCst)).sum();
    assert_eq!((asked, gathered.tail.attempts), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn all_but_stops_with_its_number_and_says_so() {
    let tree = tree(16, Shape { replicas: 1, ..Default::default() });
    tree.leaves[3].script(|script| script.fault = Fault::Hang(0));
    let mut request = tree.corpus.request(tree.query(), 10);
    request.completion =
        Some(v1::Completion { mode: v1::completion::Mode::AllBut as i32, all_but: 4, min_coverage: 0.0 });
    let start = Instant::now();
    let gathered = tree.search(request.clone(), ms(500)).await;
    assert!(start.elapsed() < ms(20), "{:?}", start.elapsed());
    assert_eq!(gathered.decision, Some(Decision::AllBut));
    assert_eq!(check(&tree.corpus, &request, &gathered).timed_out, 4);
}
