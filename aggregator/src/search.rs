//! An aggregator as a `SearchNode`: the story of a search at this level is short, because the engine is the root's.
//!
//! It gathers the shards it was asked for and passes them on in batches: what settled waits at most `linger` (1/64 of
//! the time left, 0.5 to 5 ms), so that the level above, which alone sees all shards, can decide when enough came; the
//! hits of a batch are merged to one list. The last shard never waits. The whole search lives in the stream it returns:
//! dropping the stream drops every call below. Admission is the first thing: an adaptive limit of calls at once, and the
//! time that is left; who is refused asks another aggregator.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use canopy_common::{
    drain::{Busy, Drain},
    error::Failure,
    ids::{AttemptId, QueryId},
    limit::{self, Admission, AdmissionMetrics, Bounds},
    request::RequestContext,
    telemetry::SlowQueries,
};
use canopy_proto::{ReplyStream, SearchNode, v1};
use canopy_topology::routing::Routing;
use futures::{FutureExt, StreamExt, future::BoxFuture, stream};
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tracing::Instrument;

use crate::{
    config::AggregatorConfig,
    gather::{
        Decision, Gatherer,
        run::{Run, Withdrawal},
    },
};

/// Withdrawals waiting for one search.
const WITHDRAWALS: usize = 16;
/// How long a cancel waits for its search to take notice.
const CANCEL_PATIENCE: Duration = Duration::from_millis(500);

type Running = Mutex<BTreeMap<(QueryId, AttemptId), mpsc::Sender<Withdrawal>>>;

/// An aggregator.
pub struct AggregatorNode {
    engine: Arc<Gatherer>,
    routing: Routing,
    config: AggregatorConfig,
    slow: SlowQueries,
    drain: Drain,
    admission: Arc<Admission>,
    metrics: AdmissionMetrics,
    running: Arc<Running>,
}

impl AggregatorNode {
    /// An aggregator over an engine.
    pub fn new(
        engine: Arc<Gatherer>,
        routing: Routing,
        config: AggregatorConfig,
        slow: SlowQueries,
        metrics: AdmissionMetrics,
        drain: Drain,
    ) -> Self {
        let bounds = Bounds { min: config.min_in_flight, max: config.max_in_flight };
        let admission = Arc::new(Admission::new(bounds));
        Self { engine, routing, config, slow, drain, admission, metrics, running: Arc::default() }
    }

    /// Calls that run now.
    pub fn in_flight(&self) -> u32 {
        self.admission.in_flight()
    }

    /// Calls that may run at once now.
    pub fn limit(&self) -> u32 {
        self.admission.limit()
    }

    /// A place for one call, or the refusal: before any work.
    fn place(&self, context: &RequestContext) -> Result<Place, Failure> {
        let entered = self.admission.enter(context.priority, context.deadline);
        self.metrics.seen(&self.admission);
        match entered {
            Ok(place) => Ok(Place { place, _busy: self.drain.busy() }),
            Err(refusal) => {
                self.metrics.refused(refusal);
                Err(refusal.failure(self.admission.pushback()))
            }
        }
    }
}

/// Counts a call as running until it is dropped.
struct Place {
    place: limit::Place,
    _busy: Busy,
}

/// A search of this node, as its stream holds it.
struct Searching {
    run: Run,
    linger: Duration,
    registered: Registered,
    slow: SlowQueries,
    slow_threshold: Duration,
    place: Place,
    drain: Drain,
}

/// Takes the search out of the list of running ones when it ends.
struct Registered(Arc<Running>, (QueryId, AttemptId));

impl Drop for Registered {
    fn drop(&mut self) {
        self.0.lock().remove(&self.1);
    }
}

impl Searching {
    /// The next batch, and the search if it goes on.
    async fn next(mut self) -> (Result<v1::SearchReply, Failure>, Option<Self>) {
        let decision = self.run.advance(Some(self.linger)).await;
        let in_flight = self.place.place.in_flight();
        let mut reply = self.run.batch(decision, in_flight);
        if let Some(call) = &mut reply.call {
            call.draining = self.drain.leaving();
        }
        let Some(decision) = decision else { return (Ok(reply), Some(self)) };
        if self.run.took() >= self.slow_threshold {
            self.slow.push(self.run.record(decision));
        }
        drop(self.registered);
        // A search that waits on purpose says nothing of how many this node can do.
        if decision != Decision::Cancelled && !self.run.waits() {
            self.place.place.ended();
        }
        (Ok(reply), None)
    }
}

impl SearchNode for AggregatorNode {
    fn search(&self, context: RequestContext, request: v1::SearchRequest) -> ReplyStream {
        let place = match self.place(&context) {
            Ok(place) => place,
            Err(refusal) => return stream::iter([Err(refusal)]).boxed(),
        };
        let key = (context.query, context.attempt);
        let span = tracing::info_span!("aggregate", query = %context.query, shards = request.shards.len());
        let linger = context.deadline.remaining() / 64;
        let linger = linger.clamp(Duration::from_micros(500), Duration::from_millis(5));
        let (withdraw, withdrawals) = mpsc::channel(WITHDRAWALS);
        self.running.lock().insert(key, withdraw);
        let registered = Registered(self.running.clone(), key);
        let mut run = span.in_scope(|| {
            let mut run = Run::new(self.engine.clone(), context, self.routing.now(), Arc::new(request));
            run.begin();
            run
        });
        run.withdrawals(withdrawals);
        let searching = Searching {
            run,
            linger,
            registered,
            slow: self.slow.clone(),
            slow_threshold: self.config.slow_threshold.0,
            drain: self.drain.clone(),
            place,
        };
        let next = move |searching: Option<Searching>| {
            let span = span.clone();
            async move { Some(searching?.next().instrument(span).await) }
        };
        stream::unfold(Some(searching), next).boxed()
    }

    fn fetch(
        &self,
        context: RequestContext,
        request: v1::FetchRequest,
    ) -> BoxFuture<'static, Result<v1::FetchReply, Failure>> {
        let place = self.place(&context);
        let (engine, routing) = (self.engine.clone(), self.routing.now());
        async move {
            let _place = place?;
            engine.fetch(&context, &routing, request, &[]).await
        }
        .boxed()
    }

    fn cancel(&self, request: v1::CancelRequest) -> BoxFuture<'static, Result<u32, Failure>> {
        let query = QueryId::from_wire(&request.query_id);
        let running = self.running.clone();
        async move {
            let query = query.map_err(|error| Failure::invalid("query_id", error.to_string()))?;
            let key = (query, AttemptId(request.attempt_id));
            // Unknown: it ended, or never came here. Either way nothing of it runs.
            let Some(withdraw) = running.lock().get(&key).cloned() else { return Ok(0) };
            let (count, counted) = oneshot::channel();
            if withdraw.try_send((request.shards, count)).is_err() {
                return Ok(0);
            }
            let counted = tokio::time::timeout(CANCEL_PATIENCE, counted).await;
            Ok(counted.ok().and_then(Result::ok).unwrap_or(0))
        }
        .boxed()
    }
}
