//! The contract of the HTTP API, field by field: every parameter at a good value, at its bounds and beyond them, and
//! every field of an answer.

use std::time::Duration;

use canopy_tests::{
    api::{Answered, Api},
    wait::wait_for,
};
use serde_json::{Value, json};

use crate::world::{World, corpus_of, with_world};

/// A word that many documents have.
const WORD: &str = "river";

fn corpus() -> String {
    corpus_of(8)
}

async fn ask(world: &World, parameters: &[(&str, &str)]) -> Answered {
    let mut all = vec![("timeout_ms", "60000")];
    if !parameters.iter().any(|(name, _)| ["q", "query_json"].contains(name)) {
        all.push(("q", WORD));
    }
    let own = |name: &str| parameters.iter().any(|(own, _)| *own == name);
    all.retain(|(name, _)| !own(name));
    all.extend(parameters);
    world.flat.root().search(&corpus(), &all).await
}

/// The names of an object.
fn names(value: &Value) -> Vec<&str> {
    value.as_object().map(|object| object.keys().map(String::as_str).collect()).unwrap_or_default()
}

fn sorted<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names
}

#[test]
fn an_answer_has_exactly_the_fields_of_the_contract() {
    with_world(|world| async {
        let asked =
            [("facets", "lang"), ("explain", "true"), ("trace", "true"), ("k", "3"), ("total", "exact")];
        let answered = ask(world, &asked).await.ok();
        answered.adds_up();
        let answer = &answered.json;
        let expected = [
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
        ];
        assert_eq!(names(answer), sorted(&expected));
        let expected = [
            "key",
            "title",
            "snippet",
            "snippet_text",
            "snippet_ranges",
            "score",
            "fields",
            "shard",
            "version",
            "source",
            "explain",
        ];
        for hit in answered.hits() {
            assert_eq!(names(hit), sorted(&expected));
            assert_eq!(hit["source"], "base");
            assert!(hit["shard"].as_str().is_some_and(|shard| shard.starts_with("main/")), "{hit}");
            assert_eq!(hit["version"], answer["version"]["wanted"]);
        }
        let coverage = &answer["coverage"];
        let expected = ["complete", "documents", "shards", "fetch", "missing", "cut", "decision"];
        assert_eq!(names(coverage), sorted(&expected));
        let all = world.oracle.documents();
        assert_eq!(coverage["documents"]["total"], all);
        assert_eq!(coverage["documents"]["ratio"], 1.0);
        let shards = json!({ "total": 8, "asked": 8, "answered": 8, "timed_out": 0, "failed": 0, "shed": 0,
                             "unavailable": 0, "skipped": 0 });
        assert_eq!(coverage["shards"], shards);
        assert_eq!(coverage["fetch"], json!({ "wanted": 3, "filled": 3 }));
        assert_eq!(coverage["decision"], "all");
        assert_eq!(answer["version"], json!({ "wanted": 1, "min": 1, "max": 1 }));
        assert_eq!(answer["offset"], json!({ "min_lag_ms": 0, "max_lag_ms": 0 }));
        assert_eq!(
            names(&answer["tail"]),
            sorted(&["attempts", "hedges", "hedges_won", "retries", "budget_denied"])
        );
        assert_eq!(answered.headers["x-canopy-coverage"], format!("{all}/{all}"));
        assert_eq!(answered.headers["x-query-id"], answer["query_id"].as_str().unwrap_or_default());
        assert_eq!(answered.headers["content-type"], "application/json");
        let took = answer["took_ms"].as_f64().unwrap_or(0.0);
        assert!(took > 0.0 && took < 60_000.0, "{took}");
    });
}

#[test]
fn get_and_post_are_one_request() {
    with_world(|world| async {
        let get = ask(
            world,
            &[("filter", "lang:en"), ("filter", "topic:topic-1,topic-2"), ("facets", "host"), ("k", "7")],
        );
        let body = json!({ "q": WORD, "filter": ["lang:en", "topic:topic-1,topic-2"], "facets": ["host"], "k": 7,
                           "timeout_ms": 60000 });
        let (get, post) = (get.await.ok(), world.flat.root().search_json(&corpus(), &body).await.ok());
        assert_eq!(get.places(), post.places());
        assert!(!get.places().is_empty());
        for name in ["total", "facets", "next_cursor", "version"] {
            assert_eq!(get.json[name], post.json[name], "{name}");
        }
    });
}

#[test]
fn good_values_do_what_they_say() {
    with_world(|world| async {
        let plain = ask(world, &[]).await.ok();
        assert_eq!(plain.keys().len(), 10);
        let none = ask(world, &[("k", "0"), ("total", "exact")]).await.ok();
        assert_eq!(none.keys().len(), 0);
        let total = none.json["total"]["value"].as_u64().unwrap_or(0);
        assert!(total > 20, "count only: {total}");
        assert_eq!(ask(world, &[("k", "1000")]).await.ok().keys().len() as u64, total.min(1000));
        for (timeout, deadline) in [("", 350), ("0", 350), ("1234", 1234), ("60000", 60000)] {
            let timeout: &[(&str, &str)] = if timeout.is_empty() { &[] } else { &[("timeout_ms", timeout)] };
            let mut asked = vec![("q", WORD)];
            asked.extend(timeout);
            let answered = world.flat.root().search(&corpus(), &asked).await;
            assert!(answered.status == 504 || answered.json["deadline_ms"] == deadline, "{}", answered.json);
        }
        for completion in ["all", "adaptive", "all_but:0", "all_but:7"] {
            ask(world, &[("completion", completion)]).await.ok();
        }
        for word in ["0", "1", "0.5", "1.0"] {
            ask(world, &[("min_coverage", word)]).await.ok();
        }
        let unchanged = [
            ("hedge", "off"),
            ("hedge", "auto"),
            ("freshness", "base"),
            ("freshness", "indexed"),
            ("freshness", "realtime"),
            ("min_offset", "5f:0.0"),
            ("mode", "text"),
            ("profile", "default"),
            ("version", "1"),
            ("version", "0"),
            ("session", "a user"),
            ("priority", "interactive"),
            ("priority", "batch"),
            ("tz", "Europe/Berlin"),
            ("min_should_match", "0"),
            ("min_coverage", "1"),
        ];
        for (name, value) in unchanged {
            assert_eq!(ask(world, &[(name, value)]).await.ok().places(), plain.places(), "{name}={value}");
        }
        assert_ne!(ask(world, &[("profile", "ranked")]).await.ok().places(), plain.places());
        assert_eq!(ask(world, &[("lang", "en")]).await.ok().keys().len(), 10);
    });
}

#[test]
fn snippet_and_fields_are_what_was_asked_for() {
    with_world(|world| async {
        let bare = ask(world, &[("snippet", "false"), ("fields", "host")]).await.ok();
        for hit in bare.hits() {
            assert_eq!((&hit["snippet"], &hit["snippet_text"]), (&json!(""), &json!("")));
            assert_eq!(names(&hit["fields"]), ["host"]);
        }
        let rich = ask(world, &[("fields", "url,body,published,attributes")]).await.ok();
        let page = |key: &str| world.pages.iter().find(|page| page.key == key);
        for hit in rich.hits() {
            let page = page(hit["key"].as_str().unwrap_or_default()).expect("a page");
            assert_eq!(hit["fields"]["url"], hit["key"]);
            assert_eq!(hit["fields"]["body"].as_str(), page.body.as_deref());
            assert_eq!(
                hit["fields"]["published"].as_str().map(str::to_owned),
                page.published.map(canopy_tests::corpus::instant)
            );
            let attributes = Value::Object(page.attributes.clone());
            assert_eq!(hit["fields"].get("attributes").cloned().unwrap_or(json!({})), attributes);
            assert_eq!(hit["title"].as_str().unwrap_or_default(), page.title.as_deref().unwrap_or_default());
        }
        // What is not shown in answers cannot be asked for.
        assert_eq!(ask(world, &[("fields", "anchors")]).await.status, 400);
    });
}

#[test]
fn explanations_add_up_to_the_score_and_name_their_place() {
    with_world(|world| async {
        let asked = [
            ("q", "river garden \"of the\" stone*"),
            ("explain", "true"),
            ("profile", "ranked"),
            ("k", "50"),
        ];
        let answered = ask(world, &asked).await.ok();
        let mut parts_seen = 0;
        for hit in answered.hits() {
            let explain = &hit["explain"];
            assert_eq!(explain["score"], hit["score"], "{explain}");
            let parts: Vec<f64> = explain["parts"]
                .as_array()
                .into_iter()
                .flatten()
                .map(|part| part["score"].as_f64().unwrap_or(f64::NAN))
                .collect();
            parts_seen += parts.len();
            let sum: f64 = parts.iter().sum();
            let score = hit["score"].as_f64().unwrap_or(f64::NAN);
            assert!((sum - score).abs() <= score.abs() * 1e-6, "{sum} is not {score}: {explain}");
            let provenance = &explain["provenance"];
            assert_eq!(provenance["shard"], hit["shard"]);
            assert!(
                provenance["node"].as_str().is_some_and(|node| node.starts_with("leaf-")),
                "{provenance}"
            );
        }
        assert!(parts_seen > 60, "{parts_seen}");
    });
}

#[test]
fn a_trace_shows_every_level_and_its_phases_fill_the_time() {
    with_world(|world| async {
        let asked = [("q", WORD), ("trace", "true"), ("timeout_ms", "60000")];
        // A machine that does other things too may stop the root between its last phase and its last word.
        let answered = wait_for("phases that fill the time", Duration::from_mins(1), || async {
            let answered = world.deep.root().search(&corpus(), &asked).await.ok();
            let phases = answered.json["trace"]["phases"].as_array().expect("phases");
            let sum: u64 = phases.iter().map(|phase| phase["duration_us"].as_u64().unwrap_or(0)).sum();
            let took = answered.json["took_ms"].as_f64().unwrap_or(0.0) * 1000.0;
            assert!((sum as f64) <= took, "{sum} of {took}");
            (sum as f64 >= took * 0.9).then_some(answered)
        })
        .await;
        let trace = &answered.json["trace"];
        assert_eq!(trace["node"], "root-0");
        let mut nodes = std::collections::BTreeSet::new();
        let mut open: Vec<&Value> = trace["spans"].as_array().expect("spans").iter().collect();
        while let Some(span) = open.pop() {
            nodes.insert(span["node"].as_str().unwrap_or_default().to_owned());
            open.extend(span["children"].as_array().into_iter().flatten());
        }
        for kind in ["root-", "aggregator-", "leaf-"] {
            assert!(nodes.iter().any(|node| node.starts_with(kind)), "{kind}: {nodes:?}");
        }
        assert!(ask(world, &[]).await.ok().json.get("trace").is_none());
    });
}

/// (parameters, field, part of the message).
type Refusal = (&'static [(&'static str, &'static str)], &'static str, &'static str);

const REFUSALS: &[Refusal] = &[
    (&[("k", "1001")], "k", "1000"),
    (&[("k", "1000000000")], "k", "1000"),
    (&[("k", "99999999999999999999")], "k", "1000"),
    (&[("k", "-1")], "k", "whole number"),
    (&[("k", "ten")], "k", "whole number"),
    (&[("k", "1.5")], "k", "whole number"),
    (&[("offset", "9991")], "offset", "next_cursor"),
    (&[("offset", "10000"), ("k", "1")], "offset", "next_cursor"),
    (&[("offset", "4294967296")], "offset", "next_cursor"),
    (&[("offset", "18446744073709551616")], "offset", "next_cursor"),
    (&[("offset", "-5")], "offset", "whole number"),
    (&[("timeout_ms", "60001")], "timeout_ms", "60000"),
    (&[("timeout_ms", "-1")], "timeout_ms", "whole number"),
    (&[("timeout_ms", "1s")], "timeout_ms", "whole number"),
    (&[("min_coverage", "1.01")], "min_coverage", "0 to 1"),
    (&[("min_coverage", "-0.1")], "min_coverage", "0 to 1"),
    (&[("min_coverage", "NaN")], "min_coverage", "number"),
    (&[("completion", "most")], "completion", "all_but:K"),
    (&[("completion", "all_but:8")], "completion", "at most 7"),
    (&[("completion", "all_but:x")], "completion", "all_but:K"),
    (&[("total", "all")], "total", "exact, bounded, none"),
    (&[("hedge", "fast")], "hedge", "off"),
    (&[("min_should_match", "1025")], "min_should_match", "1024"),
    (&[("freshness", "old")], "freshness", "base, indexed, realtime"),
    (&[("min_offset", "yesterday")], "min_offset", "is not a token"),
    (&[("min_offset", "5f:1024.1")], "min_offset", "is not a token"),
    (&[("min_offset", "5f:1.2,1.3")], "min_offset", "twice"),
    (&[("min_offset", "5f:1.2"), ("freshness", "base")], "min_offset", "freshness=base"),
    (&[("filter", "nosuch:1")], "filter", "nosuch"),
    (&[("filter", "justwords")], "filter", "field:value"),
    (&[("filter", "published:yesterday")], "filter", "date"),
    (&[("filter", "static_rank:high")], "filter", "number"),
    (&[("filter", "published:[2024 TO 2020]")], "filter", "before it begins"),
    (&[("sort", "nosuch")], "sort", "nosuch"),
    (&[("sort", "title")], "sort", "text field"),
    (&[("sort", "host,host")], "sort", "twice"),
    (&[("facets", "title")], "facets", "text field"),
    (&[("facets", "host:1001")], "facets", "1000"),
    (&[("facets", "host:0")], "facets", "1000"),
    (&[("collapse", "published")], "collapse", "published"),
    (&[("collapse", "nosuch")], "collapse", "nosuch"),
    (&[("fields", "nosuch")], "fields", "nosuch"),
    (&[("snippet", "maybe")], "snippet", "true or false"),
    (&[("profile", "nosuch")], "profile", "default"),
    (&[("mode", "magic")], "mode", "text"),
    (&[("version", "x")], "version", "whole number"),
    (&[("explain", "2")], "explain", "true or false"),
    (&[("trace", "yes please")], "trace", "true or false"),
    (&[("priority", "urgent")], "priority", "interactive, batch"),
    (&[("lang", "klingon")], "lang", "code"),
    (&[("tz", "Mars/Olympus")], "tz", "time zone"),
    (&[("cursor", "rubbish")], "cursor", "exactly as it was given"),
    (&[("cursor", "rubbish"), ("offset", "5")], "offset", "exclude each other"),
    (&[("timout_ms", "5")], "timout_ms", "timeout_ms"),
    (&[("limit", "5")], "limit", "parameter"),
    (&[("k", "5"), ("k", "6")], "k", "twice"),
    (&[("q", "a"), ("query_json", "{}")], "query_json", "exclude each other"),
    (&[("query_json", "{")], "query_json", "JSON"),
    (&[("query_json", "{\"nosuch\":{}}")], "query_json.nosuch", "match_all"),
    (&[("query_json", "{\"term\":{\"value\":\"a b\"}}")], "query_json.term.value", "phrase"),
    (
        &[("query_json", "{\"bool\":{\"must\":[{\"term\":{\"field\":\"nosuch\",\"value\":\"a\"}}]}}")],
        "query_json.bool.must[0].term.field",
        "nosuch",
    ),
];

#[test]
fn bad_values_are_refused_by_field_and_limit() {
    with_world(|world| async {
        for (parameters, field, words) in REFUSALS {
            let answered = ask(world, parameters).await;
            let message = answered.refused(400, "INVALID_ARGUMENT", field);
            assert!(message.contains(words), "{parameters:?}: {message}");
            assert!(answered.body.len() < 2000, "{parameters:?}: {} bytes", answered.body.len());
        }
        let limits = [
            ("k", "1001", 1000),
            ("offset", "9999", 10_000),
            ("timeout_ms", "99999", 60_000),
            ("min_should_match", "2000", 1024),
        ];
        for (name, value, limit) in limits {
            assert_eq!(ask(world, &[(name, value)]).await.json["error"]["limit"], limit, "{name}");
        }
    });
}

#[test]
fn what_is_not_enabled_says_so() {
    with_world(|world| async {
        let table = [
            ("hedge", "delay:5"),
            ("hedge", "quantile:0.95"),
            ("hedge", "tied"),
            ("hedge", "factor:2"),
            ("mode", "vector"),
            ("mode", "hybrid"),
            ("version", "2"),
        ];
        for (name, value) in table {
            ask(world, &[(name, value)]).await.refused(400, "FAILED_PRECONDITION", name);
        }
    });
}

#[test]
fn long_input_is_refused_before_any_work() {
    with_world(|world| async {
        let root = world.flat.root();
        let long = "a ".repeat(4097);
        let answered = root.search_json(&corpus(), &json!({ "q": long })).await;
        answered.refused(400, "INVALID_ARGUMENT", "q");
        assert_eq!(answered.json["error"]["limit"], 8192);
        root.search_json(&corpus(), &json!({ "q": "a ".repeat(4096), "timeout_ms": 60000 })).await.ok();
        let session = "s".repeat(257);
        ask(world, &[("session", &session)]).await.refused(400, "INVALID_ARGUMENT", "session");
        ask(world, &[("session", &session[1..])]).await.ok();
        let filters = json!({ "q": "a", "filter": vec!["host:a"; 65] });
        root.search_json(&corpus(), &filters).await.refused(400, "INVALID_ARGUMENT", "filter");
        let body = root.post(&format!("/v1/{}/search", corpus()), vec![b' '; 65 << 10]).await;
        body.refused(413, "INVALID_ARGUMENT", "body");
        let nothing = root.search(&corpus(), &[]).await;
        nothing.refused(400, "INVALID_ARGUMENT", "q");
        for body in ["", "[]", "{", "\u{0}", "{\"q\":1}", "{\"k\":\"many\"}", "{\"q\":\"a\"}x"] {
            assert_eq!(root.post(&format!("/v1/{}/search", corpus()), body).await.status, 400, "{body:?}");
        }
    });
}

#[test]
fn unknown_corpora_paths_and_methods_have_their_status() {
    with_world(|world| async {
        let root = world.flat.root();
        let unknown = root.search("nosuch", &[("q", "a")]).await;
        assert!(unknown.refused(404, "NOT_FOUND", "").contains("nosuch"));
        for corpus in ["%00", "..%2f..%2fetc", "%C3%A9", "WEB-1", "a%20b"] {
            assert_eq!(root.get(&format!("/v1/{corpus}/search?q=a")).await.status, 404, "{corpus}");
        }
        assert_eq!(root.get("/v2/web-1/search?q=a").await.status, 404);
        assert_eq!(root.get("/v1/web-1/search/?q=a").await.status, 404);
        assert_eq!(root.post("/", "").await.status, 405);
        let not_utf8 = root.get(&format!("/v1/{}/search?q=%ff%fe&timeout_ms=60000", corpus())).await;
        assert!([200, 400].contains(&not_utf8.status), "{}", not_utf8.json);
        corpora_are_listed(root).await;
    });
}

async fn corpora_are_listed(root: &Api) {
    let listed = root.get("/v1").await.ok();
    let names: Vec<&str> = listed.json["corpora"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|corpus| corpus["name"].as_str())
        .collect();
    assert!(names.contains(&"web-1") && names.contains(&"web-8"), "{names:?}");
    let eight =
        listed.json["corpora"].as_array().into_iter().flatten().find(|corpus| corpus["name"] == "web-8");
    assert_eq!(eight.map(|corpus| &corpus["shards"]), Some(&json!(8)));
}
