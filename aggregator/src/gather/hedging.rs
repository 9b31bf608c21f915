//! Hedges of one search: what each branch does beside its first attempt, when that is due, and how losers are stopped.
//!
//! A branch with shards open after its delay sends another attempt with **only the open shards** to a replica that was
//! not asked yet. Whoever settles a shard first wins it: the others are told to stop it, and an attempt with nothing
//! left to win is dropped, and so cancelled. Each attempt says once how it ended, however it ended: even a search that
//! is dropped in the middle leaves `hedges_sent = won + lost + failed`.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use canopy_common::ids::NodeId;
use canopy_proto::{SearchNode, v1};
use tokio::time::Instant;

use super::{
    Gatherer,
    attempt::{Attempt, Fate, Kind},
    dispatch::Asking,
    retry::History,
    run::Run,
};
use crate::{
    hedge::{
        HedgeConfig, HedgeMode,
        budget::SUBTREE_PART,
        class::{Asked, Decision},
        policy::{self, Class, ClassKey, Refusal, TIMER_GRAIN},
    },
    load::{Ending, pushback},
    plan::Through,
};

/// A hedge that may be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Due {
    at: Instant,
    branch: usize,
    learned: bool,
    tied: bool,
}

/// What a search knows of one of its branches.
#[derive(Default)]
struct Standing {
    class: Option<Arc<Class>>,
    /// Attempts that run.
    running: u32,
    /// No further hedge goes out.
    over: bool,
    /// When the last attempt that replaces another one was sent, and the delay it is due.
    retried: Option<Instant>,
    delay: Duration,
    /// The tied second attempt, until it is sent.
    second: Option<Box<Second>>,
}

/// An attempt that is ready to go.
struct Second {
    asking: Asking,
    node: NodeId,
    peer: Arc<dyn SearchNode>,
}

/// The hedges of one search.
pub(super) struct Hedges {
    config: Arc<HedgeConfig>,
    mode: HedgeMode,
    /// Extra attempts per shard that this level may send.
    ratio: f64,
    cost: u8,
    due: BinaryHeap<Reverse<Due>>,
    branches: Vec<Standing>,
}

impl Hedges {
    /// Of a request.
    pub fn new(engine: &Gatherer, request: &v1::SearchRequest) -> Self {
        let config = engine.hedging.config();
        let mode = request.hedge.and_then(HedgeMode::from_wire).unwrap_or(config.mode);
        Self {
            mode,
            ratio: config.ratio(request.extra_work_ratio),
            cost: policy::cost(request),
            config,
            due: BinaryHeap::new(),
            branches: Vec::new(),
        }
    }

    /// When the next one may be due.
    pub fn next(&self) -> Option<Instant> {
        self.due.peek().map(|due| due.0.at)
    }

    /// A branch was added.
    pub fn added(&mut self) {
        self.branches.push(Standing::default());
    }

    /// The shards of a branch went to others.
    pub fn dissolved(&mut self, branch: usize) {
        self.branches[branch].over = true;
    }
}

/// Notes how an attempt ended, once. One that is dropped while it runs was stopped.
pub struct Watched {
    engine: Arc<Gatherer>,
    class: Option<Arc<Class>>,
    kind: Kind,
    sent: Instant,
    queued: Option<Duration>,
    late: bool,
    ended: bool,
}

impl Watched {
    /// The node said how long the attempt waited in its queue.
    pub fn queued(&mut self, wait: Duration) {
        self.queued = Some(wait);
    }

    /// It failed because its time was over, not because something broke.
    pub fn late(&mut self) {
        self.late = true;
    }

    /// It ended; `whole` when it had said all it was asked.
    pub fn ended(&mut self, fate: Fate, took: Duration, whole: bool) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if self.kind.is_hedge() {
            self.engine.hedging.metrics.ended(fate);
        }
        let Some(class) = &self.class else { return };
        class.with(|state| {
            match fate {
                Fate::Won if whole => state.took(took, self.queued),
                Fate::Failed if !self.late => {}
                _ => state.stopped(took),
            }
            if self.kind == Kind::Hedge {
                state.hedged(fate == Fate::Won);
            }
        });
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let took = Instant::now().saturating_duration_since(self.sent);
        self.ended(Fate::Cancelled, took, false);
    }
}

impl Run {
    /// Once the branches are known: what this level may spend, and what it passes on.
    pub(super) fn prepare_hedges(&mut self) {
        let hedges = &mut self.hedges;
        hedges.branches.resize_with(self.branches.len(), Standing::default);
        let through = |through| self.branches.iter().any(|branch| branch.through == through);
        if through(Through::Aggregator) {
            let below = hedges.ratio * (1.0 - SUBTREE_PART);
            hedges.ratio *= SUBTREE_PART;
            // 0 on the wire reads as "not said".
            self.template.extra_work_ratio = (below as f32).max(f32::MIN_POSITIVE);
        }
    }

    /// Sends the first attempt of a branch, and what goes with it.
    pub(super) fn open(&mut self, branch: usize) {
        let decision = self.decide(branch);
        let shards = self.branches[branch].shards.clone();
        let tokens = self.hedges.ratio * shards.len() as f64;
        self.engine.hedging.asked(&self.hedges.config, tokens);
        let asking = Asking { branch, shards, history: History::default(), kind: Kind::First, tie: None };
        if let Decision::Tied(delay) = decision {
            return self.tie(asking, delay);
        }
        self.dispatch(asking);
        let now = Instant::now();
        match decision {
            Decision::Nothing(_) | Decision::Tied(_) => {}
            Decision::Copies(copies) => {
                for _ in 1..copies {
                    self.another(branch, Kind::Copy);
                }
            }
            Decision::After { delays, learned } => {
                if !self.engine.hedging.chance(delays.probability) {
                    return;
                }
                self.hedges.branches[branch].delay = delays.first;
                for delay in [Some(delays.first), delays.second].into_iter().flatten() {
                    self.hedges.due.push(Reverse(Due { at: now + delay, branch, learned, tied: false }));
                }
            }
        }
    }

    /// Sends the first of two tied attempts, and keeps the second ready.
    fn tie(&mut self, first: Asking, delay: Duration) {
        let Some(deadline) = self.schedule.attempt(Instant::now()) else { return self.dispatch(first) };
        let (branch, mut first) = (first.branch, first);
        let Some((node, peer)) = self.choose(&mut first) else { return self.dispatch(first) };
        let (history, shards) = (first.history.clone(), first.shards.clone());
        let mut second = Asking { branch, shards, history, kind: Kind::Tied, tie: None };
        if let Some((other, twin)) = self.choose(&mut second) {
            let (one, two) = (self.next_attempt(), self.next_attempt());
            let tie = |peer: &NodeId, attempt_id| v1::Tie { peer: peer.to_string(), attempt_id, start_us: 0 };
            first.tie = Some((one, tie(&other, two)));
            second.tie = Some((two, tie(&node, one)));
            let at = Instant::now() + delay;
            self.hedges.due.push(Reverse(Due { at, branch, learned: false, tied: true }));
            let second = Second { asking: second, node: other, peer: twin };
            self.hedges.branches[branch].second = Some(Box::new(second));
        }
        self.send(first, node, &*peer, deadline);
    }

    /// Sends the second of two tied attempts, unless something was heard of the first.
    fn send_second(&mut self, branch: usize, now: Instant) {
        let Some(second) = self.hedges.branches[branch].second.take() else { return };
        let mut of_branch = self.attempts.iter().filter(|attempt| attempt.branch == branch);
        let alone =
            of_branch.next().is_some_and(|first| !first.history.reached && first.fate == Fate::Pending)
                && of_branch.next().is_none();
        let Some(deadline) = self.schedule.attempt(now).filter(|_| alone) else { return };
        let Second { asking, node, peer } = *second;
        self.send(asking, node, &*peer, deadline);
    }

    /// Whether another attempt of its tie runs: a copy that is refused then was dropped in its favour.
    pub(super) fn has_twin(&self, index: usize) -> bool {
        let attempt = &self.attempts[index];
        let twin = |other: &Attempt| {
            other.tied
                && other.branch == attempt.branch
                && other.id != attempt.id
                && other.fate == Fate::Pending
        };
        attempt.tied && self.attempts.iter().any(twin)
    }

    /// What a branch does beside its first attempt.
    fn decide(&mut self, branch: usize) -> Decision {
        let (mode, branches) = (self.hedges.mode, self.branches.len() as u32);
        let asked = &self.branches[branch];
        let subtree = asked.through == Through::Aggregator;
        let first = asked.shards.first().map_or("", |shard| &self.request.shards[*shard as usize].shard);
        let key = ClassKey {
            group: policy::group(&self.request.corpus, first),
            cost: self.hedges.cost,
            shards: asked.shards.len().max(1).ilog2() as u8,
            subtree,
        };
        let asked = Asked {
            mode,
            branches,
            replicas: asked.candidates.len(),
            budget: self.hedges.ratio,
            frozen: false,
            subtree,
            grain: TIMER_GRAIN,
        };
        let class = self.engine.hedging.class(key);
        let decision = self.engine.hedging.decide(&class, &self.hedges.config, asked);
        self.hedges.branches[branch].class = Some(class);
        decision
    }

    /// An attempt goes out.
    pub(super) fn sent(&mut self, branch: usize, shards: usize, sent: Instant, kind: Kind) -> Watched {
        let standing = &mut self.hedges.branches[branch];
        standing.running += 1;
        if kind.retry().is_some() {
            standing.retried = Some(sent);
        }
        if kind.is_hedge() {
            self.engine.hedging.metrics.sent.inc();
        }
        // Times of attempts for fewer shards compare with nothing.
        let whole = shards == self.branches[branch].shards.len();
        let class = standing.class.clone().filter(|_| whole);
        Watched { engine: self.engine.clone(), class, kind, sent, queued: None, late: false, ended: false }
    }

    /// Sends the hedges that are due.
    pub(super) fn send_hedges(&mut self, now: Instant) {
        while let Some(Reverse(due)) = self.hedges.due.peek().copied().filter(|due| due.0.at <= now) {
            self.hedges.due.pop();
            if due.tied {
                self.send_second(due.branch, now);
            } else {
                self.hedge(due, now);
            }
        }
    }

    fn hedge(&mut self, due: Due, now: Instant) {
        let standing = &self.hedges.branches[due.branch];
        if standing.over {
            return;
        }
        let open = self.open_shards(due.branch);
        if open.is_empty() {
            return;
        }
        // An attempt that replaced a failed one gets as long as the first one got.
        if let Some(again) = standing.retried.map(|sent| sent + standing.delay).filter(|again| *again > now) {
            self.hedges.due.push(Reverse(Due { at: again, ..due }));
            return;
        }
        let usual = standing.class.as_ref().and_then(|class| class.with(|state| state.median()));
        if usual.is_some_and(|usual| now + usual > self.schedule.finish_at) {
            return;
        }
        if !self.another_is_left(due.branch, &open) {
            return;
        }
        match self.engine.hedging.may_hedge(&self.hedges.config, open.len(), due.learned) {
            Ok(()) => self.another(due.branch, Kind::Hedge),
            // The second one may go: a stall that is seen so long is seen.
            Err(Refusal::Withheld) => {}
            Err(Refusal::Denied) => self.tail.budget_denied += 1,
        }
    }

    /// Shards of a branch that nothing settled yet.
    fn open_shards(&self, branch: usize) -> Vec<u32> {
        let shards = &self.branches[branch].shards;
        shards.iter().copied().filter(|shard| self.ledger.is_open(*shard)).collect()
    }

    fn another_is_left(&self, branch: usize, open: &[u32]) -> bool {
        let history = self.lineage(branch, open);
        history.sent < self.hedges.config.max_attempts
            && history.tried.len() < self.branches[branch].candidates.len()
    }

    /// Sends one more attempt for what is open; nothing when there is nobody to ask or no time.
    fn another(&mut self, branch: usize, kind: Kind) {
        let shards = self.open_shards(branch);
        let Some(deadline) = self.schedule.attempt(Instant::now()) else { return };
        if shards.is_empty() || !self.another_is_left(branch, &shards) {
            return;
        }
        let history = History { sent: 0, ..self.lineage(branch, &shards) };
        let mut asking = Asking { branch, shards, history, kind, tie: None };
        if let Some((node, peer)) = self.choose(&mut asking) {
            self.send(asking, node, &*peer, deadline);
        }
    }

    /// What was tried for any of these shards, by all attempts of their branch.
    pub(super) fn lineage(&self, branch: usize, shards: &[u32]) -> History {
        let mut all = History::default();
        for attempt in self.attempts.iter().filter(|attempt| attempt.branch == branch) {
            if attempt.shards.iter().any(|shard| shards.contains(shard)) {
                all.join(&attempt.history);
            }
        }
        all
    }

    /// Ends an attempt and notes it.
    pub(super) fn end(&mut self, index: usize, fate: Fate) {
        let attempt = &mut self.attempts[index];
        if !attempt.end(fate) {
            return;
        }
        let took = attempt.ended.unwrap_or(attempt.sent) - attempt.sent;
        self.tail.hedges_won += u32::from(attempt.kind.is_hedge() && fate == Fate::Won);
        let standing = &mut self.hedges.branches[attempt.branch];
        standing.running = standing.running.saturating_sub(1);
        self.engine.metrics.attempt_ended(took);
    }

    /// Something of a branch was settled: whatever else runs for it stops there.
    pub(super) fn stop_losers(&mut self, branch: usize, winner: usize) {
        let others = u32::from(self.attempts[winner].fate != Fate::Pending);
        if self.hedges.branches[branch].running + others < 2 {
            return;
        }
        for index in 0..self.attempts.len() {
            let attempt = &self.attempts[index];
            if index != winner && attempt.branch == branch && attempt.fate == Fate::Pending {
                self.stop_lost(index);
            }
        }
    }

    /// Stops what an attempt can no longer win.
    fn stop_lost(&mut self, index: usize) {
        let attempt = &mut self.attempts[index];
        let waits = |at: &usize| !attempt.replied[*at];
        let (open, lost): (Vec<usize>, Vec<usize>) =
            (0..attempt.shards.len()).filter(waits).partition(|at| self.ledger.is_open(attempt.shards[*at]));
        if open.is_empty() {
            attempt.stop.abort();
            return self.lose(index);
        }
        let fresh: Vec<usize> = lost.into_iter().filter(|at| !attempt.stopped.contains(at)).collect();
        if !fresh.is_empty() {
            self.attempts[index].stopped.extend(&fresh);
            self.tell_to_stop(index, fresh);
        }
    }

    /// Whether some shard that it did not answer is still open.
    pub(super) fn can_win(&self, index: usize) -> bool {
        self.attempts[index].unanswered().any(|shard| self.ledger.is_open(shard))
    }

    /// It ended without a word on shards that others settled.
    pub(super) fn lose(&mut self, index: usize) {
        let attempt = &self.attempts[index];
        attempt.told(Ending::Outlasted);
        let fate = if attempt.won { Fate::Won } else { Fate::Lost };
        self.end(index, fate);
    }

    /// The node of an attempt asked to be left alone.
    pub(super) fn pushed_back(&mut self, index: usize, milliseconds: u64) {
        let standing = &mut self.hedges.branches[self.attempts[index].branch];
        standing.over = true;
        if let Some(class) = &standing.class {
            class.with(|state| state.pushed_back(Instant::now(), pushback(milliseconds)));
        }
    }
}
