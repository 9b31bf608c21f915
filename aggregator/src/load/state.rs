//! All that is kept of one node, behind one lock: how it does, whether it is asked, and what an ending says of it.

use std::time::Duration;

use tokio::time::Instant;

use super::{Ending, Estimate, FRESH, Ramp};
use crate::{
    breaker::{Breaker, Fault, Position, Sign, probation::Probation, standing::Ejected},
    throttle::Throttle,
};

/// A call that was given up after less than so many usual response times says nothing: it was asked late, or another
/// replica was fast.
const LATE: u32 = 3;
/// How long a node that said it is leaving is believed to: it may be back under the same name.
const DRAINING: Duration = Duration::from_secs(10);

/// The measurements, the slow start, the breaker, the probation and the throttle of one node.
#[derive(Debug)]
pub(super) struct State {
    pub(super) estimate: Estimate,
    pub(super) ramp: Ramp,
    pub(super) breaker: Breaker,
    pub(super) probation: Probation,
    pub(super) draining: Option<Instant>,
    pub(super) throttle: Throttle,
}

impl State {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            estimate: Estimate::default(),
            ramp: Ramp::new(FRESH, now),
            breaker: Breaker::default(),
            probation: Probation::default(),
            draining: None,
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
        if self.draining.is_some_and(|said| now.saturating_duration_since(said) < DRAINING) {
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
