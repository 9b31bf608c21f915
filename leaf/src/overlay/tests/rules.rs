//! What single operations do: one hit per key, no half documents, poison, bounds.

use std::collections::BTreeMap;

use canopy_common::config::Size;
use canopy_format::store::Ordering;
use canopy_proto::ingest::Record;
use prost::Message;
use serde_json::json;

use super::bed::{self, base, delete, expect, patch, put, titles};
use crate::overlay::{
    apply::{Counts, Incoming},
    config::{OverlayConfig, Policy},
    write::SMALL,
};

fn config() -> OverlayConfig {
    OverlayConfig::default()
}

#[test]
fn a_key_that_is_put_six_times_is_there_once_with_its_last_document() {
    for at_once in [true, false] {
        let ground = bed::ground(&base(&[("k", "0"), ("other", "o")]), Ordering::Log, true);
        let mut applied = bed::empty(&ground, &config());
        let lines: Vec<_> = (1..=6).map(|n| put("k", &n.to_string())).collect();
        if at_once {
            bed::write(&mut applied, &lines);
        } else {
            for line in &lines {
                bed::write(&mut applied, std::slice::from_ref(line));
            }
        }
        let view = applied.view();
        assert_eq!(titles(&view), expect(&[("k", "6"), ("other", "o")]));
        assert_eq!((applied.documents(), applied.tombstones()), ((1, 0), 1));
        assert_eq!(titles(&ground.view), expect(&[("k", "0"), ("other", "o")]), "a view does not change");
    }
}

#[test]
fn a_document_that_was_deleted_and_put_again_is_seen() {
    let ground = bed::ground(&base(&[("k", "base")]), Ordering::Log, true);
    let mut applied = bed::empty(&ground, &config());
    bed::write(&mut applied, &[delete("k"), delete("nobody")]);
    assert_eq!(
        (titles(&applied.view()), applied.keys.len()),
        (expect(&[]), 1),
        "what is nowhere is not kept"
    );
    bed::write(&mut applied, &[put("k", "again")]);
    assert_eq!(titles(&applied.view()), expect(&[("k", "again")]));
    bed::write(&mut applied, &[delete("k")]);
    assert_eq!(titles(&applied.view()), expect(&[]));
    assert_eq!(applied.documents(), (0, 0));
}

/// Writers number their writes: an older one changes nothing and is counted, a newer one does.
#[test]
fn an_older_write_of_a_producer_changes_nothing() {
    let ground =
        bed::ground(&[(json!({ "url": "k", "title": "7", "lang": "en" }), 7)], Ordering::Producer, true);
    let mut applied = bed::empty(&ground, &config());
    let of = |order: u64, mut line: serde_json::Value| {
        line["order"] = json!(order.to_string());
        line
    };
    bed::write(&mut applied, &[of(6, put("k", "6")), of(5, delete("k")), of(6, patch("k", "6"))]);
    assert_eq!((titles(&applied.view()), applied.counts.stale), (expect(&[("k", "7")]), 3));
    bed::write(&mut applied, &[of(8, delete("k")), of(7, put("k", "late"))]);
    assert_eq!((titles(&applied.view()), applied.counts.stale), (expect(&[]), 4));
    bed::write(&mut applied, &[of(9, put("k", "9"))]);
    assert_eq!(titles(&applied.view()), expect(&[("k", "9")]));
    // A key that the log never named: its delete is remembered.
    bed::write(&mut applied, &[of(4, delete("new")), of(3, put("new", "3"))]);
    assert_eq!(titles(&applied.view()), expect(&[("k", "9")]));
}

/// Deletes that were absorbed into the version, and cut off the log, count on.
#[test]
fn a_delete_that_the_version_remembers_keeps_older_writes_away() {
    let key = canopy_common::ids::KeyHash::of("k");
    let graves = [canopy_format::graves::Grave { key, slot: canopy_format::layout::slot("k"), order: 5 }];
    let ground = bed::ground_with(&[], Ordering::Producer, true, graves.into_iter().collect());
    let mut applied = bed::empty(&ground, &config());
    let of = |order: u64, mut line: serde_json::Value| {
        line["order"] = json!(order);
        line
    };
    assert!(
        bed::write(&mut applied, &[of(4, put("k", "4")), of(5, put("k", "5")), of(5, patch("k", "5"))])
            .is_empty()
    );
    assert_eq!((titles(&applied.view()), applied.counts.stale), (expect(&[]), 3));
    bed::write(&mut applied, &[of(6, put("k", "6"))]);
    assert_eq!(titles(&applied.view()), expect(&[("k", "6")]));
}

#[test]
fn a_patch_of_nothing_is_refused_and_makes_no_half_document() {
    let ground = bed::ground(&base(&[("k", "base"), ("gone", "g")]), Ordering::Log, true);
    let mut applied = bed::empty(&ground, &config());
    let letters = bed::write(
        &mut applied,
        &[patch("nobody", "x"), delete("gone"), patch("gone", "x"), patch("k", "new")],
    );
    assert_eq!(letters.len(), 2);
    assert!(
        letters[0].starts_with("nobody: there is no document") && letters[1].starts_with("gone: "),
        "{letters:?}"
    );
    assert_eq!(titles(&applied.view()), expect(&[("k", "new")]));
    assert_eq!(applied.counts, Counts { applied: 2, stale: 0, refused: 2, deferred: 0 });
}

/// A version that keeps only what it shows can't give a document's other fields to a patch.
#[test]
fn a_patch_is_refused_by_field_where_the_version_does_not_keep_all() {
    let ground = bed::ground(&base(&[("k", "base")]), Ordering::Log, false);
    let mut applied = bed::empty(&ground, &config());
    // Wherever the document is: replicas close their parts at other moments.
    let letters = bed::write(&mut applied, &[patch("k", "x"), put("k", "new"), patch("k", "y")]);
    assert_eq!(letters.len(), 2);
    assert!(letters.iter().all(|letter| letter.starts_with("k: anchors: ")), "{letters:?}");
    assert_eq!(titles(&applied.view()), expect(&[("k", "new")]));
}

/// Records that are none, of another schema, or with another key: dead letters; what is behind them is applied.
#[test]
fn poison_is_a_dead_letter_and_stops_nothing() {
    let ground = bed::ground(&base(&[("k", "base")]), Ordering::Log, true);
    let mut applied = bed::empty(&ground, &config());
    let record = |op, document: &str| Record {
        op,
        key: "k".into(),
        document: document.to_owned().into(),
        ..Record::default()
    };
    let bad = [
        vec![0xff, 0xff, 0xff],
        record(1, "{").encode_to_vec(),
        record(1, r#"{"url":"other"}"#).encode_to_vec(),
        record(1, r#"{"title":"no key"}"#).encode_to_vec(),
        record(2, r#"{"colour":"unknown to this version"}"#).encode_to_vec(),
        record(9, "").encode_to_vec(),
        Record::default().encode_to_vec(),
        bed::record(&put("k", "good"), Ordering::Log),
    ];
    let incoming = |(offset, record): (usize, Vec<u8>)| Incoming {
        partition: 0,
        offset: offset as u64,
        record: record.into(),
    };
    let records: Vec<Incoming> = bad.into_iter().enumerate().map(incoming).collect();
    let (next, mut letters) = (BTreeMap::from([(0, 8)]), Vec::new());
    applied.apply(&records, &next, SMALL, &mut letters).unwrap();
    applied.close().unwrap();
    assert_eq!(titles(&applied.view()), expect(&[("k", "good")]));
    assert_eq!((applied.offsets()[&0], applied.counts.refused), (8, 7));
    let offsets: Vec<_> = letters.iter().map(|letter| letter.offset.as_str()).collect();
    assert_eq!(offsets, ["0:0", "0:1", "0:2", "0:3", "0:4", "0:5", "0:6"]);
    assert!(letters.iter().all(|letter| !letter.reason.is_empty()), "{letters:?}");
}

/// Beyond the bound nothing new shows, and nothing that is gone comes back.
#[test]
fn a_full_overlay_defers_what_is_new_and_hides_what_is_replaced() {
    let config = OverlayConfig { policy: Policy::Defer, max_documents: 2, ..config() };
    let ground = bed::ground(&base(&[("a", "a0"), ("b", "b0")]), Ordering::Log, true);
    let mut applied = bed::empty(&ground, &config);
    bed::write(&mut applied, &[put("x", "x1"), put("y", "y1"), put("z", "z1"), put("a", "a1")]);
    assert_eq!(titles(&applied.view()), expect(&[("b", "b0"), ("x", "x1"), ("y", "y1")]));
    assert_eq!(applied.documents(), (2, 2));
    // What is seen may change; what is not yet seen is patched and deleted where it is.
    let letters =
        bed::write(&mut applied, &[put("x", "x2"), patch("a", "a2"), delete("z"), patch("z", "no")]);
    assert_eq!((letters.len(), applied.documents()), (1, (2, 1)));
    assert_eq!(titles(&applied.view()), expect(&[("b", "b0"), ("x", "x2"), ("y", "y1")]));
    // Room again: a whole document comes in, in place of the deferred one too.
    bed::write(&mut applied, &[delete("y"), put("a", "a3")]);
    assert_eq!(
        (titles(&applied.view()), applied.documents()),
        (expect(&[("a", "a3"), ("b", "b0"), ("x", "x2")]), (2, 0))
    );
}

#[test]
fn a_full_overlay_that_serves_says_which_parts_are_beyond() {
    let config = OverlayConfig { max_documents: 2, max_bytes: Size(1 << 30), ..config() };
    let ground = bed::ground(&[], Ordering::Log, true);
    let mut applied = bed::empty(&ground, &config);
    for n in 0..4 {
        bed::write(&mut applied, &[put(&format!("k{n}"), "t")]);
    }
    let view = applied.view();
    let optimised: Vec<bool> = view.overlay.parts.iter().map(|part| part.optimised).collect();
    assert_eq!((titles(&view).len(), optimised), (4, vec![true, true, false, false]));
}

/// Parts stay few, and the text of deleted documents goes.
#[test]
fn parts_are_merged_and_deleted_text_is_written_out() {
    let ground = bed::ground(&[], Ordering::Log, true);
    let mut applied = bed::empty(&ground, &config());
    let merge = |applied: &mut crate::overlay::apply::Applied, unclean| {
        while let Some(job) = applied.merge(unclean) {
            let part = job.run(&ground.view.shard, &ground.view.base.schema).unwrap();
            applied.merged(&job, part);
        }
    };
    for n in 0..24 {
        bed::write(&mut applied, &[put(&format!("k{n}"), "t"), put("same", &n.to_string())]);
        merge(&mut applied, None);
        assert!(applied.parts.len() <= 4);
    }
    assert_eq!(titles(&applied.view()).len(), 25);
    bed::write(&mut applied, &[put("secret", "unmistakable")]);
    bed::write(&mut applied, &[delete("secret")]);
    merge(&mut applied, Some(tokio::time::Instant::now()));
    let files = applied.parts.iter().flat_map(|part| part.to_files().unwrap());
    let has = |bytes: &[u8]| bytes.windows(12).any(|window| window == b"unmistakable");
    assert!(files.into_iter().all(|(_, bytes)| !has(&bytes)));
    assert_eq!(titles(&applied.view()).len(), 25);
}
