//! Settings that may change while the process runs. Whoever works on something takes them once and keeps what it took,
//! so that one query never sees two configurations; the next one sees the new.

use std::sync::Arc;

use arc_swap::ArcSwap;

/// A value that a reload swaps. Clones share it.
#[derive(Debug, Clone)]
pub struct Live<T>(Arc<ArcSwap<T>>);

impl<T> Live<T> {
    /// The value now.
    pub fn get(&self) -> Arc<T> {
        self.0.load_full()
    }

    /// A new value, for whoever takes it from now on.
    pub fn set(&self, value: T) {
        self.0.store(Arc::new(value));
    }
}

impl<T> From<T> for Live<T> {
    fn from(value: T) -> Self {
        Self(Arc::new(ArcSwap::from_pointee(value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_taken_stays_and_what_is_taken_next_is_new() {
        let live = Live::from(1);
        let (shared, taken) = (live.clone(), live.get());
        shared.set(2);
        assert_eq!((*taken, *live.get()), (1, 2));
    }
}
