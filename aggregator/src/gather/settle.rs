//! What a message does to the account: checked, then shard by shard settled, held or tried again.

use std::{collections::BTreeMap, time::Duration};

use canopy_common::{
    coverage::Outcome,
    error::{ErrorClass, Failure},
};
use canopy_proto::{convert, v1};

use super::{
    attempt::{Attempt, Fate, Kind},
    check::{self, Asked},
    dispatch::{Asking, class_of, ending_of, outcome_of},
    ledger::{Accepted, missing},
    retry::{History, Retry},
    run::Run,
};
use crate::{load::Ending, plan::Through};

/// A shard that an attempt did not answer.
struct Refused {
    shard: u32,
    class: ErrorClass,
    /// Some of its work was done.
    started: bool,
    /// Its replicas were all tried below.
    exhausted: bool,
    /// The node that was asked does not have it, and goes by the snapshot of this epoch.
    wrong_epoch: u64,
}

impl Run {
    /// Takes a message of an attempt; false when the call must not go on.
    pub(super) fn replied(&mut self, index: usize, mut reply: v1::SearchReply) -> bool {
        let attempt = &self.attempts[index];
        if matches!(attempt.fate, Fate::Cancelled | Fate::Lost) {
            return false;
        }
        let asked = Asked { replied: &attempt.replied, k: self.merge.k(), facets: self.request.facets.len() };
        if let Err(why) = check::reply(&reply, asked) {
            self.engine.metrics.malformed.inc();
            let why = format!("malformed reply: {why}");
            self.failed(index, &Failure::new(ErrorClass::Internal, why));
            return false;
        }
        self.reported(index, &mut reply);
        if self.attempts[index].kind == Kind::More {
            return self.widened(index, reply);
        }
        let full = self.merge.bytes() + self.ledger.bytes() > self.config.merge_memory.0 as usize;
        let mut accepted = vec![Accepted::Late; self.attempts[index].shards.len()];
        let mut refused = Vec::new();
        for shard in reply.shards {
            let at = shard.shard as usize;
            if let Some(verdict) = self.shard_replied(index, shard, full, &mut refused) {
                accepted[at] = verdict;
            }
        }
        self.filled(index, &reply.hits, &accepted);
        self.merge_hits(index, reply.hits, &accepted);
        self.attempts[index].history.reached = true;
        self.elsewhere(index, refused);
        if self.attempts[index].waiting == 0 && self.attempts[index].fate == Fate::Pending {
            let (ending, fate) = self.verdict(index);
            self.attempts[index].told(ending);
            self.end(index, fate);
        }
        self.stop_losers(self.attempts[index].branch, index);
        true
    }

    /// What an attempt that has said all it was asked says of its node, and how it ended.
    fn verdict(&self, index: usize) -> (Ending, Fate) {
        let attempt = &self.attempts[index];
        match attempt.refusal {
            _ if attempt.won => (Ending::Answered, Fate::Won),
            // Asked for what it need not have: that says nothing of how it works.
            Some(_) if attempt.unheld => (Ending::Reached, Fate::Failed),
            // Dropped or stopped by its leaf, because its twin had begun.
            Some(ErrorClass::Unavailable | ErrorClass::Cancelled) if self.has_twin(index) => {
                (Ending::Nothing, Fate::Lost)
            }
            // An aggregator that was asked for what another one could not get either is not to blame for the leaves.
            Some(class) if class != ErrorClass::Overloaded && self.asks_for_the_rest(index) => {
                (Ending::Reached, Fate::Failed)
            }
            Some(class) => (ending_of(class, true, None), Fate::Failed),
            None => (Ending::Nothing, Fate::Lost),
        }
    }

    /// Whether it asks an aggregator for a part of its subtree only.
    fn asks_for_the_rest(&self, index: usize) -> bool {
        let attempt = &self.attempts[index];
        let branch = &self.branches[attempt.branch];
        branch.through == Through::Aggregator && attempt.shards.len() < branch.shards.len()
    }

    /// Takes what a message says of its sender.
    fn reported(&mut self, index: usize, reply: &mut v1::SearchReply) {
        let attempt = &mut self.attempts[index];
        if let (Some(call), Some(flight)) = (&reply.call, &attempt.flight) {
            flight.report(call);
            attempt.watched.queued(Duration::from_micros(call.queue_wait_us));
            let pushback = call.pushback_ms;
            if pushback > 0 {
                self.pushed_back(index, pushback);
            }
        }
        let attempt = &mut self.attempts[index];
        if let Some(below) = reply.tail.take() {
            self.tail.attempts = self.tail.attempts.saturating_add(below.attempts);
            self.tail.hedges = self.tail.hedges.saturating_add(below.hedges);
            self.tail.hedges_won = self.tail.hedges_won.saturating_add(below.hedges_won);
            self.tail.retries = self.tail.retries.saturating_add(below.retries);
            self.tail.budget_denied = self.tail.budget_denied.saturating_add(below.budget_denied);
            self.tail.panics = self.tail.panics.saturating_add(below.panics);
            self.tail.throttled = self.tail.throttled.saturating_add(below.throttled);
            self.tail.probes = self.tail.probes.saturating_add(below.probes);
        }
        if self.request.trace {
            attempt.spans.append(&mut reply.spans);
        }
    }

    /// Takes one shard's reply. `None`: it is no answer.
    fn shard_replied(
        &mut self,
        index: usize,
        mut reply: v1::ShardReply,
        full: bool,
        refused: &mut Vec<Refused>,
    ) -> Option<Accepted> {
        let attempt = &mut self.attempts[index];
        let at = reply.shard as usize;
        attempt.replied[at] = true;
        attempt.waiting -= 1;
        let shard = attempt.shards[at];
        reply.shard = shard;
        let (node, branch, wanted) = (attempt.node.clone(), attempt.branch, self.request.version);
        let (mut refused_here, wrong_epoch) = (false, reply.wrong_epoch);
        if let Outcome::Answered { .. } = convert::outcome(&reply) {
            if reply.version != wanted {
                let why = format!("{node}: answered from v{} where v{wanted} was asked", reply.version);
                let skew = Outcome::Failed(ErrorClass::FailedPrecondition);
                reply = missing(shard, wanted, &skew, &node.0, why);
            } else if full {
                refused_here = true;
                self.engine.metrics.over_memory.inc();
                let limit = self.config.merge_memory;
                let why =
                    format!("{node}: the merge of this query is over {limit}; ask for fewer facet values");
                reply = missing(shard, wanted, &Outcome::Failed(ErrorClass::Quota), &node.0, why);
            } else {
                let accepted = self.ledger.answered(reply, &node);
                attempt.won |= accepted != Accepted::Late;
                self.release(shard);
                return Some(accepted);
            }
        } else {
            reply = self.refusal(&reply, &node.0);
        }
        let mut class = class_of(&reply);
        let mut started = matches!(convert::outcome(&reply), Outcome::Failed(_));
        if wrong_epoch > 0 && class == ErrorClass::FailedPrecondition {
            self.engine.metrics.wrong_epoch.inc();
            self.attempts[index].unheld = true;
            // Who does not have it has begun nothing.
            (class, started) = (ErrorClass::Unavailable, false);
        }
        if !refused_here && self.ledger.is_open(shard) {
            self.attempts[index].refusal.get_or_insert(class);
        }
        // An aggregator has tried the shard's replicas itself; asking another one to try them again only multiplies
        // the work, unless none of it ever began. Nor is it the one that has too much to do.
        let below = self.branches[branch].through == Through::Aggregator;
        if let (ErrorClass::Overloaded, Some(flight), false) = (class, &self.attempts[index].flight, below) {
            flight.load().penalise(self.attempts[index].budget);
        }
        let exhausted = below && (started || class != ErrorClass::Unavailable);
        if self.ledger.refused(reply) {
            refused.push(Refused { shard, class, started, exhausted, wrong_epoch });
        }
        None
    }

    /// A refusal as it enters the account: nothing of it but how it ended and why, with the name of the node that
    /// said so, once, and which version it serves instead.
    fn refusal(&self, reply: &v1::ShardReply, from: &str) -> v1::ShardReply {
        let outcome = convert::outcome(reply);
        let node = if reply.node.is_empty() { from } else { &reply.node };
        let reason = if reply.reason.is_empty() { class_of(reply).code() } else { &reply.reason };
        let reason = if reason.contains(node) { reason.to_owned() } else { format!("{node}: {reason}") };
        let refusal = missing(reply.shard, self.request.version, &outcome, node, reason);
        let skipped = matches!(outcome, Outcome::Skipped { pruned: true });
        let documents_pruned = if skipped { reply.documents_pruned } else { 0 };
        v1::ShardReply { documents_pruned, instead: reply.instead, ..refusal }
    }

    fn merge_hits(&mut self, index: usize, hits: Vec<v1::Hit>, accepted: &[Accepted]) {
        self.hits_this_turn += hits.len();
        for mut hit in hits {
            let at = hit.shard as usize;
            hit.shard = self.attempts[index].shards[at];
            match accepted[at] {
                Accepted::Settled => self.merge.push(hit),
                Accepted::Held => self.ledger.stash(hit),
                Accepted::Late => {}
            }
        }
    }

    /// An attempt failed: what it did not answer is tried elsewhere or settled.
    pub(super) fn failed(&mut self, index: usize, failure: &Failure) {
        if matches!(self.attempts[index].fate, Fate::Cancelled | Fate::Lost) {
            return;
        }
        if failure.class == ErrorClass::Cancelled && !self.can_win(index) {
            return self.lose(index);
        }
        if let Some(pushback) = failure.pushback_ms {
            self.pushed_back(index, pushback);
        }
        let attempt = &mut self.attempts[index];
        if failure.class == ErrorClass::DeadlineExceeded {
            attempt.watched.late();
        }
        let started = attempt.started();
        attempt.told(ending_of(failure.class, started, failure.pushback_ms));
        let outcome = outcome_of(failure.class, started);
        let node = attempt.node.clone();
        let reason = format!("{node}: {failure}");
        let open: Vec<u32> = attempt.unanswered().collect();
        attempt.replied.fill(true);
        attempt.waiting = 0;
        let mut refused = Vec::new();
        for shard in open {
            if self.ledger.refused(missing(shard, self.request.version, &outcome, &node.0, reason.clone())) {
                refused.push(Refused {
                    shard,
                    class: failure.class,
                    started,
                    exhausted: false,
                    wrong_epoch: 0,
                });
            }
        }
        // What says nothing but that it is gone was not reached, whatever words the transport finds for it.
        let gone = [ErrorClass::Unavailable, ErrorClass::Internal, ErrorClass::Cancelled];
        self.attempts[index].history.reached |= started || !gone.contains(&failure.class);
        self.end(index, Fate::Failed);
        self.more_elsewhere(index, failure.class);
        self.elsewhere(index, refused);
    }

    /// A stream ended. Shards it never named are failed.
    pub(super) fn ended(&mut self, index: usize) {
        let attempt = &self.attempts[index];
        if attempt.waiting > 0 && attempt.fate == Fate::Pending {
            if !self.can_win(index) {
                return self.lose(index);
            }
            let why = format!("the stream ended with {} shards unanswered", attempt.waiting);
            self.failed(index, &Failure::new(ErrorClass::Internal, why));
        }
    }

    /// Shards that an attempt refused: asked elsewhere by the retry they have left, or settled.
    fn elsewhere(&mut self, index: usize, refused: Vec<Refused>) {
        if refused.is_empty() {
            return;
        }
        let branch = self.attempts[index].branch;
        let shards: Vec<u32> = refused.iter().map(|refused| refused.shard).collect();
        let mut history = self.lineage(branch, &shards);
        self.forget_dropped_twins(branch, &mut history);
        let more = history.sent < self.hedges.config.max_attempts
            && history.tried.len() < self.branches[branch].candidates.len();
        let mut again: BTreeMap<Retry, Vec<u32>> = BTreeMap::new();
        let (mut hopeless, mut stale, mut epoch) = (Vec::new(), Vec::new(), 0);
        for Refused { shard, class, started, exhausted, wrong_epoch } in refused {
            match history.left(class, started).filter(|_| more && !exhausted) {
                Some(retry) => again.entry(retry).or_default().push(shard),
                None if wrong_epoch > self.attempts[index].epoch.0 => {
                    stale.push(shard);
                    epoch = epoch.max(wrong_epoch);
                }
                None => hopeless.push(shard),
            }
        }
        let node = self.attempts[index].node.clone();
        if !self.plan_anew(index, &stale) && !self.await_newer(&stale, epoch, Some(&node)) {
            hopeless.append(&mut stale);
        }
        if !self.another_way(branch, &hopeless, &history) {
            self.give_up(&hopeless, &Outcome::TimedOut, "not asked again");
        }
        for (retry, shards) in again {
            match self.afford(retry, shards.len()) {
                Some(retry) => {
                    let (history, kind) = (history.with(retry), Kind::Retry(retry));
                    self.dispatch(Asking { branch, shards, history, kind, tie: None });
                }
                // A subtree of which nothing ever began costs its leaves nothing to be asked directly.
                None if self.another_way(branch, &shards, &history) => {}
                None => self.unaffordable(&shards),
            }
        }
    }

    /// A tied copy that gave way to its twin was never tried: when the twin fails, its node may be asked again.
    fn forget_dropped_twins(&self, branch: usize, history: &mut History) {
        let candidates = &self.branches[branch].candidates;
        let gave_way =
            |attempt: &&Attempt| attempt.branch == branch && attempt.tied && attempt.fate == Fate::Lost;
        for attempt in self.attempts.iter().filter(gave_way) {
            history.tried.retain(|at| candidates[usize::from(*at)] != attempt.node);
        }
    }

    /// The retry as it may be sent: what never began is free within its fuse, and beyond it costs like the others.
    pub(super) fn afford(&mut self, retry: Retry, shards: usize) -> Option<Retry> {
        if retry == Retry::Transparent && self.engine.hedging.may_retry() {
            return Some(Retry::Transparent);
        }
        self.engine.hedging.spend(&self.hedges.config, shards).then_some(Retry::Counted)
    }

    pub(super) fn unaffordable(&mut self, shards: &[u32]) {
        const WORDS: &str = "not asked again, because the budget for extra work is spent";
        self.tail.budget_denied += 1;
        for shard in shards {
            let version = self.request.version;
            self.ledger.note(missing(*shard, version, &Outcome::Unavailable, "", WORDS.to_owned()));
        }
        self.give_up(shards, &Outcome::Unavailable, WORDS);
    }
}
