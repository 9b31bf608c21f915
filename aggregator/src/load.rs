//! How each node does, as its caller sees it: calls in flight, how they ended, and what its replies report.
//!
//! All of it comes with the traffic. Whoever calls a node holds an [`InFlight`] and says once how the call ended: an
//! [`Ending`] is the one list of what can be said of a node, and each entry says what it may change. A refusal that was
//! made here (our own limit, budget or throttle) never becomes an ending, because it says nothing of the node.

mod estimate;
mod ramp;

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use canopy_common::ids::NodeId;
use canopy_proto::v1;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

pub use estimate::{Estimate, Reading, typical};
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

/// What is known of one node.
#[derive(Debug)]
pub struct Load {
    in_flight: AtomicU32,
    turn: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    estimate: Estimate,
    ramp: Ramp,
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
    /// Turn in which it was chosen last; 0: never.
    pub turn: u64,
}

impl Load {
    fn new(now: Instant) -> Self {
        let state = State { estimate: Estimate::default(), ramp: Ramp::new(FRESH, now) };
        Self { in_flight: AtomicU32::new(0), turn: AtomicU64::new(0), state: Mutex::new(state) }
    }

    /// Calls that run now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// A reply of the node said how it is.
    pub fn report(&self, call: &v1::CallReport) {
        let wait = Duration::from_micros(call.queue_wait_us).max(pushback(call.pushback_ms));
        let now = Instant::now();
        self.state.lock().estimate.reported(wait, call.in_flight, self.in_flight(), now);
    }

    /// A part of what it was asked was refused, of a call that had `budget`.
    pub fn penalise(&self, budget: Duration) {
        self.state.lock().estimate.penalised(budget, Instant::now());
    }

    /// It stands in a choice of `among` replicas.
    pub fn stands(&self, among: usize, now: Instant) -> Seen {
        let mut state = self.state.lock();
        Seen {
            own: self.in_flight(),
            reading: state.estimate.read(now),
            ramping: state.ramp.weight(now).is_some(),
            capped: !state.ramp.stands(among, now),
            turn: self.turn.load(Ordering::Relaxed),
        }
    }

    /// It was chosen, in that turn.
    pub fn chosen(&self, turn: u64) {
        self.turn.store(turn, Ordering::Relaxed);
        self.state.lock().ramp.chosen();
    }

    /// Smoothed response time, once measured.
    pub fn response(&self) -> Option<Duration> {
        self.state.lock().estimate.response()
    }

    fn ended(&self, ending: Ending, took: Duration, budget: Duration) {
        let now = Instant::now();
        let mut state = self.state.lock();
        match ending {
            Ending::Answered => state.estimate.answered(took, now),
            Ending::Refused(pushback) => state.estimate.penalised(budget.max(pushback), now),
            Ending::Lost | Ending::Failed => state.estimate.penalised(budget, now),
            Ending::Late => state.estimate.penalised(took, now),
            Ending::Outlasted => state.estimate.outlasted(took, now),
            Ending::Reached | Ending::Nothing => {}
        }
    }
}

/// A pushback as time, within reason.
pub fn pushback(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds).min(MOST_PUSHBACK)
}

/// Counts a call as in flight until it is dropped.
#[derive(Debug)]
pub struct InFlight {
    load: Arc<Load>,
    began: Instant,
}

impl InFlight {
    /// Begins a call.
    pub fn begin(load: Arc<Load>) -> Self {
        load.in_flight.fetch_add(1, Ordering::Relaxed);
        Self { load, began: Instant::now() }
    }

    /// The node's load.
    pub fn load(&self) -> &Load {
        &self.load
    }

    /// Says how the call, which had `budget`, ended. Once; a call that is dropped without a word says nothing.
    pub fn ended(&self, ending: Ending, budget: Duration) {
        self.load.ended(ending, Instant::now().saturating_duration_since(self.began), budget);
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.load.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Load of all nodes that were ever asked. Bounded by the nodes of the topology.
#[derive(Debug, Default)]
pub struct Loads(RwLock<BTreeMap<NodeId, Arc<Load>>>);

impl Loads {
    /// The node's load.
    pub fn of(&self, node: &NodeId) -> Arc<Load> {
        if let Some(load) = self.0.read().get(node) {
            return load.clone();
        }
        let fresh = || Arc::new(Load::new(Instant::now()));
        self.0.write().entry(node.clone()).or_insert_with(fresh).clone()
    }

    /// All nodes.
    pub fn all(&self) -> Vec<(NodeId, Arc<Load>)> {
        self.0.read().iter().map(|(node, load)| (node.clone(), load.clone())).collect()
    }

    /// Calls in flight by node.
    pub fn in_flight(&self) -> Vec<(NodeId, u32)> {
        self.0.read().iter().map(|(node, load)| (node.clone(), load.in_flight())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_call_counts_until_it_is_dropped_and_says_how_it_ended() {
        let loads = Loads::default();
        let load = loads.of(&"a".into());
        let call = InFlight::begin(loads.of(&"a".into()));
        assert_eq!((load.in_flight(), loads.in_flight().len()), (1, 1));
        tokio::time::advance(Duration::from_millis(7)).await;
        call.ended(Ending::Answered, Duration::from_secs(1));
        drop(call);
        assert_eq!((load.in_flight(), load.response()), (0, Some(Duration::from_millis(7))));
    }

    #[tokio::test(start_paused = true)]
    async fn what_says_nothing_of_the_node_changes_nothing() {
        let load = Loads::default().of(&"a".into());
        let before = load.stands(2, Instant::now()).reading;
        let call = InFlight::begin(load.clone());
        call.ended(Ending::Nothing, Duration::from_secs(1));
        call.ended(Ending::Reached, Duration::from_secs(1));
        assert_eq!(load.stands(2, Instant::now()).reading, before);
        call.ended(Ending::Refused(Duration::MAX), Duration::from_millis(1));
        assert!(load.stands(2, Instant::now()).reading.penalty >= 60e6);
    }
}
