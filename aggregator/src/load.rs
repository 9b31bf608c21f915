//! How each node does, as its caller sees it: calls in flight, how they ended, and what its replies report.
//!
//! All of it comes with the traffic. Whoever calls a node holds an [`InFlight`] and says once how the call ended: an
//! [`Ending`] is the one list of what can be said of a node, and each entry says what it may change. A refusal that was
//! made here (our own limit, budget or throttle) never becomes an ending, because it says nothing of the node.

mod estimate;
mod neglect;
mod ramp;
mod state;
pub(crate) mod window;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use canopy_common::{ids::NodeId, rng::Dice};
use canopy_proto::v1;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

use crate::{
    breaker::{
        Position,
        probation::{Others, Verdict},
        standing::{Ejected, Standing},
    },
    pace::Clock,
};
use state::{Leaving, State};

pub use estimate::{Estimate, Reading, Typical, typical};
pub use ramp::{FRESH, RAMP, RETURNING, Ramp};

/// Longest pushback that is believed.
const MOST_PUSHBACK: Duration = Duration::from_mins(1);

/// How a call ended, as far as it tells of the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It answered what it was asked: its time counts.
    Answered,
    /// It answered something whose time compares with nothing (a fetch).
    Reached,
    /// It refused because of load and wants to be left alone for so long.
    Refused(Duration),
    /// No word came from it: not reached, or the connection broke.
    Lost,
    /// It was there and failed.
    Failed,
    /// Nothing came in the time it had.
    Late,
    /// It was stopped because another replica was faster: it would have taken longer.
    Outlasted,
    /// The request was at fault, or the caller left.
    Nothing,
}

impl Ending {
    /// The same of a call that waited on purpose: that it came back says something, how long that took does not.
    pub fn untimed(self) -> Self {
        match self {
            Self::Answered => Self::Reached,
            Self::Late | Self::Outlasted => Self::Nothing,
            other => other,
        }
    }
}

/// What is known of one node.
pub struct Load {
    in_flight: AtomicU32,
    turn: AtomicU64,
    dice: Dice,
    clock: Clock,
    state: Mutex<State>,
}

/// What a choice needs to know of a node.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    /// Our calls that run there.
    pub own: u32,
    /// Speed and queue.
    pub reading: Reading,
    /// In slow start.
    pub ramping: bool,
    /// In slow start and over its share.
    pub capped: bool,
    /// In use, and passed over for so long that a copy of a query should go to it.
    pub neglected: bool,
    /// Turn in which it was chosen last; 0: never.
    pub turn: u64,
    /// Why it is not asked.
    pub ejected: Option<Ejected>,
    /// A window of its answers waits for [`Load::review`].
    pub due: bool,
}

impl Load {
    fn new(dice: Dice, clock: Clock) -> Self {
        let state = Mutex::new(State::new(clock.now()));
        Self { in_flight: AtomicU32::new(0), turn: AtomicU64::new(0), dice, clock, state }
    }

    /// Calls that run now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// A reply of the node said how it is.
    pub fn report(&self, call: &v1::CallReport) {
        let wait = self.clock.span(Duration::from_micros(call.queue_wait_us));
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.estimate.reported(wait, call.in_flight, self.in_flight(), now);
        if call.pushback_ms > 0 {
            state.estimate.penalised(self.clock.span(pushback(call.pushback_ms)), now);
        }
        state.leaving = call.draining.then(|| Leaving::said(state.leaving, now));
    }

    /// A part of what it was asked was refused, of a call that had `budget`.
    pub fn penalise(&self, budget: Duration) {
        self.state.lock().estimate.penalised(self.clock.span(budget), self.clock.now());
    }

    /// How it is.
    pub fn seen(&self, now: Instant) -> Seen {
        self.see(&self.state.lock(), now)
    }

    /// How it is, when it stands in a choice of `among` replicas.
    pub fn stands(&self, among: usize, now: Instant) -> Seen {
        let mut state = self.state.lock();
        let seen = self.see(&state, now);
        if seen.ejected.is_some() {
            return seen;
        }
        let capped = !state.ramp.stands(among, now);
        Seen { capped, neglected: state.neglect.stands(among, now), ..seen }
    }

    fn see(&self, state: &State, now: Instant) -> Seen {
        Seen {
            own: self.in_flight(),
            reading: state.estimate.read(now),
            ramping: state.ramp.weight(now).is_some(),
            capped: false,
            neglected: false,
            turn: self.turn.load(Ordering::Relaxed),
            ejected: state.ejected(now),
            due: state.probation.due(now),
        }
    }

    /// Judges a full window of its answers against the others of its set.
    pub fn review(&self, others: Option<Others>, now: Instant) -> Verdict {
        let mut state = self.state.lock();
        let verdict = state.probation.review(others, now);
        if verdict == Verdict::Returns {
            state.ramp = Ramp::new(RETURNING, now);
        }
        verdict
    }

    /// It is ejected and a query passes it over; true when a shadow of that query should go to it.
    pub fn passed_over(&self, now: Instant) -> bool {
        let mut state = self.state.lock();
        match state.ejected(now) {
            Some(Ejected::Slow) => state.probation.passed_over(now),
            Some(Ejected::Failing | Ejected::Gone) => state.breaker.take_probe(now),
            Some(Ejected::Draining) => state.leaving.as_mut().is_some_and(|leaving| leaving.passed_over(now)),
            // Of what the service says nothing is known here.
            Some(Ejected::Told) | None => false,
        }
    }

    /// A copy of a query goes to it, because it is neglected. Told when it is sent: what the budget refuses measures nothing.
    pub fn copied(&self, now: Instant) {
        self.state.lock().neglect.copied(now);
    }

    /// The shadow of a query ended.
    pub fn shadow_ended(&self) {
        let mut state = self.state.lock();
        state.neglect.copy_ended();
        state.probation.shadow_ended();
        state.breaker.probe_ended();
    }

    /// Whether a call to it is withheld, because it refused too many. Counts as one that was wanted.
    pub fn withholds(&self) -> bool {
        let lot = self.dice.unit();
        self.state.lock().throttle.withholds(lot, self.clock.now())
    }

    /// How operators see it.
    pub fn standing(&self) -> Standing {
        let (state, now) = (self.state.lock(), self.clock.now());
        Standing::of(state.ejected(now), state.ramp.weight(now).is_some())
    }

    /// It was chosen, in that turn.
    pub fn chosen(&self, turn: u64) {
        self.turn.store(turn, Ordering::Relaxed);
        let mut state = self.state.lock();
        state.ramp.chosen();
        state.neglect.chosen();
    }

    /// Smoothed response time, once measured.
    pub fn response(&self) -> Option<Duration> {
        self.state.lock().estimate.response().map(|response| self.clock.unscaled(response))
    }

    fn ended(&self, flight: &InFlight, ending: Ending, budget: Duration) {
        let began = flight.began;
        let (now, budget) = (self.clock.now(), self.clock.span(budget));
        let lot = self.dice.unit();
        let took = now.saturating_duration_since(began);
        let mut state = self.state.lock();
        if let Some(sign) = state.sign(ending, took)
            && state.breaker.take(sign, began, now, lot)
            && state.breaker.position(now) == Position::Closed
        {
            state.ramp = Ramp::new(RETURNING, now);
        }
        if ending != Ending::Lost {
            state.throttle.ended(!matches!(ending, Ending::Refused(_)), now);
        }
        match ending {
            Ending::Answered => {
                let queued = self.clock.span(Duration::from_micros(flight.queued_us.load(Ordering::Relaxed)));
                state.estimate.answered(took, queued, now);
                if let Some(relative) = flight.relative(took) {
                    state.estimate.compared(relative);
                    state.probation.answered(relative, now);
                }
            }
            Ending::Refused(pushback) => {
                state.estimate.penalised(budget.max(self.clock.span(pushback)), now);
            }
            Ending::Lost | Ending::Failed => state.estimate.penalised(budget, now),
            Ending::Late => state.estimate.penalised(took, now),
            Ending::Outlasted => {
                state.estimate.outlasted(took, now);
                if let Some(relative) = flight.relative(took) {
                    state.probation.outlasted(relative, now);
                }
            }
            Ending::Reached | Ending::Nothing => {}
        }
    }
}

/// A pushback as time, within reason.
pub fn pushback(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(MOST_PUSHBACK)
}

/// Counts a call as in flight until it is dropped.
pub struct InFlight {
    load: Arc<Load>,
    began: Instant,
    /// Time it waited at the node, as far as that was said.
    queued_us: AtomicU64,
    /// What calls of its class usually take.
    usual: Option<Duration>,
}

impl InFlight {
    /// Begins a call.
    pub fn begin(load: Arc<Load>) -> Self {
        load.in_flight.fetch_add(1, Ordering::Relaxed);
        let began = load.clock.now();
        Self { load, began, queued_us: AtomicU64::new(0), usual: None }
    }

    /// The call is of a class whose calls usually take so long: its node is compared with others by that.
    pub fn usually(mut self, usual: Option<Duration>) -> Self {
        self.usual = usual;
        self
    }

    /// A reply of the call said how the node is.
    pub fn report(&self, call: &v1::CallReport) {
        self.queued_us.store(call.queue_wait_us, Ordering::Relaxed);
        self.load.report(call);
    }

    /// How many times as long as usual it took.
    fn relative(&self, took: Duration) -> Option<f64> {
        let usual = self.load.clock.span(self.usual?).max(Duration::from_micros(1));
        Some(took.as_secs_f64() / usual.as_secs_f64())
    }

    /// The node's load.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Says how the call, which had `budget`, ended. Once; a call that is dropped without a word says nothing.
    pub fn ended(&self, ending: Ending, budget: Duration) {
        self.load.ended(self, ending, budget);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Load of all nodes that were ever asked. Bounded by the nodes of the topology.
pub struct Loads {
    dice: Dice,
    clock: Clock,
    nodes: RwLock<BTreeMap<NodeId, Arc<Load>>>,
}

impl Loads {
    /// None yet. The dice are for how long breakers stay open and which calls throttles withhold.
    pub fn new(dice: Dice, clock: Clock) -> Self {
        Self { dice, clock, nodes: RwLock::default() }
    }

    /// Now, by the clock of all that is kept of nodes.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    /// The node's load.
    pub fn of(&self, node: &NodeId) -> Arc<Load> {
        if let Some(load) = self.nodes.read().get(node) {
            return load.clone();
        }
        let fresh = || Arc::new(Load::new(self.dice.clone(), self.clock));
        self.nodes.write().entry(node.clone()).or_insert_with(fresh).clone()
    }

    /// All nodes.
    pub fn all(&self) -> Vec<(NodeId, Arc<Load>)> {
        self.nodes.read().iter().map(|(node, load)| (node.clone(), load.clone())).collect()
    }

    /// All nodes, for operators.
    pub fn status(&self) -> serde_json::Value {
        let line = |(node, load): (NodeId, Arc<Load>)| {
            let response = load.response().map(|response| response.as_micros() as f64 / 1000.0);
            let line = serde_json::json!({
                "standing": load.standing().as_str(),
                "in_flight": load.in_flight(),
                "response_ms": response,
            });
            (node.to_string(), line)
        };
        self.all().into_iter().map(line).collect::<serde_json::Map<_, _>>().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pace::Pace;

    #[tokio::test(start_paused = true)]
    async fn a_call_counts_until_it_is_dropped_and_says_how_it_ended() {
        let loads = Loads::new(Dice::seeded(1), Clock::new(Pace::default()));
        let load = loads.of(&"a".into());
        let call = InFlight::begin(loads.of(&"a".into()));
        assert_eq!((load.in_flight(), loads.all().len()), (1, 1));
        tokio::time::advance(Duration::from_millis(7)).await;
        call.ended(Ending::Answered, Duration::from_secs(1));
        drop(call);
        assert_eq!((load.in_flight(), load.response()), (0, Some(Duration::from_millis(7))));
    }

    #[tokio::test(start_paused = true)]
    async fn a_node_that_leaves_is_asked_each_second_whether_it_is_back() {
        let load = Loads::new(Dice::seeded(1), Clock::new(Pace::default())).of(&"a".into());
        let says = |draining| load.report(&v1::CallReport { draining, ..Default::default() });
        says(true);
        for _ in 0..20 {
            assert!(!load.passed_over(Instant::now()));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(load.passed_over(Instant::now()));
            says(true);
            assert_eq!(load.standing(), Standing::Draining, "as long as it says so");
        }
        says(false);
        assert_eq!(load.seen(Instant::now()).ejected, None);
        says(true);
        tokio::time::advance(Duration::from_secs(10)).await;
        assert_eq!(load.seen(Instant::now()).ejected, None, "not for ever");
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_waited_on_purpose_says_only_whether_its_node_is_there() {
        let load = Loads::new(Dice::seeded(1), Clock::new(Pace::default())).of(&"a".into());
        for ending in [Ending::Answered, Ending::Late, Ending::Outlasted].into_iter().cycle().take(60) {
            let call = InFlight::begin(load.clone());
            tokio::time::advance(Duration::from_millis(300)).await;
            call.ended(ending.untimed(), Duration::from_millis(300));
        }
        assert_eq!((load.response(), load.seen(Instant::now()).ejected), (None, None));
        for _ in 0..5 {
            InFlight::begin(load.clone()).ended(Ending::Lost.untimed(), Duration::from_millis(300));
        }
        assert_eq!(load.seen(Instant::now()).ejected, Some(Ejected::Gone));
    }

    #[tokio::test(start_paused = true)]
    async fn what_says_nothing_of_the_node_changes_nothing() {
        let load = Loads::new(Dice::seeded(1), Clock::new(Pace::default())).of(&"a".into());
        let before = load.stands(2, Instant::now()).reading;
        let call = InFlight::begin(load.clone());
        call.ended(Ending::Nothing, Duration::from_secs(1));
        call.ended(Ending::Reached, Duration::from_secs(1));
        assert_eq!(load.stands(2, Instant::now()).reading, before);
        call.ended(Ending::Refused(Duration::MAX), Duration::from_millis(1));
        assert!(load.stands(2, Instant::now()).reading.penalty >= 60e6);
    }
}
