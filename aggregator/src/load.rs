//! How busy each node is, as its caller sees it: calls in flight, and the queue wait that its last reply reported.
//!
//! Both come for free with the traffic; no probe asks for them. The cost of a node is
//! `(in flight + 1) x (1 ms + queue wait)`: whole microseconds, so that two nodes always compare and nothing can be
//! NaN. The reported wait halves every 250 ms, because a node that is no longer asked can't report that its queue is
//! gone. A call that failed enters as a wait of the whole time it had: otherwise a node that refuses at once looks
//! like the fastest of all and draws every query (invariant 5).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use canopy_common::ids::NodeId;
use parking_lot::{Mutex, RwLock};
use tokio::time::Instant;

/// Work that every call costs, microseconds; keeps the cost of idle nodes comparable.
const NOMINAL_US: u64 = 1000;
/// Time in which a report loses half its weight.
const HALF_LIFE: Duration = Duration::from_millis(250);

/// Load of one node.
#[derive(Debug, Default)]
pub struct Load {
    in_flight: AtomicU32,
    report: Mutex<Option<(Duration, Instant)>>,
}

impl Load {
    /// Calls that run now.
    pub fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// The node said how long its queue is.
    pub fn report(&self, queue_wait: Duration) {
        *self.report.lock() = Some((queue_wait, Instant::now()));
    }

    /// A call that had `budget` failed or was refused.
    pub fn failed(&self, budget: Duration) {
        let mut report = self.report.lock();
        let now = Instant::now();
        let wait = report.map_or(Duration::ZERO, |(wait, at)| faded(wait, now - at)).max(budget);
        *report = Some((wait, now));
    }

    /// What one more call costs, in units that only compare with other nodes.
    pub fn cost(&self) -> u64 {
        let wait = self.report.lock().map_or(Duration::ZERO, |(wait, at)| faded(wait, Instant::now() - at));
        let one = NOMINAL_US.saturating_add(u64::try_from(wait.as_micros()).unwrap_or(u64::MAX));
        one.saturating_mul(u64::from(self.in_flight()) + 1)
    }
}

fn faded(wait: Duration, age: Duration) -> Duration {
    let halvings = (age.as_micros() / HALF_LIFE.as_micros()).min(31) as u32;
    wait / (1 << halvings)
}

/// Counts a call as in flight until it is dropped.
#[derive(Debug)]
pub struct InFlight(Arc<Load>);

impl InFlight {
    /// Begins a call.
    pub fn begin(load: Arc<Load>) -> Self {
        load.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(load)
    }

    /// The node's load.
    pub fn load(&self) -> &Load {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
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
        self.0.write().entry(node.clone()).or_default().clone()
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
    async fn cost_grows_with_calls_and_reported_wait_and_fades() {
        let load = Arc::new(Load::default());
        assert_eq!(load.cost(), 1000);
        let call = InFlight::begin(load.clone());
        assert_eq!(load.cost(), 2000);
        drop(call);
        load.report(Duration::from_millis(8));
        assert_eq!(load.cost(), 9000);
        tokio::time::advance(Duration::from_millis(500)).await;
        assert_eq!(load.cost(), 3000);
        load.report(Duration::ZERO);
        assert_eq!(load.cost(), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_costs_the_whole_budget_and_never_improves_a_node() {
        let load = Load::default();
        load.failed(Duration::from_millis(300));
        assert_eq!(load.cost(), 301_000);
        load.failed(Duration::from_millis(10));
        assert_eq!(load.cost(), 301_000);
        tokio::time::advance(Duration::from_hours(1)).await;
        assert_eq!(load.cost(), 1000);
    }

    #[tokio::test(start_paused = true)]
    async fn absurd_reports_saturate() {
        let load = Arc::new(Load::default());
        let _call = InFlight::begin(load.clone());
        load.report(Duration::MAX);
        assert_eq!(load.cost(), u64::MAX);
    }
}
