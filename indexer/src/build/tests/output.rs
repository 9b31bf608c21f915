//! What a build publishes.

use super::*;

#[tokio::test]
async fn a_version_holds_every_document_once_with_right_statistics() {
    let place = Place::new().await;
    let report = build(place.request(), vec![lines("a", pages(300))]).await.expect("build");
    assert_eq!((report.documents, report.counts.read, report.version), (300, 300, Version(1)));
    assert_eq!(report.spilled_bytes, 0);
    let manifest = place.store.latest("web").await.expect("manifest");
    assert_eq!(manifest.languages, BTreeMap::from([("en".to_owned(), 300)]));
    assert!(manifest.shards.iter().all(|shard| shard.documents > 30), "unbalanced: {:?}", report.shards);
    assert_eq!(manifest.parent, None);
    let stored = stored(&place, Version(1), &manifest.schema);
    assert_eq!(stored.len(), 300);
    assert_eq!(stored["https://example.org/7"]["title"], "Page 7");

    let expected = (0..300).filter(|number| body(*number).split(' ').any(|word| word == "river12")).count();
    assert!(expected > 0);
    assert_eq!(frequency(&place, &manifest, "river12"), expected as u64);
    assert_eq!(frequency(&place, &manifest, "page"), 300);
    let tokens: u64 = manifest.shards.iter().map(|shard| shard.tokens["text"]).sum();
    assert_eq!(manifest.statistics.tokens["text"], tokens);

    let report = verify::verify(&place.store, "web", None, &|_| ()).await.expect("verify");
    assert!(report.sound() && report.opened, "{report:?}");
    let inspection = inspect::inspect(&place.store, "web", None).await.expect("inspect");
    assert_eq!((inspection.documents, inspection.shards.len()), (300, 4));
    assert!(place.files(Version(1)).keys().all(|path| !path.starts_with("/work")), "leftovers");
}

#[tokio::test]
async fn two_builds_of_one_input_are_the_same_to_the_byte_whatever_the_threads() {
    let (one, two) = (Place::new().await, Place::new().await);
    let mut records = pages(400);
    records[17]["attributes"] = json!({ "color": "red", "size": 3 });
    records[18]["published"] = json!("2024-02-29T12:00:00Z");
    let (first, second) = records.split_at(150);
    let inputs = || vec![lines("a", first.to_vec()), lines("b", second.to_vec()), lines("c", pages(20))];
    build(BuildRequest { threads: 1, ..one.request() }, inputs()).await.expect("build");
    build(BuildRequest { threads: 5, ..two.request() }, inputs()).await.expect("build");
    let (mut one, mut two) = (one.files(Version(1)), two.files(Version(1)));
    assert!(one.len() > 20, "{one:?}");
    for files in [&mut one, &mut two] {
        files.remove("/manifest.json"); // says when it was created
        files.remove("/claim");
    }
    assert_eq!(one, two);
}

#[tokio::test]
async fn more_shards_than_documents_and_growth_from_the_parent() {
    let place = Place::new().await;
    let request = BuildRequest { shards: Some(16), ..place.request() };
    build(request, vec![lines("a", pages(3))]).await.expect("build");
    let first = place.store.latest("web").await.expect("manifest");
    assert_eq!((first.documents(), first.shards.len()), (3, 16));
    let report = verify::verify(&place.store, "web", None, &|_| ()).await.expect("verify");
    assert!(report.sound(), "{report:?}");

    let request = BuildRequest { shards: None, ..place.request() };
    build(request, vec![lines("a", pages(4))]).await.expect("build");
    let second = place.store.latest("web").await.expect("manifest");
    assert_eq!((second.layouts.clone(), second.parent), (first.layouts, Some(Version(1))));
    let request = BuildRequest { shards: Some(20), ..place.request() };
    build(request, vec![lines("a", pages(4))]).await.expect("build");
    let third = place.store.latest("web").await.expect("manifest");
    let moved = second.layouts[0].table.iter().zip(&third.layouts[0].table).filter(|(a, b)| a != b).count();
    assert!(moved > 0 && moved <= 4096 / 5 + 4, "{moved}");
}

#[tokio::test]
async fn keys_of_any_script_and_texts_of_any_kind_survive() {
    let place = Place::new().await;
    let mut records: Vec<Value> = ["https://例え.jp/道?q=é", "https://שלום.example/", "👩‍👩‍👧", "a\u{301}", "á"]
        .iter()
        .map(|key| json!({ "url": key, "title": "Ünïcödé 東京都", "body": "", "lang": "de" }))
        .collect();
    records.push(json!({ "url": "nul", "title": "zero\u{0}byte", "body": format!("before {} after", "x".repeat(1 << 20)) }));
    let report = build(place.request(), vec![lines("a", records)]).await.expect("build");
    assert_eq!((report.documents, report.counts.rejected), (6, 0));
    assert!(report.counts.long_tokens >= 1, "{report:?}");
    let manifest = place.store.latest("web").await.expect("manifest");
    let stored = stored(&place, Version(1), &manifest.schema);
    assert!(stored.contains_key("https://例え.jp/道?q=é") && stored.contains_key("a\u{301}"));
    assert!(!stored["nul"]["title"].as_str().expect("title").contains('\u{0}'));
    assert_eq!(frequency(&place, &manifest, "after"), 1);
    assert_eq!(frequency(&place, &manifest, "before"), 1);
}

#[tokio::test]
async fn link_texts_reach_their_target_once_each_and_nobody_else() {
    let place = Place::new().await;
    let target = "https://example.org/2";
    let records = vec![
        (
            page(1, "one"),
            vec![(target, "quokka facts"), (target, " quokka facts "), ("https://nowhere.example/", "x")],
        ),
        (page(2, "two"), vec![(target, "own link"), ("https://example.org/1", "")]),
        (page(3, "three"), vec![(target, "marsupial"), (target, "quokka facts")]),
    ];
    let report = build(place.request(), vec![linked("a", records)]).await.expect("build");
    assert_eq!((report.documents, report.anchors), (3, 2));
    let manifest = place.store.latest("web").await.expect("manifest");
    for (word, documents) in [("quokka", 1), ("marsupial", 1), ("own", 0), ("nowhere", 0)] {
        assert_eq!(frequency(&place, &manifest, word), documents, "{word}");
    }
}

#[tokio::test]
async fn a_comparison_names_what_changed() {
    let place = Place::new().await;
    build(place.request(), vec![lines("a", pages(50))]).await.expect("build");
    let mut records = pages(53);
    records.remove(10);
    records[20] = page(21, "another text");
    let request = BuildRequest { shards: Some(6), ..place.request() };
    build(request, vec![lines("a", records)]).await.expect("build");
    let report = diff::versions(&place.store, "web", Version(1), Version(2)).await.expect("diff");
    assert_eq!((report.documents.from, report.documents.to), (50, 52));
    assert!(report.slots_moved > 0);
    let changes = report.changes.clone().expect("local");
    assert_eq!((changes.added, changes.removed, changes.changed, changes.unchanged), (3, 1, 1, 48));
    assert_eq!(changes.removed_keys, ["https://example.org/10"]);
    assert_eq!(changes.changed_keys, ["https://example.org/21"]);
    assert!(report.to_string().contains("added 3, removed 1, changed 1"), "{report}");
}

#[derive(Default)]
struct Seen(parking_lot::Mutex<BTreeMap<Stage, Amount>>);

impl Progress for Seen {
    fn begin(&self, stage: Stage, _total: Amount) {
        self.0.lock().insert(stage, Amount::default());
    }

    fn advance(&self, stage: Stage, more: Amount) {
        let mut seen = self.0.lock();
        let amount = seen.entry(stage).or_default();
        amount.documents += more.documents;
        amount.bytes += more.bytes;
    }
}

#[tokio::test]
async fn files_are_read_and_progress_adds_up() {
    let place = Place::new().await;
    let (one, two) = (place.directory.path().join("one.jsonl"), place.directory.path().join("two.jsonl"));
    let text: String = pages(70).iter().fold(String::new(), |text, page| format!("{text}{page}\n"));
    fs::write(&one, &text).expect("file");
    fs::write(&two, "{\"url\": \"https://example.org/a\", \"title\": \"A\"}\nthis is no JSON\n")
        .expect("file");
    let seen = std::sync::Arc::new(Seen::default());
    let request = BuildRequest {
        inputs: vec![one.clone(), two.clone()],
        max_rejects: 0.1,
        progress: seen.clone(),
        ..place.request()
    };
    let report = run(request).await.expect("build");
    assert_eq!((report.documents, report.counts.read, report.counts.rejected), (71, 72, 1));
    assert_eq!((report.rejects[0].line, report.rejects[0].field.as_str()), (2, "record"));
    assert!(report.rejects[0].file.ends_with("two.jsonl"));
    let seen = seen.0.lock().clone();
    let size = |path| fs::metadata(path).expect("file").len();
    assert_eq!(seen[&Stage::Read], Amount { documents: 72, bytes: size(&one) + size(&two) });
    assert_eq!(seen[&Stage::Write].documents, 71);
    assert_eq!(seen[&Stage::Verify].bytes, report.bytes);
    assert_eq!(seen.len(), 4);
    let missing = BuildRequest { inputs: vec![place.directory.path().join("none.jsonl")], ..place.request() };
    let error = run(missing).await.expect_err("missing file");
    assert!(error.to_string().contains("none.jsonl"), "{error}");
}
