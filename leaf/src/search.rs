//! Search at the leaf, the story: find the views, wait for the offsets that are wanted, admit, queue, search shard by
//! shard on the leaf's own threads, send what settles, and at the deadline account for what did not.
//!
//! Admission comes before any work, in this order: the adaptive limit of searches at once; the time that is left, when no
//! thread is idle, against the wait and the work; room in the queue. A refusal settles every shard as shed, with a hint of how
//! long to stay away.
//!
//! Up to as many tasks as there are threads work on a call, each taking the next shard that nobody has taken: shards of
//! one call run side by side when threads are idle, and cost one queue entry when they are not. The stream's own timer
//! settles what is open at the deadline, so a stuck thread can't hold an answer back. When the stream is dropped,
//! running searches are told to stop and waiting ones leave the queue.

mod reach;
mod work;

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use canopy_common::{
    drain::Busy,
    error::{ErrorClass, Failure},
    ids::Version,
    limit::{Place, Refusal},
    request::{Priority, RequestContext},
};
use canopy_proto::{
    ReplyStream,
    v1::{Instead, Outcome, SearchReply, SearchRequest},
};
use futures::StreamExt;
use tokio::time::Instant;

use crate::{
    call::{Call, Found, Settled},
    calls::Mark,
    executor::{Class, Lane, Task},
    node::Parts,
    reply,
    shards::Serving,
    tie::{Event, Tied},
};

/// Starts a search at once; its replies as a stream.
pub fn start(parts: &Arc<Parts>, context: RequestContext, request: SearchRequest) -> ReplyStream {
    let request = Arc::new(request);
    let span = tracing::info_span!("leaf_search", query = %context.query, shards = request.shards.len());
    let mut refused = Vec::new();
    let servings = find(parts, &request, &mut refused);
    let coalesce = parts.config.coalesce.0;
    let mut call = Call::new(parts.calls.number(), request, context.deadline, servings, coalesce, span);
    // One that can't answer all by itself must not stop a twin that perhaps can.
    let tie = call.request.tie.as_ref().filter(|_| refused.is_empty());
    call.tied = tie.map(|tie| Tied::of(tie, context.attempt));
    let call = Arc::new(call);
    parts.metrics.asked(call.request.shards.len());
    let mark = parts.calls.begin(context.query, context.attempt, &call);
    let mut stream = Stream {
        _busy: parts.drain.busy(),
        parts: parts.clone(),
        call,
        context,
        pushback: Duration::ZERO,
        place: None,
        wait_until: None,
    };
    for (index, failure) in refused {
        let mut reply = reply::failed(index, &parts.shards.node.0, &failure);
        // Not here: whoever asks may plan by another snapshot than this leaf goes by.
        if failure.class == ErrorClass::FailedPrecondition {
            reply.wrong_epoch = parts.routing.now().epoch.0;
            reply.instead = instead(parts, &stream.call.request, index);
        }
        stream.parts.settle(&stream.call, Settled { reply, ..Settled::default() }, Duration::ZERO);
    }
    if let Some(Mark::Cancelled(shards)) = &mark {
        parts.cancel(&stream.call, shards);
    }
    if let Some(tied) = &stream.call.tied {
        let marked = mark == Some(Mark::Claimed);
        parts.tied(&stream.call, tied, tied.on(Event::Arrives { marked }));
    }
    stream.wait_until = reach::wait(&stream.call);
    if stream.wait_until.is_none() {
        stream.admit();
    }
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
            Ok(serving) => {
                serving.asked.fetch_add(1, Ordering::Relaxed);
                found.push((index as u32, serving));
            }
            Err(failure) => refused.push((index as u32, failure)),
        }
    }
    if !found.is_empty() {
        parts.recent.note(request);
    }
    found
}

/// What is here of a shard that was asked for in another version: the one that this leaf's snapshot sends most queries to.
fn instead(parts: &Parts, request: &SearchRequest, index: u32) -> Option<Instead> {
    let routing = parts.routing.now();
    let version = routing.corpora.get(&request.corpus)?.main()?;
    let shard = request.shards.get(index as usize)?.shard.as_str();
    parts.shards.directory.snapshot().version(&request.corpus, version)?.get(shard)?;
    Some(Instead { version: version.0, epoch: routing.epoch.0 })
}

fn told(refusal: Refusal) -> String {
    refusal.failure(Duration::ZERO).message
}

struct Stream {
    parts: Arc<Parts>,
    call: Arc<Call>,
    context: RequestContext,
    pushback: Duration,
    place: Option<Place>,
    /// It is not admitted yet: its shards have to reach the offsets that it wants.
    wait_until: Option<Instant>,
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
        match self.parts.admission.take(self.context.priority) {
            Ok(place) => self.place = Some(place),
            Err(refusal) => return self.shed("limit", &told(refusal)),
        }
        let executor = &self.parts.executor;
        let takes = executor.times().p90(Class::of(&self.call.request)) + executor.wait(self.lane());
        if remaining < takes && !executor.idle() {
            return self.shed("too_late", &told(Refusal::TooLate(remaining, takes)));
        }
        let tasks = executor.threads().min(self.call.targets().len());
        let tasks = (0..tasks).map(|_| self.task()).collect();
        if executor.submit(tasks) == 0 {
            self.shed(
                "full",
                "the queue of this leaf is full, or longer than a search with this deadline can wait",
            );
        }
    }

    fn lane(&self) -> Lane {
        match self.context.priority {
            Priority::Interactive => Lane::Interactive,
            Priority::Batch => Lane::Batch,
        }
    }

    fn task(&self) -> Task {
        let (parts, call) = (self.parts.clone(), self.call.clone());
        Task {
            lane: self.lane(),
            deadline: call.deadline,
            owner: call.number,
            run: Box::new(move |turn| work::work(&parts, &call, turn)),
        }
    }

    fn shed(&mut self, why: &str, reason: &str) {
        self.pushback = self.parts.executor.pushback();
        self.place = None;
        self.parts.metrics.shed.inc();
        self.parts.metrics.refused.with_label_values(&[why]).inc();
        self.settle_open(Outcome::Shed, reason);
    }

    /// What the last message says of when to come again: a call that was given back by the queue was refused too.
    fn pushback(&self, settled: &[Settled]) -> Duration {
        let shed = |one: &Settled| one.reply.outcome == Outcome::Shed as i32;
        if self.pushback.is_zero() && settled.iter().any(shed) {
            return self.parts.executor.pushback();
        }
        self.pushback
    }

    /// The search has ended: its time counts, unless nobody began it or its caller stopped it.
    fn learn(&mut self) {
        let by_itself = self.call.since_stopped().is_none() || self.context.deadline.expired();
        if let Some(place) = self.place.take().filter(|_| by_itself && self.call.begun()) {
            place.ended();
        }
    }

    /// The deadline came first: before any thread began, or while they searched.
    fn too_late(&self) {
        if self.call.begun() {
            self.settle_open(Outcome::TimedOut, "the deadline passed");
        } else if self.settle_open(Outcome::TimedOut, work::EXPIRED) > 0 {
            self.parts.metrics.expired_in_queue.inc();
        }
    }

    fn settle_open(&self, outcome: Outcome, reason: &str) -> usize {
        let node = &self.parts.shards.node.0;
        self.parts.settle_open(&self.call, &[], |index| reply::unanswered(index, node, outcome, reason))
    }

    /// Waits for the wanted offsets, then queues the call.
    async fn reach(&mut self, until: Instant) {
        let (call, cancel) = (&self.call, &self.context.cancel);
        loop {
            tokio::select! {
                biased;
                () = cancel.cancelled() => break,
                () = reach::reached(call) => break,
                () = tokio::time::sleep_until(until) => break,
                () = call.wake.notified() => if call.all_settled() { break },
            }
        }
        self.admit();
    }

    async fn next(&mut self) -> Option<Result<SearchReply, Failure>> {
        if let Some(until) = self.wait_until.take() {
            self.reach(until).await;
        }
        let mut force = false;
        loop {
            let until = match self.call.find(force) {
                Found::Send { settled, last } => {
                    if last {
                        self.parts.note_slow(&self.context, &self.call, &settled);
                        self.learn();
                    }
                    let report = self.parts.report(&self.call, self.pushback(&settled));
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
                        self.too_late();
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
        let claim = self.call.tied.as_ref().and_then(Tied::begun);
        self.parts.calls.end(self.context.query, self.context.attempt, self.call.number, claim);
    }
}
