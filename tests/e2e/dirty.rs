//! Input as pipelines send it: broken lines, wrong types, unknown fields, doubles, a document far beyond the limit. Each is
//! rejected by line and reason, and nothing else is lost.

use std::io::Write;

use canopy_format::{
    schema::Schema,
    store::{Corpus, Ordering},
};
use canopy_indexer::build::{self, BuildRequest};
use canopy_tests::{
    cluster::{Cluster, Shape},
    publish::Shelf,
};
use serde_json::{Value, json};

use crate::world;

/// (line, field of the reject or empty when it stands).
fn lines() -> Vec<(String, &'static str)> {
    let sound = |name: &str, title: &str| {
        json!({ "url": format!("https://dirty.example/{name}"), "title": title }).to_string()
    };
    let with = |name: &str, field: &str, value: Value| {
        let mut record = json!({ "url": format!("https://dirty.example/{name}"), "title": "sound" });
        record[field] = value;
        record.to_string()
    };
    vec![
        ("\u{feff}".to_owned() + &sound("first", "sound"), ""),
        ("{\"url\": \"https://dirty.example/broken\", \"title\": ".to_owned(), "record"),
        ("not json at all".to_owned(), "record"),
        ("[1, 2, 3]".to_owned(), "record"),
        ("\"text\"".to_owned(), "record"),
        (String::new(), ""),
        (with("wrong-type", "title", json!(7)), "title"),
        (with("wrong-list", "host", json!(["a", "b"])), "host"),
        (with("wrong-rank", "static_rank", json!(2.5)), "static_rank"),
        (with("text-rank", "static_rank", json!("high")), "static_rank"),
        (with("unknown-field", "colour", json!("red")), "colour"),
        (json!({ "title": "no key" }).to_string(), "url"),
        (json!({ "url": "", "title": "empty key" }).to_string(), "url"),
        (with("no-date", "published", json!("yesterday")), "published"),
        (with("far-date", "published", json!("20000-01-01")), ""),
        (with("nested", "attributes", json!({ "a": { "b": 1 } })), "attributes"),
        (sound("twice", "older"), ""),
        (sound("twice", "newer"), ""),
        (json!({ "url": "https://dirty.example/huge", "body": "x".repeat(50 << 20) }).to_string(), "record"),
        (sound("last", "sound"), ""),
    ]
}

#[test]
fn bad_records_are_set_aside_and_the_others_are_found() {
    world::run(async {
        let shelf = Shelf::new();
        let input = shelf.dir().join("dirty.jsonl");
        let mut file = std::io::BufWriter::new(std::fs::File::create(&input).expect("a file"));
        let lines = lines();
        for (line, _) in &lines {
            writeln!(file, "{line}").expect("written");
        }
        file.write_all(b"\xff\xfe\x00\n").expect("written");
        file.flush().expect("written");
        let corpus = Corpus {
            name: "dirty".into(),
            schema: Schema::web(),
            partitions: 16,
            ordering: Ordering::default(),
        };
        shelf.store.create_corpus(&corpus).await.expect("a corpus");
        let rejects = shelf.dir().join("rejects.jsonl");
        let request = || BuildRequest {
            shards: Some(2),
            memory: 256 << 20,
            reject_file: Some(rejects.clone()),
            ..BuildRequest::new(shelf.store.clone(), "dirty", vec![input.clone()])
        };
        // By default so many rejects mean that the input is not what was meant.
        let refused = build::run(request()).await.expect_err("a refusal").to_string();
        assert!(refused.contains("reject"), "{refused}");
        assert!(shelf.store.versions("dirty").await.expect("versions").is_empty());
        let report = build::run(BuildRequest { max_rejects: 0.9, ..request() }).await.expect("a version");

        let bad: Vec<&str> =
            lines.iter().map(|(_, field)| *field).filter(|field| !field.is_empty()).collect();
        assert_eq!(report.counts.rejected, bad.len() as u64 + 1, "{:?}", report.rejects);
        assert_eq!(report.counts.superseded, 1);
        assert_eq!(report.counts.dropped_fields, 1);
        let written = std::fs::read_to_string(&rejects).expect("a reject file");
        let written: Vec<Value> =
            written.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        for (number, (line, field)) in lines.iter().enumerate().filter(|(_, (_, field))| !field.is_empty()) {
            let reject =
                written.iter().find(|reject| reject["line"] == number as u64 + 1 && reject["kept"] != true);
            let reject = reject.unwrap_or_else(|| panic!("line {} is not rejected: {line:.80}", number + 1));
            let named = reject["field"].as_str().unwrap_or_default();
            assert!(named.starts_with(field), "line {}: {reject}", number + 1);
            assert!(
                reject["reason"].as_str().is_some_and(|reason| reason.len() > 5 && reason.len() < 600),
                "{reject}"
            );
        }
        let cluster = Cluster::start(&shelf.store, &Shape::flat(2, 1).config(&[("dirty", 2)])).await;
        let ask = async |q: &str| {
            let asked = [("q", q), ("k", "100"), ("timeout_ms", "60000"), ("sort", "url")];
            cluster.root().search("dirty", &asked).await.ok()
        };
        let sound = ask("sound").await;
        let expected = ["far-date", "first", "last"].map(|name| format!("https://dirty.example/{name}"));
        assert_eq!(sound.keys(), expected);
        assert_eq!(ask("newer").await.keys(), ["https://dirty.example/twice"]);
        assert_eq!(ask("older").await.keys(), [""; 0]);
        cluster.stop().await;
    });
}
