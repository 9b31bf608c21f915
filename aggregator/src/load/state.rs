//! All that is kept of one node, behind one lock: how it does, whether it is asked, and what an ending says of it.

use std::time::Duration;

use tokio::time::Instant;

use super::{Ending, Estimate, FRESH, Ramp, neglect::Neglect};
use crate::{
    breaker::{Breaker, Fault, Position, Sign, probation::Probation, standing::Ejected},
    throttle::Throttle,
};

/// A call that was given up after less than so many usual response times says nothing: it was asked late, or another
/// replica was fast.
const LATE: u32 = 3;
/// How long a node that said it is leaving is believed to: it may be back under the same name.
const DRAINING: Duration = Duration::from_secs(10);
/// How often it is sent a copy of a query meanwhile, to see whether it is back.
const ASKED_AGAIN: Duration = Duration::from_secs(1);

/// A node said that it is leaving.
#[derive(Debug, Clone, Copy)]
pub(super) struct Leaving {
    said: Instant,
    copied: Instant,
}

impl Leaving {
    /// It says so now, perhaps again.
    pub(super) fn said(before: Option<Self>, now: Instant) -> Self {
        Self { said: now, copied: before.map_or(now, |before| before.copied) }
    }

    fn believed(self, now: Instant) -> bool {
        now.saturating_duration_since(self.said) < DRAINING
    }

    /// A query passes it over; true when a copy should go to it.
    pub(super) fn passed_over(&mut self, now: Instant) -> bool {
        let due = now.saturating_duration_since(self.copied) >= ASKED_AGAIN;
        if due {
            self.copied = now;
        }
        due
    }
}

/// The measurements, the slow start, the neglect, the breaker, the probation and the throttle of one node.
#[derive(Debug)]
pub(super) struct State {
    pub(super) estimate: Estimate,
    pub(super) ramp: Ramp,
    pub(super) neglect: Neglect,
    pub(super) breaker: Breaker,
    pub(super) probation: Probation,
    pub(super) leaving: Option<Leaving>,
    pub(super) throttle: Throttle,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            estimate: Estimate::default(),
            ramp: Ramp::new(FRESH, now),
            neglect: Neglect::default(),
            breaker: Breaker::default(),
            probation: Probation::default(),
            leaving: None,
            throttle: Throttle::default(),
        }
    }

    /// Why it is not asked.
    pub(super) fn ejected(&self, now: Instant) -> Option<Ejected> {
        match self.breaker.position(now) {
            Position::Open(Fault::Gone, _) | Position::HalfOpen(Fault::Gone) => return Some(Ejected::Gone),
            Position::Open(Fault::Failing, _) | Position::HalfOpen(Fault::Failing) => {
                return Some(Ejected::Failing);
            }
            Position::Closed => {}
        }
        if self.leaving.is_some_and(|leaving| leaving.believed(now)) {
            return Some(Ejected::Draining);
        }
        self.probation.out().then_some(Ejected::Slow)
    }

    /// What an ending says to the breaker.
    pub(super) fn sign(&self, ending: Ending, took: Duration) -> Option<Sign> {
        match ending {
            Ending::Answered | Ending::Reached | Ending::Refused(_) => Some(Sign::Good),
            Ending::Lost => Some(Sign::Lost),
            Ending::Failed => Some(Sign::Bad),
            Ending::Late | Ending::Outlasted => {
                let late = self.estimate.usual().is_none_or(|usual| took >= usual * LATE);
                // A call behind a stall is outlasted with all behind it: that is no silence.
                late.then_some(if ending == Ending::Late { Sign::Late } else { Sign::Bad })
            }
            Ending::Nothing => None,
        }
    }
}
