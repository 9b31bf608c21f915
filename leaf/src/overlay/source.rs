//! Where a leaf reads the log: an ingest, over gRPC, or what a test puts in its place.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use canopy_common::{
    net::NetIo,
    rpc::{self, ClientChannel, RpcConfig},
};
use canopy_proto::ingest::{
    EndsReply, EndsRequest, RefuseRequest, TailReply, TailRequest, log_client::LogClient,
};
use futures::{
    FutureExt, StreamExt,
    future::BoxFuture,
    stream::{self, BoxStream},
};
use tonic::{
    body::Body,
    client::GrpcService,
    codegen::{Body as HttpBody, Bytes, StdError},
};

/// Longest wait for the first answer to a call.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest silence of a tail, which says something every second.
const SILENCE: Duration = Duration::from_secs(5);

/// Messages of a tail, until it breaks.
pub type Tail = BoxStream<'static, Result<TailReply, String>>;

/// The log of any corpus.
pub trait Source: Send + Sync + 'static {
    /// The ends of all partitions.
    fn ends(&self, corpus: &str) -> BoxFuture<'static, Result<EndsReply, String>>;
    /// Records from the wanted offsets on, then each new one.
    fn tail(&self, request: TailRequest) -> BoxFuture<'static, Result<Tail, String>>;
    /// Records that could not be applied.
    fn refuse(&self, request: RefuseRequest) -> BoxFuture<'static, Result<(), String>>;
}

type Call<T> = BoxFuture<'static, Result<T, tonic::Status>>;

/// An ingest over any channel. Its calls are boxed here, where the channel is still any: the compiler can't see otherwise that
/// they may move between threads.
struct Peer<C>(LogClient<C>);

impl<C> Peer<C>
where
    C: GrpcService<Body> + Clone + Send + Sync + 'static,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
    C::Future: Send,
{
    fn new(channel: C, most: usize) -> Self {
        Self(LogClient::new(channel).max_decoding_message_size(most).max_encoding_message_size(most))
    }

    fn ends(&self, request: EndsRequest) -> Call<EndsReply> {
        let mut client = self.0.clone();
        async move { Ok(client.ends(request).await?.into_inner()) }.boxed()
    }

    fn tail(&self, request: TailRequest) -> Call<Tail> {
        let mut client = self.0.clone();
        async move {
            let replies = client.tail(request).await?.into_inner();
            let replies = replies.map(|reply| reply.map_err(|status| status.message().to_owned()));
            Ok(heard(replies.boxed()))
        }
        .boxed()
    }

    fn refuse(&self, request: RefuseRequest) -> Call<()> {
        let mut client = self.0.clone();
        async move { client.refuse(request).await.map(drop) }.boxed()
    }
}

/// One of several ingests. A call that fails makes the next one go to the next of them.
pub struct Grpc {
    peers: Vec<Peer<ClientChannel>>,
    at: Arc<AtomicUsize>,
}

impl Grpc {
    /// At these addresses; nothing is dialled before the first call.
    pub fn new(rpc: &RpcConfig, net: &NetIo, addresses: &[String]) -> io::Result<Self> {
        let most = rpc.max_message.0 as usize;
        let peer = |address: &String| Ok(Peer::new(rpc::channel(rpc, net, address)?, most));
        let peers = addresses.iter().map(peer).collect::<io::Result<Vec<_>>>()?;
        if peers.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address of an ingest; name one"));
        }
        Ok(Self { peers, at: Arc::default() })
    }

    fn call<T: Send + 'static>(
        &self,
        what: &'static str,
        call: impl FnOnce(&Peer<ClientChannel>) -> Call<T>,
    ) -> BoxFuture<'static, Result<T, String>> {
        let at = self.at.load(Ordering::Relaxed);
        let Some(peer) = self.peers.get(at % self.peers.len().max(1)) else {
            return futures::future::ready(Err("no ingest is known".to_owned())).boxed();
        };
        let (call, next) = (call(peer), self.at.clone());
        async move {
            let reason = match tokio::time::timeout(PATIENCE, call).await {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(status)) => format!("{what}: {}", status.message()),
                Err(_) => format!("{what}: no answer within {} s", PATIENCE.as_secs()),
            };
            // Of several calls that fail together, one moves on.
            let _moved = next.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
            Err(reason)
        }
        .boxed()
    }
}

impl Source for Grpc {
    fn ends(&self, corpus: &str) -> BoxFuture<'static, Result<EndsReply, String>> {
        self.call("ends of the log", |peer| peer.ends(EndsRequest { corpus: corpus.to_owned() }))
    }

    fn tail(&self, request: TailRequest) -> BoxFuture<'static, Result<Tail, String>> {
        self.call("tail of the log", |peer| peer.tail(request))
    }

    fn refuse(&self, request: RefuseRequest) -> BoxFuture<'static, Result<(), String>> {
        self.call("dead letters", |peer| peer.refuse(request))
    }
}

/// A tail that ends when nothing is heard of it: a connection may be dead long before it says so.
fn heard(tail: Tail) -> Tail {
    let next = |mut tail: Tail| async move {
        match tokio::time::timeout(SILENCE, tail.next()).await {
            Ok(Some(reply)) => Some((reply, tail)),
            Ok(None) => None,
            Err(_) => {
                let silent = format!("nothing was heard for {} s", SILENCE.as_secs());
                Some((Err(silent), stream::empty().boxed()))
            }
        }
    };
    stream::unfold(tail, next).boxed()
}
