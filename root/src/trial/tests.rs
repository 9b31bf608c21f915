//! A root that serves two versions, and what it tells of them.

use std::time::Duration;

use canopy_common::ids::{ShardId, Version};
use canopy_proto::v1::{self, QueryRequest};
use canopy_topology::{
    gates::Comparison,
    routing::{ALL_QUERIES, CorpusRouting, Pin, RoutingSnapshot, VersionRouting},
};
use tokio::time::Instant;

use super::*;
use crate::{
    config::RootConfig,
    fixture::{self, Mood, Tree, VERSION, until},
};

/// A tree with a version on trial; `held`: the rows whose leaves hold the old one, and the new one.
fn two_versions(shadow: u32, share: u32, compared: u32, held: [&[u32]; 2]) -> Tree {
    let tree = fixture::rows(2, 2, 30, RootConfig::default());
    let new = Version(VERSION + 1);
    let mut state = fixture::corpus(2, 30);
    state.manifest.version = new;
    tree.root.versions.publish(state);
    route(&tree, shadow, share, compared, held);
    tree
}

fn route(tree: &Tree, shadow: u32, share: u32, compared: u32, held: [&[u32]; 2]) {
    let now = tree.root.routing.now();
    let (new, control) = (Version(VERSION + 1), Version(VERSION));
    let on = |rows: &[u32]| {
        let leaves = |shard| rows.iter().map(|row| fixture::leaf_of(*row, shard)).collect();
        let held = (0..2).map(|shard| (ShardId::new("main", shard), leaves(shard)));
        VersionRouting { held: held.collect(), ..VersionRouting::default() }
    };
    let pins = [Pin { version: new, share }, Pin { version: control, share: ALL_QUERIES - share }];
    let corpus = CorpusRouting {
        pins: pins.into_iter().filter(|pin| pin.share > 0).collect(),
        trial: Some(Trial { version: new, control, shadow, compared, gate: 7 }),
        versions: [(control, on(held[0])), (new, on(held[1]))].into(),
        ..CorpusRouting::default()
    };
    let corpora = [("web".to_owned(), corpus)].into();
    let epoch = canopy_common::ids::Epoch(now.epoch.0 + 1);
    tree.root.routing.publish(RoutingSnapshot { epoch, corpora, ..(*now).clone() });
}

/// The new version's schema has lost a field.
fn without_host(tree: &Tree) {
    let mut state = fixture::corpus(2, 30);
    state.manifest.version = Version(VERSION + 1);
    state.manifest.schema.fields.retain(|field| field.name != "host");
    tree.root.versions.publish(state);
}

/// Both versions are held by all leaves.
fn on_trial(shadow: u32, share: u32) -> Tree {
    two_versions(shadow, share, share, [&[0, 1], &[0, 1]])
}

fn searches(tree: &Tree, row: usize) -> Vec<v1::SearchRequest> {
    tree.rows[row].iter().flat_map(|leaf| leaf.seen.lock().clone()).collect()
}

fn seen(tree: &Tree) -> Comparison {
    let mut all = tree.root.trials.take();
    assert!(all.len() < 2, "{all:?}");
    all.pop().map(|seen| seen.comparison).unwrap_or_default()
}

fn repinned(tree: &Tree, why: &str) -> u64 {
    tree.root.metrics.repinned.with_label_values(&[why]).get()
}

async fn shadows(tree: &Tree) {
    until("shadows end", || tree.root.trials.shadows.available_permits() == SHADOWS).await;
}

async fn ask(tree: &Tree, change: impl FnOnce(&mut QueryRequest)) -> Result<Answer> {
    let mut request = QueryRequest { corpus: "web".into(), q: "rust".into(), ..Default::default() };
    change(&mut request);
    let query = tree.root.dice.query_id();
    tree.root.search(&Asked { query, arrival: Instant::now(), limit: None, request }).await
}

#[tokio::test(start_paused = true)]
async fn both_arms_are_counted_and_named_versions_are_not() {
    let tree = on_trial(0, ALL_QUERIES / 4);
    let mut treated = 0;
    for _ in 0..200 {
        let answer = ask(&tree, |_| ()).await.unwrap();
        treated += u64::from(answer.version.wanted == VERSION + 1);
    }
    ask(&tree, |request| request.version = VERSION + 1).await.unwrap();
    assert!(ask(&tree, |request| request.k = Some(1_000_000)).await.is_err(), "bad input is nobody's fault");
    let seen = tree.root.trials.take();
    let [seen] = seen.as_slice() else { panic!("{seen:?}") };
    let comparison = &seen.comparison;
    assert_eq!((comparison.treatment.queries, comparison.treatment.latencies.len()), (treated, treated));
    assert!((25..80).contains(&treated), "{treated}");
    assert!((25..80).contains(&comparison.control.queries), "an equal part: {}", comparison.control.queries);
    assert_eq!((comparison.treatment.errors, comparison.control.errors), (0, 0));
    assert!(tree.root.trials.take().is_empty(), "told once");
}

#[tokio::test(start_paused = true)]
async fn a_session_stays_on_its_version() {
    let tree = on_trial(0, ALL_QUERIES / 2);
    let mut versions = std::collections::BTreeSet::new();
    for user in 0..20 {
        let session = format!("user-{user}");
        let mut of_user = std::collections::BTreeSet::new();
        for _ in 0..5 {
            of_user.insert(
                ask(&tree, |request| request.session.clone_from(&session)).await.unwrap().version.wanted,
            );
        }
        assert_eq!(of_user.len(), 1);
        versions.extend(of_user);
    }
    assert_eq!(versions.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn shadowed_queries_are_asked_of_both_and_compared() {
    let tree = on_trial(ALL_QUERIES, 0);
    for _ in 0..10 {
        let answer = ask(&tree, |_| ()).await.unwrap();
        assert_eq!(answer.version.wanted, VERSION, "what people see is the old one's");
        shadows(&tree).await;
    }
    let seen = tree.root.trials.take();
    let comparison = &seen[0].comparison;
    assert_eq!((comparison.treatment.queries, comparison.control.queries), (10, 10));
    assert_eq!(comparison.overlap.queries, 10);
    assert!((comparison.overlap.mean() - 1.0).abs() < 1e-9 && comparison.rank_biased_overlap.mean() > 0.99);
}

#[tokio::test(start_paused = true)]
async fn both_arms_are_asked_of_the_leaves_that_hold_both_versions() {
    let half = ALL_QUERIES / 2;
    let tree = two_versions(0, half, half, [&[0, 1], &[0]]);
    for _ in 0..60 {
        assert!(ask(&tree, |_| ()).await.unwrap().coverage.complete);
    }
    assert!(searches(&tree, 1).is_empty(), "the second row does not hold the new version");
    let other = |version| VERSION + 1 - (version - VERSION);
    assert!(searches(&tree, 0).iter().all(|request| request.beside == other(request.version)));
    let comparison = seen(&tree);
    assert!(comparison.control.queries > 10 && comparison.treatment.queries > 10);
    // Who is compared with nothing is asked of all.
    route(&tree, 0, 100, 0, [&[0, 1], &[0]]);
    for _ in 0..30 {
        ask(&tree, |_| ()).await.unwrap();
    }
    assert!(!searches(&tree, 1).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_shadow_is_a_pair_on_the_same_leaves_and_the_live_answer_is_asked_of_all() {
    let tree = two_versions(ALL_QUERIES, 0, 0, [&[0, 1], &[0]]);
    for _ in 0..20 {
        ask(&tree, |_| ()).await.unwrap();
        shadows(&tree).await;
    }
    let (first, second) = (searches(&tree, 0), searches(&tree, 1));
    assert!(!second.is_empty() && second.iter().all(|request| request.beside == 0));
    let pair = |version: u64| {
        let of = |request: &&v1::SearchRequest| request.version == version && request.beside != 0;
        let batch = |request: &v1::SearchRequest| request.priority == v1::Priority::Batch as i32;
        let of: Vec<_> = first.iter().filter(of).collect();
        assert!(of.iter().all(|request| batch(request)));
        of.len()
    };
    assert_eq!((pair(VERSION), pair(VERSION + 1)), (40, 40), "two shards each");
    let comparison = seen(&tree);
    assert_eq!((comparison.control.queries, comparison.treatment.queries), (20, 20));
    assert_eq!((comparison.control.latencies.len(), comparison.overlap.queries), (20, 20));
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_compared_is_answered_and_not_counted() {
    let half = ALL_QUERIES / 2;
    let tree = two_versions(0, half, half, [&[1], &[0]]);
    let mut versions = std::collections::BTreeSet::new();
    for _ in 0..40 {
        let answer = ask(&tree, |_| ()).await.unwrap();
        assert!(answer.coverage.complete);
        versions.insert(answer.version.wanted);
    }
    assert_eq!(versions.len(), 2);
    let comparison = seen(&tree);
    assert_eq!((comparison.control.queries, comparison.treatment.queries), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_loses_its_only_replica_is_answered_whole_by_the_other_and_counts_as_a_part() {
    let tree = two_versions(0, ALL_QUERIES, 0, [&[0, 1], &[0]]);
    route(&tree, 0, ALL_QUERIES - 1, 0, [&[0, 1], &[0]]);
    tree.rows[0][1].lost.lock().0 = VERSION + 1;
    for _ in 0..5 {
        let answer = ask(&tree, |_| ()).await.unwrap();
        assert!(answer.coverage.complete && answer.degraded.is_empty(), "{answer:?}");
        assert_eq!(
            (answer.version.wanted, answer.version.min, answer.version.max),
            (VERSION, VERSION, VERSION)
        );
        assert!(answer.hits.iter().all(|hit| hit.version == VERSION && !hit.summary_missing));
        assert_eq!(answer.warnings[0].code, "repinned");
        assert_eq!(answer.warnings[0].message, "answered from v7, because v8 could not be answered whole");
    }
    let comparison = seen(&tree);
    let treatment = &comparison.treatment;
    assert_eq!((treatment.queries, treatment.partial, treatment.errors), (5, 5, 0));
    assert_eq!(treatment.latencies.len(), 5);
    assert!(repinned(&tree, "lost") > 0);
    // Attempts of both searches have numbers of their own.
    let mut numbers: Vec<_> = searches(&tree, 0)
        .iter()
        .chain(&searches(&tree, 1))
        .map(|one| (one.query_id.clone(), one.attempt_id))
        .collect();
    let all = numbers.len();
    numbers.sort();
    numbers.dedup();
    assert_eq!(numbers.len(), all);
}

#[tokio::test(start_paused = true)]
async fn a_version_that_nobody_holds_any_more_costs_no_attempt() {
    let tree = two_versions(0, ALL_QUERIES - 1, 0, [&[0, 1], &[]]);
    let answer = ask(&tree, |_| ()).await.unwrap();
    assert!(answer.coverage.complete);
    assert_eq!((answer.version.wanted, answer.tail.attempts), (VERSION, 2));
    assert_eq!(repinned(&tree, "unheld"), 1);
    assert_eq!(seen(&tree).treatment.partial, 1, "it is the version's fault");
}

#[tokio::test(start_paused = true)]
async fn documents_that_are_lost_after_the_search_are_found_in_the_other_version() {
    let tree = two_versions(0, ALL_QUERIES - 1, 0, [&[0, 1], &[0]]);
    for leaf in &tree.rows[0] {
        leaf.lost.lock().1 = VERSION + 1;
    }
    let answer = ask(&tree, |_| ()).await.unwrap();
    assert_eq!((answer.coverage.fetch.wanted, answer.coverage.fetch.filled), (10, 10));
    assert!(answer.degraded.is_empty() && answer.hits.iter().all(|hit| hit.version == VERSION));
    assert_eq!((repinned(&tree, "unfetched"), seen(&tree).treatment.partial), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn the_control_arm_falls_back_to_everybody_and_counts_as_a_part_too() {
    let tree = two_versions(0, 0, ALL_QUERIES, [&[0, 1], &[0]]);
    tree.rows[0][0].lost.lock().0 = VERSION;
    let answer = ask(&tree, |_| ()).await.unwrap();
    assert!(answer.coverage.complete && answer.warnings.is_empty(), "{answer:?}");
    let comparison = seen(&tree);
    assert_eq!((comparison.control.queries, comparison.control.partial), (1, 1));
    assert_eq!(repinned(&tree, "control"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_second_search_has_what_is_left_of_the_one_deadline() {
    let tree = two_versions(0, ALL_QUERIES - 1, 0, [&[0, 1], &[0]]);
    tree.rows[0][0].lost.lock().0 = VERSION + 1;
    *tree.rows[1][0].search.lock() = Mood::Hangs;
    *tree.rows[0][0].search.lock() = Mood::Hangs;
    let start = Instant::now();
    let answer = ask(&tree, |request| request.timeout_ms = 200).await.unwrap();
    assert!(start.elapsed() <= Duration::from_millis(205), "{:?}", start.elapsed());
    assert_eq!((answer.coverage.shards.answered, answer.coverage.shards.timed_out), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_version_that_was_asked_for_by_name_or_cursor_is_never_replaced() {
    let tree = two_versions(0, 100, 100, [&[0, 1], &[0]]);
    let named = |request: &mut QueryRequest| request.version = VERSION + 1;
    let page = ask(&tree, named).await.unwrap();
    let cursor = page.next_cursor.unwrap();
    let next = ask(&tree, |request| request.cursor.clone_from(&cursor)).await.unwrap();
    assert_eq!(next.version.wanted, VERSION + 1);
    // One shard is gone: both say so.
    tree.rows[0][1].lost.lock().0 = VERSION + 1;
    for part in [ask(&tree, named).await, ask(&tree, |request| request.cursor.clone_from(&cursor)).await] {
        let part = part.unwrap();
        assert_eq!((part.version.wanted, part.coverage.complete), (VERSION + 1, false));
        assert_eq!(part.degraded, ["partial"]);
    }
    // All of it is: what is named is unavailable, the cursor has expired.
    route(&tree, 0, 0, 0, [&[0, 1], &[]]);
    let error = ask(&tree, named).await.unwrap_err();
    assert_eq!((error.code(), error.report().unwrap().shards.unavailable), ("UNAVAILABLE", 2));
    let error = ask(&tree, |request| request.cursor.clone_from(&cursor)).await.unwrap_err();
    assert_eq!((error.code(), error.http_status()), ("CURSOR_EXPIRED", 410));
    let comparison = seen(&tree);
    assert_eq!((comparison.control.queries, comparison.treatment.queries), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_root_without_a_versions_statistics_never_serves_it() {
    let tree = fixture::rows(2, 2, 30, RootConfig::default());
    route(&tree, 0, ALL_QUERIES - 1, 0, [&[0, 1], &[0, 1]]);
    for _ in 0..20 {
        let answer = ask(&tree, |_| ()).await.unwrap();
        assert_eq!((answer.version.wanted, answer.version.max), (VERSION, VERSION));
    }
    assert!(searches(&tree, 0).iter().chain(&searches(&tree, 1)).all(|request| request.version == VERSION));
    assert_eq!(seen(&tree).treatment.queries, 0, "nothing was tried");
    assert_eq!(tree.root.versions.resident().len(), 1, "and the topology is told so");
}

#[tokio::test(start_paused = true)]
async fn what_the_new_version_alone_refuses_is_its_error_and_answered_by_the_other() {
    let tree = two_versions(0, ALL_QUERIES - 1, 0, [&[0, 1], &[0]]);
    without_host(&tree);
    let filtered = |request: &mut QueryRequest| request.filter = vec!["host:example.org".to_owned()];
    let sorted = |request: &mut QueryRequest| request.sort = "host".to_owned();
    for answer in [ask(&tree, filtered).await, ask(&tree, sorted).await] {
        let answer = answer.unwrap();
        assert!(answer.coverage.complete && answer.version.wanted == VERSION);
        assert_eq!(answer.warnings[0].code, "repinned");
        let message = &answer.warnings[0].message;
        assert!(message.starts_with("answered from v7, because v8 refuses the query: "), "{message}");
        assert!(message.contains("host"), "{message}");
    }
    assert_eq!(repinned(&tree, "refused"), 2);
    let comparison = seen(&tree);
    assert_eq!((comparison.treatment.queries, comparison.treatment.errors), (2, 2));
    // What both refuse is its author's fault, and what is asked of the version by name is refused.
    let unknown = |request: &mut QueryRequest| request.filter = vec!["nonsense:1".to_owned()];
    assert_eq!(ask(&tree, unknown).await.unwrap_err().http_status(), 400);
    let named = ask(&tree, |request| {
        filtered(request);
        request.version = VERSION + 1;
    });
    assert_eq!(named.await.unwrap_err().http_status(), 400);
    assert_eq!((repinned(&tree, "refused"), seen(&tree).treatment.queries), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_shadow_that_the_new_version_alone_refuses_is_its_error() {
    let tree = on_trial(ALL_QUERIES, 0);
    without_host(&tree);
    for filter in ["host:example.org", "nonsense:1"] {
        let _refused_or_not = ask(&tree, |request| request.filter = vec![filter.to_owned()]).await;
        shadows(&tree).await;
    }
    let comparison = seen(&tree);
    assert_eq!((comparison.control.queries, comparison.control.errors), (1, 0));
    assert_eq!((comparison.treatment.queries, comparison.treatment.errors), (1, 1));
    assert_eq!(comparison.overlap.queries, 0);
}
