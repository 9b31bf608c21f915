//! When to stop working on a shard: the deadline passed, or the caller wants no more.
//!
//! The engine has no way to stop a search, so every loop of ours that can run long asks here. Asking costs a read of
//! the clock (some 25 ns), so inner loops ask through a [`Ticker`], which really looks every [`EVERY`] steps (a step:
//! one posting, one value; some nanoseconds). Rule: the work after expiry is at most [`EVERY`] steps of one loop.

use std::{
    cell::Cell,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use canopy_common::deadline::Deadline;

/// Steps between two looks at the clock.
pub const EVERY: u32 = 256;

/// Tells when to stop. Cheap to clone; clones share the cancellation.
#[derive(Debug, Clone)]
pub struct Stop {
    deadline: Option<Deadline>,
    cancelled: Arc<AtomicBool>,
    #[cfg(test)]
    counted: Option<Arc<Counted>>,
}

/// Counts what is asked, for tests of how much is done after a cancel.
#[cfg(test)]
#[derive(Debug)]
pub struct Counted {
    /// The look that is the first to hear of the cancel.
    pub at: u32,
    /// Looks before it.
    pub looks: std::sync::atomic::AtomicU32,
    /// Steps asked for after it.
    pub after: std::sync::atomic::AtomicU32,
}

impl Stop {
    /// Stops at the deadline, or when `cancelled` becomes true.
    pub fn new(deadline: Deadline, cancelled: Arc<AtomicBool>) -> Self {
        Self {
            deadline: Some(deadline),
            cancelled,
            #[cfg(test)]
            counted: None,
        }
    }

    /// Is cancelled when it is looked at for the `at`th time.
    #[cfg(test)]
    pub fn counted(at: u32) -> (Self, Arc<Counted>) {
        let counted = Arc::new(Counted { at, looks: Default::default(), after: Default::default() });
        (Self { counted: Some(counted.clone()), ..Self::never() }, counted)
    }

    /// Never stops; for warm-up and tests.
    pub fn never() -> Self {
        Self {
            deadline: None,
            cancelled: Arc::new(AtomicBool::new(false)),
            #[cfg(test)]
            counted: None,
        }
    }

    /// Whether to stop now.
    pub fn now(&self) -> bool {
        #[cfg(test)]
        if let Some(counted) = &self.counted
            && !self.cancelled.load(Ordering::Relaxed)
            && counted.looks.fetch_add(1, Ordering::Relaxed) + 1 >= counted.at
        {
            self.cancelled.store(true, Ordering::Relaxed);
        }
        self.cancelled.load(Ordering::Relaxed) || self.deadline.is_some_and(Deadline::expired)
    }
}

/// Counts the steps of one search on one thread, and looks at the clock now and then. Once it has said stop, it says
/// so for ever.
#[derive(Debug)]
pub struct Ticker<'a> {
    stop: &'a Stop,
    left: Cell<u32>,
    stopped: Cell<bool>,
}

impl<'a> Ticker<'a> {
    /// A ticker that looks at its first step.
    pub fn new(stop: &'a Stop) -> Self {
        Self { stop, left: Cell::new(0), stopped: Cell::new(false) }
    }

    /// Counts steps; false: stop.
    #[inline]
    pub fn tick(&self, steps: u32) -> bool {
        let left = self.left.get();
        if left > steps {
            self.left.set(left - steps);
            return true;
        }
        self.look()
    }

    /// Looks at once; false: stop.
    #[cold]
    pub fn look(&self) -> bool {
        #[cfg(test)]
        if let Some(counted) = self.stop.counted.as_ref().filter(|_| self.stopped.get()) {
            counted.after.fetch_add(1, Ordering::Relaxed);
        }
        if self.stopped.get() {
            return false;
        }
        if self.stop.now() {
            self.stopped.set(true);
            self.left.set(0);
            return false;
        }
        self.left.set(EVERY);
        true
    }

    /// Whether it has said stop.
    pub fn stopped(&self) -> bool {
        self.stopped.get()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn stops_at_the_deadline_and_on_cancel() {
        let cancelled = Arc::new(AtomicBool::new(false));
        let stop = Stop::new(Deadline::after(Duration::from_millis(5)), cancelled.clone());
        let ticker = Ticker::new(&stop);
        assert!(ticker.tick(1));
        tokio::time::advance(Duration::from_millis(6)).await;
        let seen = (0..2 * EVERY).take_while(|_| ticker.tick(1)).count();
        assert!(seen <= EVERY as usize && ticker.stopped());
        assert!(!ticker.tick(0) && !ticker.look());

        let stop = Stop::new(Deadline::after(Duration::from_secs(1)), cancelled.clone());
        assert!(!stop.now());
        cancelled.store(true, Ordering::Relaxed);
        assert!(stop.now());
    }
}
