//! The log for leaves: its ends, its tail, and what they could not apply.

use std::sync::Arc;

use canopy_common::drain::Drain;
use canopy_proto::ingest::{
    EndsReply, EndsRequest, PartitionRange, RefuseReply, RefuseRequest, TailReply, TailRequest, log_server,
};
use futures::{StreamExt, stream::BoxStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::status;
use crate::{corpora::Corpora, dead::Letter, error::Error, tail};

/// Most letters of one message.
const MAX_LETTERS: usize = 10_000;

/// For leaves.
pub struct Follow {
    /// What is followed.
    pub corpora: Arc<Corpora>,
    /// Tails end with it.
    pub drain: Drain,
}

#[tonic::async_trait]
impl log_server::Log for Follow {
    type TailStream = BoxStream<'static, Result<TailReply, Status>>;

    async fn tail(&self, request: Request<TailRequest>) -> Result<Response<Self::TailStream>, Status> {
        let request = request.into_inner();
        let feed = self.corpora.get(&request.corpus).map_err(status)?;
        let wish = tail::wish(&feed, &request).map_err(status)?;
        let (sender, receiver) = mpsc::channel(1);
        tokio::spawn(tail::run(feed, wish, sender, self.drain.clone()));
        Ok(Response::new(ReceiverStream::new(receiver).boxed()))
    }

    async fn ends(&self, request: Request<EndsRequest>) -> Result<Response<EndsReply>, Status> {
        let feed = self.corpora.get(&request.get_ref().corpus).map_err(status)?;
        let ranges = feed.ranges().await.map_err(status)?;
        let range = |(partition, range): (u32, canopy_log::Range)| PartitionRange {
            partition,
            first: range.first,
            end: range.end,
        };
        let partitions = (0..).zip(ranges).map(range).collect();
        Ok(Response::new(EndsReply { epoch: feed.log.epoch(), partitions }))
    }

    async fn refuse(&self, request: Request<RefuseRequest>) -> Result<Response<RefuseReply>, Status> {
        let RefuseRequest { corpus, letters } = request.into_inner();
        let feed = self.corpora.get(&corpus).map_err(status)?;
        if letters.len() > MAX_LETTERS {
            let message = format!("{} letters, at most {MAX_LETTERS} are taken at a time", letters.len());
            return Err(status(Error::above("letters", message, MAX_LETTERS as u64)));
        }
        let added = feed.bury(letters.into_iter().map(Letter::from_wire).collect()).await;
        feed.around.metrics.rejected.with_label_values(&["leaf"]).inc_by(added);
        Ok(Response::new(RefuseReply {}))
    }
}
