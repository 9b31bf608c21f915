//! A gate before the calls of a node: [`Admission`], and a small queue of those that found no place.
//!
//! The queue takes up a burst that is over before it matters. Rules: at most as many wait as configured, none longer
//! than configured nor past its own deadline less the time that calls take; interactive before batch; oldest first, and
//! newest first once the queue stands (see [`Pressure`]); a place that becomes free is handed to the one that waits, so
//! that nobody overtakes the queue. One that leaves while it waits gives up its turn, and a place handed to it goes on
//! to the next. Units: calls.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{sync::oneshot, time::Instant};

use super::{Admission, Place, Pressure, Refusal};
use crate::{deadline::Deadline, request::Priority};

const PRIORITIES: usize = 2;

struct Waiter {
    since: Instant,
    turn: oneshot::Sender<Place>,
}

struct Waiting {
    lists: [VecDeque<Waiter>; PRIORITIES],
    pressure: Pressure,
}

impl Waiting {
    fn len(&self) -> usize {
        self.lists.iter().map(VecDeque::len).sum()
    }

    /// Lets go of those that left; whether the queue stands.
    fn look(&mut self, now: Instant) -> bool {
        self.lists.iter_mut().for_each(|list| list.retain(|waiter| !waiter.turn.is_closed()));
        let oldest = self.lists.iter().filter_map(VecDeque::front).map(|waiter| waiter.since).min();
        let waited = oldest.map_or(Duration::ZERO, |since| now.saturating_duration_since(since));
        self.pressure.seen(now, waited)
    }

    /// The priority that is next.
    fn first(&mut self, now: Instant) -> Option<Priority> {
        self.look(now);
        let first = self.lists.iter().position(|list| !list.is_empty())?;
        [Priority::Interactive, Priority::Batch].get(first).copied()
    }

    fn next(&mut self, now: Instant, priority: Priority) -> Option<Waiter> {
        let standing = self.look(now);
        let list = &mut self.lists[priority as usize];
        if standing { list.pop_back() } else { list.pop_front() }
    }
}

/// The gate. Shared by its passes.
pub struct Gate {
    admission: Arc<Admission>,
    waiting: Mutex<Waiting>,
    most: usize,
    patience: Duration,
}

impl Gate {
    /// Lets calls of `admission` wait: at most `most` of each priority, at most `patience`.
    pub fn new(admission: Admission, most: usize, patience: Duration) -> Self {
        let waiting = Waiting { lists: Default::default(), pressure: Pressure::new(Instant::now()) };
        Self { admission: Arc::new(admission), waiting: Mutex::new(waiting), most, patience }
    }

    /// What admits.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().len()
    }

    /// Whether the queue stands.
    pub fn under_pressure(&self) -> bool {
        let waiting = self.waiting.lock();
        waiting.len() > 0 && waiting.pressure.under()
    }

    /// A pass, perhaps after some waiting. Dropping the future gives the turn up.
    pub async fn enter(self: &Arc<Self>, priority: Priority, deadline: Deadline) -> Result<Pass, Refusal> {
        if let Some(refusal) = self.admission.too_late(priority, deadline) {
            return Err(refusal);
        }
        let turned = {
            let (now, mut waiting) = (Instant::now(), self.waiting.lock());
            waiting.look(now);
            // Nobody of its own kind, nor before it, waits.
            if waiting.lists[..=priority as usize].iter().all(VecDeque::is_empty)
                && let Ok(place) = self.admission.take(priority)
            {
                return Ok(self.pass(place));
            }
            let list = &mut waiting.lists[priority as usize];
            if list.len() >= self.most {
                return Err(self.full());
            }
            let (turn, turned) = oneshot::channel();
            list.push_back(Waiter { since: now, turn });
            turned
        };
        let until = deadline.child(self.admission.times(priority).p90()).min(Deadline::after(self.patience));
        // A place that comes as the future ends is dropped with its receiver, which hands it on.
        let mut turned = Turned { gate: self.clone(), turned };
        match tokio::time::timeout_at(until.instant(), &mut turned.turned).await {
            Ok(Ok(place)) => Ok(self.pass(place)),
            Ok(Err(_)) | Err(_) => Err(self.full()),
        }
    }

    fn full(&self) -> Refusal {
        Refusal::Full(self.admission.limit())
    }

    fn pass(self: &Arc<Self>, place: Place) -> Pass {
        Pass { gate: self.clone(), place: Some(place) }
    }

    /// Gives free places to those that wait, to each priority within its own part of the limit.
    fn hand_on(&self) {
        let mut waiting = self.waiting.lock();
        while let Some(priority) = waiting.first(Instant::now()) {
            let Ok(mut place) = self.admission.take(priority) else { return };
            while let Some(waiter) = waiting.next(Instant::now(), priority) {
                match waiter.turn.send(place) {
                    Ok(()) => break,
                    Err(back) => place = back,
                }
            }
        }
    }
}

/// Hands a place on that came too late.
struct Turned {
    gate: Arc<Gate>,
    turned: oneshot::Receiver<Place>,
}

impl Drop for Turned {
    fn drop(&mut self) {
        self.turned.close();
        if let Ok(place) = self.turned.try_recv() {
            drop(place);
            self.gate.hand_on();
        }
    }
}

/// A call that may run; the gate hands its place on when it is dropped.
pub struct Pass {
    gate: Arc<Gate>,
    place: Option<Place>,
}

impl Pass {
    /// The call ended by itself: its time counts.
    pub fn ended(mut self) {
        if let Some(place) = self.place.take() {
            place.ended();
        }
    }

    /// The call ended without all it wanted, because what it asks below is overloaded.
    pub fn cut(mut self) {
        if let Some(place) = self.place.take() {
            place.cut();
        }
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.place = None;
        self.gate.hand_on();
    }
}

#[cfg(test)]
mod tests;
