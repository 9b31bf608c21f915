//! Fewer hits per branch. Of the k best hits of a query, a branch with a tenth of the documents holds about a tenth;
//! asking each of a hundred branches for all k makes the root read a hundred times what it shows.
//!
//! Documents lie at random, so the number of the k best that one branch holds is binomial. A branch is asked for the
//! smallest m that it exceeds, over all branches together, once in 10,000 queries (a normal approximation is wrong
//! where it matters: for few hits on many branches it asks for half of what is needed). Rule: whoever sent as many hits
//! as it was asked for, all of them better than the last of the page, may hold more: it is asked again for all k. So
//! the page is exact, not probable. What could not be asked again in time is cut, and said so.
//!
//! Only where the result is taken whole (a level that passes batches on cannot know the page), and not with collapse,
//! where hits behind each other are not counted one by one.

use canopy_common::{error::ErrorClass, topk::SortKey};
use canopy_proto::{convert, v1};
use tokio::time::Instant;

use super::{
    Decision,
    attempt::{Fate, Kind},
    dispatch::Asking,
    event::Event,
    ledger::{Accepted, whole},
    retry::{History, Retry},
    run::Run,
};
use crate::load::Ending;

/// Queries that need a second round.
const RARE: f64 = 1e-4;
/// Beyond this the sum loses its digits, and a page of so many hits is no page.
const K_MAX: u32 = 1000;
/// A branch with more than this share of the documents is asked for everything.
const SHARE_MAX: f64 = 0.5;

/// A message that was as long as it may be: behind its last hit there may be more.
struct Full {
    branch: usize,
    shards: Vec<u32>,
    last: (SortKey, u32),
}

/// What one search asks of its branches, and what it may have missed.
#[derive(Default)]
pub(super) struct Narrow {
    /// Hits asked of each branch; empty: all of them.
    asked: Vec<u32>,
    full: Vec<Full>,
    /// Shards that were asked again and have not answered.
    open: Vec<u32>,
}

impl Narrow {
    /// Most hits a shard of the branch is asked for.
    pub fn of(&self, branch: usize) -> u32 {
        self.asked.get(branch).copied().unwrap_or(u32::MAX)
    }
}

/// The smallest number of the `k` best that none of `branches` with `share` of the documents exceeds, but for one query in
/// 10,000.
pub fn enough(k: u32, branches: usize, share: f64) -> u32 {
    let usable = share > 0.0 && share <= SHARE_MAX && k <= K_MAX;
    if !usable || branches < 2 {
        return k;
    }
    let odds = share / (1.0 - share);
    let mut term = (f64::from(k) * (-share).ln_1p()).exp();
    let mut below = term;
    for m in 0..k {
        if branches as f64 * (1.0 - below) <= RARE {
            return m.max(1);
        }
        term *= odds * f64::from(k - m) / f64::from(m + 1);
        below += term;
    }
    k
}

impl Run {
    /// Once the branches are known, for a result that is taken whole.
    pub fn narrow(&mut self) {
        let k = self.merge.k() as u32;
        let total: u64 = self.request.shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.documents));
        if !self.request.collapse.is_empty() || total == 0 {
            return;
        }
        let branches = self.branches.len();
        let share = |shards: &[u32]| {
            let own: u64 = shards.iter().map(|shard| self.request.shards[*shard as usize].documents).sum();
            own as f64 / total as f64
        };
        let asked = self.branches.iter().map(|branch| enough(k, branches, share(&branch.shards)));
        self.narrow.asked = asked.collect();
    }

    /// Notes a message that was as long as it may be, with the shards whose answer was taken.
    pub(super) fn filled(&mut self, index: usize, hits: &[v1::Hit], accepted: &[Accepted]) {
        let attempt = &self.attempts[index];
        let asked = self.narrow.of(attempt.branch);
        if hits.len() < asked as usize || asked as usize >= self.merge.k() {
            return;
        }
        let Some(last) = hits.last() else { return };
        let taken = attempt.shards.iter().zip(accepted).filter(|(_, verdict)| **verdict != Accepted::Late);
        let shards = taken.map(|(shard, _)| *shard).collect();
        let last = (convert::sort_key(last), attempt.shards[last.shard as usize]);
        self.narrow.full.push(Full { branch: attempt.branch, shards, last });
    }

    /// Asks again what may hold more of the page, and waits for it.
    pub(super) async fn widen(&mut self, decision: Decision) -> Decision {
        if matches!(decision, Decision::Cancelled | Decision::Lost) || self.narrow.full.is_empty() {
            return decision;
        }
        loop {
            // What was still open when it was decided may be full as well. Too late to be asked it is cut.
            self.ask_for_more();
            if !self.asks_for_more() || Instant::now() >= self.schedule.finish_at {
                break;
            }
            match self.next(self.schedule.finish_at).await {
                Event::CallerGone => return Decision::Cancelled,
                event => self.handle(event),
            }
        }
        for shard in std::mem::take(&mut self.narrow.open) {
            self.ledger.cut(shard, v1::Cut::Hits);
        }
        decision
    }

    fn ask_for_more(&mut self) {
        let mut again: Vec<(usize, Vec<u32>)> = Vec::new();
        for Full { branch, shards, last } in std::mem::take(&mut self.narrow.full) {
            if !self.merge.beats_the_last((&last.0, last.1)) {
                continue;
            }
            let whole = |shard: &u32| self.ledger.whole(*shard);
            let shards: Vec<u32> = shards.into_iter().filter(whole).collect();
            if shards.is_empty() {
                continue;
            }
            match again.iter_mut().find(|(known, _)| *known == branch) {
                Some((_, known)) => known.extend(
                    shards.iter().filter(|shard| !known.contains(shard)).copied().collect::<Vec<_>>(),
                ),
                None => again.push((branch, shards)),
            }
        }
        for (branch, shards) in again {
            self.engine.metrics.widened.inc();
            self.narrow.open.extend(&shards);
            self.dispatch(Asking {
                branch,
                shards,
                history: History::default(),
                kind: Kind::More,
                tie: None,
            });
        }
    }

    /// An attempt that asked for more failed: another replica is asked, once.
    pub(super) fn more_elsewhere(&mut self, index: usize, class: ErrorClass) {
        let attempt = &self.attempts[index];
        if attempt.kind != Kind::More || !class.retryable() || attempt.history.counted {
            return;
        }
        let (branch, history) = (attempt.branch, attempt.history.with(Retry::Counted));
        let open = attempt.shards.iter().filter(|shard| self.narrow.open.contains(shard));
        let shards = open.copied().collect();
        self.dispatch(Asking { branch, shards, history, kind: Kind::More, tie: None });
    }

    fn asks_for_more(&self) -> bool {
        let pending =
            |attempt: &super::attempt::Attempt| attempt.kind == Kind::More && attempt.fate == Fate::Pending;
        self.attempts.iter().any(pending)
    }

    /// Takes a message of an attempt that asked for more: its shards are settled, only its hits are new. Only what the
    /// first answer covered is taken: the same version, whole.
    pub(super) fn widened(&mut self, index: usize, reply: v1::SearchReply) -> bool {
        let wanted = self.request.version;
        let attempt = &mut self.attempts[index];
        let mut taken = vec![false; attempt.shards.len()];
        for shard in &reply.shards {
            let at = shard.shard as usize;
            attempt.replied[at] = true;
            attempt.waiting -= 1;
            taken[at] = shard.version == wanted && whole(shard);
        }
        for mut hit in reply.hits {
            let at = hit.shard as usize;
            if taken[at] {
                hit.shard = attempt.shards[at];
                self.merge.push(hit);
            }
        }
        self.narrow
            .open
            .retain(|open| !attempt.shards.iter().zip(&taken).any(|(shard, taken)| *taken && shard == open));
        if self.attempts[index].waiting == 0 {
            self.attempts[index].told(Ending::Answered);
            self.end(index, Fate::Won);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_branch_is_asked_for_as_many_as_can_matter() {
        // Computed from the binomial distribution: k, branches, enough.
        for (k, branches, expected) in [
            (10, 10, 6),
            (10, 100, 4),
            (100, 10, 25),
            (100, 100, 8),
            (1000, 100, 28),
            (10, 2, 10),
            (1, 100, 1),
            (10, 1, 10),
            (1001, 100, 1001),
        ] {
            assert_eq!(enough(k, branches, 1.0 / branches as f64), expected, "{k} of {branches}");
        }
        assert_eq!(enough(0, 100, 0.01), 0);
        for share in [0.0, -1.0, f64::NAN, 0.6, 1.0] {
            assert_eq!(enough(10, 100, share), 10);
        }
        assert!((1..=1000).all(|k| (2..200).all(|branches| enough(k, branches, 1.0 / branches as f64) <= k)));
    }
}
