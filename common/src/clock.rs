//! Wall time, for stamps that people and other machines read. Durations and deadlines use `tokio::time` instead, which
//! tests can move; the wall clock may jump and nothing but a stamp may depend on it.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

/// Source of wall time.
pub trait WallClock: Send + Sync + 'static {
    /// Microseconds since 1970 UTC.
    fn now_us(&self) -> i64;
}

/// The machine's clock.
#[derive(Debug, Clone, Copy, Default)]
pub struct System;

impl WallClock for System {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    fn now_us(&self) -> i64 {
        let now = std::time::SystemTime::now();
        match now.duration_since(std::time::UNIX_EPOCH) {
            Ok(since) => since.as_micros() as i64,
            Err(before) => -(before.duration().as_micros() as i64),
        }
    }
}

/// A clock that a test sets.
#[derive(Debug, Clone, Default)]
pub struct Manual(Arc<AtomicI64>);

impl Manual {
    /// Sets the time, microseconds since 1970 UTC.
    pub fn set_us(&self, us: i64) {
        self.0.store(us, Ordering::SeqCst);
    }
}

impl WallClock for Manual {
    fn now_us(&self) -> i64 {
        self.0.load(Ordering::SeqCst)
    }
}
