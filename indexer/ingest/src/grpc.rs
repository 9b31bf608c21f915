//! The gRPC services: [`Ingest`] for writers, [`Follow`] for leaves. The same calls as HTTP makes.
//!
//! Keys are asked of writers only: leaves and ingest trust the network between them, as all nodes of a tree do.

mod follow;

pub use follow::Follow;

use std::sync::Arc;

use canopy_common::{drain::Drain, error::Failure, rpc::status::to_status};
use canopy_format::{document::Reject, operation::Given, token::Token};
use canopy_proto::ingest::{
    DeadLettersReply, DeadLettersRequest, EraseReply, EraseRequest, EraseStep, Item, ItemReply, Op,
    StatusReply, StatusRequest, TokenReply, TokenRequest, WriteReply, WriteRequest, ingest_server,
    item_reply,
};
use futures::{StreamExt, stream::BoxStream};
use tonic::{Request, Response, Status, Streaming, metadata::MetadataMap};

use crate::{
    corpora::Corpora,
    dead::Letter,
    erase,
    error::{Error, Result},
    feed::blocking,
    keys::Keys,
    plan::Came,
    pressure::RETRY_AFTER_MS,
    write::{self, Answer, Written},
};

/// For writers.
#[derive(Clone)]
pub struct Ingest {
    /// What is taken.
    pub corpora: Arc<Corpora>,
    /// Who may write.
    pub keys: Arc<Keys>,
    /// A batch that was begun is finished.
    pub drain: Drain,
}

/// An error as a status.
pub fn status(error: Error) -> Status {
    to_status(&Failure::from(error))
}

fn allowed(keys: &Keys, metadata: &MetadataMap, corpus: &str) -> Result<()> {
    let given = metadata.get("authorization").map(|value| value.as_bytes().to_vec());
    keys.check(given.as_deref(), corpus).map(drop)
}

/// An item of a message as it came.
fn came(item: Item) -> Came {
    let op = match item.op() {
        Op::Put => "put",
        Op::Patch => "patch",
        Op::Delete => "delete",
        Op::Unspecified => "",
    };
    let document = if item.document.is_empty() {
        Ok(None)
    } else {
        serde_json::from_slice(&item.document).map(Some).map_err(|error| Reject {
            field: "document".to_owned(),
            reason: format!("not an object of fields: {error}"),
        })
    };
    let (key, order) = (item.key.clone(), item.order);
    let given = document.map(|document| Given { op: op.to_owned(), key, document, order });
    Came { given, key: item.key, op: op.to_owned(), raw: item.document }
}

fn item_reply(answer: Answer) -> ItemReply {
    let status = match answer.status {
        write::Status::Rejected => item_reply::Status::Rejected,
        write::Status::Applied => item_reply::Status::Applied,
        write::Status::Stale => item_reply::Status::Stale,
        write::Status::Superseded => item_reply::Status::Superseded,
    };
    let (offset, again) = (answer.place(), answer.again.is_some());
    let Answer { key, reason, field, .. } = answer;
    ItemReply { key, status: status.into(), offset, reason, field, again }
}

fn write_reply(written: Written) -> WriteReply {
    let items: Vec<_> = written.answers.into_iter().map(item_reply).collect();
    let retry_after_ms = if items.iter().any(|item| item.again) { RETRY_AFTER_MS } else { 0 };
    WriteReply { items, token: written.token.to_string(), retry_after_ms }
}

/// Writes what a stream of one writer holds.
struct Writing {
    ingest: Ingest,
    metadata: MetadataMap,
    requests: Streaming<WriteRequest>,
    corpus: String,
}

impl Writing {
    /// The answer to the next request; `None`: there are no more.
    async fn next(&mut self) -> Option<Result<WriteReply>> {
        let request = tokio::select! {
            biased;
            request = self.requests.next() => request?,
            () = self.ingest.drain.wait_started() => return None,
        };
        // The writer is gone: nobody is to be told.
        let request = request.ok()?;
        Some(self.write(request).await)
    }

    async fn write(&mut self, request: WriteRequest) -> Result<WriteReply> {
        let _finished_though_it_drains = self.ingest.drain.busy();
        if !request.corpus.is_empty() {
            self.corpus = request.corpus;
        }
        allowed(&self.ingest.keys, &self.metadata, &self.corpus)?;
        let feed = self.ingest.corpora.get(&self.corpus)?;
        let most = self.ingest.corpora.around.config.max_lines;
        if request.items.len() > most as usize {
            let message = format!(
                "{} items in one request, at most {most} are taken (ingest.max_lines)",
                request.items.len()
            );
            return Err(Error::above("items", message, most.into()));
        }
        let (mut written, size) = (Written::default(), self.ingest.corpora.around.config.batch as usize);
        written.token = Token { epoch: feed.log.epoch(), ..Token::default() };
        let mut items = request.items.into_iter().map(came).peekable();
        while items.peek().is_some() {
            let batch = items.by_ref().take(size).collect();
            written.join(write::write(&feed, batch).await);
        }
        Ok(write_reply(written))
    }
}

#[tonic::async_trait]
impl ingest_server::Ingest for Ingest {
    type WriteStream = BoxStream<'static, std::result::Result<WriteReply, Status>>;

    async fn write(
        &self,
        request: Request<Streaming<WriteRequest>>,
    ) -> std::result::Result<Response<Self::WriteStream>, Status> {
        let metadata = request.metadata().clone();
        let (requests, corpus) = (request.into_inner(), String::new());
        let writing = Writing { ingest: self.clone(), metadata, requests, corpus };
        let replies = futures::stream::unfold(Some(writing), |writing| async move {
            let mut writing = writing?;
            match writing.next().await? {
                Ok(reply) => Some((Ok(reply), Some(writing))),
                Err(error) => Some((Err(status(error)), None)),
            }
        });
        Ok(Response::new(replies.boxed()))
    }

    async fn token(
        &self,
        request: Request<TokenRequest>,
    ) -> std::result::Result<Response<TokenReply>, Status> {
        let corpus = &request.get_ref().corpus;
        allowed(&self.keys, request.metadata(), corpus).map_err(status)?;
        let feed = self.corpora.get(corpus).map_err(status)?;
        let token = feed.token().await.map_err(status)?.to_string();
        Ok(Response::new(TokenReply { token }))
    }

    async fn erase(
        &self,
        request: Request<EraseRequest>,
    ) -> std::result::Result<Response<EraseReply>, Status> {
        let EraseRequest { corpus, key } = request.get_ref();
        allowed(&self.keys, request.metadata(), corpus).map_err(status)?;
        let _finished_though_it_drains = self.drain.busy();
        let feed = self.corpora.get(corpus).map_err(status)?;
        let cuts = self.corpora.cuts(corpus);
        let erased = erase::erase(&feed, &self.corpora.store, &cuts, key, None).await;
        let (token, steps) = erased.map_err(status)?;
        let step = |step: erase::Step| EraseStep {
            what: step.what.to_owned(),
            done: step.done,
            detail: step.detail,
        };
        let steps = steps.into_iter().map(step).collect();
        Ok(Response::new(EraseReply { token: token.to_string(), steps }))
    }

    async fn dead_letters(
        &self,
        request: Request<DeadLettersRequest>,
    ) -> std::result::Result<Response<DeadLettersReply>, Status> {
        let DeadLettersRequest { corpus, last } = request.get_ref();
        allowed(&self.keys, request.metadata(), corpus).map_err(status)?;
        let feed = self.corpora.get(corpus).map_err(status)?;
        let last = if *last == 0 { usize::MAX } else { *last as usize };
        let most = feed.around.max_message / 2;
        let (letters, dropped) = blocking(move || feed.dead.last(last, most)).await.map_err(status)?;
        let letters = letters.into_iter().map(Letter::into_wire).collect();
        Ok(Response::new(DeadLettersReply { letters, dropped }))
    }

    async fn status(
        &self,
        request: Request<StatusRequest>,
    ) -> std::result::Result<Response<StatusReply>, Status> {
        let corpus = &request.get_ref().corpus;
        allowed(&self.keys, request.metadata(), corpus).map_err(status)?;
        if !corpus.is_empty() {
            self.corpora.get(corpus).map_err(status)?;
        }
        Ok(Response::new(StatusReply { document: self.corpora.status(corpus).to_string() }))
    }
}
