//! Tests of `http`: what its module comment promises.

mod load;

use std::{sync::atomic::Ordering, time::Duration};

use axum::{body::Body, http::Request, response::Response};
use canopy_common::{error::ErrorClass, ids::Epoch};
use canopy_topology::routing::{CorpusRouting, RoutingSnapshot, VersionRouting};
use serde_json::{Value, json};
use tower::ServiceExt;

use super::*;
use crate::{
    config::RootConfig,
    fixture::{Mood, Tree, tree, until},
};

mod connections;

async fn send(tree: &Tree, request: Request<Body>) -> (Response<()>, Value) {
    let response = tree.router.clone().oneshot(request).await.unwrap();
    let (parts, body) = response.into_parts();
    let body = http_body_util::BodyExt::collect(body).await.unwrap().to_bytes();
    let value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    (Response::from_parts(parts, ()), value)
}

async fn get(tree: &Tree, address: &str) -> (Response<()>, Value) {
    send(tree, Request::get(address).body(Body::empty()).unwrap()).await
}

async fn post(tree: &Tree, body: impl Into<Body>) -> (Response<()>, Value) {
    send(tree, Request::post("/v1/web/search").body(body.into()).unwrap()).await
}

fn header<'a>(response: &'a Response<()>, name: &str) -> &'a str {
    response.headers().get(name).map_or("", |value| value.to_str().unwrap())
}

/// The account of an answer or error adds up, whatever happened.
fn check_account(coverage: &Value) {
    let number = |value: &Value| value.as_u64().unwrap();
    let shards = &coverage["shards"];
    let outcomes = ["answered", "timed_out", "failed", "shed", "unavailable", "skipped"];
    let sum: u64 = outcomes.iter().map(|outcome| number(&shards[*outcome])).sum();
    assert_eq!(sum, number(&shards["total"]), "{coverage}");
    let documents = &coverage["documents"];
    let missing: u64 =
        coverage["missing"].as_array().unwrap().iter().map(|line| number(&line["documents"])).sum();
    let covered = number(&documents["searched"]) + number(&documents["pruned"]);
    assert_eq!(covered + missing, number(&documents["total"]), "{coverage}");
}

#[tokio::test(start_paused = true)]
async fn a_whole_answer_has_the_fields_of_the_contract() {
    let tree = tree(4, 25, RootConfig::default());
    let (response, answer) = get(&tree, "/v1/web/search?q=rust&facets=lang&explain=1&trace=1&sort=").await;
    assert_eq!(response.status(), 200, "{answer}");
    let names: Vec<&String> = answer.as_object().unwrap().keys().collect();
    for name in [
        "query_id",
        "took_ms",
        "deadline_ms",
        "hits",
        "total",
        "facets",
        "next_cursor",
        "warnings",
        "coverage",
        "degraded",
        "version",
        "offset",
        "tail",
        "trace",
    ] {
        assert!(names.iter().any(|have| *have == name), "{name}");
    }
    assert_eq!(answer["hits"].as_array().unwrap().len(), 10);
    let hit = &answer["hits"][0];
    for name in ["key", "title", "snippet", "score", "fields", "shard", "version", "source", "explain"] {
        assert!(!hit[name].is_null(), "{name}");
    }
    assert_eq!(hit["fields"]["published"], "2023-11-14T22:13:20Z");
    assert_eq!(answer["total"], json!({"value": 100, "relation": "eq", "lower_bound": false}));
    assert_eq!(answer["facets"]["lang"]["values"][0], json!({"value": "en", "count": 100, "error_bound": 0}));
    assert_eq!(answer["coverage"]["complete"], true);
    assert_eq!(answer["coverage"]["fetch"], json!({"wanted": 10, "filled": 10}));
    assert_eq!(answer["coverage"]["decision"], "all");
    assert_eq!(answer["degraded"], json!([]));
    assert_eq!(answer["version"], json!({"wanted": 7, "min": 7, "max": 7}));
    assert_eq!(answer["deadline_ms"], 350);
    assert_eq!(header(&response, "x-canopy-coverage"), "100/100");
    assert_eq!(header(&response, "x-query-id"), answer["query_id"]);
    assert_eq!(header(&response, "content-type"), "application/json");
    check_account(&answer["coverage"]);
}

#[tokio::test(start_paused = true)]
async fn pages_by_cursor_never_repeat_and_end() {
    let tree = tree(3, 100, RootConfig::default());
    let mut seen = std::collections::BTreeSet::new();
    let mut address = "/v1/web/search?q=rust&k=7&snippet=0".to_owned();
    let mut pages = 0;
    loop {
        let (_, answer) = get(&tree, &address).await;
        for hit in answer["hits"].as_array().unwrap() {
            assert!(seen.insert(hit["key"].as_str().unwrap().to_owned()), "{hit}");
        }
        pages += 1;
        let Some(cursor) = answer["next_cursor"].as_str() else { break };
        address = format!("/v1/web/search?q=rust&k=7&snippet=0&cursor={cursor}");
    }
    assert_eq!((seen.len(), pages), (300, 43));
    let asked = tree.leaves[0].seen.lock().last().unwrap().shards[0].clone();
    assert_eq!((asked.k, asked.after.is_some()), (7, true));
}

#[tokio::test(start_paused = true)]
async fn offsets_and_cursors_give_the_same_pages() {
    let tree = tree(3, 10, RootConfig::default());
    let keys = |answer: &Value| -> Vec<String> {
        answer["hits"].as_array().unwrap().iter().map(|hit| hit["key"].to_string()).collect()
    };
    let (_, first) = get(&tree, "/v1/web/search?q=rust&k=6").await;
    let cursor = first["next_cursor"].as_str().unwrap();
    let (_, by_cursor) = get(&tree, &format!("/v1/web/search?q=rust&k=6&cursor={cursor}")).await;
    let (_, by_offset) = get(&tree, "/v1/web/search?q=rust&k=6&offset=6").await;
    assert_eq!(keys(&by_cursor), keys(&by_offset));
    let (_, last) = get(&tree, "/v1/web/search?q=rust&k=6&offset=24").await;
    assert_eq!((keys(&last).len(), &last["next_cursor"]), (6, &Value::Null));
}

#[tokio::test(start_paused = true)]
async fn bad_input_is_400_naming_field_and_limit() {
    let tree = tree(2, 3, RootConfig::default());
    let cases = [
        ("k=1001&q=a", "k", json!(1000)),
        ("k=1000000000&q=a", "k", json!(1000)),
        ("k=99999999999999999999&q=a", "k", json!(1000)),
        ("offset=9991&q=a", "offset", json!(10_000)),
        ("offset=4294967295&q=a", "offset", json!(10_000)),
        ("timeout_ms=60001&q=a", "timeout_ms", json!(60_000)),
        ("min_coverage=1.5&q=a", "min_coverage", json!(1)),
        ("completion=all_but:2&q=a", "completion", json!(1)),
        ("completion=most&q=a", "completion", Value::Null),
        ("profile=nosuch&q=a", "profile", Value::Null),
        ("filter=nosuch:1&q=a", "filter", Value::Null),
        ("sort=nosuch&q=a", "sort", Value::Null),
        ("facets=nosuch&q=a", "facets", Value::Null),
        ("fields=nosuch&q=a", "fields", Value::Null),
        ("collapse=title&q=a", "collapse", Value::Null),
        ("cursor=AAAA&q=a", "cursor", Value::Null),
        ("lang=klingon&q=a", "lang", Value::Null),
        ("tz=Nowhere/X&q=a", "tz", Value::Null),
        ("timout_ms=5&q=a", "timout_ms", Value::Null),
        ("query_json=%7B&k=1", "query_json", Value::Null),
        ("q=a&query_json=%7B%7D", "query_json", Value::Null),
        ("k=1", "q", Value::Null),
    ];
    for (parameters, field, limit) in cases {
        let (response, error) = get(&tree, &format!("/v1/web/search?{parameters}")).await;
        assert_eq!(response.status(), 400, "{parameters}: {error}");
        assert_eq!(error["error"]["code"], "INVALID_ARGUMENT", "{parameters}");
        assert_eq!(error["error"]["field"], field, "{parameters}: {error}");
        assert_eq!(error["error"]["limit"], limit, "{parameters}: {error}");
        assert_eq!(error["query_id"].as_str().unwrap().len(), 32);
    }
    let (_, deep) = get(&tree, "/v1/web/search?offset=9991&q=a").await;
    assert!(deep["error"]["message"].as_str().unwrap().contains("cursor"), "{deep}");
    let long = format!("/v1/web/search?q={}", "a".repeat(8193));
    assert_eq!(get(&tree, &long).await.1["error"]["limit"], 8192);
    assert!(tree.leaves[0].seen.lock().is_empty(), "bad input reached a leaf");
}

#[tokio::test(start_paused = true)]
async fn what_is_not_enabled_says_so() {
    let tree = tree(1, 3, RootConfig::default());
    for parameter in ["mode=vector", "mode=hybrid", "hedge=tied", "hedge=factor:3", "version=6"] {
        let (response, error) = get(&tree, &format!("/v1/web/search?q=a&{parameter}")).await;
        assert_eq!(response.status(), 400);
        assert_eq!(error["error"]["code"], "FAILED_PRECONDITION", "{parameter}: {error}");
        assert_eq!(error["error"]["field"], parameter.split('=').next().unwrap());
    }
    for parameter in [
        "freshness=base",
        "min_offset=5f:3.17",
        "mode=text",
        "hedge=off",
        "hedge=auto",
        "version=7",
        "session=u1",
        "priority=batch",
    ] {
        let (response, answer) = get(&tree, &format!("/v1/web/search?q=rust&{parameter}")).await;
        assert_eq!(response.status(), 200, "{parameter}: {answer}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_is_json_of_the_same_names_and_bounded() {
    let tree = tree(1, 30, RootConfig::default());
    let (response, answer) = post(&tree, json!({"q": "rust", "k": 3, "timeout_ms": 0}).to_string()).await;
    assert_eq!((response.status().as_u16(), answer["hits"].as_array().unwrap().len()), (200, 3));
    assert_eq!(answer["deadline_ms"], 350, "0 is the default, never infinite");
    let (response, error) = post(&tree, "x".repeat(70_000)).await;
    assert_eq!((response.status().as_u16(), &error["error"]["limit"]), (413, &json!(65_536)));
    for body in ["", "[]", "{\"q\":1}", "{\"q\":\"a\",\"nope\":1}", "\u{0}"] {
        let (response, error) = post(&tree, body).await;
        assert_eq!(
            (response.status().as_u16(), &error["error"]["code"]),
            (400, &json!("INVALID_ARGUMENT")),
            "{body}"
        );
    }
    let deep = format!("{{\"query_json\":{}{}}}", "[".repeat(30_000), "]".repeat(30_000));
    assert_eq!(post(&tree, deep).await.0.status(), 400);
}

#[tokio::test(start_paused = true)]
async fn counting_only_and_finding_nothing() {
    let tree = tree(2, 30, RootConfig::default());
    let (_, answer) = get(&tree, "/v1/web/search?q=rust&k=0&total=exact").await;
    assert_eq!((&answer["total"]["value"], &answer["hits"]), (&json!(60), &json!([])));
    assert_eq!((&answer["next_cursor"], &answer["coverage"]["fetch"]["wanted"]), (&Value::Null, &json!(0)));
    let asked = tree.leaves[0].seen.lock().len();
    let (response, answer) = get(&tree, "/v1/web/search?q=%20%22&facets=lang").await;
    assert_eq!((response.status().as_u16(), &answer["hits"]), (200, &json!([])));
    assert_eq!(answer["total"], json!({"value": 0, "relation": "eq", "lower_bound": false}));
    assert_eq!(
        (&answer["coverage"]["complete"], &answer["coverage"]["shards"]["skipped"]),
        (&json!(true), &json!(2))
    );
    assert_eq!(tree.leaves[0].seen.lock().len(), asked, "an empty query was sent to a leaf");
}

#[tokio::test(start_paused = true)]
async fn any_subset_of_outcomes_adds_up_and_is_told() {
    let moods =
        [Mood::Answers, Mood::Hangs, Mood::Fails(ErrorClass::DataLoss), Mood::Fails(ErrorClass::Overloaded)];
    for pattern in 0..256_usize {
        let tree = tree(4, 10, RootConfig::default());
        let chosen: Vec<Mood> = (0..4).map(|i| moods[pattern >> (2 * i) & 3]).collect();
        for (leaf, mood) in tree.leaves.iter().zip(&chosen) {
            *leaf.search.lock() = *mood;
        }
        let start = Instant::now();
        let (response, body) = get(&tree, "/v1/web/search?q=rust&completion=all&timeout_ms=200").await;
        assert!(start.elapsed() <= Duration::from_millis(205), "{chosen:?}: {:?}", start.elapsed());
        check_account(&body["coverage"]);
        let answered = chosen.iter().filter(|mood| **mood == Mood::Answers).count() as u64;
        assert_eq!(body["coverage"]["documents"]["searched"], answered * 10, "{chosen:?}");
        assert_eq!(header(&response, "x-canopy-coverage"), format!("{}/40", answered * 10));
        if answered == 0 {
            assert!([503, 504, 500].contains(&response.status().as_u16()), "{chosen:?}");
            let silent = chosen.contains(&Mood::Hangs);
            assert_eq!(response.status() == 504, silent, "{chosen:?}: {body}");
            assert_eq!(body["coverage"]["documents"]["ratio"], 0.0);
            assert_eq!(body["coverage"]["complete"], false);
            continue;
        }
        assert_eq!(response.status(), 200);
        let whole = answered == 4;
        assert_eq!(body["coverage"]["complete"], whole, "{body}");
        assert_eq!(body["degraded"].as_array().unwrap().is_empty(), whole, "{body}");
        assert_eq!(body["total"]["lower_bound"], !whole);
        let failed = chosen.iter().filter(|mood| **mood == Mood::Fails(ErrorClass::DataLoss)).count();
        assert_eq!(body["coverage"]["shards"]["failed"], failed, "{chosen:?}: {body}");
    }
}

#[tokio::test(start_paused = true)]
async fn below_min_coverage_is_503_with_the_coverage_reached() {
    let tree = tree(4, 10, RootConfig::default());
    *tree.leaves[2].search.lock() = Mood::Fails(ErrorClass::DataLoss);
    let (response, error) = get(&tree, "/v1/web/search?q=rust&min_coverage=0.8").await;
    assert_eq!((response.status().as_u16(), header(&response, "retry-after")), (503, "1"));
    assert_eq!(header(&response, "x-canopy-coverage"), "30/40");
    assert_eq!(error["coverage"]["missing"][0]["shard"], "main/2");
    assert!(error["error"]["message"].as_str().unwrap().contains("main/2"), "{error}");
    let (response, answer) = get(&tree, "/v1/web/search?q=rust&min_coverage=0.75").await;
    assert_eq!((response.status().as_u16(), &answer["degraded"]), (200, &json!(["partial"])));
}

#[tokio::test(start_paused = true)]
async fn cut_before_the_first_document_is_no_answer() {
    let tree = tree(2, 10, RootConfig::default());
    for leaf in &tree.leaves {
        *leaf.search.lock() = Mood::CutAtNothing;
    }
    let (response, error) = get(&tree, "/v1/web/search?q=rust").await;
    assert_eq!((response.status().as_u16(), &error["coverage"]["documents"]["ratio"]), (504, &json!(0.0)));
    assert_eq!(error["coverage"]["shards"]["failed"], 0);
}

#[tokio::test(start_paused = true)]
async fn summaries_that_do_not_arrive_are_marked() {
    for mood in [Mood::Hangs, Mood::Fails(ErrorClass::Internal)] {
        let tree = tree(2, 10, RootConfig::default());
        for leaf in &tree.leaves {
            *leaf.fetch.lock() = mood;
        }
        let start = Instant::now();
        let (response, answer) = get(&tree, "/v1/web/search?q=rust&timeout_ms=100").await;
        assert!(start.elapsed() <= Duration::from_millis(105), "{:?}", start.elapsed());
        assert_eq!(response.status(), 200);
        assert_eq!(answer["coverage"]["fetch"], json!({"wanted": 10, "filled": 0}));
        assert_eq!(
            (&answer["coverage"]["complete"], &answer["degraded"]),
            (&json!(false), &json!(["snippets_skipped"]))
        );
        for hit in answer["hits"].as_array().unwrap() {
            assert_eq!((&hit["summary_missing"], &hit["key"]), (&json!(true), &json!("")));
        }
        assert_eq!(answer["total"]["relation"], "eq", "a snippet that failed makes no count smaller");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_stops_its_leaves_at_once() {
    let tree = tree(3, 10, RootConfig::default());
    for leaf in &tree.leaves {
        *leaf.search.lock() = Mood::Hangs;
    }
    let running = || -> u32 { tree.leaves.iter().map(|leaf| leaf.running.load(Ordering::SeqCst)).sum() };
    let call = get(&tree, "/v1/web/search?q=rust&timeout_ms=60000");
    assert!(tokio::time::timeout(Duration::from_millis(50), call).await.is_err());
    until("no leaf runs", || running() == 0).await;
    let metrics = canopy_common::telemetry::metrics::text(&tree.telemetry.registry);
    assert!(metrics.contains("canopy_root_answers_total{outcome=\"cancelled\"} 1"), "{metrics}");
    assert!(metrics.contains("canopy_root_in_flight 0"));
}

#[tokio::test(start_paused = true)]
async fn cursors_of_elsewhere_and_of_gone_versions() {
    let tree = tree(2, 30, RootConfig::default());
    let (_, answer) = get(&tree, "/v1/web/search?q=rust").await;
    let cursor = answer["next_cursor"].as_str().unwrap();
    let (response, error) = get(&tree, &format!("/v1/web/search?q=search&cursor={cursor}")).await;
    assert_eq!((response.status().as_u16(), &error["error"]["field"]), (400, &json!("cursor")));
    let (response, error) = get(&tree, &format!("/v1/web/search?q=rust&cursor={cursor}&offset=5")).await;
    assert_eq!((response.status().as_u16(), &error["error"]["field"]), (400, &json!("offset")));
    let mut next = crate::fixture::corpus(2, 30);
    next.manifest.version = canopy_common::ids::Version(8);
    tree.root.versions.publish(next);
    let (response, _) = get(&tree, &format!("/v1/web/search?q=rust&cursor={cursor}")).await;
    assert_eq!(response.status().as_u16(), 200, "the cursor's version is open beside the new one");
    let held = [(canopy_common::ids::Version(8), VersionRouting::default())].into();
    let web = CorpusRouting { versions: held, ..CorpusRouting::default() };
    let corpora = [("web".to_owned(), web)].into();
    tree.root.versions.follow(&RoutingSnapshot { corpora, ..RoutingSnapshot::default() });
    let (response, error) = get(&tree, &format!("/v1/web/search?q=rust&cursor={cursor}")).await;
    assert_eq!((response.status().as_u16(), &error["error"]["code"]), (410, &json!("CURSOR_EXPIRED")));
}

#[tokio::test(start_paused = true)]
async fn other_paths_methods_and_corpora() {
    let tree = tree(1, 3, RootConfig::default());
    let (response, error) = get(&tree, "/v1/nosuch/search?q=a").await;
    assert_eq!((response.status().as_u16(), &error["error"]["code"]), (404, &json!("NOT_FOUND")));
    let (response, error) = get(&tree, "/v2/x").await;
    assert_eq!((response.status().as_u16(), &error["error"]["code"]), (404, &json!("NOT_FOUND")));
    let (response, error) = get(&tree, "/v1/%ff%fe/search?q=a").await;
    assert_eq!((response.status().as_u16(), &error["error"]["field"]), (400, &json!("corpus")));
    let delete = Request::delete("/v1/web/search").body(Body::empty()).unwrap();
    let (response, error) = send(&tree, delete).await;
    assert_eq!((response.status().as_u16(), header(&response, "allow")), (405, "GET, HEAD, POST, OPTIONS"));
    assert_eq!(error["error"]["code"], "METHOD_NOT_ALLOWED");
    let (response, list) = get(&tree, "/v1").await;
    assert_eq!((response.status().as_u16(), &list["corpora"][0]["name"]), (200, &json!("web")));
    assert_eq!(get(&tree, "/version").await.0.status(), 200);
    assert_eq!(get(&tree, "/metrics").await.0.status(), 200);
}

#[tokio::test(start_paused = true)]
async fn browsers_of_configured_origins_may_read() {
    let config = RootConfig { cors_origins: vec!["https://app.example".to_owned()], ..RootConfig::default() };
    let tree = tree(1, 3, config);
    let from = |origin: &str| {
        Request::get("/v1/web/search?q=rust").header("origin", origin).body(Body::empty()).unwrap()
    };
    let (response, _) = send(&tree, from("https://app.example")).await;
    assert_eq!(header(&response, "access-control-allow-origin"), "https://app.example");
    let (response, _) = send(&tree, from("https://evil.example")).await;
    assert_eq!(header(&response, "access-control-allow-origin"), "");
}

#[tokio::test(start_paused = true)]
async fn ready_is_would_answer_and_survives_lost_leaves() {
    let tree = tree(2, 10, RootConfig::default());
    assert_eq!(get(&tree, "/healthz/live").await.0.status(), 200);
    assert_eq!(get(&tree, "/healthz/startup").await.0.status(), 200);
    *tree.leaves[0].search.lock() = Mood::Fails(ErrorClass::Unavailable);
    assert_eq!(get(&tree, "/healthz/ready").await.0.status(), 200, "a partial answer is an answer");
    let metrics = canopy_common::telemetry::metrics::text(&tree.telemetry.registry);
    assert!(!metrics.contains("canopy_root_answers_total{"), "a probe is no client: {metrics}");
    *tree.leaves[1].search.lock() = Mood::Fails(ErrorClass::Unavailable);
    assert_eq!(get(&tree, "/healthz/ready").await.0.status(), 200, "asked at most once an interval");
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(get(&tree, "/healthz/ready").await.0.status(), 503);
    *tree.leaves[1].search.lock() = Mood::Answers;
    tokio::time::advance(Duration::from_secs(2)).await;
    assert_eq!(get(&tree, "/healthz/ready").await.0.status(), 200);
    tree.drain.start();
    assert_eq!(get(&tree, "/healthz/ready").await.0.status(), 503);
}

#[tokio::test(start_paused = true)]
async fn not_ready_and_503_until_the_version_is_open() {
    let tree = tree(1, 3, RootConfig::default());
    let root = &tree.root;
    let closed = crate::versions::Versions::expecting(["web".to_owned()]);
    let error = closed.corpus("web").err().unwrap();
    assert_eq!((error.http_status(), error.code()), (503, "UNAVAILABLE"));
    assert_eq!(closed.opening().len(), 1);
    assert!(root.versions.opening().is_empty());
    let unheard = crate::versions::Versions::expecting([]);
    let error = unheard.corpus("web").err().unwrap();
    assert_eq!((error.http_status(), error.code()), (503, "UNAVAILABLE"), "{error}");
    unheard.follow(&RoutingSnapshot { epoch: Epoch(1), ..RoutingSnapshot::default() });
    assert_eq!(unheard.corpus("web").err().unwrap().http_status(), 404);
}

#[tokio::test(start_paused = true)]
async fn a_corpus_that_can_not_be_opened_takes_no_other_one_from_the_balancer() {
    use canopy_format::error::Error as Format;
    let tree = tree(1, 3, RootConfig::default());
    let versions = &tree.root.versions;
    let ready = async || {
        tokio::time::advance(Duration::from_secs(2)).await;
        let (response, _) = get(&tree, "/healthz/ready").await;
        (response.status().as_u16(), get(&tree, "/healthz/startup").await.0.status().as_u16())
    };
    // A root that begins looks at everything first.
    versions.expect("nope");
    assert_eq!(ready().await, (503, 503));
    versions.wait("nope", None, &Format::NoCorpus("nope".to_owned()).into());
    assert_eq!(ready().await, (200, 200));
    let (_, status) = get(&tree, "/status").await;
    assert!(status["corpora"]["nope"]["why"].as_str().unwrap().contains("does not exist"), "{status}");
    // One that comes later is opened beside what is served.
    versions.expect("later");
    assert_eq!(ready().await, (200, 200));
    versions.wait("later", None, &Format::NoVersionYet("later".to_owned()).into());
    *tree.leaves[0].search.lock() = Mood::Fails(ErrorClass::Unavailable);
    assert_eq!(ready().await, (503, 200), "nothing that it shall serve can be served");
    *tree.leaves[0].search.lock() = Mood::Answers;
    assert_eq!(ready().await, (200, 200));
}

#[tokio::test(start_paused = true)]
async fn slow_queries_leave_their_times() {
    let tree = tree(2, 10, RootConfig::default());
    *tree.leaves[1].search.lock() = Mood::Hangs;
    let (_, answer) = get(&tree, "/v1/web/search?q=rust&timeout_ms=400&completion=all").await;
    let (_, slow) = get(&tree, "/debug/slow").await;
    let record = &slow["slow"][0];
    assert_eq!(record["query_id"], answer["query_id"]);
    assert_eq!(record["shards"][0]["shard"], "main/1");
    let sum: u64 =
        record["phases"].as_array().unwrap().iter().map(|phase| phase["duration_us"].as_u64().unwrap()).sum();
    let took = record["took_ms"].as_f64().unwrap() * 1000.0;
    assert!((sum as f64 - took).abs() <= took * 0.05, "{sum} of {took}");
}

#[tokio::test(start_paused = true)]
async fn a_thousand_failures_of_one_cause_stay_readable() {
    let tree = tree(1000, 1, RootConfig::default());
    for leaf in &tree.leaves[1..] {
        *leaf.search.lock() = Mood::Fails(ErrorClass::Internal);
    }
    let (response, answer) = get(&tree, "/v1/web/search?q=rust&timeout_ms=5000").await;
    assert_eq!(response.status(), 200);
    check_account(&answer["coverage"]);
    let missing = answer["coverage"]["missing"].as_array().unwrap();
    assert!(missing.len() <= 16, "{}", missing.len());
    assert!(answer.to_string().len() < 16 << 10);
}
