//! Search at the leaf, the story: find the views, admit, queue, search shard by shard on the leaf's own threads, send
//! what settles, and at the deadline account for what did not.
//!
//! Up to as many tasks as there are threads work on a call, each taking the next shard that nobody has taken: shards of
//! one call run side by side when threads are idle, and cost one queue entry when they are not. The stream's own timer
//! settles what is open at the deadline, so a stuck thread can't hold an answer back. When the stream is dropped,
//! running searches are told to stop and waiting ones leave the queue.

mod work;

use std::{sync::Arc, time::Duration};

use canopy_common::{
    drain::Busy,
    error::Failure,
    ids::Version,
    request::{Priority, RequestContext},
};
use canopy_proto::{
    ReplyStream,
    v1::{Outcome, SearchReply, SearchRequest},
};
use futures::StreamExt;

use crate::{
    call::{Call, Found, Settled},
    executor::{Lane, Task},
    node::Parts,
    reply,
    shards::Serving,
};

/// Starts a search at once; its replies as a stream.
pub fn start(parts: &Arc<Parts>, context: RequestContext, request: SearchRequest) -> ReplyStream {
    let request = Arc::new(request);
    let span = tracing::info_span!("leaf_search", query = %context.query, shards = request.shards.len());
    let mut refused = Vec::new();
    let servings = find(parts, &request, &mut refused);
    let call = Arc::new(Call::new(
        parts.calls.number(),
        request,
        context.deadline,
        servings,
        parts.config.coalesce.0,
        span,
    ));
    parts.metrics.asked(call.request.shards.len());
    let stopped = parts.calls.begin(context.query, context.attempt, &call);
    let mut stream =
        Stream { _busy: parts.drain.busy(), parts: parts.clone(), call, context, pushback: Duration::ZERO };
    for (index, failure) in refused {
        let reply = reply::failed(index, &parts.shards.node.0, &failure);
        stream.parts.settle(&stream.call, Settled { reply, ..Settled::default() }, Duration::ZERO);
    }
    if let Some(shards) = stopped {
        parts.cancel(&stream.call, &shards);
    }
    stream.admit();
    futures::stream::unfold(stream, |mut stream| async move {
        let item = stream.next().await?;
        Some((item, stream))
    })
    .boxed()
}

/// The views of the asked shards, from one snapshot; what is not held goes to `refused`.
fn find(
    parts: &Parts,
    request: &SearchRequest,
    refused: &mut Vec<(u32, Failure)>,
) -> Vec<(u32, Arc<Serving>)> {
    let snapshot = parts.shards.directory.snapshot();
    let version = Version(request.version);
    let mut found = Vec::with_capacity(request.shards.len());
    for (index, shard) in request.shards.iter().enumerate() {
        match parts.shards.find(&snapshot, &request.corpus, version, &shard.shard) {
            Ok(serving) => found.push((index as u32, serving)),
            Err(failure) => refused.push((index as u32, failure)),
        }
    }
    found
}

struct Stream {
    parts: Arc<Parts>,
    call: Arc<Call>,
    context: RequestContext,
    pushback: Duration,
    _busy: Busy,
}

impl Stream {
    /// Queues the call, or settles it without any work.
    fn admit(&mut self) {
        if self.call.all_settled() {
            return;
        }
        let remaining = self.context.deadline.remaining();
        if remaining.is_zero() {
            self.settle_open(Outcome::TimedOut, "the deadline had passed when the search arrived");
            return;
        }
        let executor = &self.parts.executor;
        let floor = executor.times().floor();
        if remaining < floor && executor.queued() > 0 {
            let reason =
                format!("{remaining:?} are left; no search here has lately taken less than {floor:?}");
            self.shed(&reason);
            return;
        }
        let tasks = executor.threads().min(self.call.targets().len());
        let tasks = (0..tasks).map(|_| self.task()).collect();
        if executor.submit(tasks) == 0 {
            self.shed("the queue of this leaf is full");
        }
    }

    fn task(&self) -> Task {
        let (parts, call) = (self.parts.clone(), self.call.clone());
        let lane = match self.context.priority {
            Priority::Interactive => Lane::Interactive,
            Priority::Batch => Lane::Batch,
        };
        Task {
            lane,
            deadline: call.deadline,
            owner: call.number,
            run: Box::new(move |turn| work::work(&parts, &call, turn)),
        }
    }

    fn shed(&mut self, reason: &str) {
        self.pushback = self.parts.executor.pushback();
        self.parts.metrics.shed.inc();
        self.settle_open(Outcome::Shed, reason);
    }

    fn settle_open(&self, outcome: Outcome, reason: &str) {
        let node = &self.parts.shards.node.0;
        self.parts.settle_open(&self.call, &[], |index| reply::unanswered(index, node, outcome, reason));
    }

    async fn next(&mut self) -> Option<Result<SearchReply, Failure>> {
        let mut force = false;
        loop {
            let until = match self.call.find(force) {
                Found::Send { settled, last } => {
                    if last {
                        self.parts.note_slow(&self.context, &self.call, &settled);
                    }
                    let report = self.parts.report(&self.call, self.pushback);
                    let message = reply::message(&self.call.request, settled, report);
                    if let Err(failure) = reply::fits(&message, self.parts.max_message) {
                        self.parts.metrics.ended(self.call.close());
                        return Some(Err(failure));
                    }
                    return Some(Ok(message));
                }
                Found::Fatal(failure) => return Some(Err(failure)),
                Found::End => return None,
                Found::Wait(until) => until,
            };
            let deadline = self.context.deadline.instant();
            let wake_at = until.map_or(deadline, |until| until.min(deadline));
            force = tokio::select! {
                biased;
                () = self.context.cancel.cancelled() => {
                    self.parts.cancel(&self.call, &[]);
                    true
                }
                () = self.call.wake.notified() => false,
                () = tokio::time::sleep_until(wake_at) => {
                    if self.context.deadline.expired() {
                        self.settle_open(Outcome::TimedOut, "the deadline passed");
                    }
                    true
                }
            };
        }
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let open = self.call.close();
        if open > 0 {
            self.parts.executor.remove(self.call.number);
            self.parts.metrics.ended(open);
            self.parts.metrics.cancelled.inc_by(open as u64);
        }
        self.parts.calls.end(self.context.query, self.context.attempt, self.call.number);
    }
}
