//! What travels beside a request inside a process: who asks, until when, and how to be stopped.

use tokio_util::sync::CancellationToken;

use crate::{
    deadline::Deadline,
    ids::{AttemptId, QueryId},
};

/// Who goes first when not all can.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Hash)]
pub enum Priority {
    /// A person waits.
    #[default]
    Interactive,
    /// Nobody waits.
    Batch,
}

/// Context of one call to a `SearchNode`. Cloning shares the cancellation.
#[derive(Debug, Clone)]
pub struct RequestContext {
    /// The query, the same on all hops.
    pub query: QueryId,
    /// The attempt this call is.
    pub attempt: AttemptId,
    /// When the answer stops being of use.
    pub deadline: Deadline,
    /// Class of service.
    pub priority: Priority,
    /// Fired when the caller is gone or has what it wants.
    pub cancel: CancellationToken,
}

impl RequestContext {
    /// A context that only its deadline ends.
    pub fn new(query: QueryId, attempt: AttemptId, deadline: Deadline) -> Self {
        Self { query, attempt, deadline, priority: Priority::default(), cancel: CancellationToken::new() }
    }

    /// The same query for a child call: own attempt, own deadline (never later), cancelled with its parent.
    pub fn child(&self, attempt: AttemptId, deadline: Deadline) -> Self {
        Self {
            query: self.query,
            attempt,
            deadline: self.deadline.min(deadline),
            priority: self.priority,
            cancel: self.cancel.child_token(),
        }
    }
}
