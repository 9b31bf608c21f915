//! Shards placed by the topology service: leaves join, replicas are added, a leaf is emptied and goes, while queries are asked
//! all the time and none of them notices.

use std::{collections::BTreeMap, time::Duration};

use canopy_common::config::Time;
use canopy_tests::{
    cluster::Shape,
    process::Signal,
    wait::{wait_for, wait_until},
};
use serde_json::Value;
use tokio::time::Instant;

use crate::{
    load::{Load, pass},
    served::{PATIENCE, Served, store, version},
    stage::{self, EVERY},
};

const PLAN: &str = "[[steps]]\npercent = 100\nbake = '0s'\nsample = 0\n";

/// Shards that each leaf was asked since it started.
async fn asked(served: &Served, leaves: &[&str]) -> BTreeMap<String, f64> {
    let mut asked = BTreeMap::new();
    for leaf in leaves {
        let answered =
            served.fleet.admin(leaf).metric("canopy_leaf_outcomes_total{outcome=\"answered\"}").await;
        asked.insert((*leaf).to_owned(), answered);
    }
    asked
}

/// Waits until every shard is where it shall be, with so many replicas each that serve.
async fn placed(served: &Served, replicas: u64) {
    wait_until("every shard placed and held", PATIENCE, true, || async {
        // It fails, and says all the same, while a node is not ready: some are stopped, or hold nothing.
        let (_, text) = served.try_command(&["status", "--json"]).await;
        let mut said = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let status = said.next().and_then(Result::ok).unwrap_or_default();
        let moving = status["topology"]["corpora"]["web"]["placement"]["moving"].as_array().map(Vec::len);
        let lines: Vec<&Value> = status["replicas"].as_array().into_iter().flatten().collect();
        let serving =
            lines.iter().all(|line| line["state"] == "serving" && line["wanted"] == line["serving"]);
        moving == Some(0) && serving && lines.len() as u64 == replicas * u64::from(stage::SHARDS)
    })
    .await;
}

/// Waits until each of the four leaves is asked a quarter of the queries, give or take a tenth.
async fn even(served: &Served) {
    let leaves = ["leaf-0", "leaf-1", "leaf-2", "leaf-3"];
    let fair = 0.15..=0.35;
    let begun = Instant::now();
    wait_for("an even load", Duration::from_mins(2), || async {
        let before = asked(served, &leaves).await;
        pass(Duration::from_secs(5)).await;
        let after = asked(served, &leaves).await;
        let new: Vec<f64> = leaves.iter().map(|leaf| after[*leaf] - before[*leaf]).collect();
        let all: f64 = new.iter().sum();
        println!("shards asked in five seconds, {:?} after they came: {new:?}", begun.elapsed());
        new.iter().all(|count| fair.contains(&(count / all))).then_some(())
    })
    .await;
}

#[test]
fn replicas_and_leaves_come_and_go_and_no_query_notices() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "placing");
        let only = store.latest("web").await.expect("a version").version;
        let nothing_placed = |config: &mut canopy_cli::config::Config| {
            config.topology.placements.clear();
            config.topology.cluster = "placing".to_owned();
            // Searches take a time that is worth spreading: a shard of this size is found in no time, and then whoever was asked
            // last is the fastest.
            config.leaf.allow_faults = true;
            config.leaf.fault.delay = Time::ms(10);
        };
        let mut served = Served::shaped(&directory, PLAN, &Shape::flat(4, 2), nothing_placed).await;
        for late in ["leaf-2", "leaf-3"] {
            served.fleet.signal(late, Signal::Terminate);
            served.fleet.ended(late).await;
        }
        let refused = served.try_command(&["topology", "set-replicas", "--corpus", "web", "2"]).await;
        assert!(!refused.0 && refused.1.contains("how many shards"), "{}", refused.1);
        // The leaves that left just now are away before shards are placed.
        wait_until("two leaves", PATIENCE, 2.0, || async {
            served.fleet.admin("topology-0").metric("canopy_topology_nodes{state=\"away\"}").await
        })
        .await;
        let done = served
            .command(&["topology", "place", "--corpus", "web", "--shards", "4", "--replicas", "2"])
            .await;
        assert!(done.contains("8 moves"), "{done}");
        served.roll_out(only).await;
        served.all_on(only).await;
        placed(&served, 2).await;

        let parameters = [EVERY, ("timeout_ms", "20000")];
        let load = Load::start(served.fleet.root(), Duration::from_millis(20), &parameters);
        // Two more leaves: nothing moves by itself, a plan says what would, then it is done.
        for late in ["leaf-2", "leaf-3"] {
            served.fleet.spawn(late, &[]);
        }
        wait_until("four leaves", PATIENCE, 0.0, || async {
            served.fleet.admin("topology-0").metric("canopy_topology_nodes{state=\"away\"}").await
        })
        .await;
        let plan = served.command(&["topology", "plan", "--corpus", "web", "--replicas", "4"]).await;
        assert!(plan.contains("8 moves") && plan.contains("50.0 %"), "{plan}");
        placed(&served, 2).await;
        served.command(&["topology", "set-replicas", "--corpus", "web", "4"]).await;
        placed(&served, 4).await;
        even(&served).await;
        // Fewer replicas, and one leaf is emptied, stopped and forgotten.
        let emptied = ["topology", "place", "--corpus", "web", "--replicas", "3", "--remove", "leaf-0"];
        served.command(&emptied).await;
        placed(&served, 3).await;
        let refused = served.try_command(&["topology", "forget", "leaf-0"]).await;
        assert!(!refused.0 && refused.1.contains("stop it"), "{}", refused.1);
        served.fleet.signal("leaf-0", Signal::Terminate);
        served.fleet.ended("leaf-0").await;
        wait_until("leaf-0 forgotten", PATIENCE, true, || async {
            served.try_command(&["topology", "forget", "leaf-0"]).await.0
        })
        .await;
        pass(Duration::from_millis(500)).await;
        let answers = load.finish().await;
        println!("{} answers, all whole", answers.len());
        assert!(answers.len() > 300);
        for answer in &answers {
            assert_eq!(version(answer.as_ref()).0, only.0);
        }
        let shown = served.command(&["topology", "show"]).await;
        assert!(!shown.contains("leaf-0") && shown.contains("asked most: web:main/"), "{shown}");
    });
}

#[test]
fn another_tree_another_token_and_a_second_process_are_refused() {
    stage::run(|stage| async move {
        let (directory, store) = store(stage, "guarded");
        let only = store.latest("web").await.expect("a version").version;
        let token = directory.join("token");
        std::fs::write(&token, "a-token-of-this-test\n").expect("written");
        let token_file = token.to_string_lossy().into_owned();
        let guarded = |config: &mut canopy_cli::config::Config| {
            config.topology.cluster = "guarded".to_owned();
            config.topology.token_file.clone_from(&token_file);
        };
        let mut served = Served::shaped(&directory, PLAN, &Shape::flat(2, 2), guarded).await;
        served.first(only).await;
        let service = served.fleet.node("topology-0").address.clone();
        let without = ["topology", "drain", "--service", &service, "leaf-0"];
        let output = canopy_tests::process::run(&without).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("token"), "{said}");
        let other = directory.join("other-token");
        std::fs::write(&other, "a-token-of-another-tree\n").expect("written");
        let other = other.to_string_lossy();
        let wrong = [&without[..], &["--token-file", &*other]].concat();
        let output = canopy_tests::process::run(&wrong).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("not the service's"), "{said}");
        // A file of another tree with this one's address.
        let config =
            std::fs::read_to_string(served.config()).expect("a file").replace("guarded", "elsewhere");
        let file = directory.join("elsewhere.toml");
        std::fs::write(&file, config.replace("elsewhere/token", "guarded/token")).expect("written");
        let output = canopy_tests::process::run(&["topology", "show", "-c", &file.to_string_lossy()]).await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains("\"guarded\""), "{said}");
        for node in ["topology-0", "leaf-0", "root-0"] {
            assert!(!served.fleet.log(node).contains("a-token-of"), "the token is in the log of {node}");
        }
        served.command(&["topology", "drain", "leaf-0"]).await;
        served.command(&["topology", "undrain", "leaf-0"]).await;
    });
}
