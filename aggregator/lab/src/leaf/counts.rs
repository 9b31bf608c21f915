//! What happened at a leaf, in calls for one shard.

use std::{ops::AddAssign, time::Duration};

/// Counts of a leaf, or of all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls that came.
    pub arrived: u64,
    /// Of them, those whose query had come to the shard before: hedges, twins and retries.
    pub copies: u64,
    /// Calls whose work began.
    pub begun: u64,
    /// Of them, those of a query whose work on the shard had begun before.
    pub twice: u64,
    /// Calls that were answered.
    pub finished: u64,
    /// Calls that were stopped while they ran.
    pub stopped: u64,
    /// Calls that left the queue without having begun.
    pub left_queue: u64,
    /// Calls for a version that the leaf does not hold; none, when calls are routed right.
    pub not_held: u64,
    /// Calls that the leaf refused, or gave back from its queue.
    pub refused: u64,
    /// Calls whose work was done although nobody waited.
    pub for_nobody: u64,
    /// Time that workers were taken.
    pub busy: Duration,
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.arrived += other.arrived;
        self.copies += other.copies;
        self.begun += other.begun;
        self.twice += other.twice;
        self.finished += other.finished;
        self.stopped += other.stopped;
        self.left_queue += other.left_queue;
        self.not_held += other.not_held;
        self.refused += other.refused;
        self.for_nobody += other.for_nobody;
        self.busy += other.busy;
    }
}
