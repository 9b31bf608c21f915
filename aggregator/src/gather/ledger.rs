//! The account of one query's shards: each asked shard has one line and ends in exactly one outcome.
//!
//! A shard is settled by the first whole answer. What may still be bettered is **held**: an answer that was cut while
//! another attempt is pending, or a failure. Held replies are alternatives, never sums: of two answers the one with
//! more documents stays, an answer beats any failure, and of two failures the graver outcome stays with both reasons,
//! whichever came first. So neither a retry nor the order of replies changes the sums (invariant 1, 2).

use std::mem;

use canopy_common::{
    coverage::{Cut, Outcome},
    error::ErrorClass,
    ids::NodeId,
};
use canopy_proto::{convert, v1};

use super::completion::Progress;

/// Longest text of a reason, bytes.
const REASON_MAX: usize = 400;

/// What became of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Accepted {
    /// It settled the shard.
    Settled,
    /// It is held; another attempt may do better.
    Held,
    /// The shard was settled before.
    Late,
}

#[derive(Debug, Default)]
struct Line {
    documents: u64,
    pending: u16,
    settled: bool,
    held: Option<v1::ShardReply>,
    hits: Vec<v1::Hit>,
    child: Option<NodeId>,
}

/// Lines of all asked shards.
#[derive(Debug)]
pub struct Ledger {
    lines: Vec<Line>,
    progress: Progress,
    unsent: Vec<u32>,
    bytes: usize,
}

impl Ledger {
    /// All open.
    pub fn new(shards: &[v1::ShardRequest]) -> Self {
        let line = |shard: &v1::ShardRequest| Line { documents: shard.documents, ..Line::default() };
        let progress = Progress {
            shards: shards.len() as u32,
            open: shards.len() as u32,
            documents: shards.iter().fold(0, |sum, shard| sum.saturating_add(shard.documents)),
            ..Progress::default()
        };
        Self { lines: shards.iter().map(line).collect(), progress, unsent: Vec::new(), bytes: 0 }
    }

    /// How far it is.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Estimated bytes of the replies it holds.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Shards settled since they were last taken.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Whether an attempt for it runs.
    pub fn is_pending(&self, shard: u32) -> bool {
        self.line(shard).pending > 0
    }

    /// Whether the shard is not settled.
    pub fn is_open(&self, shard: u32) -> bool {
        !self.line(shard).settled
    }

    fn line(&self, shard: u32) -> &Line {
        &self.lines[shard as usize]
    }

    fn line_mut(&mut self, shard: u32) -> &mut Line {
        &mut self.lines[shard as usize]
    }

    /// An attempt for these shards is under way.
    pub fn sent(&mut self, shards: &[u32]) {
        for shard in shards {
            self.line_mut(*shard).pending += 1;
        }
    }

    /// An attempt ended without a word on this shard that counts.
    pub fn returned(&mut self, shard: u32) {
        let line = self.line_mut(shard);
        line.pending = line.pending.saturating_sub(1);
    }

    /// A pending attempt answered. The caller passes the hits on: to the merge when settled, to [`Self::stash`] when
    /// held, nowhere when late; and once the shard is settled, what was stashed to the merge.
    pub fn answered(&mut self, reply: v1::ShardReply, child: &NodeId) -> Accepted {
        let shard = reply.shard;
        self.returned(shard);
        let line = self.line_mut(shard);
        if line.settled {
            return Accepted::Late;
        }
        let cut = cut(&reply);
        let better = line.held.as_ref().is_none_or(|held| {
            !answered(held) || (documents(&reply), !cut) > (documents(held), !self::cut(held))
        });
        if better {
            line.hits.clear();
            line.child = Some(child.clone());
            line.held = Some(reply);
        }
        if cut && line.pending > 0 {
            return if better { Accepted::Held } else { Accepted::Late };
        }
        self.settle(shard);
        if better { Accepted::Settled } else { Accepted::Late }
    }

    /// Keeps a hit of a held answer.
    pub fn stash(&mut self, hit: v1::Hit) {
        self.line_mut(hit.shard).hits.push(hit);
    }

    /// Hits of a held answer that was settled as it was.
    pub fn take_stash(&mut self, shard: u32) -> Vec<v1::Hit> {
        mem::take(&mut self.line_mut(shard).hits)
    }

    /// A pending attempt failed or was refused for this shard. True when nothing else is pending for it: the caller
    /// retries or settles it.
    pub fn refused(&mut self, reply: v1::ShardReply) -> bool {
        let shard = reply.shard;
        self.returned(shard);
        self.note(reply);
        self.is_open(shard) && self.line(shard).pending == 0
    }

    /// Holds a reply that is no answer.
    pub fn note(&mut self, reply: v1::ShardReply) {
        let line = self.line_mut(reply.shard);
        if line.settled {
            return;
        }
        line.held = Some(match line.held.take() {
            Some(held) if answered(&held) => held,
            Some(held) => graver(held, reply),
            None => reply,
        });
    }

    /// Settles a shard with what is held for it, or else with `otherwise`.
    pub fn give_up(&mut self, shard: u32, otherwise: impl FnOnce() -> v1::ShardReply) {
        if self.is_open(shard) {
            if self.line(shard).held.is_none() {
                self.line_mut(shard).held = Some(otherwise());
            }
            self.settle(shard);
        }
    }

    /// Whether the shard's answer covers all of it.
    pub fn whole(&self, shard: u32) -> bool {
        let line = self.line(shard);
        line.settled && line.held.as_ref().is_some_and(whole)
    }

    /// Says of an answer that was taken whole that something of it was cut after all.
    pub fn cut(&mut self, shard: u32, cut: v1::Cut) {
        if let Some(reply) = &mut self.line_mut(shard).held
            && whole(reply)
        {
            reply.cut = cut as i32;
        }
    }

    fn settle(&mut self, shard: u32) {
        let line = &mut self.lines[shard as usize];
        line.settled = true;
        self.progress.open -= 1;
        self.unsent.push(shard);
        let Some(reply) = &mut line.held else { return };
        reply.documents_searched = reply.documents_searched.min(line.documents);
        reply.documents_pruned = reply.documents_pruned.min(line.documents - reply.documents_searched);
        self.bytes += bytes(reply);
        match convert::outcome(reply) {
            Outcome::Answered { searched, pruned, .. } => {
                self.progress.answered += 1;
                self.progress.covered = self.progress.covered.saturating_add(searched + pruned);
            }
            Outcome::Skipped { pruned: true } => {
                self.progress.answered += 1;
                self.progress.covered = self.progress.covered.saturating_add(line.documents);
            }
            Outcome::Unavailable => self.progress.lost += 1,
            Outcome::Failed(class) if class.retryable() || class == ErrorClass::Cancelled => {
                self.progress.lost += 1;
            }
            _ => {}
        }
    }

    /// Replies settled since the last call, and frees them.
    pub fn take_unsent(&mut self) -> Vec<v1::ShardReply> {
        self.bytes = 0;
        let unsent = mem::take(&mut self.unsent);
        unsent.into_iter().filter_map(|shard| self.line_mut(shard).held.take()).collect()
    }

    /// All replies in the order asked, and the child that settled each. Every shard must be settled.
    pub fn into_replies(self) -> (Vec<v1::ShardReply>, Vec<Option<NodeId>>) {
        self.lines.into_iter().map(|line| (line.held.unwrap_or_default(), line.child)).unzip()
    }
}

fn answered(reply: &v1::ShardReply) -> bool {
    reply.outcome == v1::Outcome::Answered as i32
}

/// An answer of which nothing was cut.
pub fn whole(reply: &v1::ShardReply) -> bool {
    answered(reply) && reply.cut == v1::Cut::None as i32
}

fn cut(reply: &v1::ShardReply) -> bool {
    matches!(convert::cut(reply.cut), Cut::Deadline | Cut::Anytime)
}

fn documents(reply: &v1::ShardReply) -> u64 {
    reply.documents_searched.saturating_add(reply.documents_pruned)
}

/// Which of two failures says more: an error over a timeout over a refusal over an absence; of two errors the higher
/// class. Symmetric, so that the order of two replicas does not show.
fn gravity(reply: &v1::ShardReply) -> (u8, u32) {
    match v1::Outcome::try_from(reply.outcome) {
        Ok(v1::Outcome::Answered) => (5, 0),
        Ok(v1::Outcome::TimedOut) => (3, 0),
        Ok(v1::Outcome::Shed) => (2, 0),
        Ok(v1::Outcome::Unavailable) => (1, 0),
        Ok(v1::Outcome::Skipped) => (0, 0),
        Ok(v1::Outcome::Failed | v1::Outcome::Unspecified) | Err(_) => (4, reply.error_class),
    }
}

fn graver(first: v1::ShardReply, then: v1::ShardReply) -> v1::ShardReply {
    let reason = shortened(format!("{}; then {}", first.reason, then.reason));
    let instead = first.instead.into_iter().chain(then.instead).max_by_key(|instead| instead.epoch);
    let graver = if gravity(&then) > gravity(&first) { then } else { first };
    v1::ShardReply { reason, instead, ..graver }
}

/// At most `REASON_MAX` bytes, cut between characters.
pub fn shortened(mut reason: String) -> String {
    if reason.len() > REASON_MAX {
        reason.truncate(reason.floor_char_boundary(REASON_MAX - 3));
        reason.push_str("...");
    }
    reason
}

fn bytes(reply: &v1::ShardReply) -> usize {
    let facets = reply.facets.iter().flat_map(|facet| &facet.values);
    let values: usize =
        facets.map(|value| value.len() + mem::size_of::<String>() + mem::size_of::<u64>()).sum();
    let offsets = reply.offsets.len() * mem::size_of::<v1::PartitionOffset>();
    mem::size_of::<v1::ShardReply>() + reply.node.len() + reply.reason.len() + offsets + values
}

/// A reply made here, for a shard that did not answer; `node` is whom it was asked of, if anyone.
pub fn missing(shard: u32, version: u64, outcome: &Outcome, node: &str, reason: String) -> v1::ShardReply {
    let (outcome, class) = match outcome {
        Outcome::TimedOut => (v1::Outcome::TimedOut, None),
        Outcome::Shed => (v1::Outcome::Shed, None),
        Outcome::Unavailable => (v1::Outcome::Unavailable, None),
        Outcome::Skipped { .. } => (v1::Outcome::Skipped, None),
        Outcome::Failed(class) => (v1::Outcome::Failed, Some(*class)),
        Outcome::Answered { .. } => (v1::Outcome::Failed, Some(ErrorClass::Internal)),
    };
    v1::ShardReply {
        shard,
        outcome: outcome as i32,
        version,
        error_class: class.map_or(0, |class| class as u32),
        node: node.to_owned(),
        reason: shortened(reason),
        ..Default::default()
    }
}

#[cfg(test)]
mod tests;
