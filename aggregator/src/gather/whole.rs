//! A search that is wanted whole or not at all: its caller can ask something else instead, such as the same query of another
//! version. It ends as soon as a shard is lost, while there is time left for the other.
//!
//! Rules: what is known beforehand (nobody holds a shard, every replica of it fails or can't be reached) costs nothing, because
//! nothing began; what was begun is paid for like any extra work, and where it can't be paid, or half of the time that it took is
//! not left for another search, it goes on to the best part. Slow replicas and refusals for load are no loss: asking others would
//! only add to the load. Replicas that fail are sent a shadow when the breaker says so: a version that nobody asks any more could
//! never show that it is well again.

use canopy_common::error::ErrorClass;
use tokio::time::Instant;

use super::{
    attempt::{Attempt, Fate, Kind},
    dispatch::Asking,
    retry::History,
    run::Run,
};
use crate::{breaker::standing::Ejected, plan::Through};

impl Run {
    /// Wants it whole from now on; whether that can't be, by what is known before anything is sent.
    pub(super) fn is_hopeless(&mut self) -> bool {
        self.whole = true;
        let broken: Vec<usize> = (0..self.branches.len()).filter(|branch| self.is_broken(*branch)).collect();
        for branch in &broken {
            self.shadow_broken(*branch);
        }
        self.ledger.progress().lost > 0 || !broken.is_empty()
    }

    /// Every replica of a branch fails or can't be reached.
    fn is_broken(&self, branch: usize) -> bool {
        let (branch, now) = (&self.branches[branch], Instant::now());
        let loads = &self.engine.loads;
        let broken = |node| {
            matches!(loads.of(node).seen(now).ejected, Some(Ejected::Failing | Ejected::Gone))
                || self.engine.endpoints.get(node).is_none()
        };
        branch.through == Through::Leaf && branch.candidates.iter().all(broken)
    }

    /// Tries one replica of a branch with a copy that nobody waits for, when that is due.
    fn shadow_broken(&mut self, branch: usize) {
        let (candidates, now) = (self.branches[branch].candidates.clone(), Instant::now());
        let due = candidates.iter().find(|node| self.engine.loads.of(node).passed_over(now));
        if let Some(node) = due {
            let (shards, history) = (self.branches[branch].shards.clone(), History::default());
            self.shadow(&Asking { branch, shards, history, kind: Kind::First, tie: None }, node, true);
        }
    }

    /// Whether it ends here, because a shard is lost and what was begun can be paid for.
    pub(super) fn gives_up(&mut self) -> bool {
        if !self.whole || self.ledger.progress().lost == 0 {
            return false;
        }
        let (now, schedule) = (Instant::now(), &self.schedule);
        let taken = now.saturating_duration_since(schedule.arrival);
        if schedule.finish_at.saturating_duration_since(now) < taken / 2 {
            self.whole = false;
            return false;
        }
        let begun: usize =
            self.attempts.iter().filter(|attempt| began(attempt)).map(|one| one.shards.len()).sum();
        let may = begun == 0 || self.engine.hedging.spend(&self.hedges.config, begun);
        self.tail.budget_denied += u32::from(!may);
        self.whole = may;
        may
    }
}

/// Whether its node may have begun: what was not reached, or refused before any work, has not.
fn began(attempt: &Attempt) -> bool {
    let refused = matches!(attempt.refusal, Some(ErrorClass::Overloaded | ErrorClass::Unavailable));
    attempt.fate != Fate::Failed || attempt.won || attempt.history.reached && !refused && !attempt.unheld
}
