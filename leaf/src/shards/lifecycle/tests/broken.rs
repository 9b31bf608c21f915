//! Work on a shard that panics: a store's client, the engine, or our own mistake.

use std::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering},
};

use futures::stream::BoxStream;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, path::Path as At,
};

use super::*;
use crate::shards::room::Amounts;

/// A store that panics where a file of a shard is asked for, so many times.
#[derive(Debug)]
struct Panicking {
    inner: Arc<InMemory>,
    times: Arc<AtomicU64>,
}

impl Panicking {
    fn call(&self, at: &At) {
        let left = |left: u64| left.checked_sub(1);
        let panics = at.as_ref().contains("/shards/")
            && self.times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left).is_ok();
        assert!(!panics, "on purpose");
    }
}

impl std::fmt::Display for Panicking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("panicking")
    }
}

#[async_trait::async_trait]
impl ObjectStore for Panicking {
    async fn put_opts(
        &self,
        at: &At,
        payload: PutPayload,
        options: PutOptions,
    ) -> object_store::Result<PutResult> {
        self.inner.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &At,
        options: PutMultipartOptions,
    ) -> object_store::Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &At, options: GetOptions) -> object_store::Result<GetResult> {
        self.call(at);
        self.inner.get_opts(at, options).await
    }

    async fn get_ranges(
        &self,
        at: &At,
        ranges: &[Range<u64>],
    ) -> object_store::Result<Vec<prost::bytes::Bytes>> {
        self.call(at);
        self.inner.get_ranges(at, ranges).await
    }

    fn delete_stream(
        &self,
        paths: BoxStream<'static, object_store::Result<At>>,
    ) -> BoxStream<'static, object_store::Result<At>> {
        self.inner.delete_stream(paths)
    }

    fn list(&self, prefix: Option<&At>) -> BoxStream<'static, object_store::Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&At>) -> object_store::Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &At, to: &At, options: CopyOptions) -> object_store::Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_panics_is_a_failure_that_keeps_no_room_and_is_tried_again() {
    let built = Built::new(&pages(30), 1).await;
    let version = built.manifest.version;
    let times = Arc::new(AtomicU64::new(u64::MAX));
    let objects = Panicking { inner: in_memory(&built).await, times: times.clone() };
    let cache = tempfile::tempdir().unwrap();
    let mut leaf = Following::new(VersionStore::remote(Arc::new(objects)), copying(cache.path()));
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
