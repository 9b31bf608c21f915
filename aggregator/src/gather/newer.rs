//! A search that was planned by an old routing snapshot: a node that was asked does not have the shard in that version and goes
//! by a newer snapshot ("wrong epoch"), or the caller planned by a newer one than this node has.
//!
//! Snapshots spread on their own, so for a moment a caller may ask who has let go of a version, and not ask who has taken it.
//! Rules: nothing of such an attempt began, so asking again is outside the budget for extra work and has the fuse of what never
//! started; another replica of the same snapshot is asked first; when none is left the search waits once, for at most
//! [`LONGEST`] and half of its time, until the newer snapshot is here, and asks those shards again by it, straight of their leaves, as
//! well as others whose refusals come later. A search takes over one newer snapshot, so no shard is planned more than twice.
//! Whoever said that it does not have them is not asked again.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use canopy_common::{
    coverage::Outcome,
    ids::{Epoch, NodeId},
};
use canopy_topology::routing::{Following, RoutingSnapshot};
use tokio::time::Instant;

use super::{
    attempt::Kind,
    dispatch::{Asking, holders},
    retry::{History, Retry},
    run::Run,
};
use crate::plan;

/// Longest wait for a snapshot.
const LONGEST: Duration = Duration::from_millis(100);

/// Shards that wait for a newer snapshot.
#[derive(Default)]
pub struct Newer {
    waiting: Option<Waiting>,
    /// It has waited, or need not.
    over: bool,
    /// Who said that it does not have them.
    refused: BTreeSet<NodeId>,
}

struct Waiting {
    following: Following,
    epoch: Epoch,
    until: Instant,
    shards: Vec<u32>,
}

impl Newer {
    /// When the wait is over.
    pub fn until(&self) -> Option<Instant> {
        self.waiting.as_ref().map(|waiting| waiting.until)
    }

    /// The next snapshot; pending for ever when none is waited for.
    pub async fn next(&mut self) -> Arc<RoutingSnapshot> {
        match &mut self.waiting {
            Some(waiting) => waiting.following.next().await,
            None => futures::future::pending().await,
        }
    }
}

impl Run {
    /// Lets shards wait for the snapshot of `epoch`; false when nothing comes of it. `refused`: who does not have them.
    pub(super) fn await_newer(&mut self, shards: &[u32], epoch: u64, refused: Option<&NodeId>) -> bool {
        if shards.is_empty() || epoch <= self.routing.epoch.0 || self.newer.over {
            return false;
        }
        let Some(current) = self.engine.current.clone() else { return false };
        self.newer.refused.extend(refused.cloned());
        if let Some(waiting) = &mut self.newer.waiting {
            waiting.shards.extend(shards);
            return true;
        }
        let now = Instant::now();
        let wait = LONGEST.min(self.schedule.finish_at.saturating_duration_since(now) / 2);
        self.engine.metrics.stale.inc();
        self.newer.waiting = Some(Waiting {
            following: current.follow(),
            epoch: Epoch(epoch),
            until: now + wait,
            shards: shards.to_vec(),
        });
        true
    }

    /// Settles what has waited long enough.
    pub(super) fn wait_ends(&mut self, now: Instant) {
        if self.newer.waiting.as_ref().is_some_and(|waiting| waiting.until <= now)
            && let Some(waiting) = self.newer.waiting.take()
        {
            self.newer.over = true;
            if !self.ask_coming(&waiting.shards) {
                self.give_up(&waiting.shards, &Outcome::Unavailable, "no newer routing snapshot came");
            }
        }
    }

    /// A snapshot came: asks what has waited for it by it.
    pub(super) fn plan_by(&mut self, snapshot: Arc<RoutingSnapshot>) {
        if self.newer.waiting.as_ref().is_none_or(|waiting| waiting.epoch > snapshot.epoch) {
            return;
        }
        let Some(Waiting { shards, .. }) = self.newer.waiting.take() else { return };
        self.newer.over = true;
        self.routing = snapshot;
        self.template.epoch = self.routing.epoch.0;
        self.ask_by_it(shards);
    }

    /// Asks shards that an attempt of before was refused by the snapshot that came since; false when none did.
    pub(super) fn plan_anew(&mut self, index: usize, shards: &[u32]) -> bool {
        let attempt = &self.attempts[index];
        if shards.is_empty() || attempt.epoch >= self.routing.epoch {
            return false;
        }
        self.newer.refused.insert(attempt.node.clone());
        self.ask_by_it(shards.to_vec());
        true
    }

    fn ask_by_it(&mut self, shards: Vec<u32>) {
        let open: Vec<u32> = shards.into_iter().filter(|shard| self.ledger.is_open(*shard)).collect();
        let engine = self.engine.clone();
        let holders = holders(&engine, &self.routing, &self.request);
        let branches = plan::around(holders.as_deref(), &self.request, &open, &self.config);
        drop(holders);
        for branch in branches {
            self.ask_anew(branch);
        }
        let left: Vec<u32> = open.into_iter().filter(|shard| !self.is_asked(*shard)).collect();
        if !self.ask_coming(&left) {
            self.give_up(&left, &Outcome::Unavailable, "no leaf holds it");
        }
    }

    pub(super) fn ask_anew(&mut self, new: plan::Branch) {
        let (branch, shards) = (self.branches.len(), new.shards.clone());
        let refused = |(_, node): &(u16, &NodeId)| self.newer.refused.contains(*node);
        let tried = (0..).zip(new.candidates.iter()).filter(refused).map(|(at, _)| at).collect();
        self.branches.push(new);
        self.hedges.added();
        match self.afford(Retry::Transparent, shards.len()) {
            Some(retry) => {
                let history = History { tried, reached: true, sent: 1, ..History::default() }.with(retry);
                let history = history.with(Retry::Transparent);
                self.dispatch(Asking { branch, shards, history, kind: Kind::Retry(retry), tie: None });
            }
            None => self.unaffordable(&shards),
        }
    }

    /// Whether some attempt for a shard runs, or it is settled.
    fn is_asked(&self, shard: u32) -> bool {
        !self.ledger.is_open(shard) || self.ledger.is_pending(shard)
    }
}
