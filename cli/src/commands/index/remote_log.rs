//! The log of a running ingest, as an absorb reads it: one stream a partition, taken up where the read before ended.
//!
//! An ingest says something at least once a second, so one that is silent is gone; what it says is checked as if a stranger
//! had: a record that can't be read ends the absorb, since a version without it would lack an update for good.

use std::time::Duration;

use anyhow::{Context, Result};
use canopy_common::{
    net::NetIo,
    rpc::{self, ClientChannel, RpcConfig},
};
use canopy_format::newest::Kind;
use canopy_indexer::{
    absorb::{Chunk, Ends, Logged, Operations, Range},
    error::Error,
};
use canopy_log::record;
use canopy_proto::ingest::{
    EndsReply, EndsRequest, Op, PartitionFrom, TailPartition, TailReply, TailRequest, log_client::LogClient,
};
use futures::{FutureExt, future::BoxFuture};
use tokio::sync::Mutex;
use tonic::{
    Streaming,
    body::Body,
    client::GrpcService,
    codegen::{Body as HttpBody, Bytes, StdError},
};

/// Longest silence.
const SILENCE: Duration = Duration::from_secs(30);

/// A log over the wire.
pub struct RemoteLog {
    corpus: String,
    address: String,
    client: LogClient<ClientChannel>,
    open: Mutex<Option<Open>>,
}

/// A call under way. Boxed where the channel is still any: the compiler can't see otherwise that it may move between threads.
type Call<T> = BoxFuture<'static, Result<T, tonic::Status>>;

fn ends<C>(mut client: LogClient<C>, request: EndsRequest) -> Call<EndsReply>
where
    C: GrpcService<Body> + Send + 'static,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
    C::Future: Send,
{
    async move { Ok(client.ends(request).await?.into_inner()) }.boxed()
}

fn tail<C>(mut client: LogClient<C>, request: TailRequest) -> Call<Streaming<TailReply>>
where
    C: GrpcService<Body> + Send + 'static,
    C::Error: Into<StdError>,
    C::ResponseBody: HttpBody<Data = Bytes> + Send + 'static,
    <C::ResponseBody as HttpBody>::Error: Into<StdError> + Send,
    C::Future: Send,
{
    async move { Ok(client.tail(request).await?.into_inner()) }.boxed()
}

/// A stream that is being read.
struct Open {
    partition: u32,
    next: u64,
    replies: Streaming<TailReply>,
}

impl RemoteLog {
    /// Of the ingest at `address`; nothing is dialled yet.
    pub fn new(address: &str, corpus: &str) -> Result<Self> {
        let config = RpcConfig::default();
        let channel = rpc::channel(&config, &NetIo::tcp(), address)
            .with_context(|| format!("{address} is not an address"))?;
        let client = LogClient::new(channel).max_decoding_message_size(config.max_message.0 as usize);
        let (corpus, address) = (corpus.to_owned(), address.to_owned());
        Ok(Self { corpus, address, client, open: Mutex::new(None) })
    }

    fn failed(&self, reason: impl std::fmt::Display) -> Error {
        Error::Log(format!("{}: {reason}", self.address))
    }

    async fn within<T>(&self, call: impl Future<Output = Result<T, tonic::Status>>) -> Result<T, Error> {
        match tokio::time::timeout(SILENCE, call).await {
            Ok(answer) => answer.map_err(|status| self.failed(status.message())),
            Err(_) => Err(self.failed(format!("nothing was heard for {} s", SILENCE.as_secs()))),
        }
    }

    async fn ask_ends(&self) -> Result<Ends, Error> {
        let request = EndsRequest { corpus: self.corpus.clone() };
        let reply = self.within(ends(self.client.clone(), request)).await?;
        let range = |range: &canopy_proto::ingest::PartitionRange| {
            (range.partition, Range { first: range.first, end: range.end })
        };
        Ok(Ends { epoch: reply.epoch, ranges: reply.partitions.iter().map(range).collect() })
    }

    /// The stream that is open where it goes on, else another one.
    async fn stream(&self, held: Option<Open>, partition: u32, from: u64) -> Result<Open, Error> {
        if let Some(open) = held.filter(|open| (open.partition, open.next) == (partition, from)) {
            return Ok(open);
        }
        let request = TailRequest {
            corpus: self.corpus.clone(),
            from: vec![PartitionFrom { partition, from }],
            node: "absorb".to_owned(),
            ..TailRequest::default()
        };
        let replies = self.within(tail(self.client.clone(), request)).await?;
        Ok(Open { partition, next: from, replies })
    }

    async fn ask(&self, partition: u32, from: u64, to: u64) -> Result<Chunk, Error> {
        let mut held = self.open.lock().await;
        let mut open = self.stream(held.take(), partition, from).await?;
        loop {
            let reply = self.within(open.replies.message()).await?;
            let reply = reply.ok_or_else(|| self.failed("it ended the stream"))?;
            if !reply.lost.is_empty() {
                return Err(self.failed(reply.lost));
            }
            let news = reply.partitions.into_iter().find(|news| news.partition == partition);
            let Some(news) = news.filter(|news| news.next > from) else { continue };
            open.next = news.next;
            let chunk = self.chunk(&news, to)?;
            *held = Some(open);
            return Ok(chunk);
        }
    }

    fn chunk(&self, news: &TailPartition, to: u64) -> Result<Chunk, Error> {
        let mut operations = Vec::with_capacity(news.records.len());
        for logged in news.records.iter().take_while(|logged| logged.offset < to) {
            let at = || format!("offset {}:{}", news.partition, logged.offset);
            let read = record::decode(&logged.record);
            let read = read.map_err(|error| self.failed(format!("{}: {error}", at())))?;
            let kind = match read.op() {
                Op::Put => Kind::Put,
                Op::Patch => Kind::Patch,
                Op::Delete => Kind::Delete,
                Op::Unspecified => {
                    return Err(self.failed(format!("{}: an operation that this build does not know", at())));
                }
            };
            let (offset, order) = (logged.offset, read.order);
            operations.push(Logged { offset, kind, key: read.key, order, document: read.document });
        }
        Ok(Chunk { operations, next: news.next })
    }
}

impl Operations for RemoteLog {
    fn ends(&self) -> BoxFuture<'_, Result<Ends, Error>> {
        self.ask_ends().boxed()
    }

    fn read(&self, partition: u32, from: u64, to: u64) -> BoxFuture<'_, Result<Chunk, Error>> {
        self.ask(partition, from, to).boxed()
    }
}
