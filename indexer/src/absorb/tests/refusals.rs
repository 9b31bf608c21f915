//! What can't be absorbed is refused by name, and what fails leaves nothing.

use canopy_format::{error::Error as FormatError, graves::Graves};

use super::*;

fn page(key: &str, title: &str) -> Json {
    json!({ "url": key, "title": title, "body": "replication of slots", "anchors": ["hidden words"], "lang": "en" })
}

async fn refused(request: AbsorbRequest) -> Unfit {
    match run(request).await {
        Err(Error::Unfit { reason, .. }) => reason,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn what_does_not_fit_is_refused_by_name() {
    let place = Place::new(Ordering::Log).await;
    let log = Arc::new(Log::new("e"));
    let none = run(place.request(&log)).await;
    assert!(matches!(none, Err(Error::Format(FormatError::NoVersionYet(_)))), "{none:?}");
    place.build(&[page("https://a.example/", "a")], "e:0.1", 1).await;

    assert_eq!(
        refused(place.request(&log)).await,
        Unfit::Beyond { partition: 0, wanted: 0, from: 1, end: 0 },
        "the log ends before the cut"
    );
    for _ in 0..9 {
        (0..30).for_each(|n| log.append(Kind::Delete, &format!("https://b.example/{n}"), 0, None));
    }
    let other = Arc::new(Log::new("f"));
    let unfit = Unfit::OtherLog { version: "e".to_owned(), log: "f".to_owned() };
    assert_eq!(refused(place.request(&other)).await, unfit);
    let trimmed = Log { first: 5, ..Log::new("e") };
    *trimmed.partitions.lock() = log.partitions.lock().clone();
    let unfit = Unfit::Lost { partition: 0, wanted: 1, first: 5 };
    assert_eq!(refused(place.request(&Arc::new(trimmed))).await, unfit);
    let until = Some("f:".parse().expect("token"));
    assert!(matches!(refused(AbsorbRequest { until, ..place.request(&log) }).await, Unfit::OtherLog { .. }));
    let until = Some("e:0.9999".parse().expect("token"));
    assert!(matches!(refused(AbsorbRequest { until, ..place.request(&log) }).await, Unfit::Beyond { .. }));

    let mut schema = Schema::web();
    schema.fields.retain(|field| field.name != "topic");
    place.store.set_schema("web", schema).await.expect("schema");
    assert!(matches!(refused(place.request(&log)).await, Unfit::OtherSchema { .. }));
    assert_eq!(place.numbers(), ["0000000001"]);
}

#[tokio::test]
async fn a_version_that_keeps_only_what_it_shows_is_refused() {
    let place = Place::new(Ordering::Log).await;
    let log = Arc::new(Log::new("e"));
    let made = place.build(&[page("https://a.example/", "a")], "", 1).await;
    let path = place.directory(&made).join("manifest.json");
    fs::write(&path, Manifest { whole: false, ..made }.to_json()).expect("manifest");
    assert_eq!(refused(place.request(&log)).await, Unfit::NotWhole);
}

#[tokio::test]
async fn what_fails_or_is_stopped_leaves_nothing_and_the_next_try_ends_well() {
    let place = Place::new(Ordering::Log).await;
    place.build(&[page("https://a.example/", "a")], "", 2).await;
    let log = Arc::new(Log { broken_at: Some(8), ..Log::new("e") });
    (0..60).for_each(|n| {
        let key = format!("https://b.example/{n}");
        log.append(Kind::Put, &key, 0, Some(&page(&key, "b")));
    });
    assert!(matches!(run(place.request(&log)).await, Err(Error::Log(_))));
    assert_eq!(place.numbers(), ["0000000001"]);
    let whole = Arc::new(Log::new("e"));
    *whole.partitions.lock() = log.partitions.lock().clone();
    let stopped = place.request(&whole);
    stopped.cancel.cancel();
    assert!(matches!(run(stopped).await, Err(Error::Cancelled)));
    assert_eq!(place.numbers(), ["0000000001"]);
    let report = run(place.request(&whole)).await.expect("absorb").expect("news");
    assert_eq!((report.build.version, report.build.documents), (Version(2), 61));
    assert_eq!(place.numbers(), ["0000000001", "0000000002"]);
}

#[tokio::test]
async fn an_older_put_does_not_bring_back_what_an_earlier_absorb_deleted() {
    let place = Place::new(Ordering::Producer).await;
    let log = Arc::new(Log::new("e"));
    let (key, mut first) = ("https://a.example/", page("https://a.example/", "a"));
    first["_order"] = json!("5");
    place.build(&[first, page("https://b.example/", "b")], "", 1).await;
    log.append(Kind::Delete, key, 9, None);
    log.append(Kind::Delete, "https://never.example/", 4, None);
    run(place.request(&log)).await.expect("absorb").expect("news");
    log.append(Kind::Put, key, 9, Some(&page(key, "late")));
    log.append(Kind::Put, key, 8, Some(&page(key, "older")));
    log.append(Kind::Put, "https://never.example/", 3, Some(&page("https://never.example/", "older")));
    // Also through another number of shards.
    for shards in [1, 3] {
        log.append(Kind::Put, key, 7, Some(&page(key, "older still")));
        let request = AbsorbRequest { shards: Some(shards), ..place.request(&log) };
        let report = run(request).await.expect("absorb").expect("news");
        assert_eq!(report.build.documents, 1);
        let made = place.latest().await;
        let open = |entry: &canopy_format::manifest::ShardEntry| {
            let directory = place.directory(&made).join(Manifest::shard_dir(&entry.shard));
            Graves::open(&directory).expect("deletes").len()
        };
        assert_eq!(made.shards.iter().map(open).sum::<usize>(), 2);
    }
    log.append(Kind::Put, key, 10, Some(&page(key, "newer")));
    assert_eq!(run(place.request(&log)).await.expect("absorb").expect("news").build.documents, 2);
}

#[tokio::test]
async fn a_shard_without_news_is_taken_over_file_by_file() {
    let place = Place::new(Ordering::Log).await;
    let pages: Vec<Json> = (0..40).map(|n| page(&format!("https://a.example/{n}"), "a")).collect();
    let before = place.build(&pages, "", 4).await;
    let log = Arc::new(Log::new("e"));
    log.append(Kind::Delete, "https://a.example/7", 0, None);
    run(place.request(&log)).await.expect("absorb").expect("news");
    let after = place.latest().await;
    let same = before.shards.iter().zip(&after.shards).filter(|(a, b)| a.files == b.files).count();
    assert_eq!((same, after.documents()), (3, 39));
}
