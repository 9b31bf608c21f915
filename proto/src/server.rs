//! A [`SearchNode`] as a gRPC service: checks the message, turns the remaining time into a deadline of this node,
//! cancels the work when the caller drops the stream or the call, and goes on with the caller's trace.

use std::{sync::Arc, time::Duration};

use canopy_common::{
    deadline::Deadline,
    error::Failure,
    ids::{AttemptId, QueryId},
    request::{Priority, RequestContext},
    rpc::status::to_status,
    telemetry::trace::Parent,
};
use futures::{StreamExt, stream::BoxStream};
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};
use tracing::{Instrument, Span};

use crate::{
    node::SearchNode,
    v1::{
        self, CancelReply, CancelRequest, FetchReply, FetchRequest, SearchReply, SearchRequest,
        search_node_server::{self, SearchNodeServer},
    },
    validate,
};

/// Serves a node over gRPC.
pub struct NodeServer<N>(Arc<N>);

/// Builds the tonic service of a node; `max_message` bytes is the limit of one message in either direction.
pub fn service<N: SearchNode>(node: Arc<N>, max_message: usize) -> SearchNodeServer<NodeServer<N>> {
    SearchNodeServer::new(NodeServer(node))
        .max_decoding_message_size(max_message)
        .max_encoding_message_size(max_message)
}

fn refuse(failure: &Failure) -> Status {
    to_status(failure)
}

/// A span below the caller's, for what the node does.
fn span<T>(request: &Request<T>, call: &'static str) -> Span {
    let span = tracing::info_span!("node", call);
    if let Some(parent) = request.extensions().get::<Parent>() {
        parent.adopt(&span);
    }
    span
}

fn context(
    query_id: &[u8],
    attempt: u64,
    remaining_us: u64,
    priority: i32,
) -> Result<(RequestContext, DropGuard), Status> {
    let query =
        QueryId::from_wire(query_id).map_err(|e| refuse(&Failure::invalid("query_id", e.to_string())))?;
    let remaining = Duration::from_micros(remaining_us.min(validate::MAX_REMAINING_US));
    let cancel = CancellationToken::new();
    let guard = cancel.clone().drop_guard();
    let context = RequestContext {
        query,
        attempt: AttemptId(attempt),
        deadline: Deadline::after(remaining),
        priority: if priority == v1::Priority::Batch as i32 {
            Priority::Batch
        } else {
            Priority::Interactive
        },
        cancel,
    };
    Ok((context, guard))
}

#[tonic::async_trait]
impl<N: SearchNode> search_node_server::SearchNode for NodeServer<N> {
    type SearchStream = BoxStream<'static, Result<SearchReply, Status>>;

    async fn search(&self, request: Request<SearchRequest>) -> Result<Response<Self::SearchStream>, Status> {
        let span = span(&request, "search");
        let request = request.into_inner();
        validate::search(&request).map_err(|failure| refuse(&failure))?;
        let (context, guard) =
            context(&request.query_id, request.attempt_id, request.remaining_us, request.priority)?;
        let replies = span.in_scope(|| self.0.search(context, request)).map(move |item| {
            let _held_until_the_stream_ends = &guard;
            item.map_err(|failure| refuse(&failure))
        });
        Ok(Response::new(replies.boxed()))
    }

    async fn fetch(&self, request: Request<FetchRequest>) -> Result<Response<FetchReply>, Status> {
        let span = span(&request, "fetch");
        let request = request.into_inner();
        validate::fetch(&request).map_err(|failure| refuse(&failure))?;
        let (context, _guard) = context(&request.query_id, 0, request.remaining_us, request.priority)?;
        let reply = self.0.fetch(context, request).instrument(span).await;
        reply.map(Response::new).map_err(|failure| refuse(&failure))
    }

    async fn cancel(&self, request: Request<CancelRequest>) -> Result<Response<CancelReply>, Status> {
        let reply = self.0.cancel(request.into_inner()).await;
        reply.map(|stopped| Response::new(CancelReply { stopped })).map_err(|failure| refuse(&failure))
    }
}
