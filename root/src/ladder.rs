//! What is left out when not everything can be done: the degradation ladder.
//!
//! The failure this prevents: under overload every query asks for everything, so all are slow and many are refused,
//! though most people would rather have the hits without extracts. A policy value: pressure and `now` in, a step out.
//! Rules: up at once, down one step at a time and only after the pressure was low for a while, so that it does not
//! flap; each step that cuts an answer is reported in its `degraded`. Steps that need a costly rerank, tiers or a cache
//! come with these. Units: pressure is queries that run or wait over the limit of those that may run; where leaves
//! refuse, ten times the share of shards refused.

use std::time::Duration;

use canopy_common::limit::Gate;
use parking_lot::Mutex;
use tokio::time::Instant;

/// How far down answers are cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    /// Everything is done.
    Whole,
    /// No snippets.
    Spare,
    /// No batch queries either.
    Refuse,
}

const STEPS: [Step; 3] = [Step::Whole, Step::Spare, Step::Refuse];
/// Pressure at which the step above 0, 1 is taken.
const UP: [f64; 2] = [0.8, 1.1];
/// Pressure below which step 1, 2 is left.
const DOWN: [f64; 2] = [0.5, 0.8];
/// How long the pressure has to be low before a step is left.
const HOLD: Duration = Duration::from_secs(1);
/// Weight of a query in the share of refused shards.
const WEIGHT: f64 = 1.0 / 32.0;
/// Refused shards count so much.
const SHED_WEIGHT: f64 = 10.0;

/// The policy. Off: always [`Step::Whole`].
#[derive(Debug, Clone)]
pub struct Ladder {
    on: bool,
    at: usize,
    high: Instant,
}

impl Ladder {
    /// At the top.
    pub fn new(on: bool, now: Instant) -> Self {
        Self { on, at: 0, high: now }
    }

    /// The step for a query that comes now.
    pub fn step(&mut self, now: Instant, pressure: f64) -> Step {
        if !self.on {
            return Step::Whole;
        }
        while UP.get(self.at).is_some_and(|up| pressure >= *up) {
            self.at += 1;
            self.high = now;
        }
        if self.at > 0 {
            if pressure >= DOWN[self.at - 1] {
                self.high = now;
            } else if now.saturating_duration_since(self.high) >= HOLD {
                self.at -= 1;
                self.high = now;
            }
        }
        STEPS[self.at]
    }
}

/// The ladder of a root, with what it is told.
pub struct Degradation {
    state: Mutex<State>,
}

struct State {
    ladder: Ladder,
    /// Share of shards refused.
    shed: f64,
    told: Instant,
}

impl State {
    /// What was told halves each second: a step that lets nobody search is not told that all is well again.
    fn fade(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.told);
        self.shed *= 0.5_f64.powf(passed.as_secs_f64());
        self.told = now;
    }
}

impl Degradation {
    /// On or off.
    pub fn new(on: bool) -> Self {
        let now = Instant::now();
        Self { state: Mutex::new(State { ladder: Ladder::new(on, now), shed: 0.0, told: now }) }
    }

    /// The step for a query that has just entered.
    pub fn step(&self, gate: &Gate) -> Step {
        let admission = gate.admission();
        let others = admission.in_flight().saturating_sub(1) as f64 + gate.waiting() as f64;
        let (now, mut state) = (Instant::now(), self.state.lock());
        state.fade(now);
        let pressure = (others / f64::from(admission.limit().max(1))).max(state.shed * SHED_WEIGHT);
        state.ladder.step(now, pressure)
    }

    /// A search ended: so many of its shards were refused because of load.
    pub fn searched(&self, shed: u32, asked: u32) {
        let share = f64::from(shed) / f64::from(asked.max(1));
        let (now, mut state) = (Instant::now(), self.state.lock());
        state.fade(now);
        state.shed += (share - state.shed) * WEIGHT;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn it_goes_up_at_once_and_down_slowly() {
        let start = Instant::now();
        let mut ladder = Ladder::new(true, start);
        // (milliseconds, pressure, step)
        let table = [
            (0, 0.3, Step::Whole),
            (10, 0.79, Step::Whole),
            (20, 0.8, Step::Spare),
            (30, 0.6, Step::Spare),
            (900, 0.4, Step::Spare),
            (1000, 0.55, Step::Spare), // not low enough: the wait begins again
            (1999, 0.4, Step::Spare),
            (2000, 0.4, Step::Whole),
            (2001, 1.2, Step::Refuse),
            (3002, 0.1, Step::Spare), // one at a time
            (3900, 0.1, Step::Spare),
            (4002, 0.1, Step::Whole),
        ];
        for (ms, pressure, step) in table {
            assert_eq!(ladder.step(start + Duration::from_millis(ms), pressure), step, "{ms} ms");
        }
        assert_eq!(Ladder::new(false, start).step(start, 9.0), Step::Whole, "switched off");
    }

    #[tokio::test(start_paused = true)]
    async fn leaves_that_refuse_are_pressure_and_it_fades() {
        let admission = canopy_common::limit::Admission::new(canopy_common::limit::Bounds { min: 9, max: 9 });
        let gate = Gate::new(admission, 1, Duration::ZERO);
        let ladder = Degradation::new(true);
        (0..10).for_each(|_| ladder.searched(0, 4));
        assert_eq!(ladder.step(&gate), Step::Whole);
        (0..10).for_each(|_| ladder.searched(2, 4));
        assert_eq!(ladder.step(&gate), Step::Refuse);
        for _ in 0..200 {
            ladder.searched(0, 4);
            tokio::time::advance(Duration::from_millis(20)).await;
            ladder.step(&gate);
        }
        assert_eq!(ladder.step(&gate), Step::Whole);
    }
}
