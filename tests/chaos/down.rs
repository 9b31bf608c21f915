//! All leaves of one shard are down, in a tree of three levels: what the leaves are asked in all stays at what was
//! offered. Each level would otherwise multiply the retries of the one above.

use std::time::Duration;

use canopy_common::config::Time;
use canopy_tests::{
    api::Api,
    cluster::Shape,
    form::by_form,
    process::{Fleet, Signal},
    wait::wait_for,
};
use canopy_topology::config::Placement;

use crate::{
    load::callers,
    stage::{self, SHARDS},
};

const ASKED: [(&str, &str); 4] =
    [("q", "river garden"), ("timeout_ms", "5000"), ("total", "none"), ("snippet", "false")];
const LEAVES: u32 = 2 * SHARDS;
/// The leaves of shard 1.
const DOWN: [&str; 2] = ["leaf-2", "leaf-3"];
/// Shards that may be asked once more besides the twentieth of what was offered.
const FLOOR: f64 = 20.0;

fn placements() -> Vec<Placement> {
    let on = |shard: u32| [2 * shard, 2 * shard + 1].map(|leaf| format!("leaf-{leaf}")).to_vec();
    let place = |shard| Placement {
        corpus: "web".to_owned(),
        shards: vec![format!("main/{shard}")],
        replicas: on(shard),
        version: 0,
    };
    (0..SHARDS).map(place).collect()
}

async fn asked(leaves: &[Api]) -> f64 {
    let each = leaves.iter().map(|leaf| leaf.metric("canopy_leaf_outcomes_total"));
    futures::future::join_all(each).await.iter().sum()
}

/// Runs a load; shards asked at `leaves` and shards offered to them, by as many of the four as they hold.
async fn ratio(root: &Api, leaves: &[Api], shards: f64, time: Duration) -> (f64, f64) {
    let before = asked(leaves).await;
    let answers = callers(2, root, time, &ASKED).await;
    let offered = answers.len() as f64 * shards;
    for (_, answered) in answers {
        let answered = answered.expect("a connection to the root").ok();
        answered.adds_up();
        let missing = answered.json["coverage"]["missing"].as_array().cloned().unwrap_or_default();
        assert_eq!(missing.len(), 1, "{}", answered.json);
        assert_eq!(missing[0]["shard"], "main/1");
    }
    (asked(leaves).await - before, offered)
}

#[test]
fn leaves_are_asked_hardly_more_than_was_offered() {
    stage::run(|stage| async move {
        let mut fleet =
            Fleet::start(&stage.store(), &Shape::two_levels(LEAVES, 2), &[("web", SHARDS)], |config| {
                config.topology.placements = placements();
                config.gather.fanout_max = 2;
                config.gather.extra_work_burst = FLOOR as u32 / 2;
                config.gather.extra_work_floor = 1;
                // Its queries are counted at the leaves too.
                config.root.probe_interval = Time::ms(60_000);
            })
            .await;
        let (root, time) = (fleet.root(), Duration::from_secs(by_form(4, 8, 30)));
        let whole = root.search("web", &ASKED).await.ok();
        assert_eq!(whole.degraded(), [""; 0]);
        let leaf = |id: u32| fleet.admin(&format!("leaf-{id}"));
        let all: Vec<Api> = (0..LEAVES).map(leaf).collect();
        let others: Vec<Api> =
            (0..LEAVES).filter(|id| !DOWN.contains(&&*format!("leaf-{id}"))).map(leaf).collect();

        for id in DOWN {
            fleet.signal(id, Signal::Kill);
            fleet.ended(id).await;
        }
        let (asked, offered) = ratio(&root, &others, f64::from(SHARDS - 1), time).await;
        println!(
            "two leaves killed: {asked} shards asked of the other leaves, {offered} offered: {:.3}",
            asked / offered
        );
        assert!(asked <= 1.10 * offered + FLOOR, "{asked} of {offered}");

        for id in DOWN {
            let fault = ["leaf.allow_faults=true", "leaf.fault.error_probability=1.0"].map(str::to_owned);
            fleet.spawn(id, &fault);
            let api = fleet.admin(id);
            wait_for("the leaf to listen", Duration::from_mins(1), || {
                let api = api.clone();
                async move { (api.try_get("/healthz/startup").await?.status == 200).then_some(()) }
            })
            .await;
        }
        let (asked, offered) = ratio(&root, &all, f64::from(SHARDS), time).await;
        println!("they fail: {asked} shards asked of all leaves, {offered} offered: {:.3}", asked / offered);
        assert!(asked <= 1.10 * offered + FLOOR, "{asked} of {offered}");
    });
}
