//! One attempt as hedging sees it: it says once how it ended, however it ended. An attempt that is dropped while it runs,
//! with its search or by it, was stopped; so every hedge that was sent is counted as won, lost or failed, and the time
//! of every first attempt enters the record of its class, that of a stopped one as "at least that long".

use std::{sync::Arc, time::Duration};

use tokio::time::Instant;

use super::{
    Gatherer,
    attempt::{Fate, Kind},
};
use crate::hedge::policy::Class;

/// Notes how an attempt ended, once. One that is dropped while it runs was stopped.
pub struct Watched {
    engine: Arc<Gatherer>,
    class: Option<Arc<Class>>,
    kind: Kind,
    sent: Instant,
    queued: Option<Duration>,
    late: bool,
    ended: bool,
}

impl Watched {
    /// Of an attempt that goes out; without a class its time is not noted.
    pub(super) fn new(engine: Arc<Gatherer>, class: Option<Arc<Class>>, kind: Kind, sent: Instant) -> Self {
        Self { engine, class, kind, sent, queued: None, late: false, ended: false }
    }

    /// The node said how long the attempt waited in its queue.
    pub fn queued(&mut self, wait: Duration) {
        self.queued = Some(wait);
    }

    /// It failed because its time was over, not because something broke.
    pub fn late(&mut self) {
        self.late = true;
    }

    /// It ended; `whole` when it had said all it was asked.
    pub fn ended(&mut self, fate: Fate, took: Duration, whole: bool) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if self.kind.is_hedge() {
            self.engine.hedging.metrics.ended(fate);
        }
        let Some(class) = &self.class else { return };
        class.with(|state| match fate {
            _ if self.kind == Kind::Hedge => state.hedged(fate == Fate::Won),
            // Copies are asked where the first one is slow; their times would make every attempt look slower.
            _ if self.kind.is_hedge() => {}
            Fate::Won if whole => state.took(took, self.queued),
            Fate::Failed if !self.late => {}
            _ => state.stopped(took),
        });
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let took = Instant::now().saturating_duration_since(self.sent);
        self.ended(Fate::Cancelled, took, false);
    }
}
