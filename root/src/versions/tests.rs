//! Tests of `versions`: what its module comment promises.

use std::sync::Arc;

use canopy_format::{
    manifest::FORMAT,
    store::{Corpus, Ordering},
};
use canopy_topology::routing::CorpusRouting;
use object_store::{ObjectStoreExt, memory::InMemory};

use super::*;
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
    RoutingSnapshot { corpora: BTreeMap::from([("web".to_owned(), corpus)]), ..Default::default() }
}

#[tokio::test]
async fn the_pinned_or_newest_version_is_opened_in_place() {
    let (_dir, store) = local();
    publish(&store, |_| ()).await;
    publish(&store, |manifest| manifest.version = Version(9)).await;
    for (pinned, expected) in [(None, 9), (Some(7), 7)] {
        let versions = Versions::expecting(["web".to_owned()]);
        assert_eq!(versions.opening().len(), 1);
        let (routing, drain) = (routing(pinned), Drain::new());
        soon(open_all(&versions, &store, &routing, "nowhere", &drain, &gauge())).await;
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
        let (unpinned, drain) = (routing(None), Drain::new());
        soon(open_all(&versions, &store, &unpinned, "nowhere", &drain, &gauge)).await;
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
    let (routing, drain) = (routing(None), Drain::new());
    let gauge = gauge();
    let opening = open_all(&versions, &store, &routing, "nowhere", &drain, &gauge);
    let published = async {
        while versions.opening()[0].contains("being opened") {
            tokio::task::yield_now().await;
        }
        let error = versions.corpus("web").err().unwrap();
        assert_eq!(error.http_status(), 503, "{error}");
        publish(&store, |_| ()).await;
    };
    soon(async { tokio::join!(opening, published) }).await;
    assert!(versions.corpus("web").is_ok());
}

#[tokio::test]
async fn a_process_that_drains_stops_trying() {
    let (_dir, store) = local();
    let versions = Versions::expecting(["web".to_owned()]);
    let drain = Drain::new();
    drain.start();
    open_all(&versions, &store, &routing(None), "nowhere", &drain, &gauge()).await;
    assert_eq!(versions.opening().len(), 1);
}
