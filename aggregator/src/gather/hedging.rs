//! Hedges of one search: what each branch does beside its first attempt, and when that is due.
//!
//! A branch with shards open after its delay sends another attempt with **only the open shards** to a replica that was
//! not asked yet, as far as attempts, time and budget allow. What becomes of the slower one is in `losers`.
//!
//! A search that wants offsets of the log waits at its leaves on purpose: it is never hedged, whatever it asks for, and its times
//! enter no record, neither of its class nor of a node. Another replica follows the same log and is not known to be further.

use std::{cmp::Reverse, collections::BinaryHeap, sync::Arc, time::Duration};

use canopy_proto::v1;
use tokio::time::Instant;

use super::{attempt::Kind, dispatch::Asking, retry::History, run::Run, tied::Second, watched::Watched};
use crate::{
    config::GatherConfig,
    hedge::{
        HedgeConfig, HedgeMode,
        budget::SUBTREE_PART,
        decision::{Asked, Decision},
        policy::{self, Class, ClassKey, Refusal, TIMER_GRAIN},
    },
    plan::Through,
};

/// A hedge that may be due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Due {
    pub(super) at: Instant,
    pub(super) branch: usize,
    /// The delay was learned from what was seen.
    pub(super) learned: bool,
    /// It is a tied second attempt.
    pub(super) tied: bool,
}

/// What a search knows of one of its branches.
#[derive(Default)]
pub(super) struct Standing {
    pub(super) class: Option<Arc<Class>>,
    /// Attempts that run.
    pub(super) running: u32,
    /// No further hedge goes out.
    pub(super) over: bool,
    /// When the last attempt that replaces another one was sent, and the delay it is due.
    retried: Option<Instant>,
    delay: Duration,
    /// The tied second attempt, until it is sent.
    pub(super) second: Option<Box<Second>>,
}

/// The hedges of one search.
pub(super) struct Hedges {
    pub(super) config: HedgeConfig,
    mode: HedgeMode,
    /// Its attempts wait on purpose.
    pub(super) waits: bool,
    /// Extra attempts per shard that this level may send.
    ratio: f64,
    cost: u8,
    pub(super) due: BinaryHeap<Reverse<Due>>,
    pub(super) branches: Vec<Standing>,
}

impl Hedges {
    /// Of a request that runs under `config`.
    pub fn new(config: &GatherConfig, request: &v1::SearchRequest) -> Self {
        let config = HedgeConfig::from(config);
        let waits = !request.wanted_offsets.is_empty();
        let asked = request.hedge.and_then(HedgeMode::from_wire);
        let mode = if waits { HedgeMode::Off } else { asked.unwrap_or(config.mode) };
        Self {
            mode,
            waits,
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
        // Times of attempts for fewer shards compare with nothing.
        let whole = shards == self.branches[branch].shards.len();
        let standing = &mut self.hedges.branches[branch];
        standing.running += 1;
        if kind.retry().is_some() {
            standing.retried = Some(sent);
        }
        if kind.is_hedge() {
            self.engine.hedging.metrics.sent.inc();
        }
        let class = standing.class.clone().filter(|_| whole && !self.hedges.waits);
        Watched::new(self.engine.clone(), class, kind, sent)
    }

    /// What an attempt for so many shards of a branch usually takes.
    pub(super) fn usual(&self, branch: usize, shards: usize) -> Option<Duration> {
        let whole = shards == self.branches[branch].shards.len() && !self.hedges.waits;
        let class = self.hedges.branches.get(branch)?.class.as_ref().filter(|_| whole)?;
        class.with(|state| state.usual())
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
            Ok(()) if self.another(due.branch, Kind::Hedge) => {}
            Ok(()) => self.engine.hedging.refund(&self.hedges.config, open.len()),
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

    /// Sends one more attempt for what is open; false when there is nobody to ask or no time.
    fn another(&mut self, branch: usize, kind: Kind) -> bool {
        let shards = self.open_shards(branch);
        let Some(deadline) = self.schedule.attempt(Instant::now()) else { return false };
        if shards.is_empty() || !self.another_is_left(branch, &shards) {
            return false;
        }
        let history = History { sent: 0, ..self.lineage(branch, &shards) };
        let mut asking = Asking { branch, shards, history, kind, tie: None };
        let Some((node, peer)) = self.choose(&mut asking) else { return false };
        self.send(asking, node, &*peer, deadline);
        true
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
}
