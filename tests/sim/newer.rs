//! Searches that wait for offsets of the log, on a simulated clock: they wait inside their deadline, say `stale` when that is not
//! enough, and never answer late for it.

use std::time::Duration;

use canopy_tests::{
    model_corpus::ModelCorpus,
    model_leaf::Script,
    model_tree::Shape,
    sim_root::{Front, Page, simulate},
};
use serde_json::json;

use crate::seeds::seeds;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// How late an answer may be in virtual time.
const OVERRUN_MS: f64 = 5.0;
/// Time of a query.
const BUDGET_MS: f64 = 200.0;

/// 4 leaves that get to what is wanted after so many milliseconds each, two replicas, 12 shards of 20 documents; no two queries
/// run at once.
fn front(seed: u64, behind: [u64; 4]) -> Front {
    let script = |behind| Script { behind: ms(behind), overlay: 2, ..Script::default() };
    Front {
        seed,
        shape: Shape { replicas: 2, seed, ..Shape::default() },
        corpus: std::sync::Arc::new(ModelCorpus::even(seed, 12, 20)),
        on_trial: None,
        cut_off: false,
        scripts: behind.map(script).into(),
        queries: 30,
        every: ms(250),
        path: "/v1/web/search?q=rust+search&timeout_ms=200&min_offset=5f:0.7,3.9".to_owned(),
        leaves_after: None,
        happenings: Vec::new(),
    }
}

fn took(page: &Page) -> f64 {
    page.body["took_ms"].as_f64().unwrap_or_else(|| panic!("{}", page.body))
}

/// Everything was searched and counted, by first attempts only, in time.
fn whole(seed: u64, page: &Page) {
    let body = &page.body;
    assert_eq!(page.status, 200, "SIM_SEED={seed}: {body}");
    assert!(took(page) <= BUDGET_MS + OVERRUN_MS, "SIM_SEED={seed}: {body}");
    let (coverage, tail) = (&body["coverage"], &body["tail"]);
    assert_eq!(coverage["complete"], true, "SIM_SEED={seed}: {body}");
    assert_eq!(
        coverage["documents"],
        json!({"total": 240, "searched": 240, "pruned": 0, "ratio": 1.0, "overlay": 24})
    );
    assert_eq!(coverage["shards"]["answered"], 12);
    assert_eq!(body["hits"].as_array().map(Vec::len), Some(10));
    assert_eq!((&tail["hedges"], &tail["retries"]), (&json!(0), &json!(0)), "SIM_SEED={seed}: {body}");
}

#[test]
fn what_was_written_is_waited_for_inside_the_deadline() {
    for seed in seeds(3) {
        let seen = simulate(&front(seed, [60, 60, 60, 60]));
        assert_eq!(seen.pages.len(), 30);
        for page in &seen.pages {
            whole(seed, page);
            assert!(took(page) >= 60.0, "SIM_SEED={seed}: {}", page.body);
            assert_eq!(page.body["degraded"], json!([]), "SIM_SEED={seed}: {}", page.body);
            assert_eq!(page.body["offset"], json!({"min_lag_ms": 60, "max_lag_ms": 60}));
        }
    }
}

#[test]
fn leaves_that_stay_behind_are_stale_and_never_make_an_answer_late() {
    for seed in seeds(3) {
        let seen = simulate(&front(seed, [10_000, 10_000, 10_000, 10_000]));
        for page in &seen.pages {
            whole(seed, page);
            assert_eq!(page.body["degraded"], json!(["stale"]), "SIM_SEED={seed}: {}", page.body);
            assert_eq!(page.body["offset"], json!({"min_lag_ms": 10_000, "max_lag_ms": 10_000}));
        }
    }
}

#[test]
fn whoever_is_asked_first_decides_what_is_stale_and_is_asked_again_all_the_same() {
    for seed in seeds(3) {
        let front = front(seed, [0, 30, 90, 10_000]);
        let seen = simulate(&front);
        let stale = |page: &&Page| page.body["degraded"] == json!(["stale"]);
        for page in &seen.pages {
            whole(seed, page);
            assert!(stale(&page) || page.body["degraded"] == json!([]), "SIM_SEED={seed}: {}", page.body);
            assert_eq!(stale(&page), page.body["offset"]["max_lag_ms"] == 10_000, "{}", page.body);
        }
        // A leaf that waits is not taken for a slow one: it goes on being asked.
        let late = seen.pages.iter().rev().take(15).filter(stale).count();
        assert!(late > 0, "SIM_SEED={seed}");
    }
}

#[test]
fn nobody_waits_without_being_asked_to() {
    for seed in seeds(2) {
        let path = "/v1/web/search?q=rust+search&timeout_ms=200".to_owned();
        let seen = simulate(&Front { path, ..front(seed, [10_000; 4]) });
        for page in &seen.pages {
            whole(seed, page);
            assert!(took(page) < 60.0, "SIM_SEED={seed}: {}", page.body);
            assert_eq!(page.body["degraded"], json!([]), "a lag alone is none: {}", page.body);
        }
    }
}
