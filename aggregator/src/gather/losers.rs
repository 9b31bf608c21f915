//! The end of attempts: the winner of a shard stops it everywhere else. An attempt with nothing left to win is dropped,
//! and so cancelled; of one that goes on for other shards, the node is told which to stop.

use super::{
    attempt::{Fate, Kind},
    run::Run,
};
use crate::load::{Ending, pushback};

impl Run {
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
            if index != winner
                && attempt.branch == branch
                && attempt.kind != Kind::More
                && attempt.fate == Fate::Pending
            {
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
            self.engine.hedging.pushed_back(class, pushback(milliseconds));
        }
    }
}
