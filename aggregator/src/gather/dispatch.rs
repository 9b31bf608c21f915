//! Sending attempts: first ones and retries.
//!
//! Each send picks a candidate that was not tried for these shards, and carries the time that is left now. What can't
//! be sent (no time, no candidate) is settled on the spot with what is known about it.

use canopy_common::{
    coverage::Outcome,
    deadline::Deadline,
    error::ErrorClass,
    ids::{AttemptId, NodeId},
};
use canopy_proto::{SearchNode, convert, v1};
use futures::StreamExt;
use tokio::time::Instant;

use super::{
    attempt::{Attempt, Call, Fate},
    ledger::missing,
    retry::{History, Retry},
    run::Run,
};
use crate::{
    load::{Ending, InFlight, pushback},
    pick::Choosing,
    plan::{self, Through},
};

/// Attempt ids below one attempt; keeps ids unique in the whole tree.
const IDS_PER_ATTEMPT: u64 = 1 << 16;

/// Shards of one branch that need an attempt.
pub struct Asking {
    /// Index of their branch.
    pub branch: usize,
    /// Indexes in the request's shards.
    pub shards: Vec<u32>,
    /// What was tried.
    pub history: History,
    /// What kind of retry it is.
    pub retry: Option<Retry>,
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
            session: request.session.clone(),
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
        let version = self.request.version;
        for (shard, reason) in plan.unplaced {
            self.ledger.give_up(shard, || missing(shard, version, &Outcome::Unavailable, "", reason));
        }
        self.branches = plan.branches;
        for branch in 0..self.branches.len() {
            let shards = self.branches[branch].shards.clone();
            self.dispatch(Asking { branch, shards, history: History::default(), retry: None });
        }
    }

    /// Asks a candidate that was not tried.
    pub(super) fn dispatch(&mut self, mut asking: Asking) {
        let Some(deadline) = self.schedule.attempt(Instant::now()) else {
            return self.give_up(&asking.shards, &Outcome::TimedOut, "no time left to ask");
        };
        let engine = self.engine.clone();
        let (candidates, through) = {
            let branch = &self.branches[asking.branch];
            (branch.candidates.clone(), branch.through)
        };
        let key = engine.picker.key(&self.request, asking.branch);
        let routing = self.routing.clone();
        while let Some(choice) = engine.picker.choose(
            &engine.loads,
            &Choosing {
                routing: &routing,
                candidates: &candidates,
                through,
                tried: &asking.history.tried,
                key,
            },
        ) {
            asking.history.tried.push(choice.at);
            let node = &candidates[usize::from(choice.at)];
            if let Some(peer) = engine.endpoints.get(node) {
                return self.send(asking, node.clone(), &*peer, deadline);
            }
            self.note_unknown(&asking.shards, node);
        }
        if !self.around_aggregators(asking.branch, &asking.shards, &asking.history) {
            self.give_up(&asking.shards, &Outcome::Unavailable, "no replica left to ask");
        }
    }

    fn send(&mut self, asking: Asking, node: NodeId, peer: &dyn SearchNode, deadline: Deadline) {
        let Asking { branch, shards, history, retry } = asking;
        let sent = Instant::now();
        let index = self.attempts.len();
        let id = self.context.attempt.0.wrapping_mul(IDS_PER_ATTEMPT).wrapping_add(index as u64 + 1);
        let context = self.context.child(AttemptId(id), deadline);
        let budget = deadline.instant().saturating_duration_since(sent);
        let request = v1::SearchRequest {
            attempt_id: id,
            shards: shards.iter().map(|shard| self.request.shards[*shard as usize].clone()).collect(),
            remaining_us: budget.as_micros() as u64,
            ..self.template.clone()
        };
        self.ledger.sent(&shards);
        self.tail.attempts += 1;
        self.tail.retries += u32::from(retry.is_some());
        self.engine.metrics.sent(retry);
        let span = tracing::info_span!("attempt", node = %node, attempt = id, shards = shards.len());
        let guard = context.cancel.clone().drop_guard();
        let replies = span.in_scope(|| peer.search(context, request));
        let (call, stop) = Call::new(index, replies, guard, span);
        self.calls.push(call.into_future());
        self.attempts.push(Attempt {
            id,
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
            stop,
            flight: Some(InFlight::begin(self.engine.loads.of(&node))),
            node,
        });
    }

    /// The last resort for a subtree whose aggregators can't be reached: ask its leaves from here. More calls than
    /// `fanout_max` beat no answer.
    pub(super) fn around_aggregators(&mut self, branch: usize, shards: &[u32], history: &History) -> bool {
        if self.branches[branch].through != Through::Aggregator || history.reached || shards.is_empty() {
            return false;
        }
        for around in plan::around(&self.routing, &self.request, shards, &self.engine.config) {
            let (branch, shards) = (self.branches.len(), around.shards.clone());
            self.branches.push(around);
            let retry = Some(Retry::Transparent);
            self.dispatch(Asking { branch, shards, history: History::default(), retry });
        }
        true
    }

    /// Settles shards with what is held for them, else with this.
    pub(super) fn give_up(&mut self, shards: &[u32], outcome: &Outcome, reason: &str) {
        let version = self.request.version;
        for shard in shards {
            self.ledger.give_up(*shard, || missing(*shard, version, outcome, "", reason.to_owned()));
            self.release(*shard);
        }
    }

    /// Holds, for shards that go on, that this candidate cannot be asked.
    fn note_unknown(&mut self, shards: &[u32], node: &NodeId) {
        for shard in shards {
            let reason = format!("{node}: not a known node");
            let version = self.request.version;
            self.ledger.note(missing(*shard, version, &Outcome::Unavailable, &node.0, reason));
        }
    }

    /// Once a shard is settled, the hits that were stashed for it enter the merge.
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

/// What a failure says of the node that failed; `started` when any word came from it. A refusal says that it has too
/// much to do, not that it is broken; what is wrong with the request says nothing.
pub(crate) fn ending_of(class: ErrorClass, started: bool, pushback_ms: Option<u64>) -> Ending {
    match class {
        ErrorClass::Overloaded | ErrorClass::Quota => Ending::Refused(pushback(pushback_ms.unwrap_or(0))),
        ErrorClass::Unavailable | ErrorClass::Internal | ErrorClass::Cancelled if !started => Ending::Lost,
        ErrorClass::InvalidArgument | ErrorClass::Unauthenticated | ErrorClass::PermissionDenied => {
            Ending::Nothing
        }
        ErrorClass::DeadlineExceeded => Ending::Late,
        _ => Ending::Failed,
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
