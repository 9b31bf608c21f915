//! The nearer zone first: a call within a zone is faster and free of charge. But a zone with one slow or full replica
//! must not keep its queries for itself: the choice of the other zones is taken when a call there would take less than
//! half as long. What the way costs is in the measured response times already. Without zones in the topology all nodes are near.
//! With `adaptive`, a near replica in slow start that has had its share stands back, also when it is alone in its zone:
//! else it would draw all of the zone's queries while its caches are cold.

use canopy_common::{ids::NodeId, rng::Dice};
use canopy_topology::routing::RoutingSnapshot;

use super::strategy::{Candidate, Strategy, Why, choose as within};

/// A near replica is kept until a call to it would take so many times as long as to a far one.
const KEEP: f64 = 2.0;

/// The zone of a node, if it has one.
pub fn of<'a>(routing: &'a RoutingSnapshot, node: &NodeId) -> Option<&'a str> {
    routing.nodes.get(node).map(|known| known.zone.as_str()).filter(|zone| !zone.is_empty())
}

/// The one to ask, by its index in the branch.
pub fn choose(strategy: Strategy, candidates: &[Candidate], keyed: bool, dice: &Dice) -> Option<(u16, Why)> {
    let (mut near, far): (Vec<Candidate>, Vec<Candidate>) =
        candidates.iter().copied().partition(|candidate| candidate.near);
    if strategy == Strategy::Adaptive && candidates.iter().any(|candidate| !candidate.ramping) {
        near.retain(|candidate| !(candidate.ramping && candidate.capped));
    }
    let take = |some: &[Candidate]| within(strategy, some, keyed, dice).map(|(at, why)| (some[at], why));
    match (take(&near), take(&far)) {
        (Some((near, _)), Some((far, _))) if near.expected > KEEP * far.expected => Some((far.at, Why::Zone)),
        (Some((near, why)), _) => Some((near.at, why)),
        (None, Some((far, why))) => Some((far.at, why)),
        (None, None) => None,
    }
}
