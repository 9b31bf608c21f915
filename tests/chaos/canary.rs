//! A version with a broken field, with real processes: it is found by its canary, or by its shadow, and is gone by itself before
//! many have seen it, with the numbers in the audit log; and every query was answered.

use std::{path::Path, time::Duration};

use canopy_common::ids::Version;
use canopy_format::store::VersionStore;
use canopy_indexer::build::{self, BuildRequest};
use canopy_tests::{
    corpus::{self, Page},
    wait::wait_for,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{
    load::{Load, pass},
    served::{PATIENCE, Served, store, version},
    stage::{self, SHARDS},
};

/// The parts of it that are judged; bakes are short, since breaches do not wait for their end.
const CANARY: &str = r#"
grace = "1s"
steps = [
    { percent = 4, bake = "2min", sample = 4600 },
    { percent = 100, bake = "1s", sample = 0 },
]
"#;
const SHADOW: &str = r#"
grace = "1s"
shadow_percent = 50
steps = [
    { percent = 0, bake = "1s", sample = 400 },
    { percent = 4, bake = "2min", sample = 4600 },
    { percent = 100, bake = "1s", sample = 0 },
]
"#;
const FIRST: &str = "steps = [{ percent = 100, bake = \"0s\", sample = 0 }]";

/// The stage's documents without their texts: whatever filled the fields has failed.
async fn publish_broken(directory: &Path, store: &VersionStore) -> Version {
    let lost = |page: &Page| Page {
        title: Some("untitled".to_owned()),
        body: None,
        anchors: Vec::new(),
        ..page.clone()
    };
    let records: Vec<Value> = corpus::generate(2, 1200).iter().map(|page| lost(page).record()).collect();
    let input = corpus::write(&directory.join("broken.jsonl"), &records);
    let request = BuildRequest {
        shards: Some(SHARDS),
        memory: 256 << 20,
        ..BuildRequest::new(store.clone(), "web", vec![input])
    };
    build::run(request).await.expect("a build").version
}

/// What came of the broken version.
struct Came {
    /// Answers of the old one and of it.
    answers: [usize; 2],
    /// From its first step until it was turned back.
    took: Duration,
    audit: String,
    ended: Value,
}

async fn rolls_out_a_broken_version(stage: &stage::Stage, name: &str, plan: &str) -> Came {
    let (directory, store) = store(stage, name);
    let old = store.latest("web").await.expect("a version").version;
    let mut served = Served::start(&directory, FIRST).await;
    served.first(old).await;
    let broken = publish_broken(&directory, &store).await;
    let file = directory.join("canary.toml");
    std::fs::write(&file, plan).expect("written");
    let parameters = [("q", "river"), ("timeout_ms", "20000")];
    let load = Load::start(served.fleet.root(), Duration::from_millis(8), &parameters);
    pass(Duration::from_secs(2)).await;
    let (number, file) = (broken.0.to_string(), file.to_string_lossy().into_owned());
    served.command(&["rollout", "start", "--corpus", "web", "--version", &number, "--plan", &file]).await;
    let state = || async { served.corpus().await["rollout"]["state"].as_str().map(str::to_owned) };
    wait_for("its first step", PATIENCE, || async {
        state().await.filter(|state| state.starts_with("shadow") || state.starts_with("canary"))
    })
    .await;
    let begun = Instant::now();
    wait_for("the way back", Duration::from_mins(3), || async {
        let corpus = served.corpus().await;
        let back = corpus["rollout"]["state"].as_str().is_some_and(|state| state.starts_with("rolling back"));
        (back || corpus["rollout"].is_null()).then_some(())
    })
    .await;
    let took = begun.elapsed();
    pass(Duration::from_secs(3)).await;
    let answers = load.finish().await;
    let seen: Vec<u64> = answers.iter().map(|answer| version(answer.as_ref()).0).collect();
    let count = |wanted: Version| seen.iter().filter(|seen| **seen == wanted.0).count();
    served.quiet().await;
    assert_eq!(seen.last(), Some(&old.0));
    Came {
        answers: [count(old), count(broken)],
        took,
        audit: served.command(&["topology", "audit"]).await,
        ended: served.corpus().await["ended"][0].clone(),
    }
}

/// `most`: the share of the queries that it was to get.
fn check(name: &str, came: &Came, most: f64) {
    let [old, new] = came.answers;
    let all = (old + new) as f64;
    let share = (new as f64 / all * 1e4).round() / 100.0;
    println!("{name}: gone after {:?}; {new} of {} answers were its ({share} %)", came.took, old + new);
    assert_eq!(came.ended["outcome"], "rolled back", "{}", came.ended);
    assert!(came.ended["reason"].as_str().is_some_and(|it| it.contains("HARD BREACH")), "{}", came.ended);
    let line = came.audit.lines().find(|line| line.contains("HARD BREACH")).unwrap_or_default();
    assert!(line.contains("HARD BREACH zero results 0.0000 -> 1.0000 (limit 0.0050, p "), "{}", came.audit);
    assert!(came.took < Duration::from_mins(2), "{:?}: its bake was over", came.took);
    // Chance gives it a few more.
    let chance = 4.0 * (all * most * (1.0 - most)).sqrt();
    assert!(new as f64 <= all * most + chance, "{share} % of the answers");
}

#[test]
fn a_broken_field_is_turned_back_by_its_canary() {
    stage::run(|stage| async move {
        let came = rolls_out_a_broken_version(stage, "canary", CANARY).await;
        check("canary of 4 %", &came, 0.04);
        assert!(came.answers[1] > 0, "the canary was asked");
    });
}

#[test]
fn a_broken_field_is_turned_back_by_its_shadow_before_anybody_sees_it() {
    stage::run(|stage| async move {
        let came = rolls_out_a_broken_version(stage, "shadow", SHADOW).await;
        check("shadow", &came, 0.0);
        assert_eq!(came.ended["to"], json!(came.ended["from"].as_u64().unwrap_or(0) + 1));
    });
}
