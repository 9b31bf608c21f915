//! An object store that asks before each call: the one way in which tests break, delay or count what a store is asked. Only
//! built with the feature `hooked`.
//!
//! Rule: every call runs `before` with what is asked and goes on to the store behind it when that says so; an error is the
//! call's, and waiting or a panic in it happens to the caller, as with a store's own client.

use std::{fmt, sync::Arc};

use futures::{FutureExt, TryFutureExt, future::BoxFuture, stream::BoxStream};
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, path::Path,
};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call {
    /// An object is written, in one piece or in parts.
    Put,
    /// An object, or ranges of it, are read.
    Get,
    /// Objects are removed.
    Delete,
    /// What is below a prefix.
    List,
    /// An object is copied.
    Copy,
}

/// What runs before each call.
type Before = dyn Fn(Call, &Path) -> BoxFuture<'static, Result<()>> + Send + Sync;

/// The store.
#[derive(Clone)]
pub struct Hooked {
    inner: Arc<dyn ObjectStore>,
    before: Arc<Before>,
}

impl Hooked {
    /// `inner`, asked after `before` is done.
    pub fn new<F>(
        inner: Arc<dyn ObjectStore>,
        before: impl Fn(Call, &Path) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<()>> + Send + 'static,
    {
        Self { inner, before: Arc::new(move |call, at| before(call, at).boxed()) }
    }
}

impl fmt::Debug for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Hooked({:?})", self.inner)
    }
}

impl fmt::Display for Hooked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hooked {}", self.inner)
    }
}

#[async_trait::async_trait]
impl ObjectStore for Hooked {
    async fn put_opts(&self, at: &Path, payload: PutPayload, options: PutOptions) -> Result<PutResult> {
        (self.before)(Call::Put, at).await?;
        self.inner.put_opts(at, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        at: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        (self.before)(Call::Put, at).await?;
        self.inner.put_multipart_opts(at, options).await
    }

    async fn get_opts(&self, at: &Path, options: GetOptions) -> Result<GetResult> {
        (self.before)(Call::Get, at).await?;
        self.inner.get_opts(at, options).await
    }

    async fn get_ranges(&self, at: &Path, ranges: &[std::ops::Range<u64>]) -> Result<Vec<bytes::Bytes>> {
        (self.before)(Call::Get, at).await?;
        self.inner.get_ranges(at, ranges).await
    }

    fn delete_stream(&self, paths: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let inner = self.inner.clone();
        let before = (self.before)(Call::Delete, &Path::default());
        Box::pin(before.map_ok(move |()| inner.delete_stream(paths)).try_flatten_stream())
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let (inner, prefix) = (self.inner.clone(), prefix.cloned());
        let before = (self.before)(Call::List, prefix.as_ref().unwrap_or(&Path::default()));
        Box::pin(before.map_ok(move |()| inner.list(prefix.as_ref())).try_flatten_stream())
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        (self.before)(Call::List, prefix.unwrap_or(&Path::default())).await?;
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        (self.before)(Call::Copy, to).await?;
        self.inner.copy_opts(from, to, options).await
    }
}
