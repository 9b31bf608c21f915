//! A part of a search that its caller no longer wants: settled at once, and stopped below. An attempt none of whose
//! shards are wanted any more is dropped; of an attempt that goes on for others, the node is told which to stop.

use std::time::Duration;

use canopy_common::coverage::Outcome;
use canopy_proto::v1;
use futures::FutureExt;

use super::{attempt::Fate, run::Run};

/// How long telling a node to stop a part may take.
const PATIENCE: Duration = Duration::from_millis(500);

impl Run {
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
            attempt.stop.abort();
            return self.end(index, Fate::Cancelled);
        }
        self.tell_to_stop(index, stopped);
    }

    /// Tells the node of an attempt to stop some of its shards, by index in the attempt.
    pub(super) fn tell_to_stop(&mut self, index: usize, stopped: Vec<usize>) {
        let attempt = &self.attempts[index];
        let request = v1::CancelRequest {
            query_id: self.request.query_id.to_vec(),
            attempt_id: attempt.id,
            shards: stopped.into_iter().map(|at| at as u32).collect(),
            ..Default::default()
        };
        if let Some(peer) = self.engine.endpoints.get(&attempt.node) {
            let cancel = tokio::time::timeout(PATIENCE, peer.cancel(request));
            self.cancels.push(cancel.map(|_best_effort| ()).boxed());
        }
    }
}
