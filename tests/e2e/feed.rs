//! Realtime updates through a whole tree: what was written is found by whoever asks with its token, what was deleted is never seen,
//! a restart of everything loses nothing, and what can't be applied is named and stops nothing.

use std::path::Path;

use canopy_common::config::Time;
use canopy_format::{schema::Schema, token::Token};
use canopy_tests::{
    api::{Answered, Api},
    cluster::{Cluster, Shape},
    corpus,
    publish::Shelf,
};
use serde_json::{Value, json};

use crate::world;

const CORPUS: &str = "fed";
const SHARDS: u32 = 2;
const KEY: &str = "https://fed.example/new";

/// A published corpus, to be served by a tree that takes changes.
async fn shelf() -> Shelf {
    let shelf = Shelf::new();
    shelf.publish(CORPUS, &Schema::web(), SHARDS, &corpus::generate(3, 60)).await;
    shelf
}

/// A tree whose log and checkpoints are in the shelf's directory: started again, it goes on where it was.
async fn start(shelf: &Shelf) -> Cluster {
    let mut config = Shape::flat(2, 2).fed().config(&[(CORPUS, SHARDS)]);
    let below = |name: &str| Path::join(shelf.dir(), name).to_string_lossy().into_owned();
    config.ingest.directory = below("ingest");
    config.leaf.cache_dir = below("cache");
    config.leaf.overlay.refresh = Time::ms(20);
    Cluster::start(&shelf.store, &config).await
}

fn ingest(tree: &Cluster) -> Api {
    tree.admin("ingest-0")
}

/// Writes lines; the answer, whose items all have this status.
async fn write(tree: &Cluster, status: &str, lines: &[Value]) -> Answered {
    let body = lines.iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let answer = ingest(tree).post(&format!("/v1/{CORPUS}/documents"), body).await.ok();
    let items = answer.json["items"].as_array().expect("items");
    assert_eq!(items.len(), lines.len(), "{}", answer.json);
    assert!(items.iter().all(|item| item["status"] == status), "{}", answer.json);
    answer
}

fn put(key: &str, title: &str) -> Value {
    json!({ "op": "put", "key": key, "document": { "title": title, "body": "quokka by the sea" } })
}

fn delete(key: &str) -> Value {
    json!({ "op": "delete", "key": key })
}

/// A search that sees what the token holds.
async fn search(tree: &Cluster, query: &str, token: &Value) -> Answered {
    let token = token.as_str().expect("a token");
    let parameters = [("q", query), ("min_offset", token), ("timeout_ms", "30000"), ("total", "exact")];
    let answer = tree.root().search(CORPUS, &parameters).await.ok();
    assert!(answer.degraded().is_empty(), "{}", answer.json);
    answer
}

#[test]
fn what_was_written_is_found_and_what_was_deleted_never_shows() {
    world::run(async {
        let shelf = shelf().await;
        let tree = start(&shelf).await;
        let written = write(&tree, "applied", &[put(KEY, "Quokka of the first day")]).await;
        let found = search(&tree, "quokka", &written.json["token"]).await;
        assert_eq!(found.keys(), [KEY]);
        assert_eq!(found.json["hits"][0]["title"], "Quokka of the first day");
        // Replaced: one hit, the newest.
        let written = write(&tree, "applied", &[put(KEY, "Quokka of the second day")]).await;
        let found = search(&tree, "quokka", &written.json["token"]).await;
        assert_eq!(found.keys(), [KEY]);
        assert_eq!(found.json["hits"][0]["title"], "Quokka of the second day");
        assert!(
            search(&tree, "title:first", &written.json["token"]).await.keys().iter().all(|key| *key != KEY)
        );
        let written = write(&tree, "applied", &[delete(KEY)]).await;
        assert!(search(&tree, "quokka", &written.json["token"]).await.keys().is_empty());
        tree.stop().await;
    });
}

#[test]
fn a_document_of_the_version_is_replaced_and_deleted_like_any_other() {
    world::run(async {
        let shelf = shelf().await;
        let tree = start(&shelf).await;
        let pages = corpus::generate(3, 60);
        let record = pages[7].record();
        let key = record["url"].as_str().expect("a key");
        let written = write(&tree, "applied", &[put(key, "replaced")]).await;
        let found = search(&tree, "quokka", &written.json["token"]).await;
        assert_eq!(found.keys(), [key]);
        let written = write(&tree, "applied", &[delete(key)]).await;
        assert!(search(&tree, "quokka", &written.json["token"]).await.keys().is_empty());
        let token = written.json["token"].as_str().expect("a token");
        let everything = [("query_json", r#"{"match_all":{}}"#), ("min_offset", token), ("total", "exact")];
        let all = tree.root().search(CORPUS, &everything).await.ok();
        assert_eq!(all.json["total"]["value"], 59, "{}", all.json);
        tree.stop().await;
    });
}

#[test]
fn a_patch_changes_its_fields_alone() {
    world::run(async {
        let shelf = shelf().await;
        let tree = start(&shelf).await;
        write(&tree, "applied", &[put(KEY, "before")]).await;
        let patch = json!({ "op": "patch", "key": KEY, "document": { "title": "afterwards" } });
        let written = write(&tree, "applied", &[patch]).await;
        let found = search(&tree, "quokka", &written.json["token"]).await;
        assert_eq!(found.keys(), [KEY], "the body stays");
        assert_eq!(found.json["hits"][0]["title"], "afterwards");
        tree.stop().await;
    });
}

#[test]
fn everything_is_there_after_a_restart() {
    world::run(async {
        let shelf = shelf().await;
        let tree = start(&shelf).await;
        let lines: Vec<Value> = (0..50).map(|n| put(&format!("{KEY}/{n}"), &format!("page {n}"))).collect();
        write(&tree, "applied", &lines).await;
        let written = write(&tree, "applied", &[delete(&format!("{KEY}/7"))]).await;
        tree.stop().await;
        let tree = start(&shelf).await;
        let found = search(&tree, "quokka", &written.json["token"]).await;
        assert_eq!(found.json["total"]["value"], 49, "{}", found.json);
        // The same log goes on: its token is beyond the one before.
        let more = write(&tree, "applied", &[put(KEY, "after the restart")]).await;
        let read = |answer: &Answered| answer.json["token"].as_str().unwrap_or_default().parse::<Token>();
        assert_eq!(read(&more).map(|token| token.epoch), read(&written).map(|token| token.epoch));
        let found = search(&tree, "quokka", &more.json["token"]).await;
        assert_eq!(found.json["total"]["value"], 50, "{}", found.json);
        tree.stop().await;
    });
}

#[test]
fn bad_operations_are_named_and_stop_nothing() {
    world::run(async {
        let shelf = shelf().await;
        let tree = start(&shelf).await;
        let colour = json!({ "op": "put", "key": KEY, "document": { "colour": "red" } });
        let body = format!("{colour}\nnonsense\n{}\n", put(KEY, "sound"));
        let answer = ingest(&tree).post(&format!("/v1/{CORPUS}/documents"), body).await.ok();
        let of = |name: &str| -> Vec<&str> {
            let items = answer.json["items"].as_array().expect("items");
            items.iter().map(|item| item[name].as_str().unwrap_or_default()).collect()
        };
        assert_eq!(of("status"), ["rejected", "rejected", "applied"], "{}", answer.json);
        assert_eq!(of("field")[0], "colour", "{}", answer.json);
        assert_eq!(search(&tree, "quokka", &answer.json["token"]).await.keys(), [KEY]);
        let letters = ingest(&tree).get(&format!("/v1/{CORPUS}/dead-letters?last=10")).await.ok();
        let letters = letters.json["letters"].as_array().expect("letters").clone();
        assert_eq!(letters.len(), 2, "{letters:?}");
        assert!(letters[0]["reason"].as_str().is_some_and(|reason| !reason.is_empty()), "{letters:?}");
        tree.stop().await;
    });
}

#[test]
fn an_erased_document_is_gone_and_what_is_left_to_do_is_said() {
    world::run(async {
        let shelf = shelf().await;
        let tree = start(&shelf).await;
        write(&tree, "applied", &[put(KEY, "private")]).await;
        let path = format!("/v1/{CORPUS}/erase");
        let erased = ingest(&tree).post(&path, json!({ "key": KEY }).to_string()).await.ok();
        let steps: Vec<&str> = erased.json["steps"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|step| step["what"].as_str())
            .collect();
        for what in ["log", "dead_letters", "overlays", "versions"] {
            assert!(steps.contains(&what), "{what}: {}", erased.json);
        }
        assert!(search(&tree, "quokka", &erased.json["token"]).await.keys().is_empty());
        tree.stop().await;
    });
}
