//! The pages that operators and balancers read, on every role: three probes, metrics, slow queries, status, version.

use std::time::Duration;

use canopy_common::config::Time;
use canopy_tests::{
    api::Api,
    cluster::{Cluster, Shape},
    faulty_net::Link,
    wait::{wait_for, wait_until},
};
use serde_json::Value;

use crate::world::{corpus_of, with_world};

const ROLES: [&str; 3] = ["root-0", "aggregator-0", "leaf-0"];

/// Names of the metrics of a page, and the number of its series.
async fn metrics(api: &Api) -> (String, usize) {
    let page = api.get("/metrics").await;
    assert_eq!(page.status, 200);
    let text = String::from_utf8_lossy(&page.body).into_owned();
    let series = text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()).count();
    (text, series)
}

#[test]
fn every_role_has_its_pages() {
    with_world(|world| async {
        for id in ROLES {
            let api = world.deep.admin(id);
            for probe in ["startup", "live", "ready"] {
                let page = api.get(&format!("/healthz/{probe}")).await;
                assert_eq!((page.status, page.body.as_ref()), (200, &b"ok\n"[..]), "{id} {probe}");
            }
            let (text, series) = metrics(&api).await;
            let role = id.split('-').next().unwrap_or_default();
            assert!(series > 5, "{id}: {series}");
            assert!(text.lines().any(|line| line.starts_with(&format!("canopy_{role}_"))), "{id}: {text}");
            assert!(text.contains("# HELP") && text.contains("# TYPE"), "{id}");
            for label in ["shard=\"", "version=\"", "key=\"", "corpus=\"web"] {
                assert!(!text.contains(label), "{id} has a label {label}");
            }
            assert!(api.get("/version").await.ok().json["canopy"].is_string(), "{id}");
            let status = api.get("/status").await.ok().json;
            assert_eq!((status["role"].as_str(), status["node"].as_str()), (Some(role), Some(id)));
            assert_eq!(status["epoch"], 1, "{id}");
            assert!(api.get("/debug/slow").await.ok().json["slow"].is_array(), "{id}");
            assert_eq!(api.get("/nosuch").await.status, 404, "{id}");
        }
        let page = world.flat.root().get("/").await;
        assert_eq!(page.status, 200);
        assert!(String::from_utf8_lossy(&page.body).contains("<form"));
    });
}

#[test]
fn queries_are_counted_and_series_stay_few() {
    with_world(|world| async {
        let name = corpus_of(8);
        let cluster =
            Cluster::start(&world.shelf.store, &Shape::two_levels(4, 2).config(&[(&name, 8)])).await;
        cluster.root().search(&name, &[("q", "river"), ("timeout_ms", "60000")]).await.ok();
        let mut before = Vec::new();
        for id in ROLES {
            before.push(metrics(&cluster.admin(id)).await.1);
        }
        for n in 0..50 {
            let q = format!("river word{n}");
            let asked =
                [("q", q.as_str()), ("timeout_ms", "60000"), ("sort", ["", "host", "-published"][n % 3])];
            cluster.root().search(&name, &asked).await.ok();
        }
        cluster.root().search(&name, &[("q", "river"), ("k", "5000")]).await;
        for (id, before) in ROLES.iter().zip(before) {
            let after = metrics(&cluster.admin(id)).await.1;
            assert!(after <= before + 4, "{id}: {before} series became {after}");
        }
        let searched = cluster.admin("leaf-0").metric("canopy_leaf_outcomes_total").await;
        assert!(searched >= 50.0, "{searched}");
        wait_until("shards in flight", Duration::from_mins(1), 0, || async {
            cluster.admin("leaf-0").metric("canopy_leaf_in_flight_shards").await as u64
        })
        .await;
        cluster.stop().await;
    });
}

#[test]
fn slow_queries_leave_their_times_at_every_level() {
    with_world(|world| async {
        let name = corpus_of(8);
        let mut config = Shape::two_levels(4, 1).config(&[(&name, 8)]);
        config.root.slow_threshold = Time::ms(0);
        config.aggregator.slow_threshold = Time::ms(1);
        config.leaf.slow = Time::ms(0);
        let cluster = Cluster::start(&world.shelf.store, &config).await;
        // A machine that does other things too may stop the root between its last phase and its last word.
        let record = wait_for("a record whose parts add up", Duration::from_mins(1), || async {
            let asked = [("q", "slowness river"), ("timeout_ms", "60000")];
            let answered = cluster.root().search(&name, &asked).await.ok();
            let slow = cluster.root().get("/debug/slow").await.ok().json;
            let id = &answered.json["query_id"];
            let of = |record: &&Value| record["query_id"] == *id;
            let record = slow["slow"].as_array().into_iter().flatten().find(of);
            let record = record.unwrap_or_else(|| panic!("{id} is not in {slow}")).clone();
            let took = record["took_ms"].as_f64().unwrap_or(0.0) * 1000.0;
            let sum = |parts: &str, us: &str| -> f64 {
                record[parts].as_array().into_iter().flatten().filter_map(|part| part[us].as_f64()).sum()
            };
            let (phases, path) = (sum("phases", "duration_us"), sum("critical_path", "us"));
            println!("phases of {phases} us, a critical path of {path} us, the query took {took} us");
            let good = (phases - took).abs() <= took * 0.05 + 200.0 && (path - took).abs() <= took * 0.05;
            good.then_some(record)
        })
        .await;
        let id = &record["query_id"];
        assert_eq!(record["q"], "slowness river");
        let path = record["critical_path"].as_array().cloned().unwrap_or_default();
        assert!(path.iter().any(|part| part["part"] == "searching"), "{path:?}");
        assert_eq!(record["shards"].as_array().map(Vec::len), Some(8));
        let mut leaves = 0;
        for leaf in 0..4 {
            let slow = cluster.admin(&format!("leaf-{leaf}")).get("/debug/slow").await.ok().json;
            leaves += usize::from(
                slow["slow"].as_array().into_iter().flatten().any(|record| record["query_id"] == *id),
            );
        }
        assert_eq!(leaves, 4);
        cluster.stop().await;
    });
}

#[test]
fn a_root_stays_ready_while_a_leaf_answers_and_no_longer() {
    with_world(|world| async {
        let name = corpus_of(8);
        let cluster = Cluster::start(&world.shelf.store, &Shape::flat(4, 1).config(&[(&name, 8)])).await;
        let ready = |wanted: u16| {
            let root = cluster.root();
            async move {
                wait_until("readiness", Duration::from_mins(1), wanted, || async {
                    root.get("/healthz/ready").await.status
                })
                .await;
            }
        };
        for leaf in 0..3 {
            cluster.link(&format!("leaf-{leaf}"), Link::Cut);
        }
        let partial = cluster.root().search(&name, &[("q", "river"), ("timeout_ms", "5000")]).await.ok();
        assert_eq!(partial.degraded(), ["partial"]);
        ready(200).await;
        cluster.link("leaf-3", Link::Cut);
        ready(503).await;
        assert_eq!(cluster.root().get("/healthz/live").await.status, 200);
        cluster.link("leaf-3", Link::Open);
        ready(200).await;
        cluster.stop().await;
    });
}
