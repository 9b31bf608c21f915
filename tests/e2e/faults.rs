//! Nodes that hang, die between the two phases or hold damaged files; versions that this build cannot read; pages that
//! would not fit. Time bounds are generous: they hold on a loaded machine, the figures are measured elsewhere.

use std::time::Duration;

use canopy_common::config::{Size, Time};
use canopy_format::{schema::Schema, store::VersionStore};
use canopy_tests::{
    cluster::{Cluster, Shape, copy_store},
    corpus::{self, Page},
    faulty_net::Link,
    publish::Shelf,
    wait::wait_for,
};
use serde_json::{Value, json};

use crate::world::{self, corpus_of, with_world};

const EVERY: (&str, &str) = ("query_json", r#"{"match_all":{}}"#);
/// What a loaded machine may add to a deadline, milliseconds. Less than any of the deadlines here: whoever waits for one twice is
/// found out.
const SLACK_MS: f64 = 1400.0;

#[test]
fn one_deadline_holds_however_many_branches_hang() {
    with_world(|world| async {
        let name = corpus_of(8);
        for shape in [Shape::flat(4, 1), Shape::two_levels(4, 1)] {
            let mut config = shape.config(&[(&name, 8)]);
            // Nobody finds out that they hang but by the deadline.
            config.rpc.keepalive_interval = Time::ms(60_000);
            let cluster = Cluster::start(&world.shelf.store, &config).await;
            let whole = cluster.root().search(&name, &[EVERY, ("timeout_ms", "60000")]).await.ok();
            cluster.link("leaf-1", Link::Stalled);
            for completion in ["all", "adaptive"] {
                let asked = [EVERY, ("timeout_ms", "1500"), ("completion", completion), ("total", "exact")];
                let answered = cluster.root().search(&name, &asked).await.ok();
                answered.adds_up();
                let took = answered.json["took_ms"].as_f64().unwrap_or(f64::MAX);
                assert!(took <= 1500.0 + SLACK_MS, "{completion}: {took} ms");
                let shards = &answered.json["coverage"]["shards"];
                assert_eq!(
                    (&shards["answered"], &shards["timed_out"]),
                    (&json!(6), &json!(2)),
                    "{completion}: {}",
                    answered.json
                );
                assert!(answered.degraded().contains(&"partial"), "{}", answered.json);
                assert_eq!(answered.json["total"]["lower_bound"], true);
                let outcomes: Vec<_> = answered.json["coverage"]["missing"]
                    .as_array()
                    .into_iter()
                    .flatten()
                    .map(|line| line["outcome"].clone())
                    .collect();
                assert_eq!(outcomes, ["timed_out", "timed_out"], "{completion}");
            }
            let asked = [EVERY, ("timeout_ms", "1500"), ("min_coverage", "0.99")];
            let refused = cluster.root().search(&name, &asked).await;
            assert_eq!(refused.status, 503, "{}", refused.json);
            assert_eq!(refused.headers["retry-after"], "1");
            refused.adds_up();
            for leaf in 0..4 {
                cluster.link(&format!("leaf-{leaf}"), Link::Stalled);
            }
            let nothing =
                cluster.root().search(&name, &[EVERY, ("timeout_ms", "1500"), ("completion", "all")]).await;
            assert_eq!(nothing.status, 504, "{}", nothing.json);
            nothing.adds_up();
            assert_eq!(nothing.documents(), (0, 0, world.oracle.documents()));
            assert_eq!(nothing.json["coverage"]["documents"]["ratio"], 0.0);
            for leaf in 0..4 {
                cluster.link(&format!("leaf-{leaf}"), Link::Open);
            }
            wait_for("a whole answer", Duration::from_mins(1), || async {
                let again = cluster.root().search(&name, &[EVERY, ("timeout_ms", "5000")]).await;
                (again.places() == whole.places() && again.degraded().is_empty()).then_some(())
            })
            .await;
            cluster.stop().await;
        }
    });
}

#[test]
fn summaries_come_from_the_other_replica_or_are_marked_missing() {
    with_world(|world| async {
        let name = corpus_of(1);
        // Requests are counted here: none but those of the one query, once each.
        let counted = |shape: Shape| {
            let mut config = shape.config(&[(&name, 1), (&corpus_of(2), 2)]);
            config.root.probe_interval = Time::ms(60_000);
            config
        };
        // One replica: the leaf answers the search and hangs at the fetch.
        let cluster = Cluster::start(&world.shelf.store, &counted(Shape::flat(2, 1))).await;
        let asked = [EVERY, ("timeout_ms", "3000"), ("k", "5"), ("hedge", "off")];
        let whole = cluster.root().search(&name, &asked).await.ok();
        cluster.link_after("leaf-0", 1, Link::Stalled);
        let answered = cluster.root().search(&name, &asked).await.ok();
        answered.adds_up();
        assert_eq!(
            answered.json["coverage"]["fetch"],
            json!({ "wanted": 5, "filled": 0 }),
            "{}",
            answered.json
        );
        assert_eq!(answered.json["coverage"]["complete"], false);
        assert_eq!(answered.degraded(), ["snippets_skipped"]);
        assert!(
            answered
                .hits()
                .all(|hit| hit["summary_missing"] == true && hit["key_hash"].is_string() && hit["key"] == "")
        );
        assert!(
            answered.json["took_ms"].as_f64().unwrap_or(f64::MAX) <= 3000.0 + SLACK_MS,
            "{}",
            answered.json["took_ms"]
        );
        cluster.stop().await;
        // Two: the one that answered is gone, so the other is asked by key.
        let cluster = Cluster::start(&world.shelf.store, &counted(Shape::flat(2, 2))).await;
        let asked = [EVERY, ("timeout_ms", "20000"), ("k", "5"), ("hedge", "off")];
        for _ in 0..6 {
            for leaf in ["leaf-0", "leaf-1"] {
                cluster.link_after(leaf, 1, Link::Cut);
            }
            let answered = cluster.root().search(&name, &asked).await.ok();
            assert_eq!(
                answered.json["coverage"]["fetch"],
                json!({ "wanted": 5, "filled": 5 }),
                "{}",
                answered.json
            );
            assert_eq!(answered.keys(), whole.keys());
            assert_eq!(answered.degraded(), [""; 0]);
            for leaf in ["leaf-0", "leaf-1"] {
                cluster.link(leaf, Link::Open);
            }
        }
        cluster.stop().await;
    });
}

/// A small corpus of its own, to be damaged.
async fn small() -> Shelf {
    let shelf = Shelf::new();
    shelf.publish("small", &Schema::web(), 4, &corpus::generate(9, 120)).await;
    shelf
}

#[test]
fn a_damaged_shard_is_set_aside_by_name_and_the_others_answer() {
    world::run(async {
        let shelf = small().await;
        let dir = shelf.dir().join("damaged");
        copy_store(&shelf.dir().join("store"), &dir);
        let store = VersionStore::open(&dir.to_string_lossy(), false).expect("a store");
        let manifest = store.latest("small").await.expect("a version");
        let entry = &manifest.shards[2];
        let file = entry.files.iter().max_by_key(|file| file.bytes).expect("a file");
        let path = store.version_dir("small", manifest.version).expect("a directory").join(&file.path);
        let mut bytes = std::fs::read(&path).expect("the file");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0x40;
        std::fs::write(&path, bytes).expect("damage");
        let cluster = Cluster::start(&store, &Shape::flat(2, 2).config(&[("small", 4)])).await;
        let answered = cluster.root().search("small", &[EVERY, ("timeout_ms", "5000")]).await.ok();
        answered.adds_up();
        assert_eq!(answered.documents().0, manifest.documents() - entry.documents);
        let missing = &answered.json["coverage"]["missing"];
        assert_eq!(missing[0]["shard"], "main/2", "{missing}");
        assert!(
            ["failed", "unavailable"].contains(&missing[0]["outcome"].as_str().unwrap_or_default()),
            "{missing}"
        );
        for leaf in ["leaf-0", "leaf-1"] {
            let status = cluster.admin(leaf).get("/status").await.json;
            let text = status["shards"].to_string();
            assert!(text.contains("quarantined") && text.contains("is damaged"), "{leaf}: {text}");
        }
        cluster.stop().await;
    });
}

#[test]
fn a_version_of_a_newer_format_is_refused_by_name() {
    world::run(async {
        let shelf = small().await;
        let manifest = shelf.store.latest("small").await.expect("a version");
        let newer = |change: &dyn Fn(&mut Value)| {
            let mut json = serde_json::from_slice(&manifest.to_json()).expect("JSON");
            change(&mut json);
            json.to_string()
        };
        let changes = [
            ("format", newer(&|json| json["format"] = json!(99))),
            (
                "built with analysis a99",
                newer(&|json| {
                    json["analysis_id"] = json!("a99");
                    json["schema_id"] = json!(manifest.schema.id_under("a99"));
                }),
            ),
            ("damaged", "{".to_owned()),
        ];
        for (number, (named, text)) in changes.iter().enumerate() {
            let dir = shelf.dir().join(format!("newer-{number}"));
            copy_store(&shelf.dir().join("store"), &dir);
            let store = VersionStore::open(&dir.to_string_lossy(), false).expect("a store");
            let path =
                store.version_dir("small", manifest.version).expect("a directory").join("manifest.json");
            std::fs::write(&path, text).expect("a changed manifest");
            let cluster = Cluster::start_unready(&store, &Shape::flat(2, 1).config(&[("small", 4)])).await;
            let why = wait_for(&format!("a refusal that names {named}"), Duration::from_mins(1), || async {
                let ready = cluster.root().try_get("/healthz/ready").await?;
                let body = String::from_utf8_lossy(&ready.body).into_owned();
                (ready.status == 503 && body.contains(*named)).then_some(body)
            })
            .await;
            assert!(why.contains("small"), "{why}");
            let answered = cluster.root().search("small", &[EVERY]).await;
            assert_eq!(answered.status, 503, "{}", answered.json);
            assert_eq!(cluster.admin("leaf-0").get("/healthz/live").await.status, 200);
            assert_eq!(cluster.admin("leaf-0").get("/healthz/ready").await.status, 503);
            cluster.stop().await;
        }
    });
}

#[test]
fn a_page_that_would_not_fit_is_refused_before_any_work() {
    world::run(async {
        let shelf = Shelf::new();
        let body = "sesquipedalian ".repeat(4400);
        let page = |n: usize| Page::plain(&format!("https://large.example/{n}"), "large", &body);
        let pages: Vec<Page> = (0..60).map(page).collect();
        shelf.publish("large", &Schema::web(), 2, &pages).await;
        let mut config = Shape::flat(2, 1).config(&[("large", 2)]);
        config.root.max_answer = Size(1 << 20);
        let cluster = Cluster::start(&shelf.store, &config).await;
        let ask = async |k: &str, fields: &str| {
            let asked = [("q", "sesquipedalian"), ("k", k), ("fields", fields), ("timeout_ms", "60000")];
            cluster.root().search("large", &asked).await
        };
        let refused = ask("60", "body").await;
        let message = refused.refused(400, "INVALID_ARGUMENT", "k");
        assert!(message.contains("smaller k or fewer fields"), "{message}");
        let limit = refused.json["error"]["limit"].as_u64().expect("a limit");
        assert!((5..60).contains(&limit), "{limit}");
        let answered = ask(&limit.to_string(), "body").await.ok();
        assert_eq!(answered.json["coverage"]["fetch"]["filled"], limit);
        assert!(
            answered.hits().all(|hit| hit["fields"]["body"].as_str().is_some_and(|text| text.len() > 60_000))
        );
        ask("60", "host").await.ok();
        cluster.stop().await;
        // Several messages carry what one cannot: a page may be larger than a message.
        let mut config = Shape::two_levels(2, 1).config(&[("large", 2)]);
        config.rpc.max_message = Size(8 << 20);
        let cluster = Cluster::start(&shelf.store, &config).await;
        let asked = [("q", "sesquipedalian"), ("k", "60"), ("fields", "body"), ("timeout_ms", "60000")];
        let answered = cluster.root().search("large", &asked).await.ok();
        assert_eq!(
            answered.json["coverage"]["fetch"],
            json!({ "wanted": 60, "filled": 60 }),
            "{}",
            answered.json["coverage"]
        );
        cluster.stop().await;
    });
}
