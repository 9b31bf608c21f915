//! Processes killed in the middle of exchanging a version, at every point where something is half done. After the next start the
//! node gets where it should be by itself; nothing half-made answers; the disk holds what is wanted and no more.

use std::time::Duration;

use canopy_common::{config::Time, ids::Version};
use canopy_leaf::fault::KILL_POINTS;
use canopy_tests::{
    api::Answered,
    cluster::Shape,
    form::by_form,
    process::Signal,
    wait::{wait_for, wait_until},
};

use crate::{
    load::Load,
    served::{PATIENCE, Served, publish, store, version},
    stage,
    vitals::versions,
};

/// Half first, so that there is a step to be killed in; then the old version is soon let go of.
const TWO_STEPS: &str = r#"
retain = "300ms"
grace = "300ms"
steps = [
    { percent = 50, bake = "200ms", sample = 0 },
    { percent = 100, bake = "0ms", sample = 0 },
]
"#;
const QUESTIONS: [&str; 5] = ["river", "garden", "water OR light", "\"the river\"", "the"];
const PARAMETERS: [(&str, &str); 3] = [("timeout_ms", "20000"), ("completion", "all"), ("total", "exact")];

/// The same, with time enough to be seen in the step and with the old version.
const SEEN: &str = r#"
retain = "3s"
grace = "300ms"
steps = [
    { percent = 50, bake = "3s", sample = 0 },
    { percent = 100, bake = "0ms", sample = 0 },
]
"#;

async fn served(store: &std::path::Path, plan: &str) -> Served {
    Served::shaped(store, plan, &Shape::flat(2, 2), |config| {
        config.leaf.cache_local = true;
        config.leaf.retain = Time::ms(300);
        config.leaf.lease_grace = Time::ms(300);
        config.leaf.warm_limit = Time::ms(2000);
    })
    .await
}

/// What a version answers, to the bit.
async fn answers(served: &Served, asked: Version) -> Vec<(Vec<(String, u32)>, u64)> {
    let number = asked.0.to_string();
    let mut all = Vec::new();
    for question in QUESTIONS {
        let parameters = [("q", question), ("version", &number), PARAMETERS[0], PARAMETERS[1], PARAMETERS[2]];
        let answer = served.fleet.root().search("web", &parameters).await;
        assert_eq!(version(Some(&answer)).0, asked.0);
        all.push((answer.places(), answer.json["total"]["value"].as_u64().unwrap_or(u64::MAX)));
    }
    all
}

fn all_whole(answers: Vec<Option<Answered>>) {
    for answer in answers {
        version(answer.as_ref());
    }
}

/// Waits until both leaves hold this version whole and nothing else.
async fn only(served: &mut Served, wanted: Version) {
    served.all_on(wanted).await;
    served.quiet().await;
    for id in ["leaf-0", "leaf-1"] {
        served.fleet.wait_ready(id).await;
        wait_until("files of one version", PATIENCE, vec![wanted.0], || async {
            versions(&served.fleet, id)
        })
        .await;
        let status = served.fleet.admin(id).get("/status").await.ok().json;
        let shards = status["shards"].as_array().cloned().unwrap_or_default();
        let good = |shard: &serde_json::Value| shard["state"] == "serving" && shard["serving"] == wanted.0;
        assert!(!shards.is_empty() && shards.iter().all(good), "{status:#}");
    }
}

#[test]
fn a_leaf_killed_at_any_point_of_a_swap_gets_there_after_a_restart() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "killed");
        let first = store.latest("web").await.expect("a version").version;
        let second = publish(&directory, &store, 31, 1000).await;
        let mut served = served(&directory, TWO_STEPS).await;
        served.first(first).await;
        let mut known = [(first, answers(&served, first).await), (second, Vec::new())];
        let points = by_form(&KILL_POINTS[1..8], &KILL_POINTS[..], &KILL_POINTS[..]);
        let mut at = 0;
        for point in points {
            let next = known[1 - at].0;
            // The victim comes back with the point set, holding the version that serves.
            served.fleet.signal("leaf-1", Signal::Kill);
            served.fleet.ended("leaf-1").await;
            let fault = ["leaf.allow_faults=true".to_owned(), format!("leaf.fault.kill_at={point:?}")];
            served.fleet.spawn("leaf-1", &fault);
            served.fleet.wait_ready("leaf-1").await;
            let load = Load::start(
                served.fleet.root(),
                Duration::from_millis(50),
                &[("q", "river"), PARAMETERS[0], PARAMETERS[1]],
            );
            served.roll_out(next).await;
            let status = wait_for(point, PATIENCE, || {
                let ended = served.fleet.try_ended("leaf-1");
                async move { ended }
            })
            .await;
            assert!(!status.success(), "{point}: {status}");
            served.fleet.spawn("leaf-1", &[]);
            only(&mut served, next).await;
            all_whole(load.finish().await);
            let now = answers(&served, next).await;
            at = 1 - at;
            if known[at].1.is_empty() {
                known[at].1.clone_from(&now);
            }
            assert!(known[at].1 == now, "{point}: other answers than before");
            println!("killed at {point}: {next} on both leaves");
        }
    });
}

#[test]
fn a_topology_service_killed_in_any_step_of_a_rollout_goes_on_with_it() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "interrupted");
        let first = store.latest("web").await.expect("a version").version;
        let second = publish(&directory, &store, 32, 1000).await;
        let mut served = served(&directory, SEEN).await;
        served.first(first).await;
        let before = answers(&served, first).await;
        let load = Load::start(
            served.fleet.root(),
            Duration::from_millis(50),
            &[("q", "river"), PARAMETERS[0], PARAMETERS[1]],
        );
        // While replicas load, with half of the queries on it, and while the old version is kept.
        for (round, pins) in [1, 2, 1].into_iter().enumerate() {
            let next = if round % 2 == 0 { second } else { first };
            served.roll_out(next).await;
            wait_for("the step", PATIENCE, || async {
                let corpus = served.corpus().await;
                let there = corpus["pins"].as_array().map(Vec::len) == Some(pins);
                let on = corpus["pins"][0]["version"].as_u64() == Some(next.0);
                (corpus["rollout"].is_object() && there && (round != 2 || on)).then_some(())
            })
            .await;
            served.fleet.signal("topology-0", Signal::Kill);
            served.fleet.ended("topology-0").await;
            let answer =
                served.fleet.root().search("web", &[("q", "river"), PARAMETERS[0], PARAMETERS[1]]).await;
            version(Some(&answer));
            served.fleet.spawn("topology-0", &[]);
            served.fleet.wait_ready("topology-0").await;
            only(&mut served, next).await;
        }
        all_whole(load.finish().await);
        served.roll_out(first).await;
        only(&mut served, first).await;
        assert!(answers(&served, first).await == before);
    });
}
