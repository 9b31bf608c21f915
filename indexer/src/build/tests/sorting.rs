//! Duplicates, and inputs larger than memory.

use super::*;
use crate::build::{
    partition::Partition,
    plan::Memory,
    row::{ANCHOR, Codec, Row, Written},
    sort::{FAN_IN, Sorted},
};

#[tokio::test]
async fn the_last_record_of_a_key_wins_in_input_order() {
    let place = Place::new().await;
    let mut records = pages(200);
    records.push(page(5, "second"));
    records.extend(pages(30).into_iter().skip(10));
    records.push(page(5, "third"));
    let inputs = vec![lines("a", records), lines("b", vec![page(7, "from another file")])];
    let report = build(BuildRequest { threads: 4, ..place.request() }, inputs).await.expect("build");
    assert_eq!((report.documents, report.counts.superseded), (200, 1 + 20 + 1 + 1));
    let manifest = place.store.latest("web").await.expect("manifest");
    let stored = stored(&place, Version(1), &manifest.schema);
    assert_eq!(stored["https://example.org/5"]["body"], "third");
    assert_eq!(stored["https://example.org/7"]["body"], "from another file");
    assert_eq!(stored["https://example.org/12"]["body"], body(12));
    assert_eq!(frequency(&place, &manifest, "second"), 0);
}

fn document(codec: &Codec, key: &str, order: u64, body: &str) -> Row {
    let document = Document {
        key: key.to_owned(),
        language: "en".to_owned(),
        values: [("body".to_owned(), vec![canopy_format::document::Value::Text(body.to_owned())])].into(),
        ..Document::default()
    };
    Row { hash: KeyHash::of(key).0, order, bytes: codec.pack(&document, &Written::default()) }
}

#[test]
fn a_shard_far_above_its_memory_is_sorted_through_runs_in_passes() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let codec = Codec::new(&Schema::web());
    let partition = Partition::new(1, 4000, directory.path());
    let keys = 700u64;
    for order in 0..4 * keys {
        // each key four times, far apart; the last has the largest order
        let key = format!("key-{}", (order * 389) % keys);
        partition.add(0, vec![document(&codec, &key, order, &format!("body {order}"))]).expect("add");
    }
    let anchor = |order, text: &str| Row {
        hash: KeyHash::of("key-3").0,
        order: order | ANCHOR,
        bytes: text.as_bytes().into(),
    };
    partition.add(0, vec![anchor(1, "once"), anchor(9, "twice"), anchor(8, "once")]).expect("add");
    let mut buckets = partition.close(0).expect("close");
    let bucket = buckets.pop().expect("bucket");
    assert!(bucket.spill.runs().len() > FAN_IN && bucket.rows.is_empty(), "{}", bucket.spill.runs().len());

    let mut sorted = Sorted::new(bucket, &codec).expect("sort");
    let (mut last, mut seen) = (0, 0);
    while let Some((hash, (document, _), _)) = sorted.next().expect("row") {
        assert!(seen == 0 || hash.0 > last);
        (last, seen) = (hash.0, seen + 1);
        let order: u64 = document.text("body").expect("body")[5..].parse().expect("order");
        assert!(order >= 3 * keys, "{} kept {order}", document.key);
        if document.key == "key-3" {
            let texts = document.values["anchors"].clone();
            let text = |text: &str| canopy_format::document::Value::Text(text.into());
            assert_eq!(texts, [text("once"), text("twice")]);
        } else {
            assert!(!document.values.contains_key("anchors"));
        }
    }
    let counts = sorted.finish().expect("finish");
    assert_eq!((seen, counts.superseded, counts.anchors), (keys, 3 * keys, 2));
    assert_eq!(fs::read_dir(directory.path()).expect("directory").count(), 0);
}

#[tokio::test]
async fn spilling_and_several_segments_change_nothing_that_is_seen() {
    let (small, large) = (Place::new().await, Place::new().await);
    // few words, but long and all different: both the rows and the engine's terms outgrow their share
    let text =
        |number: usize| -> Vec<_> { (0..60).map(|n| format!("{number}x{n}{}", "ka".repeat(95))).collect() };
    let records: Vec<_> = (0..400)
        .map(|number| page(number, &format!("{} {}", body(number), text(number).join(" "))))
        .collect();
    let memory = Memory { rows: 1 << 20, keep: 1 << 20, writer: 2 << 20, writers: 2 };
    let feed = Feed { memory: Some(memory), ..Feed::new(vec![lines("a", records.clone())]) };
    let request = |place: &Place| BuildRequest { shards: Some(2), ..place.request() };
    let report = run_on(request(&small), feed).await.expect("build");
    assert!(report.spilled_bytes > 0 && report.segments > 4, "{} {}", report.spilled_bytes, report.segments);
    let report = build(request(&large), vec![lines("a", records)]).await.expect("build");
    assert_eq!((report.spilled_bytes, report.segments), (0, 2));
    let (one, two) =
        (small.store.latest("web").await.expect("v1"), large.store.latest("web").await.expect("v1"));
    assert_eq!(one.statistics, two.statistics);
    assert_eq!(one.shards[0].tokens, two.shards[0].tokens);
    let schema = Schema::web();
    assert_eq!(stored(&small, Version(1), &schema), stored(&large, Version(1), &schema));
}
