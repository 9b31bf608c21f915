//! Sending attempts: first ones and retries.

use std::time::Duration;

use canopy_common::{
    coverage::Outcome,
    error::ErrorClass,
    ids::{AttemptId, NodeId},
};
use canopy_proto::{SearchNode, convert, v1};
use futures::{FutureExt, StreamExt, stream::AbortHandle};
use tokio::time::Instant;

use super::{
    attempt::{Attempt, Call, Fate},
    ledger::missing,
    retry::{History, Retry},
    run::Run,
};
use crate::{
    load::InFlight,
    pick::pick,
    plan::{self, Branch, Through},
};

/// Attempt ids below one attempt; keeps ids unique in the whole tree.
const IDS_PER_ATTEMPT: u64 = 1 << 16;
/// How long telling a node to stop a part may take.
const CANCEL_PATIENCE: Duration = Duration::from_millis(500);

/// A set of shards that needs another attempt.
pub struct Again {
    /// Index of their branch.
    pub branch: usize,
    /// Indexes in the request's shards.
    pub shards: Vec<u32>,
    /// What was tried.
    pub history: History,
    /// What kind of retry it is.
    pub retry: Retry,
}

impl Run {
    /// What every attempt sends, but for its shards, id and time. Deciding when enough came is the business of the
    /// node that sees all shards, so the level below waits for all it was asked.
    pub(super) fn template(request: &v1::SearchRequest) -> v1::SearchRequest {
        let all = v1::Completion { mode: v1::completion::Mode::All as i32, all_but: 0, min_coverage: 0.0 };
        v1::SearchRequest {
            query_id: request.query_id.clone(),
            priority: request.priority,
            extra_work_ratio: request.extra_work_ratio,
            corpus: request.corpus.clone(),
            version: request.version,
            statistics: request.statistics.clone(),
            wanted_offsets: request.wanted_offsets.clone(),
            freshness: request.freshness,
            stages: request.stages.clone(),
            query: request.query.clone(),
            sort: request.sort.clone(),
            facets: request.facets.clone(),
            total: request.total,
            collapse: request.collapse.clone(),
            hedge: request.hedge,
            trace: request.trace,
            completion: Some(all),
            level: request.level.saturating_add(1),
            ..Default::default()
        }
    }

    /// Plans and sends the first attempts.
    pub(super) fn begin(&mut self) {
        let plan = plan::plan(&self.routing, &self.request, &self.engine.config, &self.engine.node);
        self.template.epoch = self.routing.epoch.0;
        for (shard, reason) in plan.unplaced {
            let version = self.request.version;
            self.ledger.give_up(shard, || missing(shard, version, &Outcome::Unavailable, reason));
        }
        self.branches = plan.branches;
        for branch in 0..self.branches.len() {
            let shards = self.branches[branch].shards.clone();
            self.dispatch(branch, shards, History::default(), None);
        }
    }

    /// Sends shards to a candidate that was not tried; what can't be sent is settled.
    pub(super) fn dispatch(
        &mut self,
        branch: usize,
        shards: Vec<u32>,
        mut history: History,
        retry: Option<Retry>,
    ) {
        let now = Instant::now();
        let Some(deadline) = self.schedule.attempt(now) else {
            return self.give_up(&shards, &Outcome::TimedOut, "no time left to ask");
        };
        let engine = self.engine.clone();
        loop {
            let Branch { candidates, through, .. } = &self.branches[branch];
            let (candidates, through) = (candidates.clone(), *through);
            let Some(at) = pick(&candidates, through, &history.tried, &engine.loads, &engine.dice) else {
                if !self.around_aggregators(branch, &shards, &history) {
                    self.give_up(&shards, &Outcome::Unavailable, "no replica left to ask");
                }
                return;
            };
            history.tried.push(at);
            let node = &candidates[usize::from(at)];
            match engine.endpoints.get(node) {
                Some(peer) => {
                    let (node, budget) = (node.clone(), deadline.remaining());
                    let context = self.context.child(AttemptId(self.next_id()), deadline);
                    let attempt = self.attempt(branch, shards, history, (node, now, budget));
                    return self.send(attempt, context, &*peer, retry);
                }
                None => self.note(&shards, &Outcome::Unavailable, &format!("{node}: not a known node")),
            }
        }
    }

    fn next_id(&self) -> u64 {
        let own = self.attempts.len() as u64 + 1;
        self.context.attempt.0.wrapping_mul(IDS_PER_ATTEMPT).wrapping_add(own)
    }

    fn attempt(
        &self,
        branch: usize,
        shards: Vec<u32>,
        history: History,
        (node, sent, budget): (NodeId, Instant, Duration),
    ) -> Attempt {
        Attempt {
            id: self.next_id(),
            branch,
            replied: vec![false; shards.len()],
            waiting: shards.len() as u32,
            shards,
            history,
            sent,
            budget,
            won: false,
            fate: Fate::Pending,
            spans: Vec::new(),
            ended: None,
            stop: AbortHandle::new_pair().0,
            flight: Some(InFlight::begin(self.engine.loads.of(&node))),
            node,
        }
    }

    fn send(
        &mut self,
        mut attempt: Attempt,
        context: canopy_common::request::RequestContext,
        peer: &dyn SearchNode,
        retry: Option<Retry>,
    ) {
        let asked = |shard: &u32| self.request.shards[*shard as usize].clone();
        let request = v1::SearchRequest {
            attempt_id: attempt.id,
            shards: attempt.shards.iter().map(asked).collect(),
            remaining_us: attempt.budget.as_micros() as u64,
            ..self.template.clone()
        };
        self.ledger.sent(&attempt.shards);
        self.tail.attempts += 1;
        self.tail.retries += u32::from(retry.is_some());
        self.engine.metrics.sent(retry);
        let span = tracing::info_span!(
            "attempt",
            node = %attempt.node,
            attempt = attempt.id,
            shards = attempt.shards.len()
        );
        let stop = context.cancel.clone().drop_guard();
        let replies = span.in_scope(|| peer.search(context, request));
        let (call, handle) = Call::new(self.attempts.len(), replies, stop, span);
        attempt.stop = handle;
        self.attempts.push(attempt);
        self.calls.push(call.into_future());
    }

    /// The last resort for a subtree whose aggregators can't be reached: ask its leaves from here. More calls than
    /// `fanout_max` beat no answer.
    pub(super) fn around_aggregators(&mut self, branch: usize, shards: &[u32], history: &History) -> bool {
        if self.branches[branch].through != Through::Aggregator || history.reached {
            return false;
        }
        for around in plan::around(&self.routing, &self.request, shards, &self.engine.config) {
            self.branches.push(around);
            let branch = self.branches.len() - 1;
            let shards = self.branches[branch].shards.clone();
            self.dispatch(branch, shards, History::default(), Some(Retry::Transparent));
        }
        true
    }

    /// Sends again what failed and may be retried; settles the rest.
    pub(super) fn again(&mut self, sets: Vec<Again>) {
        for Again { branch, shards, history, retry } in sets {
            let history = history.with(retry);
            self.dispatch(branch, shards, history, Some(retry));
        }
    }

    /// Settles shards with what is held for them, else with this.
    pub(super) fn give_up(&mut self, shards: &[u32], outcome: &Outcome, reason: &str) {
        let version = self.request.version;
        for shard in shards {
            self.ledger.give_up(*shard, || missing(*shard, version, outcome, reason.to_owned()));
            self.release(*shard);
        }
    }

    /// Holds a failure for shards that go on.
    fn note(&mut self, shards: &[u32], outcome: &Outcome, reason: &str) {
        for shard in shards {
            self.ledger.note(missing(*shard, self.request.version, outcome, reason.to_owned()));
        }
    }

    /// Stops what runs for shards that the caller withdraws (empty: all); returns how many were open.
    pub(super) fn withdraw(&mut self, shards: &[u32]) -> u32 {
        let known = self.request.shards.len() as u32;
        let all: Vec<u32> = if shards.is_empty() { (0..known).collect() } else { shards.to_vec() };
        let mut open: Vec<u32> =
            all.into_iter().filter(|shard| *shard < known && self.ledger.is_open(*shard)).collect();
        open.sort_unstable();
        open.dedup();
        self.give_up(&open, &Outcome::TimedOut, "withdrawn by the caller");
        for index in 0..self.attempts.len() {
            self.withdraw_from(index, &open);
        }
        open.len() as u32
    }

    fn withdraw_from(&mut self, index: usize, open: &[u32]) {
        let attempt = &mut self.attempts[index];
        if attempt.fate != Fate::Pending {
            return;
        }
        let waits = |at: &usize| !attempt.replied[*at];
        let (stopped, left): (Vec<usize>, Vec<usize>) = (0..attempt.shards.len())
            .filter(waits)
            .partition(|at| open.binary_search(&attempt.shards[*at]).is_ok());
        if stopped.is_empty() {
            return;
        }
        if left.is_empty() {
            attempt.end(Fate::Cancelled);
            attempt.stop.abort();
            return;
        }
        let request = v1::CancelRequest {
            query_id: self.request.query_id.to_vec(),
            attempt_id: attempt.id,
            shards: stopped.into_iter().map(|at| at as u32).collect(),
        };
        if let Some(peer) = self.engine.endpoints.get(&attempt.node) {
            let cancel = tokio::time::timeout(CANCEL_PATIENCE, peer.cancel(request));
            self.cancels.push(cancel.map(|_best_effort| ()).boxed());
        }
    }

    /// Once a shard is settled: its stashed hits enter the merge, and it is counted.
    pub(super) fn release(&mut self, shard: u32) {
        if !self.ledger.is_open(shard) {
            for hit in self.ledger.take_stash(shard) {
                self.merge.push(hit);
            }
        }
    }
}

/// The outcome of shards whose attempt failed with `class`; `started` when some of its work was done.
pub(super) fn outcome_of(class: ErrorClass, started: bool) -> Outcome {
    match class {
        ErrorClass::DeadlineExceeded => Outcome::TimedOut,
        ErrorClass::Overloaded if !started => Outcome::Shed,
        ErrorClass::Unavailable if !started => Outcome::Unavailable,
        class => Outcome::Failed(class),
    }
}

/// The class behind a shard's refusal.
pub(super) fn class_of(reply: &v1::ShardReply) -> ErrorClass {
    match convert::outcome(reply) {
        Outcome::Failed(class) => class,
        Outcome::Shed => ErrorClass::Overloaded,
        Outcome::Unavailable => ErrorClass::Unavailable,
        _ => ErrorClass::DeadlineExceeded,
    }
}
