//! The one recursive interface. A leaf searches its shards, an aggregator asks others: both are a `SearchNode`, so the
//! tree may have any depth and a test can stand in a model leaf for a real one.

use canopy_common::{error::Failure, request::RequestContext};
use futures::{future::BoxFuture, stream::BoxStream};

use crate::v1::{CancelRequest, FetchReply, FetchRequest, SearchReply, SearchRequest};

/// Replies as shards settle. Dropping the stream cancels all of the call. An error ends the stream; shards that no
/// reply settled before it are the caller's to account for.
pub type ReplyStream = BoxStream<'static, Result<SearchReply, Failure>>;

/// Leaf, aggregator, client of either, or a model of one.
pub trait SearchNode: Send + Sync + 'static {
    /// Searches the shards of one branch. `context.deadline` is binding; `request.remaining_us` is set from it by the
    /// client adapter at send.
    fn search(&self, context: RequestContext, request: SearchRequest) -> ReplyStream;

    /// Phase two. The reply has one entry per item, in order.
    fn fetch(
        &self,
        context: RequestContext,
        request: FetchRequest,
    ) -> BoxFuture<'static, Result<FetchReply, Failure>>;

    /// Stops a part of an attempt; the number of shards stopped.
    fn cancel(&self, request: CancelRequest) -> BoxFuture<'static, Result<u32, Failure>>;
}
