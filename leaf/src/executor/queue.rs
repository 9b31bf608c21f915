//! The bounded queue of search tasks: one list per lane, the most urgent lane first; within a lane oldest first while
//! the queue is short, newest first once it stands.
//!
//! The failure this prevents: under overload a first-come queue serves only those that have waited so long that nobody waits
//! for them any more, and stays useless long after the overload. Rules: who would wait for longer than a quarter of its time
//! (`shed_after` at most) at the pace of late is refused on arrival, in constant time, before any work, with all of its time
//! left for another replica; so is who comes to a full lane. Should the pace fall all the same, so that a lane's oldest entry
//! has for 100 ms waited more than a queue is borne (see [`bearable`], [`Pressure`]), the newest goes first, and what has
//! waited longer than its bound is given back, unless no more wait than there are threads. An expired task is never run,
//! whether it is found at the head, or while making room for another; fetches end work that is paid for and are never given
//! back; a task whose owner was cancelled is taken out at once. The bound: half of the task's own time, for people at most
//! `shed_after`. Units: tasks.

use std::{collections::VecDeque, time::Duration};

use canopy_common::{
    deadline::Deadline,
    limit::{Pressure, bearable},
};
use parking_lot::{Condvar, Mutex};
use tokio::time::Instant;

use super::pace::Pace;

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
const ORDER: [Lane; LANES] = [Lane::Probe, Lane::Fetch, Lane::Interactive, Lane::Batch];

/// What becomes of a task. Each task is told exactly one, unless its owner takes it out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It runs now, after this long in the queue.
    Run(Duration),
    /// Its deadline passed in the queue.
    Expired(Duration),
    /// It waited too long in a queue that stands.
    Shed(Duration),
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

/// Sizes of a queue.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Interactive tasks, and as many fetches.
    pub interactive: usize,
    /// Batch tasks.
    pub batch: usize,
    /// Longest wait of an interactive task in a queue that stands.
    pub shed_after: Duration,
}

struct Entry {
    task: Task,
    since: Instant,
}

impl Entry {
    fn waited(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.since)
    }

    /// Time it came with.
    fn own(&self) -> Duration {
        self.task.deadline.instant().saturating_duration_since(self.since)
    }

    /// Whether it has waited too long for a queue that stands.
    fn stale(&self, now: Instant, shed_after: Duration) -> bool {
        let half = self.own() / 2;
        let bound = match self.task.lane {
            Lane::Probe | Lane::Fetch => return false,
            Lane::Interactive => half.min(shed_after),
            Lane::Batch => half,
        };
        self.waited(now) > bound
    }

    fn turn(&self, now: Instant) -> Turn {
        let waited = self.waited(now);
        if self.task.deadline.instant() <= now { Turn::Expired(waited) } else { Turn::Run(waited) }
    }
}

struct List {
    entries: VecDeque<Entry>,
    pressure: Pressure,
}

impl List {
    fn new(now: Instant) -> Self {
        Self { entries: VecDeque::new(), pressure: Pressure::new(now) }
    }

    fn standing(&mut self, now: Instant) -> bool {
        let oldest = self.entries.front().map(|entry| (entry.waited(now), entry.own()));
        let (waited, own) = oldest.unwrap_or_default();
        self.pressure.seen(now, waited, own)
    }

    /// The next entry and what becomes of it. `few`: so many are taken in their order in any case.
    fn next(&mut self, now: Instant, shed_after: Duration, few: usize) -> Option<(Entry, Turn)> {
        // The threads soon take the last few; giving one of them back would leave a thread idle.
        let standing = self.standing(now) && self.entries.len() > few;
        let oldest = self.entries.front()?;
        if standing && oldest.stale(now, shed_after) {
            let entry = self.entries.pop_front()?;
            let turn = match entry.turn(now) {
                Turn::Run(waited) => Turn::Shed(waited),
                other => other,
            };
            return Some((entry, turn));
        }
        let newest_first = standing && oldest.task.lane >= Lane::Interactive;
        let entry = if newest_first { self.entries.pop_back() } else { self.entries.pop_front() }?;
        let turn = entry.turn(now);
        Some((entry, turn))
    }

    /// Takes out what is of no use any more, to make room.
    fn clear(&mut self, now: Instant, shed_after: Duration, out: &mut Vec<(Entry, Turn)>) {
        let standing = self.standing(now);
        let useless =
            |entry: &Entry| entry.task.deadline.instant() <= now || standing && entry.stale(now, shed_after);
        for entry in take_out(&mut self.entries, useless) {
            let turn = match entry.turn(now) {
                Turn::Run(waited) => Turn::Shed(waited),
                other => other,
            };
            out.push((entry, turn));
        }
    }
}

struct Lists {
    lanes: [List; LANES],
    closed: bool,
}

impl Lists {
    /// Tasks that go before one that comes to this lane: none, once the newest goes first.
    fn ahead(&mut self, lane: Lane, now: Instant) -> usize {
        if lane >= Lane::Interactive && self.lanes[lane as usize].standing(now) {
            return 0;
        }
        self.lanes[..=lane as usize].iter().map(|list| list.entries.len()).sum()
    }
}

/// The queue. Shared by the search threads and those that feed them.
pub struct Queue {
    lists: Mutex<Lists>,
    wake: Condvar,
    limits: [usize; LANES],
    shed_after: Duration,
    few: usize,
    /// Told by the threads.
    pub pace: Pace,
}

impl Queue {
    /// An empty queue for so many threads.
    pub fn new(room: Room, threads: usize) -> Self {
        let now = Instant::now();
        Self {
            lists: Mutex::new(Lists { lanes: ORDER.map(|_| List::new(now)), closed: false }),
            wake: Condvar::new(),
            limits: [usize::MAX, room.interactive, room.interactive, room.batch],
            shed_after: room.shed_after,
            few: threads,
            pace: Pace::default(),
        }
    }

    /// How long a task that came to this lane now would wait.
    pub fn wait(&self, lane: Lane) -> Duration {
        let ahead = self.lists.lock().ahead(lane, Instant::now());
        self.pace.wait(ahead, self.few)
    }

    /// Queues as many of `tasks` (all of one lane and one call) as fit and returns that number; the rest is dropped
    /// unrun. When there is no room, useless tasks are cleared out first.
    pub fn push(&self, tasks: Vec<Task>) -> usize {
        let Some(first) = tasks.first() else { return 0 };
        let (lane, people, deadline) =
            (first.lane as usize, first.lane == Lane::Interactive, first.deadline.instant());
        let since = Instant::now();
        let mut useless = Vec::new();
        let queued = {
            let mut lists = self.lists.lock();
            if lists.closed {
                return 0;
            }
            let list = &mut lists.lanes[lane];
            if list.entries.len() + tasks.len() > self.limits[lane] {
                list.clear(since, self.shed_after, &mut useless);
            }
            let ahead = lists.ahead(ORDER[lane], since);
            let own = deadline.saturating_duration_since(since);
            // Who brings much time may wait longer than a queue is borne, as long as nobody waits at all.
            let borne = (own / 4).min(self.shed_after).max(bearable(own));
            let too_long = people && ahead > self.few && self.pace.wait(ahead, self.few) > borne;
            let list = &mut lists.lanes[lane];
            let room = if too_long { 0 } else { self.limits[lane].saturating_sub(list.entries.len()) };
            let fit = tasks.len().min(room);
            list.entries.extend(tasks.into_iter().take(fit).map(|task| Entry { task, since }));
            fit
        };
        for _ in 0..queued {
            self.wake.notify_one();
        }
        for (entry, turn) in useless {
            (entry.task.run)(turn);
        }
        queued
    }

    /// The next task, waiting for one; `None` when the queue is closed and empty.
    pub fn pop(&self) -> Option<(Task, Turn)> {
        let mut lists = self.lists.lock();
        loop {
            let now = Instant::now();
            let next = lists.lanes.iter_mut().find_map(|list| list.next(now, self.shed_after, self.few));
            if let Some((entry, turn)) = next {
                let turn = if lists.closed { Turn::Closed } else { turn };
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
        let mut lists = self.lists.lock();
        let lanes = lists.lanes.iter_mut();
        let removed: Vec<Entry> =
            lanes.flat_map(|list| take_out(&mut list.entries, |entry| entry.task.owner == owner)).collect();
        drop(lists);
        removed.len()
    }

    /// Tasks waiting.
    pub fn len(&self) -> usize {
        self.lists.lock().lanes.iter().map(|list| list.entries.len()).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tasks waiting in a lane, and whether its queue stands.
    pub fn lane(&self, lane: Lane) -> (usize, bool) {
        let list = &self.lists.lock().lanes[lane as usize];
        (list.entries.len(), !list.entries.is_empty() && list.pressure.under())
    }

    /// No more tasks; those that wait are told [`Turn::Closed`], and threads that wait leave.
    pub fn close(&self) {
        self.lists.lock().closed = true;
        self.wake.notify_all();
    }
}

fn take_out(list: &mut VecDeque<Entry>, matches: impl Fn(&Entry) -> bool) -> Vec<Entry> {
    if !list.iter().any(&matches) {
        return Vec::new();
    }
    let (gone, kept) = std::mem::take(list).into_iter().partition::<Vec<_>, _>(matches);
    list.extend(kept);
    gone
}

#[cfg(test)]
mod tests;
