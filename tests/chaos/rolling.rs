//! Every process restarted, one after the other, under load, as an operator does it for a new release: no query fails or lacks
//! anything, whatever phase of it meets the process that leaves; and afterwards nobody does most of the work.

use std::time::Duration;

use canopy_common::config::Time;
use canopy_tests::{
    api::{Answered, Api, path},
    cluster::Shape,
    form::by_form,
    process::Signal,
    wait::wait_for,
};
use tokio::time::Instant;

use crate::{
    load::{Load, pass},
    served::{PATIENCE, Served, store},
    stage,
};

const AT_ONCE: &str = r#"
retain = "1s"
grace = "1s"
steps = [{ percent = 100, bake = "0ms", sample = 0 }]
"#;
/// Words, hits with their snippets: every phase there is.
const ASKED: [(&str, &str); 4] =
    [("q", "river OR garden"), ("timeout_ms", "20000"), ("completion", "all"), ("k", "20")];
const LAME_DUCK: Duration = Duration::from_millis(1500);

/// One query through a balancer: it asks only roots whose check says yes, and another one when a connection fails.
async fn one(roots: &[Api], first: usize) -> Option<Answered> {
    let path = path("web", &ASKED);
    let mut last = None;
    for attempt in 0..2 * roots.len() {
        let root = &roots[(first + attempt) % roots.len()];
        let asked_twice = attempt >= roots.len();
        let ready = root.try_get("/healthz/ready").await.is_some_and(|answer| answer.status == 200);
        if !ready && !asked_twice {
            continue;
        }
        match root.try_get(&path).await {
            Some(answer) if answer.status != 503 => return Some(answer),
            answer => last = answer.or(last),
        }
    }
    last
}

/// Searches of shards that each leaf has begun.
async fn begun(leaves: &[Api]) -> Vec<f64> {
    let each = leaves.iter().map(|leaf| leaf.metric("canopy_leaf_service_seconds_count"));
    futures::future::join_all(each).await
}

/// An answer that lacks nothing. It may say that all who have a shard were out for a while: the one that had left was not trusted
/// again yet when the other one left.
fn whole(answered: Option<&Answered>, only: u64) {
    let json = answered.expect("no connection fails").clone().ok().json;
    assert_eq!(json["coverage"]["complete"], true, "{json:#}");
    let degraded = json["degraded"].as_array().expect("a list");
    assert!(degraded.iter().all(|word| word == "panic"), "{json:#}");
    assert_eq!(json["version"], serde_json::json!({ "wanted": only, "min": only, "max": only }));
}

#[test]
fn every_process_is_restarted_and_no_query_notices() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "rolling");
        let only = store.latest("web").await.expect("a version").version;
        let shape = Shape { roots: 2, ..Shape::two_levels(4, 2) };
        let mut served = Served::shaped(&directory, AT_ONCE, &shape, |config| {
            config.rpc.lame_duck = Time::ms(LAME_DUCK.as_millis() as u64);
        })
        .await;
        served.first(only).await;
        let roots: Vec<Api> = (0..2).map(|root| served.fleet.admin(&format!("root-{root}"))).collect();
        let leaves: Vec<Api> = (0..4).map(|leaf| served.fleet.admin(&format!("leaf-{leaf}"))).collect();
        let load = {
            let roots = roots.clone();
            Load::asking(Duration::from_millis(by_form(100, 60, 20)), move |first| {
                let roots = roots.clone();
                async move { one(&roots, first).await }
            })
        };
        let mut nodes: Vec<String> = (0..4).map(|leaf| format!("leaf-{leaf}")).collect();
        nodes.extend(["aggregator-0", "aggregator-1", "root-0", "root-1", "topology-0"].map(str::to_owned));
        for id in &nodes {
            let begun = Instant::now();
            served.fleet.signal(id, Signal::Terminate);
            let status = served.fleet.ended(id).await;
            assert!(status.success(), "{id}: {status}");
            let left = begun.elapsed();
            served.fleet.spawn(id, &[]);
            served.fleet.wait_ready(id).await;
            // Not the next one before the service has this one in its place again.
            wait_for("the node in the topology", PATIENCE, || async {
                let status = served.fleet.admin("topology-0").try_get("/status").await?;
                let nodes = status.json["nodes"].as_array().cloned()?;
                let here = |node: &serde_json::Value| node["state"] == "here";
                (nodes.len() == 8 && nodes.iter().all(here)).then_some(())
            })
            .await;
            println!("{id} left in {left:?}, was back after {:?}", begun.elapsed());
        }
        // The busiest leaf soon has at most a bounded multiple of the idlest one's work.
        wait_for("an even load", 2 * PATIENCE, || async {
            let before = begun(&leaves).await;
            pass(Duration::from_secs(by_form(3, 6, 60))).await;
            let after = begun(&leaves).await;
            let shares: Vec<f64> = after.iter().zip(&before).map(|(after, before)| after - before).collect();
            let most = shares.iter().copied().fold(0.0, f64::max);
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            println!("searches of each leaf afterwards: {shares:?}");
            (most <= by_form(6.0, 4.0, 1.2) * least.max(1.0)).then_some(())
        })
        .await;
        let answers = load.finish().await;
        println!("{} queries", answers.len());
        for answer in &answers {
            whole(answer.as_ref(), only.0);
        }
    });
}
