//! Queries that wait for a version to be opened, and how many may.
//!
//! Each holds its place in the gate while it waits. The failure this prevents: a version that opens slowly fills the gate with
//! queries that only wait, and those of other corpora, or of versions that are open, are refused though they would be answered at
//! once. Rule: at most a part of the places waits; who comes beyond goes on at once with what there is.

use std::sync::atomic::{AtomicU32, Ordering};

/// How many wait.
#[derive(Default)]
pub struct Waits(AtomicU32);

/// Leave to wait; it ends when it is dropped.
pub struct Wait<'a>(&'a Waits);

impl Waits {
    /// Lets one more wait, while fewer than `most` do.
    pub fn take(&self, most: u32) -> Option<Wait<'_>> {
        let more = |now: u32| (now < most).then_some(now + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok().map(|_| Wait(self))
    }
}

impl Drop for Wait<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_wait_than_may_and_who_leaves_makes_room() {
        let waits = Waits::default();
        let first = waits.take(2);
        let second = waits.take(2);
        assert!(first.is_some() && second.is_some() && waits.take(2).is_none());
        drop(first);
        assert!(waits.take(2).is_some());
        assert!(waits.take(0).is_none());
    }
}
