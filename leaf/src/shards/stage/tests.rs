//! Fetching from a store that is not a directory: whole, in parts, broken off and taken up again.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use object_store::{ObjectStoreExt, memory::InMemory};

use super::*;
use crate::fixture::{Built, CORPUS, pages};

/// The built version in a remote store.
async fn remote(built: &Built) -> (Arc<InMemory>, VersionStore) {
    let objects = Arc::new(InMemory::new());
    let at = VersionStore::version_path(CORPUS, built.manifest.version);
    for file in built.manifest.files() {
        let bytes = std::fs::read(built.version_dir().join(&file.path)).unwrap();
        objects.put(&format!("{at}/{}", file.path).into(), bytes.into()).await.unwrap();
    }
    (objects.clone(), VersionStore::remote(objects))
}

struct Cache(tempfile::TempDir);

impl Cache {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &str {
        self.0.path().to_str().unwrap()
    }
}

async fn fetch(store: &VersionStore, cache: &Cache, built: &Built, most: u64) -> (Option<PathBuf>, u64) {
    let came = AtomicU64::new(0);
    let went = |bytes| came.fetch_add(bytes, Ordering::Relaxed) + bytes < most;
    let stage = Stage { store, cache_dir: cache.path(), rate: 0, went: &went };
    let directory = stage.fetch(&built.manifest, &built.manifest.shards[0]).await.unwrap();
    (directory, came.load(Ordering::Relaxed))
}

fn same(built: &Built, directory: &Path) {
    for file in &built.manifest.shards[0].files {
        let original = std::fs::read(built.version_dir().join(&file.path)).unwrap();
        assert!(std::fs::read(directory.join(&file.path)).unwrap() == original, "{}", file.path);
    }
}

#[tokio::test]
async fn a_fetch_that_was_broken_off_goes_on_where_it_ended() {
    let built = Built::new(&pages(200), 1).await;
    let (objects, store) = remote(&built).await;
    let (cache, bytes) = (Cache::new(), built.manifest.shards[0].bytes);
    let (given_up, _) = fetch(&store, &cache, &built, bytes / 2).await;
    assert!(given_up.is_none());
    // Half of the largest file lies there under its working name, as after a crash.
    let largest = built.manifest.shards[0].files.iter().max_by_key(|file| file.bytes).unwrap();
    let directory = version_dir(cache.path(), CORPUS, built.manifest.version);
    let target = directory.join(&largest.path);
    let whole = std::fs::read(built.version_dir().join(&largest.path)).unwrap();
    let _not_there = std::fs::remove_file(&target);
    std::fs::write(partial(&target), &whole[..whole.len() / 2]).unwrap();
    let (found, came) = fetch(&store, &cache, &built, u64::MAX).await;
    assert_eq!(came, bytes, "what is there already counts as progress");
    same(&built, &found.unwrap());
    assert!(!partial(&target).exists());
    // Nothing is asked of the store for what is whole.
    let at = VersionStore::version_path(CORPUS, built.manifest.version);
    objects.delete(&format!("{at}/{}", largest.path).into()).await.unwrap();
    assert!(fetch(&store, &cache, &built, u64::MAX).await.0.is_some());
    forget(cache.path(), CORPUS, built.manifest.version, &built.manifest.shards[0].shard).unwrap();
    assert!(!directory.exists(), "the last shard takes the version with it");
}

#[tokio::test]
async fn longer_leftovers_are_thrown_away_and_a_short_object_is_an_error() {
    let built = Built::new(&pages(60), 1).await;
    let (objects, store) = remote(&built).await;
    let cache = Cache::new();
    let largest = built.manifest.shards[0].files.iter().max_by_key(|file| file.bytes).unwrap();
    let target = version_dir(cache.path(), CORPUS, built.manifest.version).join(&largest.path);
    std::fs::create_dir_all(target.parent().unwrap()).unwrap();
    std::fs::write(partial(&target), vec![7; largest.bytes as usize + 1]).unwrap();
    let (found, _) = fetch(&store, &cache, &built, u64::MAX).await;
    same(&built, &found.unwrap());
    let cut = Cache::new();
    let at = VersionStore::version_path(CORPUS, built.manifest.version);
    let bytes = std::fs::read(&target).unwrap();
    objects
        .put(&format!("{at}/{}", largest.path).into(), bytes[..bytes.len() - 1].to_vec().into())
        .await
        .unwrap();
    let stage = Stage { store: &store, cache_dir: cut.path(), rate: 0, went: &|_| true };
    assert!(stage.fetch(&built.manifest, &built.manifest.shards[0]).await.is_err());
    assert!(!version_dir(cut.path(), CORPUS, built.manifest.version).join(&largest.path).exists());
}

#[tokio::test]
async fn a_version_that_does_not_fit_the_disk_is_refused_before_the_first_byte() {
    let mut built = Built::new(&pages(20), 1).await;
    let (_, store) = remote(&built).await;
    let cache = Cache::new();
    built.manifest.shards[0].files[0].bytes = u64::MAX / 2;
    let stage = Stage { store: &store, cache_dir: cache.path(), rate: 0, went: &|_| panic!("nothing comes") };
    let error = stage.fetch(&built.manifest, &built.manifest.shards[0]).await.unwrap_err();
    assert!(matches!(error, Error::NoRoom { what: "disk", .. }), "{error}");
}
