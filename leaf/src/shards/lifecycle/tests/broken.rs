//! Work on a shard that panics: a store's client, the engine, or our own mistake. And versions that are broken in the store.

use std::{
    future,
    sync::atomic::{AtomicU64, Ordering},
};

use canopy_format::{
    signature::{SigningKey, Trusted},
    store::hooked::Hooked,
};
use canopy_topology::link::Progress;

use super::*;
use crate::shards::room::Amounts;

/// A store that panics where a file of a shard is asked for, so many times.
fn panicking(inner: Arc<InMemory>, times: Arc<AtomicU64>) -> VersionStore {
    VersionStore::remote(Arc::new(Hooked::new(inner, move |_, at| {
        let left = |left: u64| left.checked_sub(1);
        let panics = at.as_ref().contains("/shards/")
            && times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok();
        assert!(!panics, "on purpose");
        future::ready(Ok(()))
    })))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_panics_is_a_failure_that_keeps_no_room_and_is_tried_again() {
    let built = Built::new(&pages(30), 1).await;
    let version = built.manifest.version;
    let times = Arc::new(AtomicU64::new(u64::MAX));
    let store = panicking(in_memory(&built).await, times.clone());
    let cache = tempfile::tempdir().unwrap();
    let mut leaf = Following::new(store, copying(cache.path()));
    leaf.want(&[version], 1);
    leaf.is(State::Failed).await;
    let line = leaf.lines(version).remove(0);
    assert_eq!(line.takes, Amounts::default(), "its room is given back");
    assert!(line.last_error.contains("bringing it") && line.last_error.contains("on purpose"), "{line:?}");
    assert!(line.due.is_some() && line.given_up.is_none(), "it is tried again: {line:?}");
    // What is wanted no more goes, though its work ended so.
    leaf.want(&[], 0);
    until("it is gone", || leaf.lines(version).is_empty()).await;
    times.store(1, Ordering::SeqCst);
    leaf.want(&[version], 1);
    leaf.is(State::Failed).await;
    leaf.serves(version, 1).await;
    assert_eq!(found(&leaf.ask(&built).await), (vec!["answered"], 30));
}

/// What the topology service is told of the one shard, once that is a failure.
async fn told(leaf: &Following) -> (String, bool) {
    let board = &leaf.parts.shards.board;
    let failed = || match crate::shards::holdings::condition(board).holdings.pop()?.progress {
        Progress::Failed { reason, everywhere } => Some((reason, everywhere)),
        _ => None,
    };
    until("it is told of as a failure", || failed().is_some()).await;
    failed().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_version_whose_manifest_is_of_no_use_is_told_as_one_that_no_leaf_can_load_until_it_is_mended() {
    let built = Built::new(&pages(30), 1).await;
    let version = built.manifest.version;
    let key = SigningKey::from_seed(&[1; 32]).unwrap().public();
    let mut trusting =
        Following::new(built.store.clone().trusting(Trusted::of([key])), fixture::config(1, 16));
    trusting.want(&[version], 1);
    let (reason, everywhere) = told(&trusting).await;
    assert!(reason.contains("not signed") && everywhere, "{reason}");

    let manifest = built.version_dir().join("manifest.json");
    let whole = std::fs::read(&manifest).unwrap();
    let mut leaf = Following::new(built.store.clone(), fixture::config(1, 16));
    let mut missing = Following::new(built.store.clone(), fixture::config(1, 16));
    std::fs::write(&manifest, &whole[..whole.len() / 2]).unwrap();
    leaf.want(&[version], 1);
    missing.want(&[Version(version.0 + 1)], 1);
    let (reason, everywhere) = told(&leaf).await;
    assert!(reason.contains("manifest") && everywhere, "{reason}");
    let (reason, everywhere) = told(&missing).await;
    assert!(reason.contains("has no v") && everywhere, "{reason}");
    std::fs::write(&manifest, &whole).unwrap();
    leaf.serves(version, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_the_store_has_lost_is_told_as_a_version_that_no_leaf_can_load() {
    let built = Built::new(&pages(30), 1).await;
    let version = built.manifest.version;
    let objects = in_memory(&built).await;
    let lost = built.manifest.shards[0].files.iter().max_by_key(|file| file.bytes).unwrap();
    let path = format!("{}/{}", VersionStore::version_path(CORPUS, version), lost.path);
    objects.delete(&path.as_str().into()).await.unwrap();
    let cache = tempfile::tempdir().unwrap();
    let mut leaf = Following::new(VersionStore::remote(objects), copying(cache.path()));
    leaf.want(&[version], 1);
    let (reason, everywhere) = told(&leaf).await;
    assert!(reason.contains("it is missing") && everywhere, "{reason}");
}
