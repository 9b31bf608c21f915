//! First come, first served, by a number of workers. A worker that becomes free is given to the first in line at once,
//! also when it became free because its caller went away.

use std::{collections::VecDeque, task::Waker};

/// A place in line.
#[derive(Debug)]
struct Place {
    ticket: u64,
    query: u64,
    copy: u32,
    /// `None`: nobody has asked yet, or nobody waits any more.
    waker: Option<Waker>,
    orphan: bool,
}

/// Whose turn it is.
pub enum Admitted {
    /// Someone who waits.
    Waits(Waker),
    /// Work that nobody waits for.
    Orphan {
        /// Its query.
        query: u64,
        /// Which copy.
        copy: u32,
    },
}

/// What leaving did.
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
    /// Tickets that were given a worker and have not begun.
    admitted: Vec<u64>,
}

impl Queue {
    /// Served by `workers`; 0: everyone at once.
    pub fn new(workers: u32) -> Self {
        Self { workers, busy: 0, next: 0, line: VecDeque::new(), admitted: Vec::new() }
    }

    /// Calls here, running or waiting.
    pub fn len(&self) -> u32 {
        self.busy + self.line.len() as u32
    }

    /// Joins; the ticket.
    pub fn enter(&mut self, query: u64, copy: u32) -> u64 {
        let ticket = self.next;
        self.next += 1;
        if self.workers == 0 || self.busy < self.workers {
            self.busy += 1;
            self.admitted.push(ticket);
        } else {
            self.line.push_back(Place { ticket, query, copy, waker: None, orphan: false });
        }
        ticket
    }

    /// Whether this ticket may begin; else `waker` is woken when it may.
    pub fn poll(&mut self, ticket: u64, waker: &Waker) -> bool {
        if let Some(at) = self.admitted.iter().position(|admitted| *admitted == ticket) {
            self.admitted.swap_remove(at);
            return true;
        }
        if let Some(at) = self.place(ticket) {
            self.line[at].waker = Some(waker.clone());
        }
        false
    }

    fn place(&self, ticket: u64) -> Option<usize> {
        self.line.binary_search_by_key(&ticket, |place| place.ticket).ok()
    }

    /// A worker is free; who gets it.
    pub fn release(&mut self) -> Option<Admitted> {
        match self.line.pop_front() {
            None => {
                self.busy -= 1;
                None
            }
            Some(place) if place.orphan => Some(Admitted::Orphan { query: place.query, copy: place.copy }),
            Some(place) => {
                self.admitted.push(place.ticket);
                // Who has not asked yet will see it when it asks.
                place.waker.map(Admitted::Waits)
            }
        }
    }

    /// The caller of a ticket that has not begun is gone; with `keep` its work stays.
    pub fn leave(&mut self, ticket: u64, keep: bool) -> Left {
        if let Some(at) = self.admitted.iter().position(|admitted| *admitted == ticket) {
            self.admitted.swap_remove(at);
            return Left::Admitted;
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
