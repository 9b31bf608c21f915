//! Tied requests: one branch, asked of two leaves at once, searched by one.
//!
//! Both copies name each other. The one whose search begins first tells the other, which drops its own while it waits;
//! so the branch has the shorter of two queues for hardly more than the work of one. Rules of one copy, which is a
//! [`Half`]: a claim of the twin drops a copy that has not begun; of two that have begun the later one stops, ordered by
//! (start, attempt), so that both judge alike whatever the messages do; a claim that comes before its copy leaves a mark
//! that drops it at arrival (see [`crate::calls`]). The failure this prevents: each waits for the other and nobody
//! searches; at most one copy is ever lost to the tie, and only to one that has begun. A claim that is lost costs a
//! second search, never an answer.
//!
//! A dropped copy is told as unavailable: a class that is asked again, should its twin fail after all. Clocks of leaves
//! are never compared: a start is what the engine's clock said when it sent the copy, plus the wait here. Units:
//! microseconds.

pub mod peers;

use canopy_common::ids::{AttemptId, NodeId};
use canopy_proto::v1;
use parking_lot::Mutex;

/// When a copy began, and which it is; the smaller one goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claim {
    /// Start on the engine's clock.
    pub start_us: u64,
    /// Attempt.
    pub attempt: AttemptId,
}

/// How far a copy has come. A value: events in, actions out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Half {
    /// It waits.
    Queued,
    /// It has begun, and may have ended since.
    Begun(Claim),
    /// It was dropped or stopped in favour of its twin.
    Lost,
}

/// What happens to a copy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// It arrives at its leaf; `marked`: a claim of its twin was here before.
    Arrives {
        /// See above.
        marked: bool,
    },
    /// A thread begins with it.
    Begins(Claim),
    /// Its twin says that it has begun.
    Claimed(Claim),
}

/// What is to be done about it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Tell the twin.
    Tell(Claim),
    /// Leave the queue.
    Drop,
    /// Stop the search: both have begun, the twin earlier.
    Stop,
}

impl Half {
    /// The next state and what to do.
    pub fn on(self, event: Event) -> (Self, Action) {
        match (self, event) {
            (Self::Queued, Event::Arrives { marked: true } | Event::Claimed(_)) => (Self::Lost, Action::Drop),
            (Self::Queued, Event::Begins(mine)) => (Self::Begun(mine), Action::Tell(mine)),
            (Self::Begun(mine), Event::Claimed(twin)) if twin < mine => (Self::Lost, Action::Stop),
            (state, _) => (state, Action::Nothing),
        }
    }
}

/// The tie of one call.
#[derive(Debug)]
pub struct Tied {
    /// Where the twin is.
    pub peer: NodeId,
    /// The twin's attempt.
    pub twin: AttemptId,
    own: AttemptId,
    sent_us: u64,
    half: Mutex<Half>,
}

impl Tied {
    /// The tie that a request asks for.
    pub fn of(tie: &v1::Tie, own: AttemptId) -> Self {
        Self {
            peer: NodeId::from(tie.peer.as_str()),
            twin: AttemptId(tie.attempt_id),
            own,
            sent_us: tie.start_us,
            half: Mutex::new(Half::Queued),
        }
    }

    /// The next state, by [`Half::on`].
    pub fn on(&self, event: Event) -> Action {
        let mut half = self.half.lock();
        let (next, action) = half.on(event);
        *half = next;
        action
    }

    /// The claim of a copy that begins after waiting so long.
    pub fn claim(&self, waited_us: u64) -> Claim {
        Claim { start_us: self.sent_us.saturating_add(waited_us), attempt: self.own }
    }

    /// When it began, if it did and was not stopped.
    pub fn begun(&self) -> Option<Claim> {
        match *self.half.lock() {
            Half::Begun(claim) => Some(claim),
            Half::Queued | Half::Lost => None,
        }
    }
}

#[cfg(test)]
mod tests;
