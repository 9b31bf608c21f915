//! The leaf's own search threads, behind a bounded queue.
//!
//! Searching never runs on the runtime's threads (it would stall every other connection) nor on its blocking pool
//! (unbounded, and it runs what expired long ago). Rules: as many threads as configured, never more; a panic inside a
//! task ends that task, never the thread; a refusal is immediate and says how long to stay away.

pub mod pace;
pub mod queue;
pub mod service;

use std::{
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use queue::Queue;
pub use queue::{Lane, Room, Task, Turn};
pub use service::{Class, ServiceTimes};
use tokio::time::Instant;

/// The threads and their queue. Dropping it closes the queue; threads leave when their task ends.
pub struct Executor {
    queue: Arc<Queue>,
    threads: usize,
    busy: Arc<AtomicUsize>,
    times: ServiceTimes,
}

impl Executor {
    /// Starts `threads` threads; tasks that find no room are refused.
    pub fn start(threads: usize, room: Room) -> io::Result<Self> {
        let queue = Arc::new(Queue::new(room, threads));
        // Threads see the runtime's clock, so that a deadline means the same on both sides.
        let runtime = tokio::runtime::Handle::try_current().ok();
        let busy = Arc::<AtomicUsize>::default();
        let times = ServiceTimes::default();
        let executor = Self { queue: queue.clone(), threads, busy: busy.clone(), times };
        for number in 0..threads {
            let (queue, busy, runtime) = (queue.clone(), busy.clone(), runtime.clone());
            thread::Builder::new().name(format!("search-{number}")).spawn(move || {
                let _clock = runtime.as_ref().map(tokio::runtime::Handle::enter);
                work(&queue, &busy);
            })?;
        }
        Ok(executor)
    }

    /// Queues tasks of one lane; how many fit. See [`Queue::push`].
    pub fn submit(&self, tasks: Vec<Task>) -> usize {
        self.queue.push(tasks)
    }

    /// Takes an owner's waiting tasks out; how many there were.
    pub fn remove(&self, owner: u64) -> usize {
        self.queue.remove(owner)
    }

    /// Tasks waiting.
    pub fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Tasks waiting in a lane, and whether its queue stands.
    pub fn lane(&self, lane: Lane) -> (usize, bool) {
        self.queue.lane(lane)
    }

    /// How long a task that came to a lane now would wait.
    pub fn wait(&self, lane: Lane) -> Duration {
        if self.idle() { Duration::ZERO } else { self.queue.wait(lane) }
    }

    /// Whether a task that came now would begin at once.
    pub fn idle(&self) -> bool {
        self.busy.load(Ordering::Relaxed) + self.queued() < self.threads
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// Times of searches here.
    pub fn times(&self) -> &ServiceTimes {
        &self.times
    }

    /// How long a refused caller should stay away: until half of what waits is done. 1 ms to 1 s.
    pub fn pushback(&self) -> Duration {
        let waiting = self.queued().min(100_000) as u32;
        let half = self.times.mean() * waiting / (2 * self.threads.max(1) as u32);
        half.clamp(Duration::from_millis(1), Duration::from_secs(1))
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.queue.close();
    }
}

fn work(queue: &Queue, busy: &AtomicUsize) {
    while let Some((task, turn)) = queue.pop() {
        busy.fetch_add(1, Ordering::Relaxed);
        let (runs, began) = (matches!(turn, Turn::Run(_)), Instant::now());
        if catch_unwind(AssertUnwindSafe(|| (task.run)(turn))).is_err() {
            tracing::error!("a search task panicked outside of its shard; the thread goes on");
        }
        busy.fetch_sub(1, Ordering::Relaxed);
        if runs {
            queue.pace.ran(began.elapsed());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use canopy_common::deadline::Deadline;

    use super::*;

    fn room(interactive: usize) -> Room {
        Room { interactive, batch: 1, shed_after: Duration::from_mins(1) }
    }

    fn task(run: impl FnOnce(Turn) + Send + 'static) -> Task {
        let deadline = Deadline::after(Duration::from_mins(1));
        Task { lane: Lane::Interactive, deadline, owner: 1, run: Box::new(run) }
    }

    #[test]
    fn a_panic_does_not_cost_the_thread() {
        let executor = Executor::start(1, room(8)).unwrap();
        let (done, result) = mpsc::channel();
        executor.submit(vec![task(|_| panic!("on purpose")), task(move |turn| done.send(turn).unwrap())]);
        assert!(matches!(result.recv_timeout(Duration::from_secs(10)), Ok(Turn::Run(_))));
    }

    #[test]
    fn a_full_queue_refuses_without_waiting_for_a_thread() {
        let executor = Executor::start(1, room(2)).unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        executor.submit(vec![task(move |_| {
            started.send(()).unwrap();
            let _released = blocked.recv();
        })]);
        assert!(running.recv_timeout(Duration::from_secs(10)).is_ok() && !executor.idle());
        assert_eq!(executor.submit((0..5).map(|_| task(|_| {})).collect()), 2);
        for _ in 0..100 {
            assert_eq!(executor.submit(vec![task(|_| {})]), 0);
        }
        assert!(executor.pushback() >= Duration::from_millis(1));
        assert_eq!(executor.remove(1), 2);
        release.send(()).unwrap();
    }

    #[test]
    fn what_waits_when_the_executor_closes_is_told() {
        let executor = Executor::start(1, room(8)).unwrap();
        let (release, blocked) = mpsc::channel::<()>();
        let (started, running) = mpsc::channel();
        let (told, turns) = mpsc::channel();
        let first = task(move |_| {
            started.send(()).unwrap();
            let _released = blocked.recv();
        });
        executor.submit(vec![first, task(move |turn| told.send(turn).unwrap())]);
        running.recv_timeout(Duration::from_secs(10)).unwrap();
        drop(executor);
        release.send(()).unwrap();
        assert_eq!(turns.recv_timeout(Duration::from_secs(10)), Ok(Turn::Closed));
    }
}
