//! Queries beyond what the root can do: who waits, who is refused, what is left out, and that all of it is told.

use std::sync::Arc;

use canopy_common::{error::Classify, rng::Dice};
use futures::FutureExt;

use super::*;
use crate::fixture::{Mood, Tree, tree};

fn config(places: u32, queue: u32) -> RootConfig {
    RootConfig { max_in_flight: places, min_in_flight: places, queue, ..RootConfig::default() }
}

fn asked(tree: &Tree, change: impl FnOnce(&mut v1::QueryRequest)) -> Asked {
    let mut request =
        v1::QueryRequest { corpus: "web".into(), q: "rust".into(), timeout_ms: 1000, ..Default::default() };
    change(&mut request);
    Asked { query: tree.root.dice.query_id(), arrival: Instant::now(), limit: None, request }
}

/// Queries that do not end until their deadline.
fn hanging(
    tree: &Tree,
    count: usize,
) -> Vec<std::pin::Pin<Box<impl Future<Output = Result<Answer>> + use<>>>> {
    let asked = (0..count).map(|_| asked(tree, |_| ()));
    let asked: Vec<_> = asked.collect();
    *tree.leaves[0].search.lock() = Mood::Hangs;
    let queries = asked.into_iter().map(|asked| {
        let root = tree.root.clone();
        let mut query = Box::pin(async move { root.search(&asked).await });
        assert!((&mut query).now_or_never().is_none());
        query
    });
    let queries = queries.collect();
    *tree.leaves[0].search.lock() = Mood::Answers;
    queries
}

fn metric(tree: &Tree, line: &str) -> bool {
    let text = canopy_common::telemetry::metrics::text(&tree.telemetry.registry);
    text.lines().any(|known| known == line)
}

#[tokio::test(start_paused = true)]
async fn snippets_go_first_and_the_answer_says_so() {
    let tree = tree(1, 10, config(5, 5));
    let calm = tree.root.search(&asked(&tree, |_| ())).await.unwrap();
    assert!(!calm.hits[0].snippet.is_empty() && calm.degraded.is_empty());
    let busy = hanging(&tree, 4);
    let spared = tree.root.search(&asked(&tree, |_| ())).await.unwrap();
    assert_eq!(spared.degraded, ["snippets_skipped"]);
    assert!(!spared.coverage.complete, "an answer that lacks something is not complete");
    assert_eq!((spared.coverage.fetch.wanted, spared.coverage.fetch.filled), (10, 10));
    // Who wants none misses none.
    let plain = tree.root.search(&asked(&tree, |request| request.snippet = Some(false))).await.unwrap();
    assert!(plain.degraded.is_empty() && plain.coverage.complete);
    assert!(metric(&tree, "canopy_root_degradation_step 1"));
    drop(busy);
    tree.root.search(&asked(&tree, |_| ())).await.unwrap();
    tokio::time::advance(Duration::from_secs(2)).await;
    let calm = tree.root.search(&asked(&tree, |_| ())).await.unwrap();
    assert!(calm.degraded.is_empty());
    assert!(metric(&tree, "canopy_root_degradation_step 0"));
}

#[tokio::test(start_paused = true)]
async fn a_switch_turns_it_off() {
    let tree = tree(1, 10, RootConfig { degrade: false, ..config(5, 5) });
    let _busy = hanging(&tree, 4);
    assert!(tree.root.search(&asked(&tree, |_| ())).await.unwrap().degraded.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_burst_waits_a_moment_and_what_finds_no_room_is_refused_at_once() {
    let tree = tree(1, 10, config(2, 2));
    let mut busy = hanging(&tree, 2);
    let mut waiting: Vec<_> = (0..2)
        .map(|_| {
            let (root, asked) = (tree.root.clone(), asked(&tree, |_| ()));
            Box::pin(async move { root.search(&asked).await })
        })
        .collect();
    assert!(waiting.iter_mut().all(|query| query.now_or_never().is_none()));
    let start = Instant::now();
    let refused = tree.root.search(&asked(&tree, |_| ())).await.unwrap_err();
    assert_eq!((refused.code(), refused.http_status(), start.elapsed()), ("OVERLOADED", 503, Duration::ZERO));
    assert_eq!(refused.class(), canopy_common::error::ErrorClass::Overloaded);
    assert!(metric(&tree, "canopy_root_refused_total{reason=\"full\"} 1"));
    // A place that becomes free is handed on.
    drop(busy.pop());
    let answer = waiting.remove(0).await.unwrap();
    assert_eq!(answer.hits.len(), 10);
    assert!(waiting.remove(0).await.is_ok());
    assert_eq!(start.elapsed(), Duration::ZERO);
    // The other waits as long as is agreed, and no longer.
    let _busy = hanging(&tree, 1);
    assert!(tree.root.search(&asked(&tree, |_| ())).await.is_err());
    assert_eq!(start.elapsed(), tree.root.config.queue_wait.0);
}

#[tokio::test(start_paused = true)]
async fn batch_never_takes_the_last_places() {
    let tree = tree(1, 10, config(8, 0));
    let batch = |request: &mut v1::QueryRequest| request.priority = "batch".into();
    let _busy = hanging(&tree, 6);
    let refused = tree.root.search(&asked(&tree, batch)).await.unwrap_err();
    assert_eq!(refused.code(), "OVERLOADED");
    assert!(tree.root.search(&asked(&tree, |_| ())).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_thousand_queries_that_leave_while_they_wait_or_run_cost_no_place() {
    let tree = tree(2, 10, config(3, 4));
    *tree.leaves[1].search.lock() = Mood::Hangs;
    let dice = Dice::seeded(17);
    let (mut running, mut ended) = (Vec::new(), 0_u32);
    for _ in 0..1000 {
        let (root, asked) = (tree.root.clone(), asked(&tree, |request| request.timeout_ms = 40));
        running.push(Box::pin(async move { root.search(&asked).await }));
        running.retain_mut(|query| {
            let over = query.now_or_never().is_some();
            ended += u32::from(over);
            !over
        });
        if dice.below(2) == 0 && !running.is_empty() {
            drop(running.swap_remove(dice.below(running.len() as u64) as usize));
        }
        tokio::time::advance(Duration::from_millis(dice.below(9))).await;
    }
    drop(running);
    assert!(ended > 100, "{ended}");
    let gate = Arc::clone(&tree.root.gate);
    assert_eq!((gate.waiting(), gate.admission().in_flight()), (0, 0));
    assert!(metric(&tree, "canopy_root_in_flight 0"));
}

#[tokio::test(start_paused = true)]
async fn what_shards_say_of_their_overlays_is_in_the_answer_and_changes_no_account() {
    let tree = tree(2, 10, config(5, 5));
    *tree.leaves[0].overlay.lock() = (3, 20, false);
    *tree.leaves[1].overlay.lock() = (4, 700, false);
    let fresh = tree.root.search(&asked(&tree, |_| ())).await.unwrap();
    assert!(fresh.degraded.is_empty() && fresh.coverage.complete, "a lag alone is none");
    assert_eq!((fresh.offset.min_lag_ms, fresh.offset.max_lag_ms), (20, 700));
    let documents = fresh.coverage.documents;
    assert_eq!((documents.total, documents.searched, documents.overlay), (20, 20, 7));
    assert_eq!(fresh.coverage_header(), "20/20");
    assert!(fresh.hits.iter().all(|hit| hit.source == "overlay"));
    assert!(metric(&tree, "canopy_root_lag_max_seconds 0.7"));

    tree.leaves[1].overlay.lock().2 = true;
    let stale = tree.root.search(&asked(&tree, |_| ())).await.unwrap();
    assert_eq!(stale.degraded, ["stale"]);
    assert!(stale.coverage.complete, "everything of the version was searched");
    assert!(metric(&tree, "canopy_root_stale_answers_total 1"));
    assert_eq!(
        tree.root.metrics.newest.status(),
        serde_json::json!({ "lag_max_ms": 700, "stale_answers": 1 })
    );
    let message = v1::QueryAnswer::from(stale);
    assert_eq!(message.coverage.unwrap().documents_overlay, 7);
    assert_eq!(message.hits[0].source, "overlay");
    // Of a shard that did not answer nothing is known.
    *tree.leaves[1].search.lock() = Mood::Fails(canopy_common::error::ErrorClass::Internal);
    let partial = tree.root.search(&asked(&tree, |_| ())).await.unwrap();
    assert_eq!((partial.degraded, partial.coverage.documents.overlay), (vec!["partial"], 3));
}

#[tokio::test(start_paused = true)]
async fn freshness_and_wanted_offsets_reach_the_leaves() {
    let tree = tree(1, 10, config(5, 5));
    for (freshness, wire) in [
        ("", v1::Freshness::Realtime),
        ("realtime", v1::Freshness::Realtime),
        ("indexed", v1::Freshness::Indexed),
        ("base", v1::Freshness::Base),
    ] {
        tree.root.search(&asked(&tree, |request| request.freshness = freshness.into())).await.unwrap();
        let seen = tree.leaves[0].seen.lock().pop().unwrap();
        assert_eq!((seen.freshness, seen.wanted_offsets.len()), (wire as i32, 0), "{freshness}");
    }
    tree.root.search(&asked(&tree, |request| request.min_offset = "5f:3.17".into())).await.unwrap();
    let seen = tree.leaves[0].seen.lock().pop().unwrap();
    assert_eq!(seen.wanted_offsets, [v1::PartitionOffset { partition: 3, offset: 17 }]);
}

#[tokio::test(start_paused = true)]
async fn a_cursor_of_one_freshness_is_none_of_another() {
    let tree = tree(1, 30, config(5, 5));
    let first = tree.root.search(&asked(&tree, |_| ())).await.unwrap();
    let cursor = first.next_cursor.unwrap();
    let next = |freshness: &'static str| {
        let asked = asked(&tree, |request| {
            (request.freshness, request.cursor) = (freshness.into(), cursor.clone());
        });
        let root = tree.root.clone();
        async move { root.search(&asked).await }
    };
    for same in ["", "realtime"] {
        assert_eq!(next(same).await.unwrap().hits.len(), 10, "{same}");
    }
    for other in ["base", "indexed"] {
        let failure = next(other).await.unwrap_err().failure();
        assert_eq!(failure.field.as_deref(), Some("cursor"), "{other}");
    }
}
