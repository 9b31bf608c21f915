//! Phase two while the overlay changes: what was found is shown as it is now, and what is gone is not shown.

use canopy_common::ids::ShardId;
use roaring::RoaringBitmap;

use super::*;
use crate::{
    shards::Serving,
    view::{Overlay, Part, Segment, ShardView},
};

fn served(parts: &Parts) -> Arc<Serving> {
    parts.shards.directory.snapshot().all().next().expect("a shard").clone()
}

fn number(view: &ShardView, key: KeyHash) -> u32 {
    let address = view.find(key).expect("find").expect("in the base");
    view.base.segments[address.segment_ord as usize].start + address.doc_id
}

/// An overlay part of these pages, made by the real pipeline.
async fn part(pages: &[serde_json::Value]) -> Part {
    let built = Built::new(pages, 1).await;
    let (parts, _node) = built.open(config(1, 4)).await;
    let view = served(&parts).view();
    let reader = view.base.segments[0].reader.clone();
    let segment = Segment::open(&ShardId::new("main", 0), reader, &view.base.schema, 0).expect("segment");
    Part { segment: Arc::new(segment), hidden: Arc::new(RoaringBitmap::new()), optimised: true }
}

#[tokio::test]
async fn a_replaced_page_is_shown_as_it_is_now_and_a_deleted_one_not_at_all() {
    let built = Built::new(&pages(30), 1).await;
    let (parts, node) = built.open(config(2, 16)).await;
    let (hits, request) = found(&built, &node, "fox").await;
    assert_eq!(hits.len(), 10);
    let key = |n: usize| KeyHash::of(&format!("https://{n}.example/"));
    let mut newer = pages(1);
    newer[0]["body"] = "A red fox slept in the snow.".into();
    let part = part(&newer).await;
    let serving = served(&parts);
    let view = serving.view();
    let tombstones: RoaringBitmap = [0, 3].map(|n| number(&view, key(n))).into_iter().collect();
    let overlay = Overlay { parts: vec![part], documents: 1, deferred: 0 };
    serving.publish_view(view.with_overlay(overlay, tombstones, [(0, 2)].into()));
    let reply = node.fetch(context(2, LONG), request.clone()).await.unwrap();
    for (item, document) in request.items.iter().zip(&reply.documents) {
        let of = KeyHash::from_parts(item.key_high, item.key_low);
        if of == key(3) {
            assert!(!document.filled && document.reason.contains("deleted since"), "{}", document.reason);
            continue;
        }
        assert!(document.filled, "{}", document.reason);
        assert_eq!(KeyHash::of(&document.key), of);
        assert_eq!(document.snippet.contains("slept in the snow"), of == key(0), "{}", document.snippet);
    }
    let (hits, mut request) = found(&built, &node, "fox").await;
    request.explain = true;
    let reply = node.fetch(context(3, LONG), request.clone()).await.unwrap();
    assert_eq!(hits.len(), 9, "the deleted one is gone, the replaced one is there once");
    for (hit, document) in hits.iter().zip(&reply.documents) {
        let of = KeyHash::from_parts(hit.key_high, hit.key_low);
        assert_eq!(hit.overlay, of == key(0));
        assert!(document.filled, "{}", document.reason);
        let explained: serde_json::Value = serde_json::from_str(&document.explain_json).unwrap();
        assert_eq!(explained["score"].as_f64().unwrap() as f32, hit.score);
    }
}
