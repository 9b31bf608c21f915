//! Tests of `versions`: what its module comment promises.

use std::{sync::Arc, time::Duration};

use canopy_common::{drain::Drain, ids::Epoch};
use canopy_format::{
    manifest::FORMAT,
    signature::{SigningKey, Trusted},
    store::{Corpus, Ordering, VersionStore},
};
use canopy_topology::routing::{CorpusRouting, Pin, Routing, VersionRouting};
use object_store::{ObjectStoreExt, memory::InMemory};
use prometheus::IntGauge;

use super::{open::open, *};
use crate::fixture;

/// Writes a version with its statistics into a store.
async fn publish(store: &VersionStore, change: impl FnOnce(&mut Manifest)) -> Manifest {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("terms.fst");
    let mut manifest = fixture::manifest(&path, 2, 10);
    change(&mut manifest);
    let corpus = Corpus {
        name: manifest.corpus.clone(),
        schema: manifest.schema.clone(),
        partitions: 1,
        ordering: Ordering::Log,
    };
    let _may_exist = store.create_corpus(&corpus).await;
    let version = VersionStore::version_path(&manifest.corpus, manifest.version);
    let statistics = std::fs::read(&path).unwrap();
    let put = async |file: String, bytes: Vec<u8>| {
        store.objects().put(&file.into(), bytes.into()).await.unwrap();
    };
    put(format!("{version}/{}", manifest.statistics.file.path), statistics).await;
    put(format!("{version}/manifest.json"), manifest.to_json()).await;
    manifest
}

fn local() -> (tempfile::TempDir, VersionStore) {
    let dir = tempfile::tempdir().unwrap();
    let store = VersionStore::open(dir.path().to_str().unwrap(), false).unwrap();
    (dir, store)
}

/// Fails instead of hanging.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_mins(1), work).await.expect("it hangs")
}

fn gauge() -> IntGauge {
    IntGauge::new("passed_over", "for tests").unwrap()
}

fn routing(version: Option<u64>) -> RoutingSnapshot {
    let corpus = CorpusRouting { version: version.map(Version), ..Default::default() };
    RoutingSnapshot {
        epoch: Epoch(1),
        corpora: BTreeMap::from([("web".to_owned(), corpus)]),
        ..Default::default()
    }
}

/// Follows `routing` until every corpus is open.
async fn keep_until_open(
    versions: &Versions,
    store: &VersionStore,
    routing: RoutingSnapshot,
    gauge: &IntGauge,
) {
    let (routing, drain) = (Routing::from(routing), Drain::new());
    let opening = Opening { store, cache_dir: "nowhere", drain: &drain, passed_over: gauge };
    let open = async {
        while !versions.opening().is_empty() {
            tokio::task::yield_now().await;
        }
    };
    soon(async {
        tokio::select! {
            biased;
            () = keep(versions, &routing, opening) => {}
            () = open => {}
        }
    })
    .await;
}

#[tokio::test]
async fn the_pinned_or_newest_version_is_opened_in_place() {
    let (_dir, store) = local();
    publish(&store, |_| ()).await;
    publish(&store, |manifest| manifest.version = Version(9)).await;
    for (pinned, expected) in [(None, 9), (Some(7), 7)] {
        let versions = Versions::expecting(["web".to_owned()]);
        assert_eq!(versions.opening().len(), 1);
        keep_until_open(&versions, &store, routing(pinned), &gauge()).await;
        let state = versions.corpus("web").unwrap();
        assert_eq!(state.manifest.version, Version(expected));
        assert_eq!(state.statistics.id(), state.manifest.statistics.id);
        assert_eq!(state.shards.iter().map(|(_, documents)| documents).sum::<u64>(), 20);
        assert!(versions.opening().is_empty() && versions.open().len() == 1);
        assert_eq!(versions.status()["web"]["state"], "serving");
    }
}

#[tokio::test]
async fn statistics_of_a_remote_store_are_fetched_once() {
    let objects = Arc::new(InMemory::new());
    let store = VersionStore::remote(objects.clone());
    let manifest = publish(&store, |_| ()).await;
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().join("deep").to_str().unwrap().to_owned();
    for _ in 0..2 {
        let state = open(&store, "web", None, &cache).await.unwrap();
        assert_eq!(state.statistics.document_frequency("text", "rust"), Some(20));
        // The second time the file is not there any more.
        let file = VersionStore::version_path("web", manifest.version) + "/" + &manifest.statistics.file.path;
        let _already_gone = objects.delete(&file.into()).await;
    }
    assert_eq!(std::fs::read_dir(&cache).unwrap().count(), 1);
}

#[tokio::test]
async fn a_newest_version_that_can_not_be_served_is_passed_over_aloud_and_a_pinned_one_is_not() {
    let (dir, store) = local();
    publish(&store, |_| ()).await;
    publish(&store, |manifest| manifest.version = Version(9)).await;
    let manifest = dir.path().join(VersionStore::version_path("web", Version(9))).join("manifest.json");
    let whole = std::fs::read_to_string(&manifest).unwrap();
    for (text, why) in [
        (String::new(), "not a manifest"),
        (whole.replacen(&format!("\"format\": {FORMAT}"), "\"format\": 99", 1), "has format 99"),
        (whole.replacen("\"documents\": 10", "\"documents\": 11", 1), "damaged"),
    ] {
        std::fs::write(&manifest, &text).unwrap();
        let (versions, gauge) = (Versions::expecting(["web".to_owned()]), gauge());
        keep_until_open(&versions, &store, routing(None), &gauge).await;
        let open = versions.corpus("web").unwrap();
        assert_eq!((open.manifest.version, gauge.get()), (Version(7), 1));
        let passed = versions.passed_over();
        assert_eq!((&passed[0]["corpus"], &passed[0]["version"]), (&json!("web"), &json!(9)));
        assert!(passed[0]["reason"].as_str().unwrap().contains(why), "{passed:?}");
        let pinned = open_version(&store, Some(9)).await;
        assert!(pinned.is_err_and(|error| error.to_string().contains(why)));
        assert_eq!(std::fs::read_to_string(&manifest).unwrap(), text, "it is left as it is");
    }
}

async fn open_version(store: &VersionStore, version: Option<u64>) -> Result<CorpusState> {
    open(store, "web", version.map(Version), "nowhere").await
}

#[tokio::test]
async fn damage_and_foreign_analysis_are_refused_by_name() {
    let (dir, store) = local();
    let manifest = publish(&store, |_| ()).await;
    let version = dir.path().join(VersionStore::version_path("web", manifest.version));
    let file = version.join(&manifest.statistics.file.path);
    let mut bytes = std::fs::read(&file).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let error = open(&store, "web", None, "nowhere").await.err().unwrap();
    assert!(error.to_string().contains("damaged"), "{error}");
    publish(&store, |manifest| {
        manifest.version = Version(8);
        manifest.analysis_id = "other rules".to_owned();
        manifest.schema_id = manifest.schema.id_under("other rules");
    })
    .await;
    let error = open_version(&store, Some(8)).await.err().unwrap();
    assert!(error.to_string().contains("other rules"), "{error}");
}

#[tokio::test]
async fn what_can_not_be_opened_is_tried_again_and_told() {
    let (_dir, store) = local();
    let versions = Versions::expecting(["web".to_owned()]);
    let gauge = gauge();
    let opening = keep_until_open(&versions, &store, routing(None), &gauge);
    let published = async {
        while versions.opening().first().is_some_and(|why| why.contains("being opened")) {
            tokio::task::yield_now().await;
        }
        let error = versions.corpus("web").err().unwrap();
        assert_eq!(error.http_status(), 503, "{error}");
        assert_eq!((versions.opening().len(), versions.pending().len()), (1, 0), "nothing is there to open");
        publish(&store, |_| ()).await;
    };
    soon(async { tokio::join!(opening, published) }).await;
    assert!(versions.corpus("web").is_ok());
}

#[tokio::test]
async fn a_version_that_nobody_trusted_signed_is_told_as_one_that_will_not_open() {
    let (_dir, store) = local();
    publish(&store, |_| ()).await;
    let key = SigningKey::from_seed(&[1; 32]).unwrap().public();
    let store = store.trusting(Trusted::of([key]));
    let versions = Versions::expecting(["web".to_owned()]);
    let (drain, gauge) = (Drain::new(), gauge());
    let opening = Opening { store: &store, cache_dir: "nowhere", drain: &drain, passed_over: &gauge };
    let told = async {
        while versions.hopeless().is_empty() {
            tokio::task::yield_now().await;
        }
        drain.start();
    };
    let routing = routing(Some(7)).into();
    soon(async { tokio::join!(keep(&versions, &routing, opening), told) }).await;
    let (corpus, version, why) = versions.hopeless().remove(0);
    assert_eq!((corpus.as_str(), version), ("web", Version(7)));
    assert!(why.contains("not signed"), "{why}");
}

#[tokio::test]
async fn a_damaged_version_is_told_as_one_that_will_not_open_until_it_is_mended() {
    for file in ["manifest.json", ""] {
        let (dir, store) = local();
        let manifest = publish(&store, |_| ()).await;
        let file = if file.is_empty() { manifest.statistics.file.path.as_str() } else { file };
        let path = dir.path().join(VersionStore::version_path("web", manifest.version)).join(file);
        let whole = std::fs::read(&path).unwrap();
        std::fs::write(&path, vec![b'x'; whole.len()]).unwrap();
        let versions = Versions::expecting(["web".to_owned()]);
        let (drain, gauge) = (Drain::new(), gauge());
        let opening = Opening { store: &store, cache_dir: "nowhere", drain: &drain, passed_over: &gauge };
        let told = async {
            fixture::until("it is told of", || !versions.hopeless().is_empty()).await;
            let (_, version, why) = versions.hopeless().remove(0);
            assert!(version == manifest.version && why.contains("damaged"), "{why}");
            std::fs::write(&path, &whole).unwrap();
            fixture::until("it opens", || versions.hopeless().is_empty()).await;
            assert_eq!(versions.resident().len(), 1);
            drain.start();
        };
        let routing = routing(Some(manifest.version.0)).into();
        soon(async { tokio::join!(keep(&versions, &routing, opening), told) }).await;
    }
}

#[tokio::test]
async fn a_process_that_drains_stops_trying() {
    let (_dir, store) = local();
    let versions = Versions::expecting(["web".to_owned()]);
    let drain = Drain::new();
    drain.start();
    let opening = Opening { store: &store, cache_dir: "nowhere", drain: &drain, passed_over: &gauge() };
    soon(keep(&versions, &routing(None).into(), opening)).await;
    assert_eq!(versions.opening().len(), 1);
}

#[tokio::test]
async fn versions_come_and_go_with_the_snapshot_and_each_query_gets_one() {
    let (_dir, store) = local();
    for version in [7, 9] {
        publish(&store, |manifest| manifest.version = Version(version)).await;
    }
    let snapshot = |epoch, pins: &[(u64, u32)], versions: &[u64]| {
        let pins = pins.iter().map(|(version, share)| Pin { version: Version(*version), share: *share });
        let held = versions.iter().map(|version| (Version(*version), VersionRouting::default()));
        let (pins, versions) = (pins.collect(), held.collect());
        let corpora =
            [("web".to_owned(), CorpusRouting { pins, versions, ..CorpusRouting::default() })].into();
        RoutingSnapshot { epoch: Epoch(epoch), corpora, ..Default::default() }
    };
    let versions = Versions::expecting([]);
    let (routing, drain, gauge) = (Routing::from(RoutingSnapshot::default()), Drain::new(), gauge());
    let opening = Opening { store: &store, cache_dir: "nowhere", drain: &drain, passed_over: &gauge };
    let resident = |wanted: &[u64]| {
        let wanted: Vec<_> = wanted.iter().map(|version| ("web".to_owned(), Version(*version))).collect();
        let versions = &versions;
        async move {
            while versions.resident() != wanted {
                tokio::task::yield_now().await;
            }
        }
    };
    let chosen =
        |choice| versions.choose("web", &routing.now(), choice).map(|state| state.manifest.version.0);
    let told = async {
        assert!(matches!(chosen(Choice::Pinned(0)), Err(Error::NotOpen { .. })), "nothing was heard");
        routing.publish(snapshot(1, &[(7, 10_000)], &[7]));
        resident(&[7]).await;
        routing.publish(snapshot(2, &[(7, 9_900), (9, 100)], &[7, 9]));
        assert_eq!(chosen(Choice::Pinned(9_950)).unwrap(), 7, "9 is not open yet");
        resident(&[7, 9]).await;
        assert_eq!((chosen(Choice::Pinned(5)).unwrap(), chosen(Choice::Pinned(9_950)).unwrap()), (7, 9));
        assert_eq!(chosen(Choice::Named(Version(9))).unwrap(), 9);
        assert_eq!(chosen(Choice::Cursor(Version(7))).unwrap(), 7);
        assert_eq!(versions.corpus("web").unwrap().manifest.version, Version(7));
        routing.publish(snapshot(3, &[(8, 9_900), (9, 100)], &[8, 9]));
        resident(&[9]).await;
        // What most queries get is not there: what is on trial does not take its place.
        assert!(matches!(chosen(Choice::Pinned(5)), Err(Error::NotOpen { .. })));
        assert_eq!((versions.opening().len(), versions.open().len()), (1, 0), "it is not ready");
        routing.publish(snapshot(4, &[(9, 10_000)], &[9]));
        resident(&[9]).await;
        assert!(matches!(chosen(Choice::Cursor(Version(7))), Err(Error::CursorExpired(Version(7)))));
        let error = chosen(Choice::Named(Version(7))).unwrap_err().to_string();
        assert!(error.contains("v7 is not resident here; v9 is"), "{error}");
    };
    soon(async {
        tokio::select! {
            biased;
            () = keep(&versions, &routing, opening) => {}
            () = told => {}
        }
    })
    .await;
}

#[tokio::test]
async fn what_is_kept_of_versions_that_are_gone_goes_and_what_is_damaged_is_fetched_again() {
    let store = VersionStore::remote(Arc::new(InMemory::new()));
    let old = publish(&store, |_| ()).await;
    let new = publish(&store, |manifest| manifest.version = Version(9)).await;
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().to_str().unwrap();
    let store = store.cached_in(cache);
    let state = open(&store, "web", Some(old.version), cache).await.unwrap();
    drop(state);
    let state = open(&store, "web", Some(new.version), cache).await.unwrap();
    for stray in ["web-0000.fst", "web-0000.part", "somebody's.txt"] {
        std::fs::write(dir.path().join(stray), "x").unwrap();
    }
    assert_eq!(cache::sweep(cache, [&state].into_iter()).unwrap(), 3);
    let table = |version| dir.path().join(VersionStore::version_path("web", version)).exists();
    assert!(!table(old.version) && table(new.version) && dir.path().join("somebody's.txt").exists());
    assert_eq!(cache::sweep(cache, [&state].into_iter()).unwrap(), 0);

    let kept = cache::statistics(cache, &new);
    drop(state);
    std::fs::write(&kept, vec![7; new.statistics.file.bytes as usize]).unwrap();
    let error = open(&store, "web", Some(new.version), cache).await.err().unwrap();
    let versions = Versions::expecting(["web".to_owned()]);
    versions.wait("web", Some(new.version), &error);
    assert!(versions.hopeless().is_empty(), "another root may have it whole: {error}");
    assert!(open(&store, "web", Some(new.version), cache).await.is_ok(), "it came anew");
}
