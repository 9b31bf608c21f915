//! Phase two on versions that the real pipeline built.

use std::{sync::Arc, time::Duration};

use canopy_common::{error::ErrorClass, ids::KeyHash};
use canopy_proto::{
    SearchNode,
    v1::{FetchItem, FetchRequest, Hit, SearchRequest, SnippetBy, Stages},
};

use crate::{
    fixture::{self, Built, CORPUS, config, context, pages},
    node::{LeafNode, Parts},
};

mod overlay;

const LONG: Duration = Duration::from_secs(30);

fn by() -> SnippetBy {
    SnippetBy { max_chars: 100, open: "<b>".into(), close: "</b>".into() }
}

/// Searches and makes the fetch of what was found.
async fn found(built: &Built, node: &LeafNode, token: &str) -> (Vec<Hit>, FetchRequest) {
    let request = built.request(token);
    let mut items = Vec::new();
    let mut hits = Vec::new();
    for reply in fixture::collect(node.search(context(1, LONG), request.clone())).await {
        for hit in reply.hits {
            let shard = reply.shards.iter().find(|shard| shard.shard == hit.shard).unwrap();
            items.push(FetchItem {
                shard: request.shards[hit.shard as usize].shard.clone(),
                key_high: hit.key_high,
                key_low: hit.key_low,
                address: hit.address,
                node: shard.node.clone(),
                lease: shard.lease,
            });
            hits.push(hit);
        }
    }
    (hits, fetch(&request, items))
}

fn fetch(request: &SearchRequest, items: Vec<FetchItem>) -> FetchRequest {
    FetchRequest {
        corpus: CORPUS.into(),
        version: request.version,
        items,
        snippet: Some(by()),
        query: request.query.clone(),
        statistics: request.statistics.clone(),
        ..Default::default()
    }
}

async fn open(count: usize) -> (Built, Arc<Parts>, LeafNode) {
    let built = Built::new(&pages(count), 2).await;
    let (parts, node) = built.open(config(2, 16)).await;
    (built, parts, node)
}

#[tokio::test]
async fn fields_are_raw_and_snippets_escaped() {
    let (built, parts, node) = open(30).await;
    let (hits, mut request) = found(&built, &node, "fox").await;
    assert_eq!(hits.len(), 10);
    request.fields = vec!["host".into(), "attributes.color".into(), "nonsense".into()];
    let reply = node.fetch(context(2, LONG), request.clone()).await.unwrap();
    assert_eq!(reply.documents.len(), 10);
    for (item, document) in request.items.iter().zip(&reply.documents) {
        assert!(document.filled);
        let key = KeyHash::from_parts(item.key_high, item.key_low);
        assert_eq!(KeyHash::of(&document.key), key, "in the order asked");
        assert!(document.title.starts_with("Page <"));
        assert!(document.snippet.contains("red <b>fox</b> &amp; its &lt;den&gt;"), "{}", document.snippet);
        let range = document.ranges[0];
        assert_eq!(&document.snippet_text[range.start as usize..range.end as usize], "fox");
        let fields: serde_json::Value = serde_json::from_str(&document.fields_json).unwrap();
        assert_eq!(fields.as_object().unwrap().len(), 2);
        assert_eq!(document.reason, "this version shows no field nonsense");
    }
    assert_eq!(parts.metrics.fetched.with_label_values(&["filled"]).get(), 10);
}

#[tokio::test]
async fn all_shown_fields_and_an_explanation_with_the_very_score() {
    let (built, _, node) = open(12).await;
    let (hits, mut request) = found(&built, &node, "fox").await;
    request.explain = true;
    request.stages = Some(Stages::default());
    let reply = node.fetch(context(2, LONG), request).await.unwrap();
    for (hit, document) in hits.iter().zip(&reply.documents) {
        let fields: serde_json::Value = serde_json::from_str(&document.fields_json).unwrap();
        assert!(fields["body"].as_str().unwrap().contains("red fox") && fields.get("anchors").is_none());
        let explain: serde_json::Value = serde_json::from_str(&document.explain_json).unwrap();
        assert_eq!(explain["score"].as_f64().unwrap() as f32, hit.score);
    }
}

#[tokio::test]
async fn without_its_lease_a_key_is_found_in_the_pinned_version() {
    let (built, _, node) = open(12).await;
    let (_, request) = found(&built, &node, "fox").await;
    let spoil: [fn(&mut FetchItem); 5] = [
        |item| item.lease = 0,
        |item| item.lease += 99,
        |item| item.node = "leaf-9".into(),
        |item| item.address = u64::MAX,
        |item| item.address = (7 << 32) | 3,
    ];
    for spoil in spoil {
        let mut request = request.clone();
        request.items.iter_mut().for_each(spoil);
        let reply = node.fetch(context(2, LONG), request.clone()).await.unwrap();
        for (item, document) in request.items.iter().zip(&reply.documents) {
            assert!(document.filled, "{}", document.reason);
            assert_eq!(KeyHash::of(&document.key), KeyHash::from_parts(item.key_high, item.key_low));
        }
    }
    // An address of another document is noticed.
    let mut request = request.clone();
    request.items[0].address = request.items[1].address;
    let reply = node.fetch(context(3, LONG), request.clone()).await.unwrap();
    let first = &request.items[0];
    assert_eq!(KeyHash::of(&reply.documents[0].key), KeyHash::from_parts(first.key_high, first.key_low));
}

#[tokio::test]
async fn what_can_not_be_filled_says_why_and_costs_the_others_nothing() {
    let (built, _, node) = open(12).await;
    let (_, mut request) = found(&built, &node, "fox").await;
    let good = request.items[0].clone();
    let other = |change: &dyn Fn(&mut FetchItem)| {
        let mut item = good.clone();
        change(&mut item);
        item
    };
    request.items = vec![
        other(&|item| item.key_low ^= 1),
        good.clone(),
        other(&|item| item.shard = "main/77".into()),
        other(&|item| item.shard = "\u{0}".repeat(5000)),
    ];
    let reply = node.fetch(context(2, LONG), request.clone()).await.unwrap();
    let filled: Vec<bool> = reply.documents.iter().map(|document| document.filled).collect();
    assert_eq!(filled, [false, true, false, false]);
    assert_eq!(reply.documents[0].reason, "the version has no document with this key");
    assert_eq!(reply.documents[2].reason, "leaf-1 does not hold shard main/77 of \"web\"");
    assert!(reply.documents[3].reason.len() < 200);
    request.version = 99;
    let reply = node.fetch(context(3, LONG), request).await.unwrap();
    assert_eq!(
        reply.documents[1].reason,
        "leaf-1 serves v1 of shard main/0, not v99".replace("main/0", &good.shard)
    );
}

#[tokio::test]
async fn a_lease_survives_the_retirement_of_its_view() {
    let (built, parts, node) = open(12).await;
    let (_, request) = found(&built, &node, "fox").await;
    let servings: Vec<_> = parts.shards.directory.snapshot().all().cloned().collect();
    for serving in &servings {
        parts.shards.retire(serving);
    }
    drop(servings);
    let reply = node.fetch(context(2, LONG), request.clone()).await.unwrap();
    assert!(reply.documents.iter().all(|document| document.filled));
    let unknown = FetchRequest {
        items: request.items.iter().map(|item| FetchItem { lease: 0, ..item.clone() }).collect(),
        ..request
    };
    let reply = node.fetch(context(3, LONG), unknown).await.unwrap();
    assert!(reply.documents.iter().all(|document| !document.filled && !document.reason.is_empty()));
}

#[tokio::test]
async fn a_reply_is_bounded_before_and_while_it_is_made() {
    let long =
        |n: usize| serde_json::json!({ "url": format!("u{n}"), "body": "fox ".repeat(60_000), "lang": "en" });
    let built = Built::new(&(0..8).map(long).collect::<Vec<_>>(), 1).await;
    let (_, node) = built.open(config(1, 16)).await;
    let (_, mut request) = found(&built, &node, "fox").await;
    assert_eq!(request.items.len(), 8);
    // The fixture's limit is 1 MiB: four bodies of 240 kB fit.
    let reply = node.fetch(context(2, LONG), request.clone()).await.unwrap();
    let (filled, empty): (Vec<_>, Vec<_>) = reply.documents.iter().partition(|document| document.filled);
    assert_eq!((filled.len(), empty.len()), (4, 4));
    assert!(empty[0].reason.contains("ask for fewer fields"), "{}", empty[0].reason);
    request.fields = vec!["url".into()];
    let reply = node.fetch(context(3, LONG), request.clone()).await.unwrap();
    assert!(reply.documents.iter().all(|document| document.filled));
    request.items = vec![request.items[0].clone(); 1000];
    request.snippet = Some(SnippetBy { max_chars: 2000, ..by() });
    let failure = node.fetch(context(4, LONG), request).await.unwrap_err();
    assert_eq!(
        (failure.class, failure.field.as_deref()),
        (ErrorClass::InvalidArgument, Some("snippet.max_chars"))
    );
}

#[tokio::test]
async fn the_deadline_and_a_full_queue_are_kept() {
    let built = Built::new(&pages(12), 1).await;
    let gate = fixture::Gate::default();
    let parts = fixture::parts(config(1, 1), gate.search());
    built.open_on(&parts).await;
    let node = LeafNode::new(parts.clone());
    let request = built.request("fox");
    let blocked = node.search(context(1, LONG), request.clone());
    gate.arrival().await;
    let item = FetchItem { shard: "main/0".into(), ..Default::default() };
    let still = fixture::Still::hold();
    let waiting = node.fetch(context(2, Duration::from_millis(30)), fetch(&request, vec![item.clone()]));
    let mut waiting = std::pin::pin!(waiting);
    assert!(futures::poll!(waiting.as_mut()).is_pending());
    tokio::time::advance(Duration::from_millis(31)).await;
    let reply = waiting.await.unwrap();
    assert_eq!(reply.documents[0].reason, "the deadline passed before it was fetched");
    drop(still);
    let cancelled = context(3, LONG);
    cancelled.cancel.cancel();
    let reply = node.fetch(cancelled, fetch(&request, vec![item.clone()])).await.unwrap();
    assert_eq!(reply.documents[0].reason, "the caller left");
    let (held, full) = (context(4, LONG), context(5, LONG));
    let waiting = tokio::spawn(node.fetch(held, fetch(&request, vec![item.clone()])));
    fixture::until("the queue", || parts.executor.queued() == 1).await;
    let failure = node.fetch(full, fetch(&request, vec![item])).await.unwrap_err();
    assert_eq!(failure.class, ErrorClass::Overloaded);
    assert!(failure.pushback_ms.unwrap() >= 1);
    gate.open(1);
    assert_eq!(
        waiting.await.unwrap().unwrap().documents[0].reason,
        "the version has no document with this key"
    );
    drop(blocked);
    assert!(node.fetch(context(6, LONG), fetch(&request, vec![])).await.unwrap().documents.is_empty());
}

#[tokio::test]
async fn a_document_may_lack_every_field_but_its_key() {
    let documents = [
        serde_json::json!({ "url": "https://bare.example/" }),
        serde_json::json!({ "url": "https://empty.example/", "title": "", "body": "", "topic": [], "published": null }),
    ];
    let built = Built::new(&documents, 1).await;
    let (_, node) = built.open(config(1, 16)).await;
    let item = |key: &str| {
        let (key_high, key_low) = KeyHash::of(key).parts();
        FetchItem { shard: "main/0".into(), key_high, key_low, ..Default::default() }
    };
    let items = vec![item("https://bare.example/"), item("https://empty.example/")];
    let reply = node.fetch(context(1, LONG), fetch(&built.request("fox"), items)).await.unwrap();
    for document in &reply.documents {
        assert!(document.filled, "{}", document.reason);
        assert_eq!((&*document.title, &*document.snippet, document.ranges.len()), ("", "", 0));
        assert!(document.key.ends_with(".example/"));
    }
}
