//! A [`SearchNode`] at the far end of a gRPC channel. The remaining time is read from the context at send, never
//! copied from the parent's message, so that a hedge started late carries less.
//!
//! A connection may end (its age, a peer that leaves) between the moment a call is handed to it and the moment it is
//! sent. Such a call was never seen by anybody, so it is made again, on a new connection.

mod shared;

use std::sync::Arc;

use canopy_common::{
    error::{ErrorClass, Failure},
    request::RequestContext,
    rpc::status::{from_status, never_sent},
};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use tonic::{
    Request, Status,
    body::Body,
    client::{Grpc, GrpcService},
    codegen::{Body as HttpBody, Bytes, StdError, http::uri::PathAndQuery},
};

use shared::Shared;

use crate::{
    node::{ReplyStream, SearchNode},
    v1::{
        CancelRequest, FetchReply, FetchRequest, SearchReply, SearchRequest,
        search_node_client::SearchNodeClient,
    },
};

/// Where searches go.
const SEARCH: &str = "/canopy.search.v1.SearchNode/Search";

/// Client side of a node, over any (layered) channel.
#[derive(Clone)]
pub struct NodeClient<C> {
    calls: SearchNodeClient<C>,
    searches: Grpc<C>,
}

impl<C> NodeClient<C>
where
    C: GrpcService<Body> + Clone + Send + Sync + 'static,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
    C::Future: Send,
{
    /// Wraps a channel; `max_message` bytes is the limit of one message in either direction.
    pub fn new(channel: C, max_message: usize) -> Self {
        let calls = SearchNodeClient::new(channel.clone())
            .max_decoding_message_size(max_message)
            .max_encoding_message_size(max_message);
        let searches =
            Grpc::new(channel).max_decoding_message_size(max_message).max_encoding_message_size(max_message);
        Self { calls, searches }
    }
}

/// How often a call is made at most, when its connection ends before anybody sees it.
const TRIES: u32 = 3;

/// Makes a call, again if it was never sent.
async fn sent<T, F: Future<Output = Result<T, Status>>>(mut call: impl FnMut() -> F) -> Result<T, Status> {
    for _ in 1..TRIES {
        match call().await {
            Err(status) if never_sent(&status) => {}
            result => return result,
        }
    }
    call().await
}

/// A call that broke. A peer that dies resets its streams with CANCEL; unless we cancelled ourselves, that is a lost
/// peer and may be asked again elsewhere.
fn failure(context: &RequestContext, status: &Status) -> Failure {
    let mut failure = from_status(status);
    if failure.class == ErrorClass::Cancelled && !context.cancel.is_cancelled() {
        failure.class = ErrorClass::Internal;
        failure.message = format!("the peer ended the call: {}", failure.message);
    }
    failure
}

fn remaining_us(context: &RequestContext) -> u64 {
    context.deadline.remaining().as_micros() as u64
}

impl<C> SearchNode for NodeClient<C>
where
    C: GrpcService<Body> + Clone + Send + Sync + 'static,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
    C::Future: Send,
{
    fn search(&self, context: RequestContext, mut request: SearchRequest) -> ReplyStream {
        let grpc = self.searches.clone();
        let start = async move {
            request.remaining_us = remaining_us(&context);
            let shared = Arc::new(request);
            let call = || {
                let (mut grpc, mut request) = (grpc.clone(), Request::new(shared.clone()));
                request.set_timeout(context.deadline.remaining());
                async move {
                    let ready = grpc.ready().await.map_err(|error| Status::from_error(error.into()));
                    ready?;
                    let codec = Shared::<SearchRequest, SearchReply>::default();
                    grpc.server_streaming(request, PathAndQuery::from_static(SEARCH), codec).await
                }
            };
            match sent(call).await {
                Ok(reply) => {
                    reply.into_inner().map(|item| item.map_err(|status| from_status(&status))).boxed()
                }
                Err(status) => futures::stream::iter([Err(from_status(&status))]).boxed(),
            }
        };
        start.into_stream().flatten().boxed()
    }

    fn fetch(
        &self,
        context: RequestContext,
        mut request: FetchRequest,
    ) -> BoxFuture<'static, Result<FetchReply, Failure>> {
        let client = self.calls.clone();
        async move {
            let call = || {
                request.remaining_us = remaining_us(&context);
                let (mut client, mut request) = (client.clone(), Request::new(request.clone()));
                request.set_timeout(context.deadline.remaining());
                async move { client.fetch(request).await }
            };
            let reply = sent(call).await;
            reply.map(tonic::Response::into_inner).map_err(|status| failure(&context, &status))
        }
        .boxed()
    }

    fn cancel(&self, request: CancelRequest) -> BoxFuture<'static, Result<u32, Failure>> {
        let mut client = self.calls.clone();
        async move {
            let reply = client.cancel(request).await;
            reply.map(|reply| reply.into_inner().stopped).map_err(|status| from_status(&status))
        }
        .boxed()
    }
}
