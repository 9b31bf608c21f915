//! The loop. It waits for whatever comes first (a reply, an instant, the caller) and hands it on; it decides nothing.
//!
//! Order within a turn is fixed: the caller first, then withdrawals, then replies, then the timer, so that a reply that
//! is already here at the last instant still counts (for at most [`DRAIN`]), and a simulation repeats. A turn that
//! merged many hits yields, because replies that are all ready at once would otherwise keep the runtime from noticing
//! that the caller left.

use std::{collections::BTreeSet, pin::Pin, sync::Arc, time::Duration};

use canopy_common::request::RequestContext;
use canopy_proto::v1;
use canopy_topology::routing::RoutingSnapshot;
use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{mpsc, oneshot},
    time::{Instant, Sleep, sleep_until},
};
use tokio_util::sync::WaitForCancellationFutureOwned;

use super::{
    Decision, Gathered, Gatherer,
    attempt::{Attempt, Calls, Said},
    completion::{Completion, Verdict},
    event::Event,
    hedging::Hedges,
    ledger::Ledger,
    narrow::Narrow,
    newer::Newer,
    schedule::Schedule,
};
use crate::{config::GatherConfig, merge::HitMerge, plan::Branch};

/// How long after its end a search still takes replies that are already here.
const DRAIN: Duration = Duration::from_millis(1);
/// Hits merged without letting others run.
const HITS_PER_TURN: usize = 4096;

/// Shards that the caller no longer wants (empty: any), and where to say how many were open.
pub type Withdrawal = (Vec<u32>, oneshot::Sender<u32>);

/// One search at one node.
pub struct Run {
    pub(super) engine: Arc<Gatherer>,
    /// The settings it was begun with.
    pub(super) config: Arc<GatherConfig>,
    pub(super) context: RequestContext,
    pub(super) routing: Arc<RoutingSnapshot>,
    pub(super) request: Arc<v1::SearchRequest>,
    /// What every attempt sends, but for its own fields.
    pub(super) template: v1::SearchRequest,
    pub(super) schedule: Schedule,
    pub(super) ledger: Ledger,
    pub(super) merge: HitMerge,
    pub(super) branches: Vec<Branch>,
    pub(super) attempts: Vec<Attempt>,
    pub(super) calls: Calls,
    pub(super) cancels: FuturesUnordered<futures::future::BoxFuture<'static, ()>>,
    pub(super) tail: v1::TailReport,
    pub(super) spans: Vec<v1::Span>,
    pub(super) hits_this_turn: usize,
    pub(super) narrow: Narrow,
    pub(super) hedges: Hedges,
    /// Attempts numbered so far. A root that asks one query twice says in `attempt_id` which numbers it has used.
    pub(super) numbered: u64,
    /// Ends where a shard is lost, because the caller has something better.
    pub(super) whole: bool,
    pub(super) newer: Newer,
    /// Shards that were asked of leaves that did not say that they hold them.
    pub(super) coming: BTreeSet<u32>,
    completion: Completion,
    withdrawals: Option<mpsc::Receiver<Withdrawal>>,
    timer: Pin<Box<Sleep>>,
    gone: Pin<Box<WaitForCancellationFutureOwned>>,
    flush_at: Option<Instant>,
}

impl Run {
    /// Plans a search. [`Run::narrow`] comes next where its result is taken whole, then [`Run::begin`].
    pub fn new(
        engine: Arc<Gatherer>,
        context: RequestContext,
        routing: Arc<RoutingSnapshot>,
        request: Arc<v1::SearchRequest>,
    ) -> Self {
        let config = engine.policies.of(&request.corpus);
        let schedule = Schedule::new(context.deadline, request.level, config.reserve.0);
        let completion =
            Completion::new(request.completion.as_ref(), &config, schedule.deadline, schedule.finish_at);
        let mut run = Self {
            template: Self::template(&request),
            ledger: Ledger::new(&request.shards),
            hedges: Hedges::new(&config, &request),
            numbered: if request.level == 0 { request.attempt_id } else { 0 },
            whole: false,
            newer: Newer::default(),
            coming: BTreeSet::new(),
            merge: HitMerge::of(&request),
            timer: Box::pin(sleep_until(schedule.finish_at)),
            gone: Box::pin(context.cancel.clone().cancelled_owned()),
            config,
            completion,
            schedule,
            engine,
            context,
            routing,
            request,
            branches: Vec::new(),
            attempts: Vec::new(),
            calls: Calls::new(),
            cancels: FuturesUnordered::new(),
            tail: v1::TailReport::default(),
            spans: Vec::new(),
            hits_this_turn: 0,
            narrow: Narrow::default(),
            withdrawals: None,
            flush_at: None,
        };
        run.plan();
        run
    }

    /// Whether it waits for offsets of the log.
    pub fn waits(&self) -> bool {
        self.hedges.waits
    }

    /// Lets the caller withdraw shards while it runs.
    pub fn withdrawals(&mut self, from: mpsc::Receiver<Withdrawal>) {
        self.withdrawals = Some(from);
    }

    /// Runs until it is decided.
    pub async fn finish(&mut self) -> Decision {
        loop {
            if let Some(decision) = self.advance(None).await {
                return self.widen(decision).await;
            }
        }
    }

    /// Sends what was planned, and what came of it once that is decided.
    pub async fn complete(mut self) -> Gathered {
        self.begin();
        let decision = self.finish().await;
        self.into_gathered(decision)
    }

    /// Runs until it is decided, or until something settled has waited for `linger` to be passed on (`None`).
    pub async fn advance(&mut self, linger: Option<Duration>) -> Option<Decision> {
        loop {
            let now = Instant::now();
            self.wait_ends(now);
            if self.gives_up() {
                return Some(Decision::Lost);
            }
            let wake = match self.completion.decide(now, self.ledger.progress()) {
                Verdict::Wait(until) => until,
                Verdict::Finish(decision) if now >= self.schedule.finish_at + DRAIN => return Some(decision),
                Verdict::Finish(decision) => match self.already_here() {
                    Some(event) => {
                        self.handle(event);
                        continue;
                    }
                    None => return Some(decision),
                },
            };
            if let Some(linger) = linger {
                match self.flush_at {
                    Some(at) if at <= now => {
                        self.flush_at = None;
                        return None;
                    }
                    None if self.ledger.has_unsent() => self.flush_at = Some(now + linger),
                    _ => {}
                }
            }
            self.send_hedges(now);
            let others = [self.flush_at, self.hedges.next(), self.newer.until()];
            let wake = others.into_iter().flatten().fold(wake, Instant::min);
            match self.next(wake).await {
                Event::CallerGone => return Some(Decision::Cancelled),
                event => self.handle(event),
            }
            if self.hits_this_turn >= HITS_PER_TURN {
                self.hits_this_turn = 0;
                tokio::task::yield_now().await;
            }
        }
    }

    pub(super) async fn next(&mut self, wake: Instant) -> Event {
        if self.timer.deadline() != wake {
            self.timer.as_mut().reset(wake);
        }
        loop {
            tokio::select! {
                biased;
                () = &mut self.gone => return Event::CallerGone,
                Some((shards, count)) = withdrawn(&mut self.withdrawals) => {
                    return Event::Withdrawn(shards, count);
                }
                Some((said, call)) = self.calls.next(), if !self.calls.is_empty() => {
                    return Event::Call(call, say(said));
                }
                Some(()) = self.cancels.next(), if !self.cancels.is_empty() => {}
                snapshot = self.newer.next() => return Event::Newer(snapshot),
                () = &mut self.timer => return Event::Due,
            }
        }
    }

    /// A reply that needs no waiting, when something is still open.
    fn already_here(&mut self) -> Option<Event> {
        if self.ledger.progress().open == 0 || self.calls.is_empty() {
            return None;
        }
        let (said, call) = self.calls.next().now_or_never()??;
        Some(Event::Call(call, say(said)))
    }

    pub(super) fn handle(&mut self, event: Event) {
        match event {
            Event::Call(call, Said::Reply(reply)) => {
                if self.replied(call.attempt, *reply) {
                    self.calls.push(call.into_future());
                }
            }
            Event::Call(call, Said::Failed(failure)) => self.failed(call.attempt, &failure),
            Event::Call(call, Said::Ended) => self.ended(call.attempt),
            Event::Withdrawn(shards, count) => {
                let open = self.withdraw(&shards);
                let _caller_may_be_gone = count.send(open);
            }
            Event::Newer(snapshot) => self.plan_by(snapshot),
            Event::Due | Event::CallerGone => {}
        }
    }
}

fn say(said: Option<Result<v1::SearchReply, canopy_common::error::Failure>>) -> Said {
    match said {
        Some(Ok(reply)) => Said::Reply(Box::new(reply)),
        Some(Err(failure)) => Said::Failed(failure),
        None => Said::Ended,
    }
}

/// The next withdrawal; pending for ever when nobody can send one.
async fn withdrawn(from: &mut Option<mpsc::Receiver<Withdrawal>>) -> Option<Withdrawal> {
    match from {
        Some(receiver) => receiver.recv().await,
        None => futures::future::pending().await,
    }
}
