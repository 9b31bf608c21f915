//! Leaving without being missed: stop being ready, go on answering until everybody knows, finish what runs, then go.
//!
//! A balancer learns from a readiness check that a process leaves, and checks come seconds apart: one that stops
//! accepting with the signal is sent connections that nobody accepts. Rule: [`Drain::leave`] turns readiness off and
//! nothing else; [`Drain::start`], a lame-duck time later, stops accepting; then the process waits for the calls that
//! hold a [`Busy`] or until `patience` is over. A second signal aborts.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Handle shared by all servers of a process. Cloning shares it.
#[derive(Clone)]
pub struct Drain {
    leaving: CancellationToken,
    stopping: CancellationToken,
    abort: CancellationToken,
    busy: Arc<watch::Sender<usize>>,
    tasks: TaskTracker,
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

/// Held while a call runs.
pub struct Busy(Arc<watch::Sender<usize>>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.send_modify(|n| *n -= 1);
    }
}

impl Drain {
    /// Nothing is stopping.
    pub fn new() -> Self {
        Self {
            leaving: CancellationToken::new(),
            stopping: CancellationToken::new(),
            abort: CancellationToken::new(),
            busy: Arc::new(watch::channel(0).0),
            tasks: TaskTracker::new(),
        }
    }

    /// Marks a call as running.
    pub fn busy(&self) -> Busy {
        self.busy.send_modify(|n| *n += 1);
        Busy(self.busy.clone())
    }

    /// Says that the process leaves: it is not ready any more, and goes on accepting and answering.
    pub fn leave(&self) {
        self.leaving.cancel();
    }

    /// Begins to drain: nothing more is accepted.
    pub fn start(&self) {
        self.leave();
        self.stopping.cancel();
    }

    /// Leaves, and begins to drain `lame_duck` later.
    pub async fn start_after(&self, lame_duck: Duration) {
        self.leave();
        tokio::select! {
            biased;
            () = self.stopping.cancelled() => {}
            () = tokio::time::sleep(lame_duck) => {}
        }
        self.start();
    }

    /// Ends everything now.
    pub fn abort(&self) {
        self.start();
        self.abort.cancel();
    }

    /// Whether the process is leaving, though it may still accept.
    pub fn leaving(&self) -> bool {
        self.leaving.is_cancelled()
    }

    /// Resolves when the process begins to leave.
    pub async fn wait_leaving(&self) {
        self.leaving.cancelled().await;
    }

    /// Whether nothing more is accepted.
    pub fn started(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Resolves when draining begins.
    pub async fn wait_started(&self) {
        self.stopping.cancelled().await;
    }

    /// Resolves when draining has begun and every call has ended, `patience` is over, or it was aborted.
    pub async fn wait_idle(&self, patience: Duration) {
        self.wait_started().await;
        let mut busy = self.busy.subscribe();
        tokio::select! {
            biased;
            () = self.abort.cancelled() => {}
            _ = busy.wait_for(|n| *n == 0) => {}
            () = tokio::time::sleep(patience) => {}
        }
    }

    /// Token for background work that ends when draining begins.
    pub fn token(&self) -> CancellationToken {
        self.stopping.clone()
    }

    /// Tracks background tasks.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_leaving_process_drains_when_the_lame_duck_time_is_over_or_at_once_when_it_is_aborted() {
        for (abort, expected) in [(false, 5), (true, 0)] {
            let drain = Drain::new();
            let start = tokio::time::Instant::now();
            let started = tokio::spawn({
                let drain = drain.clone();
                async move { drain.start_after(Duration::from_secs(5)).await }
            });
            drain.wait_leaving().await;
            assert!(drain.leaving() && !drain.started());
            if abort {
                drain.abort();
            }
            started.await.unwrap();
            assert!(drain.started());
            assert_eq!(start.elapsed(), Duration::from_secs(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waits_for_running_calls_but_not_for_ever() {
        let drain = Drain::new();
        let call = drain.busy();
        drain.start();
        let start = tokio::time::Instant::now();
        drain.wait_idle(Duration::from_secs(5)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(5));
        drop(call);
        drain.wait_idle(Duration::from_secs(5)).await;
        assert_eq!(start.elapsed(), Duration::from_secs(5));
    }
}
