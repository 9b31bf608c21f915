//! The bounded queue of search tasks: one list per lane, the most urgent lane first, oldest first within a lane.
//!
//! The failure this prevents: work that nobody waits for any more takes the place of work that somebody does. Rule: an
//! expired task is never run, whether it is found at the head, or while making room for another; a task whose owner
//! was cancelled is taken out at once; a full lane refuses, in constant time, before any work. Units: tasks.

use std::{collections::VecDeque, time::Duration};

use canopy_common::deadline::Deadline;
use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

/// Who goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Lane {
    /// Readiness checks: rare, tiny, never refused.
    Probe,
    /// The second half of a query that has cost its search already.
    Fetch,
    /// A person waits.
    Interactive,
    /// Nobody waits.
    Batch,
}

const LANES: usize = 4;

/// What becomes of a task. Each task is told exactly one, unless its owner takes it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It runs now, after this long in the queue.
    Run(Duration),
    /// Its deadline passed in the queue.
    Expired(Duration),
    /// The executor is closing.
    Closed,
}

/// A piece of work for a search thread.
pub struct Task {
    /// Lane.
    pub lane: Lane,
    /// When it is of no use any more.
    pub deadline: Deadline,
    /// Call it belongs to, for [`Queue::remove`].
    pub owner: u64,
    /// Told its turn once; searches when it may run.
    pub run: Box<dyn FnOnce(Turn) + Send>,
}

struct Entry {
    task: Task,
    since: Instant,
}

#[derive(Default)]
struct Lists {
    lanes: [VecDeque<Entry>; LANES],
    closed: bool,
}

impl Lists {
    fn pop(&mut self) -> Option<Entry> {
        self.lanes.iter_mut().find_map(VecDeque::pop_front)
    }
}

/// The queue. Shared by the search threads and those that feed them.
pub struct Queue {
    lists: Mutex<Lists>,
    wake: Condvar,
    limits: [usize; LANES],
}

impl Queue {
    /// An empty queue of at most `interactive` and `batch` tasks, and as many fetches as `interactive`.
    pub fn new(interactive: usize, batch: usize) -> Self {
        Self {
            lists: Mutex::new(Lists::default()),
            wake: Condvar::new(),
            limits: [usize::MAX, interactive, interactive, batch],
        }
    }

    /// Queues as many of `tasks` (all of one lane) as fit and returns that number; the rest is dropped unrun. When
    /// there is no room, expired tasks are cleared out first.
    pub fn push(&self, tasks: Vec<Task>) -> usize {
        let Some(lane) = tasks.first().map(|task| task.lane as usize) else { return 0 };
        let since = Instant::now();
        let mut expired = Vec::new();
        let queued = {
            let mut lists = self.lists.lock();
            if lists.closed {
                return 0;
            }
            let list = &mut lists.lanes[lane];
            if list.len() + tasks.len() > self.limits[lane] {
                clear_expired(list, &mut expired);
            }
            let fit = tasks.len().min(self.limits[lane].saturating_sub(list.len()));
            list.extend(tasks.into_iter().take(fit).map(|task| Entry { task, since }));
            fit
        };
        for _ in 0..queued {
            self.wake.notify_one();
        }
        for entry in expired {
            (entry.task.run)(Turn::Expired(since - entry.since));
        }
        queued
    }

    /// The next task, waiting for one; `None` when the queue is closed and empty.
    pub fn pop(&self) -> Option<(Task, Turn)> {
        let mut lists = self.lists.lock();
        loop {
            if let Some(entry) = lists.pop() {
                let closed = lists.closed;
                drop(lists);
                let waited = entry.since.elapsed();
                let turn = if closed {
                    Turn::Closed
                } else if entry.task.deadline.expired() {
                    Turn::Expired(waited)
                } else {
                    Turn::Run(waited)
                };
                return Some((entry.task, turn));
            }
            if lists.closed {
                return None;
            }
            self.wake.wait(&mut lists);
        }
    }

    /// Takes the tasks of `owner` out unrun; how many there were.
    pub fn remove(&self, owner: u64) -> usize {
        let mut removed = Vec::new();
        let mut lists = self.lists.lock();
        for list in &mut lists.lanes {
            take_out(list, &mut removed, |entry| entry.task.owner == owner);
        }
        drop(lists);
        removed.len()
    }

    /// Tasks waiting.
    pub fn len(&self) -> usize {
        self.lists.lock().lanes.iter().map(VecDeque::len).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// No more tasks; those that wait are told [`Turn::Closed`], and threads that wait leave.
    pub fn close(&self) {
        self.lists.lock().closed = true;
        self.wake.notify_all();
    }
}

fn clear_expired(list: &mut VecDeque<Entry>, expired: &mut Vec<Entry>) {
    take_out(list, expired, |entry| entry.task.deadline.expired());
}

fn take_out(list: &mut VecDeque<Entry>, out: &mut Vec<Entry>, matches: impl Fn(&Entry) -> bool) {
    if list.iter().any(&matches) {
        let (gone, kept) = std::mem::take(list).into_iter().partition::<Vec<_>, _>(matches);
        out.extend(gone);
        list.extend(kept);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    type Told = Arc<Mutex<Vec<(u64, Turn)>>>;

    fn task(told: &Told, owner: u64, lane: Lane, budget: Duration) -> Task {
        let told = told.clone();
        Task {
            lane,
            deadline: Deadline::after(budget),
            owner,
            run: Box::new(move |turn| told.lock().push((owner, turn))),
        }
    }

    const LONG: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn urgent_lanes_go_first_and_a_full_lane_refuses() {
        let told = Told::default();
        let queue = Queue::new(2, 1);
        assert_eq!(queue.push(vec![task(&told, 1, Lane::Batch, LONG), task(&told, 2, Lane::Batch, LONG)]), 1);
        let three = (3..6).map(|owner| task(&told, owner, Lane::Interactive, LONG)).collect();
        assert_eq!(queue.push(three), 2, "part of a call may be queued");
        assert_eq!(queue.push(vec![task(&told, 6, Lane::Interactive, LONG)]), 0);
        assert_eq!(queue.push(vec![task(&told, 7, Lane::Probe, LONG)]), 1);
        let order: Vec<u64> = (0..4).filter_map(|_| queue.pop()).map(|(task, _)| task.owner).collect();
        assert_eq!(order, [7, 3, 4, 1]);
        assert!(told.lock().is_empty(), "nothing ran by itself");
    }

    #[tokio::test(start_paused = true)]
    async fn what_expired_in_the_queue_is_never_run() {
        let told = Told::default();
        let queue = Queue::new(1, 1);
        queue.push(vec![task(&told, 1, Lane::Interactive, Duration::from_millis(50))]);
        tokio::time::advance(Duration::from_millis(200)).await;
        assert_eq!(queue.push(vec![task(&told, 2, Lane::Interactive, Duration::from_millis(50))]), 1);
        assert_eq!(*told.lock(), [(1, Turn::Expired(Duration::from_millis(200)))]);
        tokio::time::advance(Duration::from_millis(50)).await;
        let (task, turn) = queue.pop().unwrap();
        assert_eq!((task.owner, turn), (2, Turn::Expired(Duration::from_millis(50))));
    }

    #[tokio::test(start_paused = true)]
    async fn an_owner_takes_its_tasks_out_and_a_closed_queue_tells() {
        let told = Told::default();
        let queue = Queue::new(9, 9);
        queue.push(vec![task(&told, 1, Lane::Interactive, LONG), task(&told, 1, Lane::Interactive, LONG)]);
        queue.push(vec![task(&told, 2, Lane::Interactive, LONG)]);
        assert_eq!((queue.remove(1), queue.len()), (2, 1));
        queue.close();
        assert_eq!(queue.push(vec![task(&told, 3, Lane::Probe, LONG)]), 0);
        assert_eq!(queue.pop().map(|(_, turn)| turn), Some(Turn::Closed));
        assert!(queue.pop().is_none());
    }
}
