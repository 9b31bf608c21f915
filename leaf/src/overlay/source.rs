//! Where a leaf reads the log: an ingest, over gRPC, or what a test puts in its place.

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
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

/// One of several ingests. A call that fails makes the next one go to the next of them.
pub struct Grpc {
    clients: Vec<LogClient<ClientChannel>>,
    at: std::sync::Arc<AtomicUsize>,
}

impl Grpc {
    /// At these addresses; nothing is dialled before the first call.
    pub fn new(rpc: &RpcConfig, net: &NetIo, addresses: &[String]) -> io::Result<Self> {
        let most = rpc.max_message.0 as usize;
        let client = |address: &String| {
            let channel = rpc::channel(rpc, net, address)?;
            Ok(LogClient::new(channel).max_decoding_message_size(most).max_encoding_message_size(most))
        };
        let clients = addresses.iter().map(client).collect::<io::Result<Vec<_>>>()?;
        if clients.is_empty() {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "no address of an ingest; name one"));
        }
        Ok(Self { clients, at: std::sync::Arc::default() })
    }

    fn call<T, F>(
        &self,
        what: &'static str,
        call: impl FnOnce(LogClient<ClientChannel>) -> F,
    ) -> BoxFuture<'static, Result<T, String>>
    where
        F: Future<Output = Result<T, tonic::Status>> + Send + 'static,
        T: Send + 'static,
    {
        let at = self.at.load(Ordering::Relaxed);
        let Some(client) = self.clients.get(at % self.clients.len().max(1)) else {
            return futures::future::ready(Err("no ingest is known".to_owned())).boxed();
        };
        let (call, next) = (call(client.clone()), self.at.clone());
        async move {
            let ended = tokio::time::timeout(PATIENCE, call).await;
            let result = match ended {
                Ok(Ok(value)) => return Ok(value),
                Ok(Err(status)) => format!("{what}: {}", status.message()),
                Err(_) => format!("{what}: no answer within {} s", PATIENCE.as_secs()),
            };
            // Of several calls that fail together, one moves on.
            let _moved = next.compare_exchange(at, at.wrapping_add(1), Ordering::Relaxed, Ordering::Relaxed);
            Err(result)
        }
        .boxed()
    }
}

impl Source for Grpc {
    fn ends(&self, corpus: &str) -> BoxFuture<'static, Result<EndsReply, String>> {
        let request = EndsRequest { corpus: corpus.to_owned() };
        self.call("ends of the log", move |mut client| async move {
            client.ends(request).await.map(tonic::Response::into_inner)
        })
    }

    fn tail(&self, request: TailRequest) -> BoxFuture<'static, Result<Tail, String>> {
        self.call("tail of the log", move |mut client| async move {
            let replies = client.tail(request).await?.into_inner();
            let replies = replies.map(|reply| reply.map_err(|status| status.message().to_owned()));
            Ok(heard(replies.boxed()))
        })
    }

    fn refuse(&self, request: RefuseRequest) -> BoxFuture<'static, Result<(), String>> {
        self.call("dead letters", move |mut client| async move { client.refuse(request).await.map(drop) })
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
