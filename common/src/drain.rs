//! Leaving without being missed: stop being ready, finish what runs (at most one deadline), then go.
//!
//! Rule: `drain.start()` turns readiness off at once; servers stop accepting; the process waits for the calls that
//! hold a [`Busy`] or until `patience` is over. A second signal aborts.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// Handle shared by all servers of a process. Cloning shares it.
#[derive(Clone)]
pub struct Drain {
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

    /// Begins to drain.
    pub fn start(&self) {
        self.stopping.cancel();
    }

    /// Ends everything now.
    pub fn abort(&self) {
        self.stopping.cancel();
        self.abort.cancel();
    }

    /// Whether the process is leaving.
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
