//! What every store promises, for S3 as two servers speak it: one in this process, one that others wrote.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use canopy_common::{config::Secret, ids::Version};
use canopy_format::{
    error::Error,
    manifest::{FileEntry, Manifest},
    schema::Schema,
    signature::{SigningKey, Trusted},
    store::{Corpus, Ordering as Order, StoreConfig, VersionStore},
};
use canopy_indexer::publish::{self, PublishRequest};
use canopy_tests::{
    corpus,
    publish::Shelf,
    s3::{Moto, S3, secret},
};
use futures::{StreamExt, TryStreamExt, stream};
use object_store::{ObjectStore, ObjectStoreExt};
use tokio::sync::Notify;

fn store(config: &StoreConfig) -> VersionStore {
    VersionStore::connect(config, false).expect("settings that are sound")
}

fn web() -> Corpus {
    Corpus { name: "web".into(), schema: Schema::web(), partitions: 16, ordering: Order::Log }
}

/// A file of so many bytes, none like its neighbours.
fn file(directory: &Path, bytes: usize) -> PathBuf {
    let path = directory.join(format!("file-{bytes}"));
    let content: Vec<u8> =
        (0..bytes as u64).map(|n| (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect();
    std::fs::write(&path, content).expect("a file");
    path
}

/// `at_once`: the server looks and writes in one step.
async fn numbers_are_claimed_once(at: &StoreConfig, at_once: bool) {
    let first = store(at);
    assert!(matches!(first.corpus("web").await, Err(Error::NoCorpus(_))));
    first.create_corpus(&web()).await.expect("a new corpus");
    assert!(matches!(first.create_corpus(&web()).await, Err(Error::Exists(_))));
    // Each with a client of its own.
    let claims = (0..12).map(|_| {
        let store = store(at);
        tokio::spawn(async move { store.claim("web").await.expect("a number") })
    });
    let mut claimed = Vec::new();
    if at_once {
        for claim in claims.collect::<Vec<_>>() {
            claimed.push(claim.await.expect("a claim"));
        }
    } else {
        for claim in claims {
            claimed.push(claim.await.expect("a claim"));
        }
    }
    claimed.sort_unstable();
    assert_eq!(claimed, (1..=12).map(Version).collect::<Vec<_>>());
    assert_eq!(first.versions("web").await.expect("a list"), []);
    assert!(matches!(first.latest("web").await, Err(Error::NoVersionYet(_))));
}

async fn files_of_any_size_come_back_in_ranges(at: &StoreConfig, directory: &Path) {
    let store = store(at);
    for bytes in [0, 1, 8 << 20, (21 << 20) + 17] {
        let (path, name) = (file(directory, bytes), format!("shards/main-0000/f{bytes}"));
        let entry = store.put_file("web", Version(1), &name, &path).await.expect("an upload");
        assert_eq!(entry, FileEntry::of_file(&path, &name).expect("the file"));
        assert!(store.holds("web", Version(1), &entry).await.expect("an answer"));
        let content = std::fs::read(&path).expect("the file");
        for start in [0, entry.bytes / 2, entry.bytes.saturating_sub(1)] {
            if start < entry.bytes {
                let came =
                    store.read_range("web", Version(1), &entry, start, 1 << 20).await.expect("a range");
                let end = (start as usize + (1 << 20)).min(bytes);
                assert!(came == content[start as usize..end], "{start} of {bytes}");
            }
        }
        let target = directory.join("back");
        store.get_file("web", Version(1), &entry, &target).await.expect("the whole file");
        assert!(std::fs::read(&target).expect("the copy") == content);
        // Other content under the same entry does not become a file.
        let other = FileEntry { blake3: "0".repeat(64), ..entry };
        if bytes > 0 {
            std::fs::remove_file(&target).expect("the copy");
            assert!(store.get_file("web", Version(1), &other, &target).await.is_err() && !target.exists());
        }
    }
}

async fn what_was_sent_in_part_is_not_there(at: &StoreConfig) {
    let store = store(at);
    let path = object_store::path::Path::from(format!(
        "{}/shards/main-0000/half",
        VersionStore::version_path("web", Version(1))
    ));
    let mut upload = store.objects().put_multipart(&path).await.expect("an upload");
    upload.put_part(vec![7; 6 << 20].into()).await.expect("a part");
    let entry = FileEntry { path: "shards/main-0000/half".into(), bytes: 6 << 20, blake3: "0".repeat(64) };
    assert!(!store.holds("web", Version(1), &entry).await.expect("an answer"), "nobody sees it");
    drop(upload);
    assert!(!store.holds("web", Version(1), &entry).await.expect("an answer"));
}

async fn long_lists_are_read_to_their_end(at: &StoreConfig) {
    let store = store(at);
    store.create_corpus(&Corpus { name: "long".into(), ..web() }).await.expect("a corpus");
    // More than one answer of the protocol holds.
    let claims = (1..=1010).map(|number| {
        let path = format!("{}/claim", VersionStore::version_path("long", Version(number)));
        let objects = store.objects().clone();
        async move { objects.put(&path.into(), "claimed\n".into()).await }
    });
    stream::iter(claims).buffer_unordered(16).try_collect::<Vec<_>>().await.expect("1010 objects");
    assert_eq!(store.claim("long").await.expect("the next"), Version(1011));
}

async fn a_version_is_seen_when_its_manifest_is(at: &StoreConfig, shelf: &Shelf) -> (Manifest, Manifest) {
    let (target, from) = (store(at), &shelf.store);
    let request = |version| PublishRequest {
        version: Some(version),
        ..PublishRequest::new(from.clone(), target.clone(), "docs")
    };
    let versions = from.versions("docs").await.expect("versions");
    let manifests =
        [versions[0], versions[1]].map(|version| async move { from.manifest("docs", version).await });
    let [old, new] = manifests;
    let (old, new) = (old.await.expect("v1"), new.await.expect("v2"));
    publish::run(&request(old.version)).await.expect("a copy");
    assert_eq!(target.latest("docs").await.expect("the copy"), old);
    // Broken off after any piece of progress, readers have the old one, whole.
    for after in [1, 3, 6, 10, 15] {
        let (count, stop) = (AtomicU64::new(0), Arc::new(Notify::new()));
        let told = stop.clone();
        let progress = Arc::new(move |_| {
            if count.fetch_add(1, Ordering::SeqCst) + 1 == after {
                told.notify_one();
            }
        });
        let copy = PublishRequest { progress, ..request(new.version) };
        tokio::select! {
            biased;
            () = stop.notified() => {}
            ended = publish::run(&copy) => panic!("it was to be broken off after {after}: {ended:?}"),
        }
        let seen = store(at).to_serve("docs", None).await.expect("a version");
        assert!(seen.manifest == old && seen.passed_over.is_empty());
    }
    let report = publish::run(&request(new.version)).await.expect("the rest");
    assert!(report.sent_bytes < report.bytes, "{report:?}");
    assert_eq!(target.latest("docs").await.expect("the new one"), new);
    assert_eq!(target.versions("docs").await.expect("a list"), [old.version, new.version]);
    assert_eq!(target.verify(&new, &|_| ()).await.expect("an answer"), []);
    assert!(publish::run(&request(new.version)).await.expect("nothing to do").already_there);
    assert!(matches!(target.publish(&new).await, Err(Error::Exists(_))));
    (old, new)
}

async fn damage_is_found_and_removal_is_whole(at: &StoreConfig, old: &Manifest, new: &Manifest) {
    let store = store(at);
    let largest = new.files().max_by_key(|file| file.bytes).expect("a file");
    let path = format!("{}/{}", VersionStore::version_path("docs", new.version), largest.path);
    store.objects().put(&path.into(), vec![0; largest.bytes as usize].into()).await.expect("damage");
    let damaged = store.verify(new, &|_| ()).await.expect("an answer");
    assert_eq!(damaged.into_iter().map(|one| one.file).collect::<Vec<_>>(), std::slice::from_ref(largest));
    assert!(store.remove("docs", new.version).await.is_err(), "the newest stays");
    assert!(store.remove("docs", old.version).await.expect("removed") > 0);
    assert_eq!(store.versions("docs").await.expect("a list"), [new.version]);
    let left = object_store::path::Path::from(VersionStore::version_path("docs", old.version));
    let left: Vec<_> = store.objects().list(Some(&left)).try_collect().await.expect("a list");
    assert!(left.is_empty(), "{left:?}");
}

async fn signatures_stand_beside_manifests(at: &StoreConfig, shelf: &Shelf) {
    let key = |byte| Arc::new(SigningKey::from_seed(&[byte; 32]).expect("a key"));
    let target = store(at);
    target.create_corpus(&Corpus { name: "signed".into(), ..web() }).await.expect("a corpus");
    let trusting = |byte| store(at).trusting(Trusted::of([key(byte).public()]));
    let request = PublishRequest {
        sign: Some(key(1)),
        ..PublishRequest::new(shelf.store.clone(), trusting(1), "books")
    };
    let report = publish::run(&request).await.expect("a signed copy");
    let table = trusting(1).table("books", report.version).await.expect("what is trusted");
    assert_eq!(table.signature.map(|signature| signature.key), Some(key(1).public().id()));
    assert!(matches!(trusting(2).table("books", report.version).await, Err(Error::Untrusted { .. })));
    assert!(trusting(2).to_serve("books", None).await.is_err());
}

/// What is dead and old goes, what may live stays.
async fn abandoned_numbers_are_collected(at: &StoreConfig) {
    let store = store(at);
    let removed = store.remove_abandoned("docs", 0, false).await.expect("an answer");
    assert_eq!(removed, [], "all of it is younger than 1970");
    let path = format!("{}/claim", VersionStore::version_path("docs", Version(1)));
    store.objects().put(&path.into(), "claimed\n".into()).await.expect("a dead claim");
    assert_eq!(store.remove_abandoned("docs", i64::MAX, true).await.expect("an answer"), [(Version(1), 8)]);
    assert_eq!(store.remove_abandoned("docs", i64::MAX, false).await.expect("an answer"), [(Version(1), 8)]);
    assert_eq!(store.remove_abandoned("docs", i64::MAX, false).await.expect("an answer"), []);
}

/// What is refused is told without what must not be told.
async fn a_wrong_key_is_an_error_that_keeps_the_secret(at: &StoreConfig) {
    let wrong = StoreConfig { access_key: Secret::new("nobody"), ..at.clone() };
    let error = store(&wrong).corpus("web").await.expect_err("a refusal");
    assert!(error.is_away(), "a refusal says nothing of the version: {error}");
    let shown = format!("{error} {error:?} {wrong:?}");
    assert!(!shown.contains(secret()), "{shown}");
}

async fn holds(at: &StoreConfig, at_once: bool) {
    let shelf = Shelf::new();
    let schema = Schema::web();
    shelf.publish("docs", &schema, 2, &corpus::generate(3, 60)).await;
    let more = corpus::write(
        &shelf.dir().join("more.jsonl"),
        &corpus::generate(4, 80).iter().map(corpus::Page::record).collect::<Vec<_>>(),
    );
    shelf.build("docs", 2, vec![more]).await;
    shelf.publish("books", &schema, 1, &corpus::generate(5, 20)).await;
    numbers_are_claimed_once(at, at_once).await;
    files_of_any_size_come_back_in_ranges(at, shelf.dir()).await;
    what_was_sent_in_part_is_not_there(at).await;
    long_lists_are_read_to_their_end(at).await;
    let (old, new) = a_version_is_seen_when_its_manifest_is(at, &shelf).await;
    damage_is_found_and_removal_is_whole(at, &old, &new).await;
    abandoned_numbers_are_collected(at).await;
    signatures_stand_beside_manifests(at, &shelf).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_in_this_process_keeps_the_contract() {
    let server = S3::start().await;
    let at = server.config("deep/er");
    holds(&at, true).await;
    a_wrong_key_is_an_error_that_keeps_the_secret(&at).await;
    let mut server = server;
    server.go_away().await;
    let away = store(&at).corpus("web").await.expect_err("it is away");
    assert!(away.is_away() && !away.to_string().contains(secret()), "{away}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_program_keeps_the_contract() {
    let server = Moto::start().await;
    holds(&server.config("deep/er"), false).await;
}
