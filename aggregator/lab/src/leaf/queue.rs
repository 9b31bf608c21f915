//! The line before the workers of a leaf. Plain: first come, first served, whoever still waits for the answer.
//! Protected, as a real leaf is: bounded; what has expired is never begun; in a line that stands the newest goes first
//! and what has waited too long is given back.
//!
//! A worker that becomes free is given to the next in line at once, also when it became free because its caller went
//! away.

use std::{collections::VecDeque, task::Waker, time::Duration};

use canopy_common::limit::{Pressure, bearable};
use tokio::time::Instant;

/// What becomes of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// It begins.
    Run,
    /// Its deadline passed in the line.
    Expired,
    /// There is no room, or it waited too long.
    Shed,
}

/// How a protected line behaves, in virtual time.
#[derive(Debug, Clone, Copy)]
pub struct Protected {
    /// Most that wait.
    pub room: usize,
    /// Longest wait in a line that stands; at most half of the call's own time.
    pub shed_after: Duration,
}

/// A call that comes.
#[derive(Debug, Clone, Copy)]
pub struct Call {
    /// Number of its query.
    pub query: u64,
    /// Which copy it is.
    pub copy: u32,
    /// The version that it asks for.
    pub version: u64,
    /// When its answer is of no use any more.
    pub deadline: Instant,
}

#[derive(Debug)]
struct Place {
    ticket: u64,
    call: Call,
    since: Instant,
    /// `None`: nobody has asked yet.
    waker: Option<Waker>,
    /// Nobody waits for it.
    orphan: bool,
}

/// What follows from a worker's becoming free.
#[derive(Debug, Default)]
pub struct Next {
    /// Those whose turn is known now.
    pub wake: Vec<Waker>,
    /// Work that nobody waits for, to be done all the same.
    pub orphan: Option<Call>,
}

/// What leaving did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// The place is gone.
    Out,
    /// The work stays in line.
    Stays,
    /// It had been given a worker.
    Admitted,
}

/// The line of one leaf.
#[derive(Debug)]
pub struct Queue {
    /// 0: no line.
    workers: u32,
    busy: u32,
    next: u64,
    line: VecDeque<Place>,
    /// Turns of tickets that have not asked for them yet.
    turns: Vec<(u64, Turn)>,
    protected: Option<(Protected, Pressure)>,
}

impl Queue {
    /// Served by `workers`; 0: everyone at once.
    pub fn new(workers: u32, protected: Option<Protected>, now: Instant) -> Self {
        let protected = protected.map(|protected| (protected, Pressure::new(now)));
        Self { workers, busy: 0, next: 0, line: VecDeque::new(), turns: Vec::new(), protected }
    }

    /// Calls here, running or waiting.
    pub fn len(&self) -> u32 {
        self.busy + self.line.len() as u32
    }

    /// Whether all workers are taken.
    pub fn full(&self) -> bool {
        self.workers > 0 && self.busy >= self.workers
    }

    /// How long the next one will wait, when a call takes `mean`.
    pub fn wait(&self, mean: Duration) -> Duration {
        mean * self.line.len() as u32 / self.workers.max(1)
    }

    /// Whether the line of a protected leaf takes one more: there is room, and it will not wait for longer than it can
    /// bear.
    fn room(&mut self, call: Call, now: Instant, mean: Duration) -> bool {
        let standing = self.standing(now);
        let Some((protected, _)) = self.protected else { return true };
        let own = call.deadline.saturating_duration_since(now);
        let soon = standing || self.line.len() < self.workers as usize || self.wait(mean) <= bearable(own);
        soon && self.line.len() < protected.room
    }

    /// Joins; the ticket. A call takes `mean`, as far as is known.
    pub fn enter(&mut self, call: Call, now: Instant, mean: Duration) -> u64 {
        let ticket = self.next;
        self.next += 1;
        if !self.full() {
            self.standing(now);
            self.busy += 1;
            self.turns.push((ticket, Turn::Run));
        } else if !self.room(call, now, mean) {
            self.turns.push((ticket, Turn::Shed));
        } else {
            self.line.push_back(Place { ticket, call, since: now, waker: None, orphan: false });
        }
        ticket
    }

    /// The turn of this ticket, if it is known; else `waker` is woken when it is.
    pub fn poll(&mut self, ticket: u64, waker: &Waker) -> Option<Turn> {
        if let Some(at) = self.turns.iter().position(|turn| turn.0 == ticket) {
            return Some(self.turns.swap_remove(at).1);
        }
        if let Some(at) = self.place(ticket) {
            self.line[at].waker = Some(waker.clone());
        }
        None
    }

    fn place(&self, ticket: u64) -> Option<usize> {
        self.line.binary_search_by_key(&ticket, |place| place.ticket).ok()
    }

    /// Whether the line stands.
    fn standing(&mut self, now: Instant) -> bool {
        let (waited, own) = self.line.front().map_or_else(Default::default, |place| {
            (now - place.since, place.call.deadline.saturating_duration_since(place.since))
        });
        self.protected.as_mut().is_some_and(|(_, pressure)| pressure.seen(now, waited, own))
    }

    /// A worker is free.
    pub fn release(&mut self, now: Instant) -> Next {
        let mut next = Next::default();
        loop {
            let standing = self.standing(now);
            let Some(place) = self.take(now, standing, &mut next) else {
                self.busy -= 1;
                return next;
            };
            if place.orphan {
                next.orphan = Some(place.call);
                return next;
            }
            let expired = self.protected.is_some() && place.call.deadline <= now;
            let turn = if expired { Turn::Expired } else { Turn::Run };
            self.tell(place, turn, &mut next);
            if turn == Turn::Run {
                return next;
            }
        }
    }

    /// The next one; what has waited too long is given back on the way.
    fn take(&mut self, now: Instant, standing: bool, next: &mut Next) -> Option<Place> {
        let Some((protected, _)) = self.protected.filter(|_| standing) else { return self.line.pop_front() };
        // The last few are taken soon in any case.
        while self.line.len() > self.workers as usize
            && let Some(place) = self.line.pop_front()
        {
            let own = place.call.deadline.saturating_duration_since(place.since) / 2;
            if now - place.since <= own.min(protected.shed_after) {
                self.line.push_front(place);
                return self.line.pop_back();
            }
            self.tell(place, Turn::Shed, next);
        }
        self.line.pop_front()
    }

    fn tell(&mut self, place: Place, turn: Turn, next: &mut Next) {
        self.turns.push((place.ticket, turn));
        // Who has not asked yet will see it when it asks.
        next.wake.extend(place.waker);
    }

    /// The caller of a ticket that has not begun is gone; with `keep` its work stays.
    pub fn leave(&mut self, ticket: u64, keep: bool) -> Left {
        if let Some(at) = self.turns.iter().position(|turn| turn.0 == ticket) {
            return match self.turns.swap_remove(at).1 {
                Turn::Run => Left::Admitted,
                Turn::Expired | Turn::Shed => Left::Out,
            };
        }
        match self.place(ticket) {
            Some(at) if keep => {
                self.line[at].orphan = true;
                Left::Stays
            }
            Some(at) => {
                self.line.remove(at);
                Left::Out
            }
            None => Left::Out,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    /// One worker that is taken, and calls that came at these ms with 1 s each.
    fn line(protected: Option<Protected>, start: Instant, at: &[u64]) -> (Queue, Vec<u64>) {
        let mut queue = Queue::new(1, protected, start);
        let call = |at: u64| Call { query: at, copy: 0, version: 1, deadline: start + MS(at + 1000) };
        let first = queue.enter(call(0), start, MS(0));
        assert_eq!(queue.poll(first, Waker::noop()), Some(Turn::Run));
        let tickets = at.iter().map(|at| queue.enter(call(*at), start + MS(*at), MS(0))).collect();
        (queue, tickets)
    }

    fn turns(queue: &mut Queue, tickets: &[u64]) -> Vec<Option<Turn>> {
        tickets.iter().map(|ticket| queue.poll(*ticket, Waker::noop())).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_plain_line_serves_the_oldest_however_late() {
        let start = Instant::now();
        let (mut queue, tickets) = line(None, start, &[1, 2, 3]);
        assert_eq!(turns(&mut queue, &tickets), [None, None, None]);
        assert_eq!(queue.release(start + MS(5000)).wake.len(), 1);
        assert_eq!(turns(&mut queue, &tickets), [Some(Turn::Run), None, None]);
        assert_eq!((queue.leave(tickets[1], true), queue.leave(tickets[2], false)), (Left::Stays, Left::Out));
        assert_eq!(queue.release(start + MS(5000)).orphan.map(|call| call.query), Some(2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_protected_line_that_stands_serves_the_newest_and_gives_back_the_stale() {
        let protected = Some(Protected { room: 4, shed_after: MS(100) });
        let start = Instant::now();
        let (mut queue, tickets) = line(protected, start, &[1, 150, 160, 170, 180]);
        assert_eq!(turns(&mut queue, &tickets), [None, None, None, None, Some(Turn::Shed)]);
        queue.release(start + MS(200));
        assert_eq!(turns(&mut queue, &tickets[..4]), [Some(Turn::Shed), None, None, Some(Turn::Run)]);
        queue.release(start + MS(3000));
        assert_eq!(turns(&mut queue, &tickets[1..3]), [Some(Turn::Shed), Some(Turn::Expired)]);
        assert_eq!(queue.len(), 0);
    }
}
