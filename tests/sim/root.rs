//! The production root on a simulated clock: its deadline, its account and its silence towards callers that left, by
//! the millisecond.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::{Fault, Script},
    model_tree::Shape,
    sim_root::{Front, Page, simulate},
    sim_tree::Happening,
};

use crate::seeds::seeds;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How late an answer may be in virtual time.
const OVERRUN_MS: f64 = 2.0;

/// 4 leaves, one replica, 12 shards of 20 documents, deadline 200 ms, waiting for all.
fn front(seed: u64, scripts: Vec<Script>) -> Front {
    Front {
        seed,
        shape: Shape { replicas: 1, seed, ..Shape::default() },
        corpus: Arc::new(ModelCorpus::even(seed, 12, 20)),
        on_trial: None,
        cut_off: false,
        scripts,
        queries: 60,
        every: ms(20),
        path: "/v1/web/search?q=rust+search&completion=all&timeout_ms=200".to_owned(),
        leaves_after: None,
        happenings: Vec::new(),
    }
}

fn frozen() -> Script {
    Script { fault: Fault::Hang(0), ..Script::default() }
}

fn count(page: &Page, of: &str, what: &str) -> u64 {
    page.body["coverage"][of][what].as_u64().unwrap_or_else(|| panic!("{}", page.body))
}

fn adds_up(page: &Page) {
    let shards = |what| count(page, "shards", what);
    let ended = ["answered", "timed_out", "failed", "shed", "unavailable", "skipped"].map(shards);
    assert_eq!(ended.iter().sum::<u64>(), shards("total"), "{}", page.body);
}

#[test]
fn a_sound_tree_answers_whole_and_the_same_seed_gives_the_same_bytes() {
    for seed in seeds(2) {
        let front = front(seed, vec![Script::default()]);
        let seen = simulate(&front);
        assert_eq!(seen.pages.len(), 60);
        for page in &seen.pages {
            assert_eq!(page.status, 200, "SIM_SEED={seed}: {}", page.body);
            assert_eq!(page.body["coverage"]["complete"], true);
            assert_eq!(page.body["hits"].as_array().map(Vec::len), Some(10));
            assert_eq!(count(page, "documents", "searched"), 240);
            assert_eq!(count(page, "fetch", "filled"), 10, "SIM_SEED={seed}: {}", page.body);
            adds_up(page);
        }
        assert_eq!(seen.history, simulate(&front).history, "SIM_SEED={seed}");
    }
}

#[test]
fn a_rolling_restart_fails_no_query_in_neither_phase() {
    for seed in seeds(2) {
        let mut front = front(seed, vec![Script::default()]);
        front.shape.replicas = 2;
        front.queries = 200;
        for leaf in 0..4 {
            let at = 1200 + 900 * leaf;
            front.happenings.push((ms(at), Happening::Kill(format!("leaf-{leaf}"))));
            front.happenings.push((ms(at + 400), Happening::Start(format!("leaf-{leaf}"))));
        }
        let seen = simulate(&front);
        assert_eq!(seen.pages.len(), 200);
        for page in &seen.pages {
            assert_eq!(page.status, 200, "SIM_SEED={seed}: {}", page.body);
            assert_eq!(page.body["coverage"]["complete"], true, "SIM_SEED={seed}: {}", page.body);
            assert_eq!(count(page, "fetch", "filled"), 10, "SIM_SEED={seed}: {}", page.body);
        }
    }
}

#[test]
fn a_frozen_leaf_costs_exactly_its_documents_by_the_deadline() {
    for seed in seeds(2) {
        let scripts = vec![Script::default(), Script::default(), frozen(), Script::default()];
        let seen = simulate(&front(seed, scripts));
        for page in &seen.pages {
            assert_eq!(page.status, 200, "SIM_SEED={seed}: {}", page.body);
            let took = page.body["took_ms"].as_f64().expect("a time");
            assert!(took <= 200.0 + OVERRUN_MS, "SIM_SEED={seed}: {took}");
            assert!(page.took <= ms(210), "SIM_SEED={seed}: {:?}", page.took);
            assert_eq!(count(page, "documents", "searched"), 180);
            assert_eq!((count(page, "shards", "answered"), count(page, "shards", "timed_out")), (9, 3));
            assert_eq!(page.body["coverage"]["complete"], false);
            adds_up(page);
        }
    }
}

#[test]
fn when_all_are_frozen_it_is_a_504_with_coverage_zero_in_time() {
    for seed in seeds(2) {
        let seen = simulate(&front(seed, vec![frozen()]));
        for page in &seen.pages {
            assert_eq!(page.status, 504, "SIM_SEED={seed}: {}", page.body);
            assert!(page.took <= ms(210), "SIM_SEED={seed}: {:?}", page.took);
            assert_eq!(count(page, "documents", "searched"), 0);
            adds_up(page);
        }
    }
}

/// The version that answered, all of it: no document is missing and no other version took part.
fn whole(page: &Page, seed: u64) -> String {
    assert_eq!(page.status, 200, "SIM_SEED={seed}: {}", page.body);
    assert_eq!(page.body["coverage"]["complete"], true, "SIM_SEED={seed}: {}", page.body);
    assert_eq!(count(page, "documents", "searched"), 240);
    let version = &page.body["version"];
    assert_eq!((&version["min"], &version["max"]), (&version["wanted"], &version["wanted"]));
    adds_up(page);
    version["wanted"].to_string()
}

#[test]
fn a_version_that_loses_its_only_leaf_is_answered_whole_by_the_other() {
    for seed in seeds(2) {
        let slow = Script { shard: ms(2), ..Script::default() };
        let mut front = front(seed, vec![slow]);
        front.on_trial = Some(9_999);
        (front.queries, front.every) = (150, ms(7));
        front.happenings.push((ms(1500), Happening::Kill("leaf-3".to_owned())));
        let seen = simulate(&front);
        assert_eq!(seen.pages.len(), 150);
        let mut answered = std::collections::BTreeMap::new();
        for page in &seen.pages {
            *answered.entry(whole(page, seed)).or_insert(0) += 1;
            assert_eq!(count(page, "fetch", "filled"), 10, "SIM_SEED={seed}: {}", page.body);
            assert_eq!(page.body["degraded"], serde_json::json!([]));
        }
        assert!(answered["8"] > 30 && answered["7"] > 60, "SIM_SEED={seed}: {answered:?}");
    }
}

#[test]
fn leaves_of_a_client_that_left_are_idle_within_100_ms() {
    for seed in seeds(2) {
        let front = Front { leaves_after: Some(ms(50)), ..front(seed, vec![frozen()]) };
        let seen = simulate(&front);
        assert!(seen.pages.iter().all(|page| page.status == 0));
        for leaf in &seen.leaves {
            assert!(leaf.seen.searches.load(Ordering::SeqCst) >= 60);
            assert_eq!(leaf.seen.running.load(Ordering::SeqCst), 0, "SIM_SEED={seed}");
        }
    }
}

#[test]
fn a_root_that_hears_nothing_of_a_swap_answers_every_query_whole_by_what_the_leaves_serve() {
    for seed in seeds(2) {
        let mut front = front(seed, vec![Script::default()]);
        front.cut_off = true;
        front.shape.replicas = 2;
        (front.queries, front.every) = (200, ms(10));
        front.path = "/v1/web/search?q=rust+search&completion=all&timeout_ms=800".to_owned();
        // One leaf after the other has the next version and the old one no more; then all go on to the next.
        let swapped = Script { fault: Fault::Swapped(9), ..Script::default() };
        front.happenings =
            (0..4).map(|leaf| (ms(1800 + 40 * leaf as u64), Happening::Script(leaf, swapped))).collect();
        let seen = simulate(&front);
        assert_eq!(seen.pages.len(), 200);
        let mut answered = std::collections::BTreeMap::new();
        for page in &seen.pages {
            *answered.entry(whole(page, seed)).or_insert(0) += 1;
        }
        assert!(answered["7"] > 60 && answered["8"] > 60, "SIM_SEED={seed}: {answered:?}");
        assert!(seen.pages[199].body["version"]["wanted"] == 8, "SIM_SEED={seed}");
    }
}
