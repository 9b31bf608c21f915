//! A leaf without an index: one shard, some workers, a queue. It does nothing but take time, draws that time by name
//! (see [`crate::draw`]), and counts at the leaf what was asked, begun, finished, stopped and done twice, because what a
//! client believes it sent is no measure of work.
//!
//! What happens to work whose caller has gone is the difference between a system that recovers and one that does not,
//! so it is a setting: stop it wherever it is (`Running`, what a real leaf does), take it out of the queue only
//! (`Queued`), or do all of it for nobody (`Never`).
//!
//! It is nearly free: one allocation for the call, one for its reply, one timer.

mod counts;
mod holding;
mod queue;
mod tie;

use std::{
    future::poll_fn,
    sync::{Arc, Weak},
    task::Poll,
    time::Duration,
};

use canopy_common::{
    error::{ErrorClass, Failure},
    ids::NodeId,
    limit::Times,
    request::{Priority, RequestContext},
};
use canopy_proto::{ReplyStream, SearchNode, v1};
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep_until};

use crate::{draw, latency::Latency, scale::Scale};

pub use counts::Counts;
use holding::Holding;
pub use queue::Protected;
use queue::{Call, Queue, Turn};
use tie::Ties;

/// Documents of every shard.
pub const DOCUMENTS: u64 = 1000;
/// Queries in flight whose copies are told apart.
const RECENT: usize = 1 << 13;

/// Where work stops when its caller has gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cancel {
    /// Everywhere: queued and running.
    Running,
    /// In the queue only.
    Queued,
    /// Nowhere.
    Never,
}

/// A time in which every leaf is slower by the same factor.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Slowness {
    /// Begins, model ms from the start.
    pub from: f64,
    /// Ends.
    pub to: f64,
    /// Times slower.
    pub factor: f64,
}

/// What all leaves of an arm share.
#[derive(Debug, Clone)]
pub struct Ground {
    /// Model and virtual time.
    pub scale: Scale,
    /// Time of one call.
    pub latency: Latency,
    /// Versions whose calls take other times.
    pub versions: Vec<(u64, Latency)>,
    /// Seed of the draws.
    pub seed: u64,
    /// Workers of a leaf; 0: as many as there are calls.
    pub workers: u32,
    /// What happens to work that nobody waits for.
    pub cancel: Cancel,
    /// Times when all are slow.
    pub slowness: Vec<Slowness>,
    /// Queries before this one are not counted.
    pub warmup: u64,
    /// How the line protects itself; `None`: not at all.
    pub protected: Option<Protected>,
    /// Virtual time of a message from leaf to leaf.
    pub travel: Duration,
    /// When the arm began.
    pub start: Instant,
}

/// How often one query came to one shard, at any of its replicas.
#[derive(Debug, Clone, Copy, Default)]
struct Copies {
    /// Number of the query, plus one.
    query: u64,
    arrived: u32,
    begun: u32,
    finished: u32,
}

/// What the replicas of one shard have in common: which copies of a query they have seen.
pub struct Siblings {
    recent: Mutex<Vec<Copies>>,
    leaves: Mutex<Vec<(NodeId, Weak<ModelLeaf>)>>,
}

impl Default for Siblings {
    fn default() -> Self {
        Self { recent: Mutex::new(vec![Copies::default(); RECENT]), leaves: Mutex::default() }
    }
}

impl Siblings {
    /// Changes the line of a query and says what it was before.
    fn note(&self, query: u64, change: impl FnOnce(&mut Copies)) -> Copies {
        let mut recent = self.recent.lock();
        let line = &mut recent[query as usize % RECENT];
        if line.query != query + 1 {
            *line = Copies { query: query + 1, ..Copies::default() };
        }
        let before = *line;
        change(line);
        before
    }

    /// A replica has a name.
    pub fn join(&self, name: NodeId, leaf: &Arc<ModelLeaf>) {
        self.leaves.lock().push((name, Arc::downgrade(leaf)));
    }

    /// The replica of this name.
    pub(crate) fn named(&self, name: &NodeId) -> Option<Arc<ModelLeaf>> {
        self.leaves.lock().iter().find(|leaf| leaf.0 == *name)?.1.upgrade()
    }

    /// Whether some copy of the query was answered.
    pub fn finished(&self, query: u64) -> bool {
        let line = self.recent.lock()[query as usize % RECENT];
        line.query == query + 1 && line.finished > 0
    }
}

/// One leaf.
pub struct ModelLeaf {
    ground: Arc<Ground>,
    siblings: Arc<Siblings>,
    shard: u32,
    /// Times slower than the others.
    factor: f64,
    state: Mutex<State>,
}

struct State {
    queue: Queue,
    counts: Counts,
    ties: Ties,
    holding: Holding,
    /// Times of finished work, for what can't be in time.
    times: Times,
    /// All calls that came, warm-up included.
    calls: u64,
}

impl ModelLeaf {
    /// A replica of `shard`, `factor` times slower than the model.
    pub fn new(ground: Arc<Ground>, siblings: Arc<Siblings>, shard: u32, factor: f64) -> Self {
        let state = State {
            queue: Queue::new(ground.workers, ground.protected, ground.start),
            times: Times::default(),
            counts: Counts::default(),
            ties: Ties::default(),
            holding: Holding::default(),
            calls: 0,
        };
        Self { ground, siblings, shard, factor, state: Mutex::new(state) }
    }

    /// What happened here so far.
    pub fn counts(&self) -> Counts {
        self.state.lock().counts
    }

    /// Calls that came so far, counted or not.
    pub fn calls(&self) -> u64 {
        self.state.lock().calls
    }

    /// It holds a version too, and from the first one that was said on no other.
    pub fn hold(&self, version: u64) {
        self.state.lock().holding.hold(version);
    }

    /// It does not hold a version any more.
    pub fn let_go(&self, version: u64) {
        self.state.lock().holding.let_go(version);
    }

    /// What begins from now on takes so many times as long; 1: as usual.
    pub fn slow_down(&self, times: f64) {
        self.state.lock().holding.slow_down(times);
    }

    /// Virtual time of a call, if it begins at `now`.
    fn service(&self, call: Call, now: Instant) -> Duration {
        let ground = &self.ground;
        let unit = draw::unit(&[ground.seed, call.query, u64::from(self.shard), u64::from(call.copy)]);
        let own = ground.versions.iter().find(|(version, _)| *version == call.version);
        let latency = own.map_or(ground.latency, |(_, latency)| *latency);
        let at = ground.scale.ms(now - ground.start);
        let slow = ground.slowness.iter().filter(|slow| slow.from <= at && at < slow.to);
        let factor = self.factor * self.state.lock().holding.slowdown();
        let factor = slow.fold(factor, |product, slow| product * slow.factor);
        ground.scale.span(latency.quantile(unit) * factor)
    }

    fn count(&self, query: u64, change: impl FnOnce(&mut Counts)) {
        if query >= self.ground.warmup {
            change(&mut self.state.lock().counts);
        }
    }

    /// A worker is free: what is next may begin.
    fn release(self: &Arc<Self>) {
        let next = self.state.lock().queue.release(Instant::now());
        next.wake.into_iter().for_each(std::task::Waker::wake);
        if let Some(call) = next.orphan {
            self.run_for_nobody(call);
        }
    }

    /// Does the work of a call whose caller has gone.
    fn run_for_nobody(self: &Arc<Self>, call: Call) {
        let now = Instant::now();
        self.begun(call.query);
        self.finish_for_nobody(call.query, now, now + self.service(call, now));
    }

    fn finish_for_nobody(self: &Arc<Self>, query: u64, began: Instant, ends: Instant) {
        let leaf = self.clone();
        tokio::spawn(async move {
            sleep_until(ends).await;
            leaf.worked(query, began, |counts| counts.for_nobody += 1);
            leaf.release();
        });
    }

    fn begun(&self, query: u64) {
        let before = self.siblings.note(query, |copies| copies.begun += 1);
        self.count(query, |counts| {
            counts.begun += 1;
            counts.twice += u64::from(before.begun > 0);
        });
    }

    fn worked(&self, query: u64, began: Instant, how: impl FnOnce(&mut Counts)) {
        let busy = began.elapsed();
        self.count(query, |counts| {
            counts.busy += busy;
            how(counts);
        });
    }
}

/// Where a call is.
enum Phase {
    Queued,
    Running { began: Instant, ends: Instant },
    Done,
}

/// A call at its leaf. Dropping it is the caller's going away.
struct Visit {
    leaf: Arc<ModelLeaf>,
    call: Call,
    ticket: u64,
    arrived: Instant,
    phase: Phase,
    /// Why it does not even wait.
    refusal: v1::Outcome,
    /// What it answers is part of the query's answer: copies that nobody waits for are batch calls.
    waited_for: bool,
}

impl Visit {
    fn arrive(leaf: &Arc<ModelLeaf>, query: u64, version: u64, deadline: Instant) -> Self {
        let copy = leaf.siblings.note(query, |copies| copies.arrived += 1).arrived;
        let (call, now) = (Call { query, copy, version, deadline }, Instant::now());
        let mut state = leaf.state.lock();
        state.calls += 1;
        let held = state.holding.has(version);
        if query >= leaf.ground.warmup {
            state.counts.arrived += 1;
            state.counts.copies += u64::from(copy > 0);
            state.counts.not_held += u64::from(!held);
        }
        let left = deadline.saturating_duration_since(now);
        let (mean, p90) = (state.times.mean(), state.times.p90());
        // Nine of ten take longer than is left after the wait: not even tried while others wait.
        let late = leaf.ground.protected.is_some() && left < p90 + state.queue.wait(mean);
        let late = late && state.queue.full();
        let refusal = if held { v1::Outcome::Shed } else { v1::Outcome::Unavailable };
        let ticket = (held && !late).then(|| state.queue.enter(call, now, mean));
        drop(state);
        let phase = if ticket.is_some() { Phase::Queued } else { Phase::Done };
        let ticket = ticket.unwrap_or(u64::MAX);
        Self { leaf: leaf.clone(), call, ticket, arrived: now, phase, refusal, waited_for: true }
    }

    /// Waits for a worker and begins; when the work will be done, or why it is not.
    async fn begin(&mut self) -> Result<Instant, v1::Outcome> {
        if matches!(self.phase, Phase::Done) {
            self.leaf.count(self.call.query, |counts| counts.refused += 1);
            return Err(self.refusal);
        }
        let turn = poll_fn(|cx| match self.leaf.state.lock().queue.poll(self.ticket, cx.waker()) {
            Some(turn) => Poll::Ready(turn),
            None => Poll::Pending,
        })
        .await;
        if turn != Turn::Run {
            self.phase = Phase::Done;
            self.leaf.count(self.call.query, |counts| counts.refused += 1);
            return Err(if turn == Turn::Shed { v1::Outcome::Shed } else { v1::Outcome::TimedOut });
        }
        let began = Instant::now();
        let ends = began + self.leaf.service(self.call, began);
        self.phase = Phase::Running { began, ends };
        self.leaf.begun(self.call.query);
        Ok(ends)
    }

    fn finish(&mut self, shards: usize, version: u64) -> v1::SearchReply {
        let Phase::Running { began, .. } = std::mem::replace(&mut self.phase, Phase::Done) else {
            return v1::SearchReply::default();
        };
        if self.waited_for {
            self.leaf.siblings.note(self.call.query, |copies| copies.finished += 1);
        }
        self.leaf.worked(self.call.query, began, |counts| counts.finished += 1);
        let in_flight = {
            let state = self.leaf.state.lock();
            if self.leaf.ground.protected.is_some() {
                state.times.record(began.elapsed());
            }
            state.queue.len()
        };
        self.leaf.release();
        let answer = |shard| v1::ShardReply {
            shard,
            outcome: v1::Outcome::Answered as i32,
            version,
            documents_searched: DOCUMENTS,
            lease: 1,
            ..Default::default()
        };
        let call = v1::CallReport {
            in_flight,
            queue_wait_us: (began - self.arrived).as_micros() as u64,
            epoch: 1,
            ..Default::default()
        };
        let shards = (0..shards as u32).map(answer).collect();
        v1::SearchReply { shards, call: Some(call), ..Default::default() }
    }

    /// It goes without having searched.
    fn gone(self, shards: usize, outcome: v1::Outcome) -> v1::SearchReply {
        let (leaf, arrived) = (self.leaf.clone(), self.arrived);
        drop(self);
        let gone = |shard| v1::ShardReply {
            shard,
            outcome: outcome as i32,
            reason: "not searched".to_owned(),
            ..Default::default()
        };
        let call = v1::CallReport {
            in_flight: leaf.state.lock().queue.len(),
            queue_wait_us: arrived.elapsed().as_micros() as u64,
            epoch: 1,
            ..Default::default()
        };
        let shards = (0..shards as u32).map(gone).collect();
        v1::SearchReply { shards, call: Some(call), ..Default::default() }
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let leaf = &self.leaf;
        let cancel = leaf.ground.cancel;
        match self.phase {
            Phase::Done => {}
            Phase::Queued => {
                let keep = cancel == Cancel::Never;
                let left = leaf.state.lock().queue.leave(self.ticket, keep);
                match left {
                    queue::Left::Out => leaf.count(self.call.query, |counts| counts.left_queue += 1),
                    queue::Left::Stays => {}
                    // It had a worker, and had not begun.
                    queue::Left::Admitted if keep => leaf.run_for_nobody(self.call),
                    queue::Left::Admitted => {
                        leaf.count(self.call.query, |counts| counts.left_queue += 1);
                        leaf.release();
                    }
                }
            }
            Phase::Running { began, ends } => {
                if cancel == Cancel::Running {
                    leaf.worked(self.call.query, began, |counts| counts.stopped += 1);
                    leaf.release();
                } else {
                    leaf.finish_for_nobody(self.call.query, began, ends);
                }
            }
        }
    }
}

/// A leaf as the engine sees it.
pub struct Asked(pub Arc<ModelLeaf>);

/// The number of a query, which its id carries.
fn number(context: &RequestContext) -> u64 {
    let id = context.query.0;
    u64::from_be_bytes([id[8], id[9], id[10], id[11], id[12], id[13], id[14], id[15]])
}

impl SearchNode for Asked {
    fn search(&self, context: RequestContext, request: v1::SearchRequest) -> ReplyStream {
        let (shards, version) = (request.shards.len(), request.version);
        let mut visit = Visit::arrive(&self.0, number(&context), version, context.deadline.instant());
        visit.waited_for = context.priority != Priority::Batch;
        if let Some(tie) = request.tie {
            let reply = async move { Ok(tie::serve(visit, &context, tie, shards, version).await) };
            return stream::once(reply).boxed();
        }
        let reply = async move {
            match visit.begin().await {
                Ok(ends) => sleep_until(ends).await,
                Err(outcome) => return Ok(visit.gone(shards, outcome)),
            }
            Ok(visit.finish(shards, version))
        };
        stream::once(reply).boxed()
    }

    fn fetch(
        &self,
        _context: RequestContext,
        _request: v1::FetchRequest,
    ) -> BoxFuture<'static, Result<v1::FetchReply, Failure>> {
        let failure = Failure::new(ErrorClass::FailedPrecondition, "a model leaf holds no documents");
        futures::future::ready(Err(failure)).boxed()
    }

    fn cancel(&self, _request: v1::CancelRequest) -> BoxFuture<'static, Result<u32, Failure>> {
        futures::future::ready(Ok(0)).boxed()
    }
}

#[cfg(test)]
mod tests;
