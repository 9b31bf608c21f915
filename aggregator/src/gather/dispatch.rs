//! Sending attempts: first ones, retries and hedges.
//!
//! Each send picks a candidate that was not tried for these shards, and carries the time that is left now. What can't
//! be sent (no time, no candidate) is settled on the spot with what is known about it.

use std::sync::Arc;

use canopy_common::{
    coverage::Outcome,
    deadline::Deadline,
    error::ErrorClass,
    ids::{AttemptId, NodeId, Version},
};
use canopy_proto::{SearchNode, convert, v1};
use canopy_topology::routing::RoutingSnapshot;
use futures::StreamExt;
use tokio::time::Instant;

use super::{
    Gatherer,
    attempt::{Attempt, Call, Fate, Kind},
    ledger::missing,
    retry::{History, Retry},
    run::Run,
};
use crate::{
    load::{Ending, InFlight, pushback},
    pick::{Choosing, Purpose, Why},
    plan::{self, Through},
};

/// Why a call was not sent to a node that refused too many.
const LOCAL: &str = "local: not sent, because it refused too many of the last calls";
/// Attempt ids below one attempt; keeps ids unique in the whole tree.
pub(super) const IDS_PER_ATTEMPT: u64 = 1 << 16;

/// Shards of one branch that need an attempt.
pub struct Asking {
    /// Index of their branch.
    pub branch: usize,
    /// Indexes in the request's shards.
    pub shards: Vec<u32>,
    /// What was tried.
    pub history: History,
    /// Why it is sent.
    pub kind: Kind,
    /// Its own number and its twin, when it is tied.
    pub tie: Option<(u64, v1::Tie)>,
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
            beside: request.beside,
            completion: Some(all),
            level: request.level.saturating_add(1),
            ..Default::default()
        }
    }

    /// Turns shards into branches; settles those that nobody holds.
    pub(super) fn plan(&mut self) {
        let engine = self.engine.clone();
        let holders = holders(&engine, &self.routing, &self.request);
        let plan = plan::plan(&self.routing, holders.as_deref(), &self.request, &self.config, &engine.node);
        drop(holders);
        self.template.epoch = self.routing.epoch.0;
        let version = self.request.version;
        let mut unplaced = Vec::new();
        for (shard, reason) in plan.unplaced {
            self.ledger.note(missing(shard, version, &Outcome::Unavailable, "", reason));
            unplaced.push(shard);
        }
        self.branches = plan.branches;
        // The caller's snapshot may be newer than this one.
        if !self.await_newer(&unplaced, self.request.epoch, None) {
            let coming = self.coming_branches(&unplaced);
            self.branches.extend(coming);
            unplaced.retain(|shard| !self.coming.contains(shard));
            self.give_up(&unplaced, &Outcome::Unavailable, "no leaf holds it");
        }
    }

    /// Sends the first attempts.
    pub fn begin(&mut self) {
        self.prepare_hedges();
        for branch in 0..self.branches.len() {
            self.open(branch);
        }
    }

    /// Asks a candidate that was not tried.
    pub(super) fn dispatch(&mut self, mut asking: Asking) {
        let Some(deadline) = self.schedule.attempt(Instant::now()) else {
            return self.give_up(&asking.shards, &Outcome::TimedOut, "no time left to ask");
        };
        match self.choose(&mut asking) {
            Some((node, peer)) => drop(self.send(asking, node, &*peer, deadline)),
            None if self.another_way(asking.branch, &asking.shards, &asking.history) => {}
            None => self.give_up(&asking.shards, &Outcome::Unavailable, "no replica left to ask"),
        }
    }

    /// A candidate that was not tried, now noted as tried.
    pub(super) fn choose(&mut self, asking: &mut Asking) -> Option<(NodeId, Arc<dyn SearchNode>)> {
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
                purpose: match asking.kind {
                    kind if kind.is_hedge() => Purpose::Extra,
                    _ if asking.history.tried.is_empty() => Purpose::First,
                    _ => Purpose::Needed,
                },
            },
        ) {
            asking.history.tried.push(choice.at);
            let node = &candidates[usize::from(choice.at)];
            if let Some(shadow) = choice.shadow {
                self.shadow(asking, &candidates[usize::from(shadow.at)], shadow.ejected);
            }
            self.tail.panics += u32::from(choice.why == Why::Panic);
            match engine.endpoints.get(node) {
                Some(_) if engine.picker.withholds(&engine.loads, node, choice.why) => {
                    self.tail.throttled += 1;
                    self.note(&asking.shards, node, &Outcome::Shed, LOCAL);
                }
                Some(peer) => return Some((node.clone(), peer)),
                None => self.note(&asking.shards, node, &Outcome::Unavailable, "not a known node"),
            }
        }
        None
    }

    /// The number of an attempt that is to be sent.
    pub(super) fn next_attempt(&mut self) -> u64 {
        self.numbered += 1;
        self.context.attempt.0.wrapping_mul(IDS_PER_ATTEMPT).wrapping_add(self.numbered)
    }

    /// Sends an attempt; its index.
    pub(super) fn send(
        &mut self,
        asking: Asking,
        node: NodeId,
        peer: &dyn SearchNode,
        deadline: Deadline,
    ) -> usize {
        let Asking { branch, shards, mut history, kind, tie } = asking;
        history.sent = 1;
        let sent = Instant::now();
        let index = self.attempts.len();
        let (id, tie) = tie.map_or_else(|| (self.next_attempt(), None), |(id, tie)| (id, Some(tie)));
        let tied = tie.is_some();
        // Both copies are timed by this engine's clock; those of two leaves are never compared.
        let since = sent.saturating_duration_since(self.schedule.arrival).as_micros() as u64;
        let context = self.context.child(AttemptId(id), deadline);
        let budget = deadline.instant().saturating_duration_since(sent);
        let request = v1::SearchRequest {
            attempt_id: id,
            shards: shards.iter().map(|shard| self.asked(*shard, branch, kind)).collect(),
            remaining_us: budget.as_micros() as u64,
            tie: tie.map(|tie| v1::Tie { start_us: since, ..tie }),
            ..self.template.clone()
        };
        self.ledger.sent(&shards);
        self.count_sent(kind);
        let span = tracing::info_span!("attempt", node = %node, attempt = id, shards = shards.len());
        let guard = context.cancel.clone().drop_guard();
        let replies = span.in_scope(|| peer.search(context, request));
        let (call, stop) = Call::new(index, replies, guard, span);
        self.calls.push(call.into_future());
        let usual = self.usual(branch, shards.len());
        let watched = self.sent(branch, shards.len(), sent, kind);
        self.attempts.push(Attempt {
            id,
            branch,
            kind,
            waits: self.hedges.waits,
            tied,
            watched,
            replied: vec![false; shards.len()],
            waiting: shards.len() as u32,
            stopped: Vec::new(),
            shards,
            history,
            sent,
            epoch: self.routing.epoch,
            budget,
            won: false,
            refusal: None,
            unheld: false,
            fate: Fate::Pending,
            spans: Vec::new(),
            ended: None,
            stop,
            flight: Some(InFlight::begin(self.engine.loads.of(&node)).usually(usual)),
            node,
        });
        index
    }

    fn count_sent(&mut self, kind: Kind) {
        self.tail.attempts += 1;
        self.tail.retries += u32::from(kind.retry().is_some());
        self.tail.hedges += u32::from(kind.is_hedge());
        self.engine.metrics.sent(kind.retry());
    }

    /// A shard as it is asked: for no more hits than can matter, unless these were too few.
    fn asked(&self, shard: u32, branch: usize, kind: Kind) -> v1::ShardRequest {
        let asked = self.request.shards[shard as usize].clone();
        let most = if kind == Kind::More { u32::MAX } else { self.narrow.of(branch) };
        v1::ShardRequest { k: asked.k.min(most), ..asked }
    }

    /// The last resort for a subtree whose aggregators can't be reached: ask its leaves from here. More calls than
    /// `fanout_max` beat no answer.
    pub(super) fn around_aggregators(&mut self, old: usize, shards: &[u32], history: &History) -> bool {
        if self.branches[old].through != Through::Aggregator || history.reached || shards.is_empty() {
            return false;
        }
        let engine = self.engine.clone();
        let holders = holders(&engine, &self.routing, &self.request);
        let branches = plan::around(holders.as_deref(), &self.request, shards, &self.config);
        drop(holders);
        for around in branches {
            let (branch, shards) = (self.branches.len(), around.shards.clone());
            self.branches.push(around);
            self.hedges.dissolved(old);
            self.hedges.added();
            let kind = Kind::Retry(Retry::Transparent);
            self.dispatch(Asking { branch, shards, history: History::default(), kind, tie: None });
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
    fn note(&mut self, shards: &[u32], node: &NodeId, outcome: &Outcome, why: &str) {
        for shard in shards {
            let version = self.request.version;
            self.ledger.note(missing(*shard, version, outcome, &node.0, format!("{node}: {why}")));
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

/// Whom the shards of a request may be asked of.
pub(super) fn holders<'a>(
    engine: &Gatherer,
    routing: &'a Arc<RoutingSnapshot>,
    request: &v1::SearchRequest,
) -> Option<plan::Holders<'a>> {
    let (version, beside) = (Version(request.version), Version(request.beside));
    engine.together.holders(routing, &request.corpus, version, beside)
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
