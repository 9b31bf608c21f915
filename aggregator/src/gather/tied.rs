//! Tied attempts: both are chosen before the first goes out, because each carries the other's node and number; the second
//! follows after the tie delay unless anything was heard. The leaves settle between themselves who goes on: a copy that
//! is refused while its twin runs was dropped in its favour, so its node is not to blame and nothing is asked again.

use std::{cmp::Reverse, sync::Arc, time::Duration};

use canopy_common::ids::NodeId;
use canopy_proto::{SearchNode, v1};
use tokio::time::Instant;

use super::{
    attempt::{Attempt, Fate, Kind},
    dispatch::Asking,
    hedging::Due,
    run::Run,
};

/// An attempt that is ready to go.
pub(super) struct Second {
    asking: Asking,
    node: NodeId,
    peer: Arc<dyn SearchNode>,
}

impl Run {
    /// Sends the first of two tied attempts, and keeps the second ready.
    pub(super) fn tie(&mut self, first: Asking, delay: Duration) {
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
    pub(super) fn send_second(&mut self, branch: usize, now: Instant) {
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
}
