//! The topology service at the far end of a gRPC channel. Calls are boxed and own their channel, so that whoever makes them
//! need not know what the channel is made of.

use futures::{FutureExt, future::BoxFuture};
use tonic::{
    Request, Status, Streaming,
    body::Body,
    client::GrpcService,
    codegen::{Body as HttpBody, Bytes, StdError},
    metadata::{Ascii, MetadataValue},
};

use crate::topology::{
    CommandReply, CommandRequest, JudgedReply, JudgedRequest, NodeReport, ReportReply, RoutingUpdate,
    ShowReply, ShowRequest, WatchRequest, topology_client::TopologyClient,
};

/// Largest snapshot that is taken, bytes: tens of thousands of leaves.
const MOST: usize = 256 << 20;

/// A call under way.
pub type Call<T> = BoxFuture<'static, Result<T, Status>>;

/// A header that no log shows.
type Authorization = MetadataValue<Ascii>;

/// Client side of a topology service, over any (layered) channel.
#[derive(Clone)]
pub struct TopologyPeer<C> {
    client: TopologyClient<C>,
    /// Of a node.
    node: Option<Authorization>,
}

fn with<T>(message: T, authorization: Option<Authorization>) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(mut authorization) = authorization {
        authorization.set_sensitive(true);
        request.metadata_mut().insert("authorization", authorization);
    }
    request
}

impl<C> TopologyPeer<C>
where
    C: GrpcService<Body> + Clone + Send + Sync + 'static,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
    C::Future: Send,
{
    /// Wraps a channel.
    pub fn new(channel: C) -> Self {
        let client = TopologyClient::new(channel);
        Self { client: client.max_decoding_message_size(MOST).max_encoding_message_size(MOST), node: None }
    }

    /// For a node that carries a token: with all it says and asks as a node.
    pub fn bearing(self, authorization: Option<MetadataValue<Ascii>>) -> Self {
        Self { node: authorization, ..self }
    }

    /// Snapshots from now on.
    pub fn watch(&self, request: WatchRequest) -> Call<Streaming<RoutingUpdate>> {
        let mut client = self.client.clone();
        let request = with(request, self.node.clone());
        async move { Ok(client.watch(request).await?.into_inner()) }.boxed()
    }

    /// How a node is.
    pub fn report(&self, report: NodeReport) -> Call<ReportReply> {
        let mut client = self.client.clone();
        let report = with(report, self.node.clone());
        async move { Ok(client.report(report).await?.into_inner()) }.boxed()
    }

    /// What an operator wants; `authorization`: a header that no log shows.
    pub fn command(
        &self,
        request: CommandRequest,
        authorization: Option<MetadataValue<Ascii>>,
    ) -> Call<CommandReply> {
        let mut client = self.client.clone();
        let request = with(request, authorization);
        async move { Ok(client.command(request).await?.into_inner()) }.boxed()
    }

    /// The judged queries of a rollout.
    pub fn judged(&self, request: JudgedRequest) -> Call<JudgedReply> {
        let mut client = self.client.clone();
        let request = with(request, self.node.clone());
        async move { Ok(client.judged(request).await?.into_inner()) }.boxed()
    }

    /// What the service knows.
    pub fn show(&self, request: ShowRequest) -> Call<ShowReply> {
        let mut client = self.client.clone();
        async move { Ok(client.show(request).await?.into_inner()) }.boxed()
    }
}
