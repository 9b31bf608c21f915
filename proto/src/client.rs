//! A [`SearchNode`] at the far end of a gRPC channel. The remaining time is read from the context at send, never
//! copied from the parent's message, so that a hedge started late carries less.

use canopy_common::{
    error::{ErrorClass, Failure},
    request::RequestContext,
    rpc::status::from_status,
};
use futures::{FutureExt, StreamExt, future::BoxFuture};
use tonic::{
    Request, Status,
    body::Body,
    client::GrpcService,
    codegen::{Body as HttpBody, Bytes, StdError},
};

use crate::{
    node::{ReplyStream, SearchNode},
    v1::{CancelRequest, FetchReply, FetchRequest, SearchRequest, search_node_client::SearchNodeClient},
};

/// Client side of a node, over any (layered) channel.
#[derive(Clone)]
pub struct NodeClient<C>(SearchNodeClient<C>);

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
        Self(
            SearchNodeClient::new(channel)
                .max_decoding_message_size(max_message)
                .max_encoding_message_size(max_message),
        )
    }
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
        let mut client = self.0.clone();
        let start = async move {
            request.remaining_us = remaining_us(&context);
            let mut request = Request::new(request);
            request.set_timeout(context.deadline.remaining());
            match client.search(request).await {
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
        let mut client = self.0.clone();
        async move {
            request.remaining_us = remaining_us(&context);
            let mut request = Request::new(request);
            request.set_timeout(context.deadline.remaining());
            let reply = client.fetch(request).await;
            reply.map(tonic::Response::into_inner).map_err(|status| failure(&context, &status))
        }
        .boxed()
    }

    fn cancel(&self, request: CancelRequest) -> BoxFuture<'static, Result<u32, Failure>> {
        let mut client = self.0.clone();
        async move {
            let reply = client.cancel(request).await;
            reply.map(|reply| reply.into_inner().stopped).map_err(|status| from_status(&status))
        }
        .boxed()
    }
}
