//! Work on a shard that panics: a store's client, the engine, or our own mistake.

use std::{
    future,
    sync::atomic::{AtomicU64, Ordering},
};

use canopy_format::store::hooked::Hooked;

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
