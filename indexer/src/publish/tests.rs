//! Copies between stores: whole, broken off at every step, refused.

use std::{
    fs, future,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering as Atomic},
};

use canopy_format::{
    schema::Schema,
    signature::Trusted,
    store::{Corpus, Ordering as Order, hooked::Hooked},
};
use object_store::{
    Error as StoreError, ObjectMeta, ObjectStore, ObjectStoreExt, memory::InMemory, path::Path,
};

use super::*;
use crate::build::{self, BuildRequest};

mod turns;

/// A local store with the corpus `web`.
struct Source {
    store: VersionStore,
    directory: tempfile::TempDir,
}

impl Source {
    async fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let store = VersionStore::open(&directory.path().join("store").to_string_lossy(), true).unwrap();
        let corpus =
            Corpus { name: "web".into(), schema: Schema::web(), partitions: 4, ordering: Order::Log };
        store.create_corpus(&corpus).await.unwrap();
        Self { store, directory }
    }

    /// Builds the next version of so many documents.
    async fn build(&self, documents: usize) -> Manifest {
        let input = self.directory.path().join("pages.jsonl");
        let page = |n| {
            format!(
                "{{\"url\": \"https://example.org/{n}\", \"title\": \"page {n}\", \"body\": \"red fox {n}\"}}\n"
            )
        };
        fs::write(&input, (0..documents).map(page).collect::<String>()).unwrap();
        let request = BuildRequest {
            shards: Some(2),
            memory: build::MIN_MEMORY,
            force: documents == 0,
            ..BuildRequest::new(self.store.clone(), "web", vec![input])
        };
        build::run(request).await.unwrap();
        self.store.latest("web").await.unwrap()
    }

    fn path(&self, version: Version, path: &str) -> PathBuf {
        self.store.version_dir("web", version).unwrap().join(path)
    }

    fn to(&self, to: &VersionStore) -> PublishRequest {
        PublishRequest::new(self.store.clone(), to.clone(), "web")
    }
}

fn memory() -> (Arc<InMemory>, VersionStore) {
    let objects = Arc::new(InMemory::new());
    (objects.clone(), VersionStore::remote(objects))
}

fn why(result: Result<PublishReport>) -> String {
    result.unwrap_err().to_string()
}

/// A store that dies after so many calls: nothing answers any more.
fn dying(inner: &Arc<InMemory>, calls: u64) -> VersionStore {
    let left = AtomicU64::new(calls);
    VersionStore::remote(Arc::new(Hooked::new(inner.clone(), move |_, _| {
        let alive = left.fetch_update(Atomic::SeqCst, Atomic::SeqCst, |left| left.checked_sub(1)).is_ok();
        let dead = || StoreError::Generic { store: "dying", source: "the publisher died".into() };
        future::ready(if alive { Ok(()) } else { Err(dead()) })
    })))
}

#[tokio::test]
async fn a_publisher_that_dies_between_any_two_steps_leaves_readers_with_the_old_and_goes_on_later() {
    let source = Source::new().await;
    let old = source.build(30).await;
    let (_, first) = memory();
    run(&source.to(&first)).await.unwrap();
    let new = source.build(40).await;
    for calls in 0.. {
        let (objects, readers) = memory();
        run(&PublishRequest { version: Some(old.version), ..source.to(&readers) }).await.unwrap();
        let ended = run(&source.to(&dying(&objects, calls))).await;
        let seen = readers.to_serve("web", None).await.unwrap();
        assert!(seen.passed_over.is_empty());
        if ended.is_ok() {
            assert_eq!(seen.manifest, new);
            assert!(calls > 20, "{calls}");
            return;
        }
        // The last call is the manifest's: whoever dies after it has published.
        let published = seen.manifest == new;
        assert!(published || seen.manifest == old, "call {calls}");
        assert_eq!(readers.verify(&seen.manifest, &|_| ()).await.unwrap(), []);
        let again = run(&source.to(&readers)).await.unwrap();
        assert_eq!((again.version, again.already_there), (new.version, published), "call {calls}");
        assert_eq!(readers.latest("web").await.unwrap(), new);
        assert_eq!(readers.verify(&new, &|_| ()).await.unwrap(), []);
    }
}

#[tokio::test]
async fn a_copy_goes_on_where_it_ended_and_mends_what_is_damaged() {
    let source = Source::new().await;
    let manifest = source.build(50).await;
    let (objects, target) = memory();
    assert!(run(&source.to(&dying(&objects, 24))).await.is_err());
    assert_eq!(target.versions("web").await.unwrap(), []);
    // One of the files that came is damaged since.
    let came: Vec<ObjectMeta> = objects.list(None).try_collect().await.unwrap();
    let broken = came.iter().find(|object| object.location.as_ref().contains("shards/")).unwrap();
    objects.put(&broken.location, vec![7; broken.size as usize].into()).await.unwrap();
    let report = run(&source.to(&target)).await.unwrap();
    assert!(report.sent_bytes < report.bytes && report.sent_bytes > 0, "{report:?}");
    assert_eq!(target.verify(&manifest, &|_| ()).await.unwrap(), []);
    let again = run(&source.to(&target)).await.unwrap();
    assert!(again.already_there && again.sent_bytes == 0);
}

#[tokio::test]
async fn what_is_not_whole_or_does_not_belong_is_refused_by_name() {
    let source = Source::new().await;
    let manifest = source.build(40).await;
    let (version, file) = (manifest.version, &manifest.shards[1].files[0]);
    let (_, target) = memory();
    let path = source.path(version, &file.path);
    let whole = fs::read(&path).unwrap();

    fs::write(&path, &whole[1..]).unwrap();
    let half = why(run(&source.to(&target)).await);
    assert!(half.contains(&file.path) && half.contains("nothing was published"), "{half}");
    fs::remove_file(&path).unwrap();
    assert!(why(run(&source.to(&target)).await).contains("missing"));
    let mut other = whole.clone();
    other[0] ^= 1;
    fs::write(&path, other).unwrap();
    let wrong = why(run(&source.to(&target)).await);
    assert!(wrong.contains(&file.path) && wrong.contains("BLAKE3"), "{wrong}");
    fs::write(&path, &whole).unwrap();
    assert_eq!(target.versions("web").await.unwrap(), []);

    // Another schema.
    let mut schema = Schema::web();
    schema.fields[1].weight += 1;
    target.set_schema("web", schema).await.unwrap();
    let refused = why(run(&source.to(&target)).await);
    assert!(refused.contains("schema") && refused.contains("set-schema"), "{refused}");
    target.set_schema("web", Schema::web()).await.unwrap();
    run(&source.to(&target)).await.unwrap();

    // A newer format.
    let json = source.path(version, "manifest.json");
    let text = fs::read_to_string(&json).unwrap();
    fs::write(&json, text.replacen("\"format\": 3", "\"format\": 99", 1)).unwrap();
    let newer = why(run(&PublishRequest { version: Some(version), ..source.to(&target) }).await);
    assert!(newer.contains("format 99") && newer.contains("upgrade"), "{newer}");
    fs::write(&json, text).unwrap();

    // Fewer than half, and none at all.
    let few = BuildRequest { force: true, ..few(&source, 10) };
    build::run(few).await.unwrap();
    let shrunken = why(run(&source.to(&target)).await);
    assert!(shrunken.contains("10 documents are fewer than half of the 40"), "{shrunken}");
    let (_, other) = memory();
    source.build(0).await;
    assert!(why(run(&source.to(&other)).await).contains("holds no document"));
    assert!(run(&PublishRequest { force: true, ..source.to(&other) }).await.is_ok());
    assert!(
        why(run(&PublishRequest { version: Some(Version(99)), ..source.to(&target) }).await)
            .contains("no v99")
    );
}

fn few(source: &Source, documents: usize) -> BuildRequest {
    let input = source.directory.path().join("few.jsonl");
    let page = |n| format!("{{\"url\": \"https://example.org/{n}\", \"title\": \"t\", \"body\": \"b\"}}\n");
    fs::write(&input, (0..documents).map(page).collect::<Vec<_>>().concat()).unwrap();
    BuildRequest { memory: build::MIN_MEMORY, ..BuildRequest::new(source.store.clone(), "web", vec![input]) }
}

#[tokio::test]
async fn a_number_is_kept_or_taken_anew_and_never_used_for_two() {
    let source = Source::new().await;
    let first = source.build(30).await;
    let second = source.build(31).await;
    let (_, target) = memory();
    let newest = run(&source.to(&target)).await.unwrap();
    assert_eq!(newest.version, second.version);
    let older = PublishRequest { version: Some(first.version), ..source.to(&target) };
    let taken = why(run(&older).await);
    assert!(taken.contains("in use there") && taken.contains("--renumber"), "{taken}");
    let older = PublishRequest { renumber: true, ..older };
    let anew = run(&older).await.unwrap();
    assert_eq!((anew.source, anew.version), (first.version, Version(3)));
    let manifest = target.latest("web").await.unwrap();
    assert_eq!((manifest.parent, manifest.documents()), (Some(second.version), 30));
    // Another store's number 2.
    let other = Source::new().await;
    other.build(30).await;
    let theirs = other.build(30).await;
    let (_, shared) = memory();
    run(&source.to(&shared)).await.unwrap();
    let refused = PublishRequest { version: Some(theirs.version), ..other.to(&shared) };
    assert!(why(run(&refused).await).contains("another v2"));
    // A build has claimed it.
    let (_, claimed) = memory();
    run(&PublishRequest { version: Some(first.version), ..source.to(&claimed) }).await.unwrap();
    assert_eq!(claimed.claim("web").await.unwrap(), Version(2));
    assert!(why(run(&source.to(&claimed)).await).contains("claimed there by somebody else"));
}

#[tokio::test]
async fn into_a_directory_beside_builds_and_out_of_it_again() {
    let source = Source::new().await;
    let manifest = source.build(30).await;
    let target = Source::new().await;
    // A copy that died there: half a file, and a build that cleans up after the dead.
    target.store.claim_as("web", manifest.version, "copy of nothing").await.unwrap();
    target.build(20).await;
    let place = tempfile::tempdir().unwrap();
    let empty = VersionStore::open(&place.path().to_string_lossy(), true).unwrap();
    run(&source.to(&empty)).await.unwrap();
    let directory = empty.version_dir("web", manifest.version).unwrap();
    assert!(!directory.join("work").exists());
    assert!(crate::verify::verify(&empty, "web", None, &|_| ()).await.unwrap().sound());
    let (_, remote) = memory();
    let back = PublishRequest::new(empty, remote.clone(), "web");
    run(&back).await.unwrap();
    assert_eq!(remote.latest("web").await.unwrap(), manifest);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_that_publish_one_version_each_finds_it_published() {
    let source = Source::new().await;
    let first = source.build(20).await;
    let directory = tempfile::tempdir().unwrap();
    let local = VersionStore::open(&directory.path().to_string_lossy(), true).unwrap();
    let (_, remote) = memory();
    for target in [local, remote] {
        let requests: Vec<_> = (0..6).map(|_| source.to(&target)).collect();
        let ended = futures::future::join_all(requests.iter().map(run)).await;
        for report in ended {
            assert_eq!(report.unwrap().version, first.version);
        }
        // Another one of that number was published meanwhile: that is said.
        let other = Source::new().await;
        other.build(30).await;
        assert!(why(run(&other.to(&target)).await).contains("another v1"));
    }
}

#[tokio::test]
async fn signatures_go_along_and_what_readers_would_not_take_is_not_published() {
    let source = Source::new().await;
    let manifest = source.build(30).await;
    let key = |byte| Arc::new(SigningKey::from_seed(&[byte; 32]).unwrap());
    let trusting = |store: VersionStore, byte| store.trusting(Trusted::of([key(byte).public()]));
    let (objects, plain) = memory();
    let target = trusting(VersionStore::remote(objects), 1);
    let unsigned = why(run(&source.to(&target)).await);
    assert!(unsigned.contains("sign-key") && unsigned.contains("not signed"), "{unsigned}");
    let foreign = why(run(&PublishRequest { sign: Some(key(2)), ..source.to(&target) }).await);
    assert!(foreign.contains("is signed by key"), "{foreign}");
    assert_eq!(plain.versions("web").await.unwrap(), []);
    let report = run(&PublishRequest { sign: Some(key(1)), ..source.to(&target) }).await.unwrap();
    assert_eq!(report.signed_by, Some(key(1).public().id()));
    assert_eq!(target.latest("web").await.unwrap(), manifest);
    // A reader with another key takes nothing of it, and says so.
    let other = trusting(plain.clone(), 3);
    let refused = other.to_serve("web", None).await.unwrap_err();
    assert!(refused.to_string().contains("is not trusted"), "{refused}");
    // On to a third store: the signature goes along, unless the manifest changes.
    let (objects, _) = memory();
    let third = trusting(VersionStore::remote(objects), 1);
    let onward = PublishRequest::new(target.clone(), third.clone(), "web");
    assert_eq!(run(&onward).await.unwrap().signed_by, report.signed_by);
    let warmer = PublishRequest { warmup: Some(vec!["red fox".into()]), renumber: true, ..onward };
    assert!(why(run(&warmer).await).contains("does not hold any more"));
    let warmer = PublishRequest { sign: Some(key(1)), ..warmer };
    assert_eq!(run(&warmer).await.unwrap().version, Version(2));
    assert_eq!(third.latest("web").await.unwrap().warmup, ["red fox"]);
}

#[tokio::test]
async fn keys_are_exchanged_and_what_nobody_signed_yet_is_signed_where_readers_want_it() {
    let source = Source::new().await;
    source.build(30).await;
    let key = |byte| Arc::new(SigningKey::from_seed(&[byte; 32]).unwrap());
    let (objects, plain) = memory();
    let trusting = |store: &VersionStore, byte| store.clone().trusting(Trusted::of([key(byte).public()]));
    // One configuration for both sides, as a command with one file has it.
    let sign = |from: &VersionStore, byte| {
        let (from, to) = (trusting(from, byte), trusting(&VersionStore::remote(objects.clone()), byte));
        PublishRequest::new(from, to, "web").signing(Some(key(byte)))
    };
    let first = run(&sign(&source.store, 1)).await.unwrap();
    assert_eq!((first.signed_by, first.already_there), (Some(key(1).public().id()), false));
    assert!(!run(&sign(&source.store, 1)).await.unwrap().signed_anew, "there is nothing to do");
    // The next key: over what the first one signed, from elsewhere or in its place.
    for (from, byte) in [(&source.store, 2), (&plain, 3)] {
        let again = run(&sign(from, byte)).await.unwrap();
        assert_eq!((again.signed_by, again.signed_anew), (Some(key(byte).public().id()), true));
        assert!(trusting(&plain, byte).latest("web").await.is_ok());
        assert!(trusting(&plain, byte - 1).latest("web").await.is_err());
    }
    // A key that its readers do not take changes nothing.
    let foreign = PublishRequest { to: trusting(&plain, 3), ..sign(&source.store, 9) };
    assert!(why(run(&foreign).await).contains("is signed by key"));
    assert!(trusting(&plain, 3).latest("web").await.is_ok());
}
