//! A gate before the calls of a node: [`Admission`], and a small queue of those that found no place.
//!
//! The queue takes up a burst that is over before it matters. A place in it that ends in a refusal costs its caller the
//! wait and gives nobody anything, so it is decided on arrival who will be served: who would wait longer than half of what
//! is configured, at the pace at which places are given back, is refused at once, and the other half is for a pace that
//! falls. So the queue never grows beyond what is served in time, and the oldest may go first. Rules: at most as many wait
//! as configured, none longer than configured nor past its own deadline less the time that calls take; interactive before
//! batch; a place that becomes free is handed to the one that waits, so that nobody overtakes the queue. One that leaves
//! while it waits gives up its turn, and a place handed to it goes on to the next. Units: calls.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::sync::oneshot;

use super::{Admission, Place, Refusal};
use crate::{deadline::Deadline, request::Priority};

const PRIORITIES: usize = 2;

type Turn = oneshot::Sender<Place>;

#[derive(Default)]
struct Waiting([VecDeque<Turn>; PRIORITIES]);

impl Waiting {
    /// Those that go before a newcomer of this priority.
    fn ahead(&self, priority: Priority) -> usize {
        self.0[..=priority as usize].iter().map(VecDeque::len).sum()
    }

    /// Lets go of those that left.
    fn tidy(&mut self) {
        self.0.iter_mut().for_each(|list| list.retain(|turn| !turn.is_closed()));
    }

    /// The priority that is next.
    fn first(&mut self) -> Option<Priority> {
        self.tidy();
        let first = self.0.iter().position(|list| !list.is_empty())?;
        [Priority::Interactive, Priority::Batch].get(first).copied()
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
        Self { admission: Arc::new(admission), waiting: Mutex::default(), most, patience }
    }

    /// What admits.
    pub fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Calls that wait.
    pub fn waiting(&self) -> usize {
        self.waiting.lock().0.iter().map(VecDeque::len).sum()
    }

    /// A pass, perhaps after some waiting. Dropping the future gives the turn up.
    pub async fn enter(self: &Arc<Self>, priority: Priority, deadline: Deadline) -> Result<Pass, Refusal> {
        if let Some(refusal) = self.admission.too_late(priority, deadline) {
            return Err(refusal);
        }
        let turned = {
            let mut waiting = self.waiting.lock();
            waiting.tidy();
            let ahead = waiting.ahead(priority);
            if ahead == 0
                && let Ok(place) = self.admission.take(priority)
            {
                return Ok(self.pass(place));
            }
            let left = deadline.remaining().saturating_sub(self.admission.times(priority).p90());
            let list = &mut waiting.0[priority as usize];
            if list.len() >= self.most || self.admission.wait(ahead) > left.min(self.patience / 2) {
                return Err(self.full());
            }
            let (turn, turned) = oneshot::channel();
            list.push_back(turn);
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
        while let Some(priority) = waiting.first() {
            let Ok(mut place) = self.admission.take(priority) else { return };
            while let Some(turn) = waiting.0[priority as usize].pop_front() {
                match turn.send(place) {
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
