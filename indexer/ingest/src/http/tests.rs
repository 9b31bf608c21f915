//! Tests of HTTP: what the module comments and the API promise.

use std::sync::atomic::Ordering::Relaxed;

use axum::{
    body::Body,
    http::{Request, header},
};
use canopy_common::config::Size;
use canopy_format::{store::Ordering, token::Token};
use canopy_proto::ingest::Op;
use serde_json::Value;

use crate::{
    config::IngestConfig,
    testing::{Bench, config, put, put_at},
};

#[tokio::test]
async fn one_bad_date_of_five_is_rejected_with_its_key_and_reason_and_the_others_are_applied() {
    let bench = Bench::new().await;
    let bad = r#"{"op":"put","key":"https://bad.example/","document":{"published":"2023-02-31"}}"#;
    let lines = [put("a", "A"), put("b", "B"), format!("{bad}\n"), put("c", "C"), put("d", "D")].concat();
    let (status, reply, _) = bench.write(&lines).await;
    assert_eq!(status, 200);
    let item = &reply["items"][2];
    assert_eq!((&item["status"], &item["key"]), (&"rejected".into(), &"https://bad.example/".into()));
    assert_eq!((&item["field"], &item["line"]), (&"published".into(), &3.into()));
    assert_eq!((reply["accepted"].as_u64(), reply["rejected"].as_u64()), (Some(4), Some(1)));
    assert_eq!(reply["applied"], 4);
    assert_eq!(bench.log.records().len(), 4);
    let (_, letters, _) = bench.ask("GET", "/v1/web/dead-letters", Body::empty()).await;
    assert_eq!(letters["letters"][0]["key"], "https://bad.example/");
    assert!(letters["letters"][0]["reason"].as_str().unwrap().starts_with("published: "));
    assert_eq!(letters["letters"][0]["document"], bad);
}

#[tokio::test]
async fn poison_goes_to_the_dead_letters_by_class_and_blocks_nothing() {
    let bench = Bench::new().await;
    let lines = format!(
        "{}{{not json\n{}\n{}",
        put("a", "A"),
        r#"{"op":"put","key":"b","document":{"colour":1}}"#,
        put("c", "C")
    );
    assert_eq!(bench.statuses(&lines).await, ["applied", "rejected", "rejected", "applied"]);
    let rejected = |class| bench.corpora.around.metrics.rejected.with_label_values(&[class]).get();
    assert_eq!((rejected("syntax"), rejected("invalid"), rejected("too_large")), (1, 1, 0));
    let (_, letters, _) = bench.ask("GET", "/v1/web/dead-letters?last=1", Body::empty()).await;
    let letters = letters["letters"].as_array().unwrap();
    assert_eq!(letters.len(), 1, "the newest");
    assert!(letters[0]["reason"].as_str().unwrap().contains("colour"));
}

#[tokio::test]
async fn a_document_of_many_megabytes_is_named_with_the_limit_and_what_follows_flows() {
    let limit = IngestConfig { max_line: Size(64 << 10), ..config() };
    let bench = Bench::with(Ordering::Log, limit).await;
    let head = r#"{"op":"put","key":"https://huge.example/","document":{"body":""#;
    let pieces = std::iter::once(format!("{}{head}", put("a", "A")))
        .chain((0..50).map(|_| "x".repeat(1 << 20)))
        .chain([format!("\"}}}}\n{}", put("b", "B"))]);
    let pieces = futures::stream::iter(pieces.map(Ok::<_, std::io::Error>));
    let (status, reply, _) = bench.ask("POST", "/v1/web/documents", Body::from_stream(pieces)).await;
    assert_eq!((status, &reply["applied"]), (200, &2.into()));
    let item = &reply["items"][1];
    assert_eq!(item["key"], "https://huge.example/");
    let reason = item["reason"].as_str().unwrap();
    assert!(
        reason.contains("line 2 has 524") && reason.contains("65536") && reason.contains("max_line"),
        "{reason}"
    );
}

#[tokio::test]
async fn of_one_key_twice_the_last_wins_and_the_first_is_superseded() {
    let bench = Bench::new().await;
    let (_, reply, _) = bench.write(&[put("k", "first"), put("j", "J"), put("k", "second")].concat()).await;
    let words: Vec<_> = reply["items"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(words, ["superseded", "applied", "applied"]);
    assert_eq!(
        (&reply["superseded"], &reply["accepted"], &reply["rejected"]),
        (&1.into(), &3.into(), &0.into())
    );
    let records = bench.log.records();
    let of_k: Vec<_> = records.iter().filter(|record| record.key == "k").collect();
    assert!(of_k.len() == 1 && String::from_utf8_lossy(&of_k[0].document).contains("second"));
}

#[tokio::test]
async fn orders_of_64_bits_are_kept_to_the_last_digit() {
    let bench = Bench::with(Ordering::Producer, config()).await;
    let number = r#"{"op":"delete","key":"n","order":1000001001111123111}"#;
    let text = r#"{"op":"delete","key":"t","order":"1000001001111123112"}"#;
    assert_eq!(bench.statuses(&format!("{number}\n{text}\n")).await, ["applied", "applied"]);
    let mut orders: Vec<_> = bench.log.records().iter().map(|record| record.order).collect();
    orders.sort_unstable();
    assert_eq!(orders, [1_000_001_001_111_123_111, 1_000_001_001_111_123_112]);
}

#[tokio::test]
async fn an_older_order_is_stale_with_the_newer_one_named_and_a_key_lives_again() {
    let bench = Bench::with(Ordering::Producer, config()).await;
    assert_eq!(bench.statuses(&put_at("k", 7)).await, ["applied"]);
    let (status, reply, _) = bench.write(&put_at("k", 6)).await;
    let item = &reply["items"][0];
    assert_eq!((status, &item["status"]), (200, &"stale".into()));
    assert!(item["reason"].as_str().unwrap().contains("order 7"), "{item}");
    let delete = "{\"op\":\"delete\",\"key\":\"k\",\"order\":\"8\"}\n";
    assert_eq!(bench.statuses(delete).await, ["applied"]);
    assert_eq!(bench.statuses(&put_at("k", 9)).await, ["applied"]);
    assert_eq!(bench.statuses(&put_at("k", 9)).await, ["applied"], "the same again");
    let without = r#"{"op":"delete","key":"k"}"#;
    assert_eq!(bench.write(without).await.1["items"][0]["field"], "order");
    // Another ingest, or this one after a restart, knows it from the log.
    let again = Bench::over(bench.log.clone(), Ordering::Producer, config()).await;
    assert_eq!(again.statuses(&put_at("k", 8)).await, ["stale"]);
}

#[tokio::test]
async fn a_full_log_refuses_for_now_and_takes_deletes() {
    let bench = Bench::new().await;
    bench.log.room.store(1, Relaxed);
    let lines = [put("a", "A"), put("b", "B"), "{\"op\":\"delete\",\"key\":\"c\"}\n".to_owned()].concat();
    let (status, reply, retry) = bench.write(&lines).await;
    assert_eq!((status, retry), (429, true));
    let words: Vec<_> = reply["items"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(words, ["applied", "rejected", "applied"]);
    assert_eq!(reply["items"][1]["again"], true);
    assert!(reply["error"]["message"].as_str().unwrap().contains("no room"));
    assert_eq!(bench.feed().dead.counts().0, 0, "it is not the document that is wrong");
    bench.log.room.store(9, Relaxed);
    assert_eq!(bench.statuses(&put("b", "B")).await, ["applied"], "without a restart");
    bench.log.away.store(true, Relaxed);
    assert_eq!(bench.write(&put("b", "B")).await.0, 503);
}

#[tokio::test]
async fn what_is_superseded_by_an_item_that_was_not_taken_was_not_taken_either() {
    let bench = Bench::new().await;
    bench.log.room.store(0, Relaxed);
    let (_, reply, _) = bench.write(&[put("k", "1"), put("k", "2")].concat()).await;
    assert_eq!((&reply["rejected"], &reply["items"][0]["again"]), (&2.into(), &true.into()));
}

#[tokio::test]
async fn a_queue_behind_a_leaf_refuses_everything_until_it_is_shorter() {
    let bench = Bench::with(Ordering::Log, IngestConfig { queue: 2, ..config() }).await;
    let feed = bench.feed();
    let follower = feed.followers.join("leaf-1", &(0..4).map(|partition| (partition, 0)).collect());
    feed.followers.caught_up(follower);
    assert_eq!(bench.statuses(&[put("a", "A"), put("b", "B")].concat()).await.len(), 2);
    let (status, reply, retry) = bench.write(&put("c", "C")).await;
    assert_eq!((status, retry), (429, true));
    assert!(reply["error"]["message"].as_str().unwrap().contains("ingest.queue"));
    for (partition, next) in feed.ends() {
        feed.followers.sent(follower, partition, crate::followers::Place { next, oldest_us: 0 });
    }
    assert_eq!(bench.statuses(&put("c", "C")).await, ["applied"]);
}

#[tokio::test]
async fn the_token_holds_what_was_applied_and_the_end_comes_after_it() {
    let bench = Bench::new().await;
    let (_, reply, _) = bench.write(&(0..9).map(|n| put(&n.to_string(), "T")).collect::<String>()).await;
    let token: Token = reply["token"].as_str().unwrap().parse().unwrap();
    assert_eq!((token.epoch.as_str(), token.offsets.values().sum::<u64>()), ("e1", 9));
    for item in reply["items"].as_array().unwrap() {
        let (partition, offset) = item["offset"].as_str().unwrap().split_once(':').unwrap();
        assert!(token.offsets[&partition.parse().unwrap()] > offset.parse().unwrap());
    }
    let (_, end, _) = bench.ask("GET", "/v1/web/token", Body::empty()).await;
    assert_eq!(end["token"], reply["token"]);
}

#[tokio::test]
async fn a_body_that_ends_badly_keeps_what_it_was_answered_for() {
    let bench = Bench::with(Ordering::Log, IngestConfig { max_lines: 3, ..config() }).await;
    let lines: String = (0..5).map(|n| put(&n.to_string(), "T")).collect();
    let (status, reply, _) = bench.write(&lines).await;
    assert_eq!((status, &reply["applied"], &reply["error"]["limit"]), (400, &3.into(), &3.into()));
    assert!(reply["error"]["message"].as_str().unwrap().contains("line 4"));
    let broken = [Ok(put("x", "X")), Ok("{\"op\":\"pu".to_owned()), Err(std::io::Error::other("gone"))];
    let body = Body::from_stream(futures::stream::iter(broken));
    let (status, reply, _) = bench.ask("POST", "/v1/web/documents", body).await;
    assert_eq!((status, &reply["applied"], &reply["rejected"]), (400, &1.into(), &0.into()));
    assert_eq!(bench.log.records().len(), 4, "half a line is none");
}

#[tokio::test]
async fn keys_are_asked_for_and_corpora_named() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    std::fs::write(&path, "a 0123456789abcdef\nb fedcba9876543210 other\n").unwrap();
    let keyed = IngestConfig { keys_file: path.display().to_string(), ..config() };
    let bench = Bench::with(Ordering::Log, keyed).await;
    let send = |key: &str| {
        let request = Request::builder().method("POST").uri("/v1/web/documents");
        let request = request.header(header::AUTHORIZATION, format!("Bearer {key}"));
        bench.send(request.body(put("k", "T").into()).unwrap())
    };
    assert_eq!(send("0123456789abcdef").await.0, 200);
    assert_eq!(send("fedcba9876543210").await.0, 403);
    assert_eq!(send("another-key-0123").await.0, 401);
    for path in ["/v1/web/token", "/v1/web/dead-letters"] {
        assert_eq!(bench.ask("GET", path, Body::empty()).await.0, 401, "{path}");
    }
    assert_eq!(bench.ask("GET", "/healthz/ready", Body::empty()).await.0, 200);
    let open = Bench::new().await;
    let (status, reply, _) = open.ask("POST", "/v1/shop/documents", put("k", "T")).await;
    assert_eq!(status, 404);
    assert!(reply["error"]["message"].as_str().unwrap().contains("it takes web"), "{reply}");
    assert_eq!(open.ask("GET", "/v1/web/documents", Body::empty()).await.0, 405);
    assert_eq!(
        open.ask("GET", "/v1/web/dead-letters?last=x", Body::empty()).await.1["error"]["field"],
        "last"
    );
}

#[tokio::test]
async fn an_erased_key_leaves_log_and_letters_and_is_told_what_is_left() {
    let bench = Bench::new().await;
    bench.write(&put("secret", "hidden words")).await;
    bench.write(r#"{"op":"put","key":"secret","document":{"colour":"hidden words"}}"#).await;
    bench.write(&put("other", "kept")).await;
    let erase = || bench.ask("POST", "/v1/web/erase", r#"{"key":"secret"}"#);
    let (status, reply, _) = erase().await;
    assert_eq!(status, 200);
    let step = |reply: &Value, what: &str| {
        let steps = reply["steps"].as_array().unwrap();
        steps.iter().find(|step| step["what"] == what).unwrap()["done"].clone()
    };
    assert_eq!((step(&reply, "log"), step(&reply, "dead_letters")), (true.into(), true.into()));
    assert_eq!((step(&reply, "overlays"), step(&reply, "versions")), (false.into(), true.into()));
    let records = bench.log.records();
    assert!(records.iter().all(|record| !String::from_utf8_lossy(&record.document).contains("hidden")));
    let deletes = || bench.log.records().iter().filter(|record| record.op() == Op::Delete).count();
    let letters = std::fs::read_to_string(bench.directory().join("ingest/web/dead/letters.jsonl")).unwrap();
    assert!(!letters.contains("hidden"), "{letters}");
    assert_eq!(deletes(), 1);
    assert_eq!(erase().await.1["token"], reply["token"], "asking again writes nothing");
    assert_eq!(deletes(), 1);
    bench.write(&put("secret", "hidden again")).await;
    assert_ne!(erase().await.1["token"], reply["token"], "it was written since");
    let records = bench.log.records();
    assert!(records.iter().all(|record| !String::from_utf8_lossy(&record.document).contains("hidden")));
}

#[tokio::test]
async fn an_erasure_where_producers_order_needs_an_order_that_is_newest() {
    let bench = Bench::with(Ordering::Producer, config()).await;
    let erase = |body: &'static str| bench.ask("POST", "/v1/web/erase", body);
    assert_eq!(erase(r#"{"key":"k"}"#).await.1["error"]["field"], "order");
    bench.write(&put_at("k", 5)).await;
    assert_eq!(erase(r#"{"key":"k"}"#).await.0, 200);
    assert_eq!(bench.log.records().iter().map(|record| record.order).max(), Some(5));
    assert_eq!(erase(r#"{"key":"j","order":"9"}"#).await.0, 200);
    assert_eq!(erase(r#"{"kez":"j"}"#).await.1["error"]["field"], "body");
}

#[tokio::test]
async fn corpora_come_and_go_and_added_fields_are_taken() {
    let bench = Bench::new().await;
    let store = &bench.corpora.store;
    let mut schema = store.corpus("web").await.unwrap().schema;
    let mut colour = schema.fields.iter().find(|field| field.name == "topic").unwrap().clone();
    colour.name = "colour".to_owned();
    schema.fields.push(colour);
    store.set_schema("web", schema.clone()).await.unwrap();
    let line = "{\"op\":\"put\",\"key\":\"k\",\"document\":{\"colour\":\"red\"}}\n";
    assert_eq!(bench.statuses(line).await, ["rejected"]);
    bench.corpora.look().await;
    assert_eq!(bench.statuses(line).await, ["applied"]);
    schema.fields.retain(|field| field.name != "colour");
    store.set_schema("web", schema).await.unwrap();
    bench.corpora.look().await;
    assert_eq!(bench.statuses(line).await, ["applied"], "no version was built without it yet");
    let feed = bench.feed();
    std::fs::remove_dir_all(bench.directory().join("store/corpora/web")).unwrap();
    bench.corpora.look().await;
    assert!(feed.closed.is_cancelled());
    assert_eq!(bench.write(line).await.0, 404);
}
