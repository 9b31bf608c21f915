//! Tests of `store`: what its module comment promises.

use std::{
    fs,
    sync::atomic::{AtomicU64, Ordering as Atomic},
};

use canopy_common::collections::HashSet;
use object_store::memory::InMemory;

use super::*;
use crate::manifest::{FORMAT, tests::example};

fn corpus(name: &str) -> Corpus {
    Corpus { name: name.into(), schema: Schema::web(), partitions: 4, ordering: Ordering::Log }
}

struct Local {
    store: VersionStore,
    directory: tempfile::TempDir,
}

async fn local() -> Local {
    let directory = tempfile::tempdir().unwrap();
    let store = VersionStore::open(&directory.path().join("store").display().to_string(), true).unwrap();
    store.create_corpus(&corpus("web")).await.unwrap();
    Local { store, directory }
}

impl Local {
    /// Claims a version, puts all files of the example manifest and returns it, unpublished.
    async fn built(&self) -> Manifest {
        let version = self.store.claim("web").await.unwrap();
        self.built_as(version).await
    }

    /// The same as this build would serve it.
    async fn servable(&self) -> Manifest {
        let mut manifest = self.built().await;
        manifest.analysis_id = crate::analysis::Analyzer::id().to_owned();
        manifest.schema_id = manifest.schema.id();
        manifest
    }

    async fn built_as(&self, version: Version) -> Manifest {
        let mut manifest = example("web", version.0);
        for (i, entry) in files_mut(&mut manifest).enumerate() {
            let source = self.directory.path().join("source");
            fs::write(&source, vec![i as u8; entry.bytes as usize]).unwrap();
            *entry = self.store.put_file("web", version, &entry.path, &source).await.unwrap();
            assert!(self.store.local().is_none() || !source.exists(), "moved");
        }
        manifest
    }

    fn path(&self, manifest: &Manifest, path: &str) -> PathBuf {
        self.store.version_dir("web", manifest.version).unwrap().join(path)
    }
}

fn files_mut(manifest: &mut Manifest) -> impl Iterator<Item = &mut crate::manifest::FileEntry> {
    std::iter::once(&mut manifest.statistics.file)
        .chain(manifest.shards.iter_mut().flat_map(|shard| &mut shard.files))
}

#[tokio::test]
async fn corpora_are_created_once_listed_and_changed() {
    let Local { store, directory } = local().await;
    store.create_corpus(&corpus("books")).await.unwrap();
    let again = store.create_corpus(&corpus("web")).await.unwrap_err();
    assert_eq!(again.to_string(), "corpus web exists already");
    let names: Vec<_> = store.corpora().await.unwrap().into_iter().map(|corpus| corpus.name).collect();
    assert_eq!(names, ["books", "web"]);

    let mut schema = Schema::web();
    schema.fields[1].weight = 4;
    store.set_schema("web", schema.clone()).await.unwrap();
    assert_eq!(store.corpus("web").await.unwrap(), Corpus { schema, ..corpus("web") });
    assert!(matches!(store.set_schema("none", Schema::web()).await, Err(Error::NoCorpus(_))));
    let broken = Schema { fields: vec![], ..Schema::web() };
    assert!(matches!(store.set_schema("web", broken).await, Err(Error::Schema(_))));

    for name in ["", "..", "a/b", "../x", "Web", "a b"] {
        assert!(matches!(store.corpus(name).await, Err(Error::Invalid { field: "corpus", .. })), "{name}");
        assert!(store.create_corpus(&corpus(name)).await.is_err(), "{name}");
        assert!(store.versions(name).await.is_err() && store.claim(name).await.is_err(), "{name}");
        assert!(store.manifest(name, Version(1)).await.is_err(), "{name}");
    }
    for partitions in [0, 1025] {
        let refused = store.create_corpus(&Corpus { partitions, ..corpus("x") }).await.unwrap_err();
        assert!(refused.to_string().contains("1 to 1024"), "{refused}");
    }
    let file = directory.path().join("store/corpora/books/corpus.json");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("\"books\"", "\"web\"")).unwrap();
    assert!(matches!(store.corpus("books").await, Err(Error::Damaged { .. })));
    fs::write(&file, "{").unwrap();
    assert!(matches!(store.corpora().await, Err(Error::Damaged { .. })));
}

#[tokio::test]
async fn a_store_must_exist_unless_it_is_created() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("none");
    assert!(matches!(VersionStore::open(&path.display().to_string(), false), Err(Error::Io { .. })));
    assert!(VersionStore::open(&format!("file://{}", path.display()), true).is_ok());
    assert!(VersionStore::open(&path.display().to_string(), false).is_ok());
    fs::write(path.join("file"), "").unwrap();
    assert!(VersionStore::open(&path.join("file").display().to_string(), false).is_err());
    assert!(VersionStore::open("gs://bucket/x", true).is_err());
}

#[tokio::test]
async fn claims_never_collide() {
    let Local { store, directory: _kept } = local().await;
    let claims = (0..24).map(|_| {
        let store = store.clone();
        tokio::spawn(async move { store.claim("web").await.unwrap() })
    });
    let mut seen = HashSet::default();
    for claim in claims.collect::<Vec<_>>() {
        assert!(seen.insert(claim.await.unwrap()));
    }
    assert_eq!(seen.len(), 24);
    assert_eq!(store.versions("web").await.unwrap(), []);
    assert!(matches!(store.latest("web").await, Err(Error::NoVersionYet(_))));
    assert!(matches!(store.claim("none").await, Err(Error::NoCorpus(_))));
}

#[tokio::test]
async fn a_version_shows_only_with_its_manifest() {
    let local = local().await;
    let manifest = local.built().await;
    assert_eq!(local.store.versions("web").await.unwrap(), []);
    assert!(matches!(local.store.manifest("web", Version(1)).await, Err(Error::NoVersion { .. })));
    local.store.publish(&manifest).await.unwrap();
    assert_eq!(local.store.versions("web").await.unwrap(), [Version(1)]);
    assert_eq!(local.store.latest("web").await.unwrap(), manifest);
    assert_eq!(local.store.publish(&manifest).await.unwrap_err().to_string(), "web v1 exists already");

    let source = local.directory.path().join("source");
    fs::write(&source, "late").unwrap();
    let late = local.store.put_file("web", Version(1), "shards/main-0000/x", &source).await;
    assert!(matches!(late, Err(Error::Exists(_))) && source.exists());

    let abandoned = local.store.claim("web").await.unwrap();
    let third = local.built().await;
    local.store.publish(&third).await.unwrap();
    assert_eq!((abandoned, third.version), (Version(2), Version(3)));
    assert_eq!(local.store.versions("web").await.unwrap(), [Version(1), Version(3)]);
    assert_eq!(local.store.latest("web").await.unwrap().version, Version(3));
}

#[tokio::test]
async fn what_is_not_whole_is_not_published() {
    let local = local().await;
    let manifest = local.built().await;
    let unclaimed = Manifest { version: Version(9), ..manifest.clone() };
    assert!(local.store.publish(&unclaimed).await.unwrap_err().to_string().contains("never claimed"));
    let mut wrong = manifest.clone();
    wrong.statistics.documents += 1;
    assert!(local.store.publish(&wrong).await.is_err());
    let file = local.path(&manifest, "shards/main-0001/segment.idx");
    fs::write(&file, "short").unwrap();
    assert!(local.store.publish(&manifest).await.unwrap_err().to_string().contains("5 bytes"));
    fs::remove_file(&file).unwrap();
    assert!(local.store.publish(&manifest).await.unwrap_err().to_string().contains("missing"));
    assert_eq!(local.store.versions("web").await.unwrap(), []);

    let source = local.directory.path().join("source");
    fs::write(&source, "x").unwrap();
    for path in ["../x", "/x", "manifest.json", "claim", "a/../b", ""] {
        let refused = local.store.put_file("web", Version(1), path, &source).await;
        assert!(matches!(refused, Err(Error::Invalid { field: "path", .. })), "{path}");
    }
    let missing = local.directory.path().join("none");
    assert!(local.store.put_file("web", Version(1), "shards/x", &missing).await.is_err());
}

async fn damaged(store: &VersionStore, manifest: &Manifest) -> Vec<crate::manifest::FileEntry> {
    store.verify(manifest, &|_| ()).await.unwrap().into_iter().map(|damaged| damaged.file).collect()
}

#[tokio::test]
async fn verify_finds_any_changed_byte_and_missing_file() {
    let local = local().await;
    let manifest = local.built().await;
    local.store.publish(&manifest).await.unwrap();
    let read = AtomicU64::new(0);
    let count = |bytes| {
        read.fetch_add(bytes, Atomic::SeqCst);
    };
    assert_eq!(local.store.verify(&manifest, &count).await.unwrap(), []);
    assert_eq!(read.into_inner(), manifest.files().map(|file| file.bytes).sum::<u64>());

    for (i, entry) in manifest.files().enumerate() {
        let path = local.path(&manifest, &entry.path);
        let good = fs::read(&path).unwrap();
        for at in [0, good.len() / 2, good.len() - 1] {
            let mut bad = good.clone();
            bad[at] ^= 1 << (i % 8);
            fs::write(&path, bad).unwrap();
            assert_eq!(damaged(&local.store, &manifest).await, std::slice::from_ref(entry));
        }
        fs::write(&path, &good[1..]).unwrap();
        assert_eq!(damaged(&local.store, &manifest).await, std::slice::from_ref(entry));
        fs::remove_file(&path).unwrap();
        assert_eq!(damaged(&local.store, &manifest).await, std::slice::from_ref(entry));
        fs::write(&path, good).unwrap();
    }
    assert_eq!(local.store.verify(&manifest, &|_| ()).await.unwrap(), []);
}

#[tokio::test]
async fn a_manifest_in_the_wrong_place_is_refused() {
    let local = local().await;
    let manifest = local.built().await;
    local.store.publish(&manifest).await.unwrap();
    let json = local.path(&manifest, MANIFEST);
    let other = local.store.version_dir("web", Version(7)).unwrap();
    fs::create_dir_all(&other).unwrap();
    fs::copy(&json, other.join(MANIFEST)).unwrap();
    let refused = local.store.latest("web").await.unwrap_err().to_string();
    assert!(refused.contains("it is the manifest of web v1"), "{refused}");
    assert_eq!(local.store.claim("web").await.unwrap(), Version(8));
    let newer =
        fs::read_to_string(&json).unwrap().replacen(&format!("\"format\": {FORMAT}"), "\"format\": 99", 1);
    fs::write(&json, newer).unwrap();
    assert!(matches!(local.store.manifest("web", Version(1)).await, Err(Error::NewerFormat { .. })));
}

#[tokio::test]
async fn a_remote_store_works_the_same() {
    let directory = tempfile::tempdir().unwrap();
    let store = VersionStore::remote(Arc::new(InMemory::new()));
    assert!(store.version_dir("web", Version(1)).is_none());
    store.create_corpus(&corpus("web")).await.unwrap();
    assert!(store.create_corpus(&corpus("web")).await.is_err());
    let remote = Local { store, directory };
    let manifest = remote.built().await;
    remote.store.publish(&manifest).await.unwrap();
    assert!(remote.store.publish(&manifest).await.is_err());
    assert_eq!(remote.store.latest("web").await.unwrap(), manifest);
    assert_eq!(remote.store.verify(&manifest, &|_| ()).await.unwrap(), []);
    assert_eq!(remote.store.claim("web").await.unwrap(), Version(2));

    let big = remote.directory.path().join("big");
    fs::write(&big, vec![7; 20_000_001]).unwrap();
    let sent = remote.store.put_file("web", Version(2), "shards/big", &big).await.unwrap();
    assert_eq!(sent, crate::manifest::FileEntry::of_file(&big, "shards/big").unwrap());
    let object = remote.store.objects().get(&object("web", Version(2), "shards/big")).await.unwrap();
    sent.check_bytes(&object.bytes().await.unwrap()).unwrap();
}

#[tokio::test]
async fn what_is_at_fault_is_passed_over_by_name_and_what_is_away_is_not() {
    let local = local().await;
    for _ in 0..4 {
        let mut manifest = local.built().await;
        manifest.analysis_id = crate::analysis::Analyzer::id().to_owned();
        manifest.schema_id = manifest.schema.id();
        local.store.publish(&manifest).await.unwrap();
    }
    let store = &local.store;
    let json = |version: u64| store.version_dir("web", Version(version)).unwrap().join(MANIFEST);
    let text = fs::read_to_string(json(3)).unwrap();
    fs::write(json(4), "garbage").unwrap();
    fs::write(json(3), text.replacen(&format!("\"format\": {FORMAT}"), "\"format\": 99", 1)).unwrap();
    let statistics = store.version_dir("web", Version(2)).unwrap().join(crate::statistics::FILE);
    fs::write(&statistics, "short").unwrap();

    let served = store.to_serve("web", None).await.unwrap();
    assert_eq!(served.manifest.version, Version(1));
    let passed: Vec<_> = served.passed_over.iter().map(|passed| passed.version.0).collect();
    assert_eq!(passed, [4, 3, 2]);
    let whys = ["it is not a manifest", "has format 99", "it has 5 bytes"];
    for (passed, why) in served.passed_over.iter().zip(whys) {
        assert!(passed.reason.contains(why), "{passed:?}");
    }
    assert_eq!(store.to_build_on("web").await.unwrap().manifest.version, Version(2));
    for (pinned, why) in (2..=4).rev().zip(whys) {
        let refused = store.to_serve("web", Some(Version(pinned))).await.unwrap_err();
        assert!(refused.of_the_version() && refused.to_string().contains(why), "{refused}");
    }
    assert_eq!(store.claim("web").await.unwrap(), Version(5), "above the highest seen");

    // Nothing left: the newest says why.
    fs::remove_file(json(2)).unwrap();
    fs::remove_file(json(1)).unwrap();
    assert!(store.to_serve("web", None).await.unwrap_err().to_string().contains("not a manifest"));
    fs::remove_file(json(4)).unwrap();
    fs::remove_file(json(3)).unwrap();
    assert!(matches!(store.to_serve("web", None).await, Err(Error::NoVersionYet(_))));
}

#[tokio::test]
async fn a_removed_version_is_gone_and_its_number_is_not_given_again() {
    let local = local().await;
    for _ in 0..3 {
        let manifest = local.built().await;
        local.store.publish(&manifest).await.unwrap();
    }
    let bytes = local.store.remove("web", Version(1)).await.unwrap();
    assert!(bytes > 0);
    assert_eq!(local.store.versions("web").await.unwrap(), [Version(2), Version(3)]);
    assert!(!local.store.version_dir("web", Version(1)).unwrap().exists());
    assert_eq!(local.store.remove("web", Version(1)).await.unwrap(), 0, "removed twice is removed");
    for newest in [3, 4] {
        let refused = local.store.remove("web", Version(newest)).await;
        assert!(matches!(refused, Err(Error::Invalid { field: "version", .. })), "{refused:?}");
    }
    // What a removal that was broken off leaves: no manifest, some files.
    fs::remove_file(local.store.version_dir("web", Version(2)).unwrap().join("manifest.json")).unwrap();
    assert_eq!(local.store.versions("web").await.unwrap(), [Version(3)]);
    assert!(local.store.remove("web", Version(2)).await.unwrap() > 0);
    assert_eq!(local.store.claim("web").await.unwrap(), Version(4));
}

#[tokio::test]
async fn the_newest_published_version_stays_while_a_build_has_claimed_a_higher_number() {
    let local = local().await;
    for _ in 0..2 {
        let manifest = local.built().await;
        local.store.publish(&manifest).await.unwrap();
    }
    assert_eq!(local.store.claim("web").await.unwrap(), Version(3));
    for stays in [2, 3, 4] {
        let refused = local.store.remove("web", Version(stays)).await;
        assert!(matches!(refused, Err(Error::Invalid { field: "version", .. })), "{stays}: {refused:?}");
    }
    local.store.remove("web", Version(1)).await.unwrap();
    // The build fails and gives its number back: the next one gets that one, and never the number of a version that was.
    fs::remove_dir_all(local.store.version_dir("web", Version(3)).unwrap()).unwrap();
    assert_eq!(local.store.claim("web").await.unwrap(), Version(3));
    assert_eq!(local.store.versions("web").await.unwrap(), [Version(2)]);
}

#[tokio::test]
async fn a_file_that_is_missing_or_short_is_damage_and_not_a_store_that_is_away() {
    let local = local().await;
    let manifest = local.built().await;
    let file = manifest.statistics.file.clone();
    let distant = local.store.at_a_distance();
    let read = |start| distant.read_range("web", manifest.version, &file, start, 1 << 20);
    let whole = read(0).await.unwrap();
    assert_eq!(whole.len() as u64, file.bytes);
    let path = local.path(&manifest, &file.path);
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let damaged = |error: Error, why: &str| {
        assert!(matches!(&error, Error::Damaged { reason, .. } if reason.contains(why)), "{error:?}");
    };
    damaged(read(file.bytes - 1).await.unwrap_err(), "it ends before byte");
    fs::remove_file(&path).unwrap();
    damaged(read(0).await.unwrap_err(), "it is missing");
}

#[tokio::test]
async fn a_directory_that_is_not_mounted_is_a_store_that_is_away() {
    let local = local().await;
    let manifest = local.servable().await;
    local.store.publish(&manifest).await.unwrap();
    let (file, version) = (manifest.statistics.file.clone(), manifest.version);
    let cache = tempfile::tempdir().unwrap();
    let distant = local.store.at_a_distance().cached_in(cache.path().to_str().unwrap());
    distant.to_serve("web", Some(version)).await.unwrap();
    let mounted = local.store.local().unwrap().join("corpora");
    fs::rename(&mounted, cache.path().join("away")).unwrap();
    let error = distant.read_range("web", version, &file, 0, 1 << 20).await.unwrap_err();
    assert!(error.is_away() && error.to_string().contains("is it mounted?"), "{error}");
    assert!(distant.fault("web", version).await.unwrap_err().is_away(), "it says nothing of the version");
    for version in [Some(version), None] {
        let found = distant.to_serve("web", version).await.unwrap();
        assert_eq!(found.manifest.version, manifest.version, "by what is kept");
    }
    fs::rename(cache.path().join("away"), &mounted).unwrap();
    assert!(distant.fault("web", version).await.unwrap().is_none());
    // One that never held anything has no such corpus; who keeps nothing is told so.
    let empty = VersionStore::open(cache.path().join("new").to_str().unwrap(), true).unwrap();
    assert!(matches!(empty.corpus("web").await.unwrap_err(), Error::NoCorpus(_)));
}

/// A store that nothing listens for.
fn away() -> VersionStore {
    let config = StoreConfig {
        endpoint: "http://127.0.0.1:9".into(),
        allow_http: true,
        access_key: canopy_common::config::Secret::new("a"),
        secret_key: canopy_common::config::Secret::new("hush-hush"),
        retries: 0,
        ..StoreConfig::at("s3://bucket/x")
    };
    VersionStore::connect(&config, false).unwrap()
}

#[tokio::test]
async fn a_kept_table_serves_while_the_store_is_away_and_only_then() {
    let local = local().await;
    let manifest = local.servable().await;
    let key = |byte| crate::signature::SigningKey::from_seed(&[byte; 32]).unwrap();
    let json = manifest.to_json();
    local.store.publish_signed(&json, Some(&key(1).sign(&json))).await.unwrap();
    let cache = tempfile::tempdir().unwrap();
    let cache = cache.path().to_str().unwrap();
    let distant = local.store.at_a_distance().cached_in(cache);
    assert_eq!(distant.to_serve("web", None).await.unwrap().manifest, manifest);

    let error = away().to_serve("web", None).await.unwrap_err();
    assert!(error.is_away() && !error.to_string().contains("hush-hush"), "{error}");
    let kept = away().cached_in(cache);
    for pinned in [None, Some(manifest.version)] {
        assert_eq!(kept.to_serve("web", pinned).await.unwrap().manifest, manifest);
    }
    let trusting = |byte| away().cached_in(cache).trusting(Trusted::of([key(byte).public()]));
    assert!(trusting(1).to_serve("web", None).await.is_ok());
    assert!(
        matches!(trusting(2).to_serve("web", None).await, Err(Error::Untrusted { .. })),
        "kept is judged too"
    );
    // What this machine's disk made of it is no word on the version.
    let kept_file =
        std::path::Path::new(cache).join(VersionStore::version_path("web", manifest.version)).join(MANIFEST);
    fs::write(&kept_file, "{").unwrap();
    for pinned in [None, Some(manifest.version)] {
        assert!(kept.to_serve("web", pinned).await.unwrap_err().is_away());
    }
    fs::write(&kept_file, &json).unwrap();
    // What the store says counts, when it says something.
    fs::remove_file(local.path(&manifest, MANIFEST)).unwrap();
    assert!(matches!(distant.manifest("web", manifest.version).await, Err(Error::NoVersion { .. })));
    VersionStore::forget_table(cache, "web", manifest.version).unwrap();
    assert!(kept.to_serve("web", None).await.unwrap_err().is_away());
}

#[tokio::test]
async fn whoever_trusts_keys_passes_over_what_they_did_not_sign() {
    let local = local().await;
    let key = |byte| crate::signature::SigningKey::from_seed(&[byte; 32]).unwrap();
    for signer in [Some(1), Some(2), None] {
        let mut manifest = local.built().await;
        manifest.analysis_id = crate::analysis::Analyzer::id().to_owned();
        manifest.schema_id = manifest.schema.id();
        let json = manifest.to_json();
        let signature = signer.map(|byte| key(byte).sign(&json));
        local.store.publish_signed(&json, signature.as_ref()).await.unwrap();
    }
    let trusting =
        |keys: &[u8]| local.store.clone().trusting(Trusted::of(keys.iter().map(|byte| key(*byte).public())));
    let served = trusting(&[1]).to_serve("web", None).await.unwrap();
    assert_eq!(served.manifest.version, Version(1));
    let passed: Vec<_> =
        served.passed_over.iter().map(|passed| (passed.version.0, passed.reason.clone())).collect();
    assert!(passed[0].0 == 3 && passed[0].1.contains("not signed"), "{passed:?}");
    assert!(passed[1].0 == 2 && passed[1].1.contains("is signed by key"), "{passed:?}");
    // While keys are exchanged both count.
    assert_eq!(trusting(&[1, 2]).to_serve("web", None).await.unwrap().manifest.version, Version(2));
    assert_eq!(local.store.to_serve("web", None).await.unwrap().manifest.version, Version(3));
    // One byte of a manifest, and a signature of another version.
    let json = local.store.version_dir("web", Version(2)).unwrap().join(MANIFEST);
    let text = fs::read_to_string(&json).unwrap();
    fs::write(&json, text.replacen("\"builder\": \"", "\"builder\": \"x", 1)).unwrap();
    let changed = trusting(&[1, 2]).manifest("web", Version(2)).await.unwrap_err().to_string();
    for part in ["changed since it was signed", "don't sign it as it is", "manifest-"] {
        assert!(changed.contains(part), "its signature is of other bytes: {part} in {changed}");
    }
    assert!(!changed.contains("not signed"), "{changed}");
    let signatures = [1, 2].map(|version| {
        let directory = local.store.version_dir("web", Version(version)).unwrap();
        directory.join(signature_of(&fs::read(directory.join(MANIFEST)).unwrap()))
    });
    fs::copy(&signatures[0], &signatures[1]).unwrap();
    let foreign = trusting(&[1, 2]).manifest("web", Version(2)).await.unwrap_err().to_string();
    assert!(foreign.contains("does not fit") && foreign.contains("don't sign it as it is"), "{foreign}");
    fs::write(&signatures[1], "{").unwrap();
    assert!(
        trusting(&[2]).manifest("web", Version(2)).await.unwrap_err().to_string().contains("can't be read")
    );
}
