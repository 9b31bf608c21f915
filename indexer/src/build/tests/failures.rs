//! What a build refuses, and what is left when one fails or dies.

use canopy_common::error::{Classify, ErrorClass};

use super::*;

fn mixed(good: usize, bad: usize) -> Vec<Value> {
    let wrong = (0..bad).map(|number| match number % 3 {
        0 => json!("no object"),
        1 => json!({ "url": format!("bad-{number}"), "unknown_field": 1 }),
        _ => json!({ "title": "no key" }),
    });
    pages(good).into_iter().chain(wrong).collect()
}

#[tokio::test]
async fn rejects_are_listed_and_fail_the_build_above_the_limit_only() {
    let place = Place::new().await;
    let reject_file = place.directory.path().join("rejects.jsonl");
    let request =
        || BuildRequest { max_rejects: 0.01, reject_file: Some(reject_file.clone()), ..place.request() };
    let report = build(request(), vec![lines("good.jsonl", mixed(990, 10))]).await.expect("within the limit");
    assert_eq!((report.documents, report.counts.rejected, report.rejects.len()), (990, 10, 10));
    let listed: Vec<Value> = fs::read_to_string(&reject_file)
        .expect("reject file")
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    let at: Vec<_> = listed.iter().map(|line| line["line"].as_u64().expect("line")).collect();
    assert_eq!(at, (991..=1000).collect::<Vec<_>>());
    assert_eq!(listed[0]["file"], "good.jsonl");
    assert_eq!(listed[1]["field"], "unknown_field");

    let error =
        build(request(), vec![lines("bad.jsonl", mixed(980, 11))]).await.expect_err("above the limit");
    assert_eq!(error.class(), ErrorClass::InvalidArgument);
    let text = error.to_string();
    for part in ["11 of 991", "1 %", "bad.jsonl:981", "rejects.jsonl", "--max-rejects"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(place.store.versions("web").await.expect("versions"), [Version(1)]);
}

#[tokio::test]
async fn a_field_that_is_dropped_is_reported_and_the_document_stays() {
    let place = Place::new().await;
    let reject_file = place.directory.path().join("rejects.jsonl");
    let mut record = page(1, "text");
    record["published"] = json!("+999999999-01-01T00:00:00Z");
    let request = BuildRequest { reject_file: Some(reject_file.clone()), ..place.request() };
    let report = build(request, vec![lines("a", vec![record])]).await.expect("build");
    assert_eq!((report.documents, report.counts.rejected, report.counts.dropped_fields), (1, 0, 1));
    let listed = fs::read_to_string(reject_file).expect("reject file");
    assert!(listed.contains("published") && listed.contains("\"kept\":true"), "{listed}");
}

#[tokio::test]
async fn empty_and_shrunken_builds_need_force() {
    let place = Place::new().await;
    let empty = build(place.request(), vec![lines("a", vec![])]).await.expect_err("empty");
    assert!(matches!(empty, Error::Empty { .. }), "{empty}");
    build(place.request(), vec![lines("a", pages(100))]).await.expect("build");
    let shrunken = build(place.request(), vec![lines("a", pages(49))]).await.expect_err("shrunken");
    assert!(matches!(shrunken, Error::Shrunken { documents: 49, before: 100, .. }), "{shrunken}");
    // duplicates do not count as documents
    let doubled: Vec<_> = pages(49).into_iter().chain(pages(49)).collect();
    let shrunken = build(place.request(), vec![lines("a", doubled)]).await.expect_err("shrunken");
    assert!(matches!(shrunken, Error::Shrunken { documents: 49, .. }), "{shrunken}");
    build(place.request(), vec![lines("a", pages(50))]).await.expect("half is enough");
    let request = BuildRequest { force: true, ..place.request() };
    let report = build(request, vec![lines("a", vec![])]).await.expect("forced");
    assert_eq!(report.documents, 0);
    assert!(verify::verify(&place.store, "web", None, &|_| ()).await.expect("verify").sound());
}

#[tokio::test]
async fn a_file_that_ends_too_early_needs_force() {
    let place = Place::new().await;
    let text = pages(2000).iter().map(Value::to_string).collect::<Vec<_>>().join("\n");
    let mut gzip = flate2::write::GzEncoder::new(vec![], flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, text.as_bytes()).expect("gzip");
    let whole = gzip.finish().expect("gzip");
    let cut = place.directory.path().join("cut.jsonl.gz");
    fs::write(&cut, &whole[..whole.len() * 2 / 3]).expect("file");
    let input = || vec![lines("good", pages(10)), Input::file(cut.clone(), None)];
    let error = build(place.request(), input()).await.expect_err("a third is missing");
    let text = error.to_string();
    for part in ["1 input file could not", "cut.jsonl.gz:", "could be read up to line", "--force"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(place.store.versions("web").await.expect("versions").is_empty());
    let report = build(BuildRequest { force: true, ..place.request() }, input()).await.expect("forced");
    assert!(report.counts.rejected == 1 && (100..2000).contains(&report.documents), "{}", report.documents);
}

#[tokio::test]
async fn two_keys_with_one_hash_fail_the_build_by_name_in_one_shard_and_in_two() {
    fn colliding(key: &str) -> KeyHash {
        if key.ends_with("/3") || key.ends_with("/4") { KeyHash(42) } else { KeyHash::of(key) }
    }
    for shards in [1, 4, 64] {
        let place = Place::new().await;
        let request = BuildRequest { shards: Some(shards), ..place.request() };
        let feed = Feed { key_hash: colliding, ..Feed::new(vec![lines("a", pages(9))]) };
        let error = run_on(request, feed).await.expect_err("collision");
        assert!(matches!(error, Error::KeyCollision { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("https://example.org/3") && text.contains("https://example.org/4"), "{text}");
        assert!(place.store.versions("web").await.expect("versions").is_empty());
    }
}

#[tokio::test]
async fn a_failed_build_leaves_nothing_and_its_number_is_free_again() {
    let place = Place::new().await;
    build(place.request(), vec![lines("a", vec![])]).await.expect_err("empty");
    assert!(place.in_use().is_empty(), "{:?}", place.in_use());

    let open =
        || -> Result<Records> { Err(Error::Damaged { what: "a".into(), reason: "the disk broke".into() }) };
    let inputs = vec![lines("good", pages(500)), Input::records(open)];
    let error = build(place.request(), inputs).await.expect_err("unreadable input");
    assert_eq!(error.to_string(), "a is damaged: the disk broke");
    let request = place.request();
    request.cancel.cancel();
    let error = build(request, vec![lines("a", pages(10))]).await.expect_err("cancelled");
    assert!(matches!(error, Error::Cancelled), "{error}");
    assert!(place.in_use().is_empty(), "{:?}", place.in_use());
    let report = build(place.request(), vec![lines("a", pages(10))]).await.expect("build");
    assert_eq!((report.version, report.leftovers.len()), (Version(1), 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn builds_at_the_same_time_never_take_one_number_whether_they_fail_or_not() {
    let place = Place::new().await;
    let builds = (0..12).map(|n| {
        let request = place.request();
        let pages = if n % 3 == 0 { vec![] } else { pages(5 + n) };
        tokio::spawn(build(request, vec![lines("a", pages)]))
    });
    let mut published = vec![];
    for (n, build) in builds.collect::<Vec<_>>().into_iter().enumerate() {
        match build.await.expect("no panic") {
            Ok(report) => published.push((report.version, report.documents)),
            Err(error) => assert!(n % 3 == 0 && matches!(error, Error::Empty { .. }), "{n}: {error}"),
        }
    }
    published.sort_unstable();
    assert_eq!(published.len(), 8);
    assert!(published.windows(2).all(|pair| pair[0].0 < pair[1].0), "{published:?}");
    for (version, documents) in published {
        let manifest = place.store.manifest("web", version).await.expect("manifest");
        assert_eq!(manifest.documents(), documents, "{version}");
        assert_eq!(place.store.verify(&manifest, &|_| ()).await.expect("verify"), [], "{version}");
    }
}

#[test]
fn a_number_has_one_holder_while_cleaners_take_fresh_claims_for_dead_ones() {
    let runtime = tokio::runtime::Runtime::new().expect("runtime");
    let place = runtime.block_on(Place::new());
    let held = parking_lot::Mutex::new(std::collections::BTreeSet::new());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..25 {
                    leftovers::clean(&place.store, "web").expect("clean");
                    let (version, claim) = runtime.block_on(claim(&place.request())).expect("claim");
                    assert!(held.lock().insert(version), "{version} has two holders");
                    fs::write(claim.work.join("rows"), "rows").expect("the directory is ours");
                    held.lock().remove(&version);
                    claim.undo();
                }
            });
        }
    });
    leftovers::clean(&place.store, "web").expect("clean");
    assert!(place.in_use().is_empty(), "{:?}", place.in_use());
}

/// A claim that a cleaner takes for dead may be made again by another build; the first one then finds the other's file
/// under its name, and may wait for its lock until the other has published.
#[tokio::test]
async fn a_number_that_was_published_meanwhile_is_not_taken() {
    let place = Place::new().await;
    let report = build(place.request(), vec![lines("a", pages(10))]).await.expect("build");
    let before = place.files(report.version);
    let taken = leftovers::Claim::take(&place.store, "web", report.version, None).expect("a lock");
    assert!(taken.is_none());
    assert_eq!(place.files(report.version), before);
}

#[tokio::test]
async fn a_build_goes_on_over_a_newest_version_that_can_not_be_read() {
    let place = Place::new().await;
    build(place.request(), vec![lines("a", pages(40))]).await.expect("build");
    build(place.request(), vec![lines("a", pages(42))]).await.expect("build");
    let manifest = place.store.version_dir("web", Version(2)).expect("local").join("manifest.json");
    fs::write(&manifest, "garbage").expect("damage");
    let report = build(place.request(), vec![lines("a", pages(44))]).await.expect("build");
    assert_eq!((report.version, report.parent), (Version(3), Some(Version(1))));
    assert_eq!(report.passed_over.iter().map(|passed| passed.version).collect::<Vec<_>>(), [Version(2)]);
    assert_eq!(fs::read_to_string(&manifest).expect("file"), "garbage");
    // Also where no version can be read.
    for version in [1, 3] {
        let directory = place.store.version_dir("web", Version(version)).expect("local");
        fs::write(directory.join("manifest.json"), "garbage").expect("damage");
    }
    let report = build(place.request(), vec![lines("a", pages(4))]).await.expect("build");
    assert_eq!((report.version, report.parent), (Version(4), None));
    assert_eq!(report.passed_over[0].version, Version(3));
}

#[tokio::test]
async fn what_a_dead_build_left_is_removed_and_a_running_one_is_left_alone() {
    let place = Place::new().await;
    build(place.request(), vec![lines("a", pages(10))]).await.expect("build");
    // a build that was killed: claimed, half of its files written, no lock held
    let dead = place.store.claim("web").await.expect("claim");
    let directory = place.store.version_dir("web", dead).expect("local");
    fs::create_dir_all(directory.join("shards/main-0000")).expect("directory");
    fs::write(directory.join("shards/main-0000/meta.json"), "{}").expect("file");
    fs::create_dir_all(directory.join("work")).expect("directory");
    // one that still runs: it holds its lock
    let running = place.store.claim("web").await.expect("claim");
    let claim = leftovers::Claim::take(&place.store, "web", running, None).expect("lock").expect("claim");
    fs::write(claim.work.join("spill-0000"), "rows").expect("file");

    let report = build(place.request(), vec![lines("a", pages(10))]).await.expect("build");
    assert_eq!(
        report.leftovers,
        [Leftover { version: dead, cleaned: true }, Leftover { version: running, cleaned: false }]
    );
    assert!(place.files(dead).is_empty());
    assert!(claim.work.join("spill-0000").exists());
    assert_eq!(report.version, Version(4));
    assert_eq!(place.store.versions("web").await.expect("versions"), [Version(1), Version(4)]);
    drop(claim);
    assert_eq!(place.files(running).keys().collect::<Vec<_>>(), ["/claim"]);
}

#[tokio::test]
async fn damage_after_publishing_is_named() {
    let place = Place::new().await;
    build(place.request(), vec![lines("a", pages(40))]).await.expect("build");
    let manifest = place.store.latest("web").await.expect("manifest");
    let file = &manifest.shards[2]
        .files
        .iter()
        .find(|file| file.path.rsplit('.').next() == Some("idx"))
        .expect("postings")
        .path;
    let path = place.store.version_dir("web", Version(1)).expect("local").join(file);
    let mut bytes = fs::read(&path).expect("file");
    bytes[20] ^= 1;
    fs::write(&path, bytes).expect("file");
    let report = verify::verify(&place.store, "web", None, &|_| ()).await.expect("verify");
    assert_eq!(report.damaged.iter().map(|damaged| &damaged.file.path).collect::<Vec<_>>(), [file]);
    assert!(report.unusable.is_empty());
}

#[tokio::test]
async fn settings_out_of_bounds_are_refused_by_name() {
    let place = Place::new().await;
    let good = || place.request();
    for (field, request) in [
        ("input", BuildRequest { inputs: vec![], ..good() }),
        ("memory", BuildRequest { memory: 1 << 20, ..good() }),
        ("threads", BuildRequest { threads: 0, ..good() }),
        ("max_rejects", BuildRequest { max_rejects: f64::NAN, ..good() }),
        ("shards", BuildRequest { shards: Some(1025), ..good() }),
    ] {
        let error = run(request).await.expect_err(field);
        assert!(error.to_string().starts_with(field), "{error}");
        assert_eq!(error.class(), ErrorClass::InvalidArgument);
    }
}
