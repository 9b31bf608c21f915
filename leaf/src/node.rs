//! The leaf as a [`SearchNode`]: search, fetch, cancel over the shards it holds.

use std::{sync::Arc, time::Duration};

use canopy_common::{
    clock::WallClock,
    drain::Drain,
    error::Failure,
    ids::{AttemptId, QueryId},
    limit::Admission,
    request::RequestContext,
    telemetry::SlowQueries,
};
use canopy_proto::{
    ReplyStream, SearchNode,
    v1::{CallReport, CancelRequest, FetchReply, FetchRequest, Outcome, SearchRequest, ShardReply, Tie},
};
use canopy_topology::routing::Routing;
use futures::{FutureExt, future::BoxFuture};

use crate::{
    call::{Call, Settled},
    calls::{Calls, Cancelled, Claimed, MOST_SHARDS},
    config::LeafConfig,
    executor::Executor,
    fetch,
    metrics::Metrics,
    recent::Recent,
    reply, search,
    search_shard::ShardResult,
    shards::Shards,
    stop::Stop,
    tie::{Action, Claim, Event, Tied, peers::Tell},
    view::ShardView,
};

/// The search of one shard: [`crate::search_shard::search`], or what a test puts in its place.
pub type SearchShard = Box<dyn Fn(&ShardView, &SearchRequest, u32, &Stop) -> ShardResult + Send + Sync>;

/// What the calls of a leaf share.
pub struct Parts {
    /// Settings.
    pub config: LeafConfig,
    /// Largest message, bytes.
    pub max_message: usize,
    /// Wall time, for lag only.
    pub clock: Arc<dyn WallClock>,
    /// The routing snapshot that this leaf follows.
    pub routing: Routing,
    /// What it was asked of late.
    pub recent: Arc<Recent>,
    /// What it holds.
    pub shards: Arc<Shards>,
    /// How many searches it takes on.
    pub admission: Arc<Admission>,
    /// Its threads.
    pub executor: Executor,
    /// Tells the twins of tied searches.
    pub tell: Tell,
    /// Its running searches.
    pub calls: Calls,
    /// Its metrics.
    pub metrics: Metrics,
    /// Running calls hold it back.
    pub drain: Drain,
    /// Where slow searches are noted.
    pub slow: SlowQueries,
    /// Searches one shard.
    pub search: SearchShard,
}

impl Parts {
    /// Settles one shard of a call.
    pub(crate) fn settle(&self, call: &Call, settled: Settled, took: Duration) {
        let outcome = reply::outcome_word(&settled.reply);
        call.settle(settled, took, || {
            self.metrics.ended(1);
            self.metrics.outcomes.with_label_values(&[outcome]).inc();
        });
    }

    /// Settles the open shards of `which` (all when empty); how many there were.
    pub(crate) fn settle_open(&self, call: &Call, which: &[u32], make: impl Fn(u32) -> ShardReply) -> usize {
        let outcome = reply::outcome_word(&make(0));
        let count = call.settle_open(which, make, |count| {
            self.metrics.ended(count);
            self.metrics.outcomes.with_label_values(&[outcome]).inc_by(count as u64);
        });
        if count > 0 && call.all_settled() {
            self.executor.remove(call.number);
        }
        count
    }

    /// Stops shards of a call (all when empty); how many were open.
    pub(crate) fn cancel(&self, call: &Call, which: &[u32]) -> usize {
        let node = &self.shards.node.0;
        let stopped = self.settle_open(call, which, |index| reply::cancelled(index, node));
        self.metrics.cancelled.inc_by(stopped as u64);
        stopped
    }

    /// What the tie of a call asks for; how many shards it settled.
    pub(crate) fn tied(&self, call: &Call, tied: &Tied, action: Action) -> usize {
        let node = &self.shards.node.0;
        let count = |event| self.metrics.tied.with_label_values(&[event]).inc();
        match action {
            Action::Nothing => 0,
            Action::Tell(claim) => {
                count("claimed");
                (self.tell)(&tied.peer, self.claim(call, tied, claim));
                0
            }
            Action::Drop => {
                count("dropped");
                let reason = format!("dropped here: its twin at {} began first", tied.peer);
                self.settle_open(call, &[], |index| {
                    reply::unanswered(index, node, Outcome::Unavailable, reason.as_str())
                })
            }
            Action::Stop => {
                count("stopped");
                self.cancel(call, &[])
            }
        }
    }

    fn claim(&self, call: &Call, tied: &Tied, claim: Claim) -> CancelRequest {
        let twin =
            Tie { peer: self.shards.node.to_string(), attempt_id: claim.attempt.0, start_us: claim.start_us };
        CancelRequest {
            query_id: call.request.query_id.to_vec(),
            attempt_id: tied.twin.0,
            shards: Vec::new(),
            twin: Some(twin),
        }
    }

    /// What every reply says of this node.
    pub(crate) fn report(&self, call: &Call, pushback: Duration) -> CallReport {
        self.report_of(call.queue_us(), pushback)
    }

    /// See [`Parts::report`].
    pub(crate) fn report_of(&self, queue_wait_us: u64, pushback: Duration) -> CallReport {
        CallReport {
            node: self.shards.node.to_string(),
            in_flight: u32::try_from(self.metrics.in_flight.get()).unwrap_or(0),
            queue_wait_us,
            pushback_ms: pushback.as_millis() as u64,
            epoch: self.routing.now().epoch.0,
            draining: self.drain.leaving(),
        }
    }

    /// Notes a search that took long, with the shards of its last message.
    pub(crate) fn note_slow(&self, context: &RequestContext, call: &Call, settled: &[Settled]) {
        let took = call.arrived.elapsed();
        if took < self.config.slow.0 {
            return;
        }
        let shards: Vec<_> = settled
            .iter()
            .map(|one| {
                let shard = call.request.shards.get(one.reply.shard as usize);
                serde_json::json!({
                    "shard": shard.map(|shard| shard.shard.as_str()),
                    "outcome": reply::outcome_word(&one.reply),
                    "queue_us": one.reply.queue_us,
                    "search_us": one.reply.search_us,
                })
            })
            .collect();
        self.slow.push(serde_json::json!({
            "query_id": context.query.to_string(),
            "took_ms": took.as_secs_f64() * 1e3,
            "queue_ms": call.queue_us() as f64 / 1e3,
            "shards": shards,
        }));
    }
}

/// A leaf.
pub struct LeafNode(Arc<Parts>);

impl LeafNode {
    /// A leaf of these parts.
    pub fn new(parts: Arc<Parts>) -> Self {
        Self(parts)
    }
}

impl SearchNode for LeafNode {
    fn search(&self, context: RequestContext, request: SearchRequest) -> ReplyStream {
        search::start(&self.0, context, request)
    }

    fn fetch(
        &self,
        context: RequestContext,
        request: FetchRequest,
    ) -> BoxFuture<'static, Result<FetchReply, Failure>> {
        fetch::run(self.0.clone(), context, request).boxed()
    }

    fn cancel(&self, request: CancelRequest) -> BoxFuture<'static, Result<u32, Failure>> {
        futures::future::ready(cancel(&self.0, &request)).boxed()
    }
}

fn cancel(parts: &Parts, request: &CancelRequest) -> Result<u32, Failure> {
    let query = QueryId::from_wire(&request.query_id)
        .map_err(|error| Failure::invalid("query_id", error.to_string()))?;
    if request.shards.len() > MOST_SHARDS {
        let message =
            format!("{} shards; the limit is {MOST_SHARDS}: name none to stop all", request.shards.len());
        return Err(Failure::invalid("shards", message).with_limit(MOST_SHARDS as u64));
    }
    if let Some(twin) = &request.twin {
        return Ok(claimed(parts, query, AttemptId(request.attempt_id), twin) as u32);
    }
    match parts.calls.cancel(query, AttemptId(request.attempt_id), &request.shards) {
        Cancelled::Running(call) => Ok(parts.cancel(&call, &request.shards) as u32),
        Cancelled::Nothing | Cancelled::Marked => Ok(0),
    }
}

/// The twin of a tied search says that it has begun; shards stopped here.
fn claimed(parts: &Parts, query: QueryId, attempt: AttemptId, twin: &Tie) -> usize {
    let claim = Claim { start_us: twin.start_us, attempt: AttemptId(twin.attempt_id) };
    match parts.calls.claim(query, attempt) {
        Claimed::Running(call) => match &call.tied {
            Some(tied) if tied.twin == claim.attempt => {
                parts.tied(&call, tied, tied.on(Event::Claimed(claim)))
            }
            _ => 0,
        },
        Claimed::Ended(Some(mine)) if claim < mine => {
            parts.metrics.tied.with_label_values(&["duplicate"]).inc();
            0
        }
        Claimed::Ended(_) | Claimed::Nothing | Claimed::Marked => 0,
    }
}

#[cfg(test)]
mod tests;
