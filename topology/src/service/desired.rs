//! Everything that survives a restart of the service, and the routing snapshot that follows from it.
//!
//! Rule for whom to ask: leaves that said they answer from the version. Those that leave are left out where another leaf of
//! the shard answers. So are those that are away (their lease is out) and those that fail ([`Standing::Faulty`]), as long as
//! half are still named: past that it may be the service that is cut off, and the rest would be overloaded. Those that are
//! slow or behind ([`Standing::SubHealthy`]) are named last, and after them who is away.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use canopy_common::ids::{Epoch, NodeId, ShardId, Version};
use serde::{Deserialize, Serialize};

use super::{judging::Kept, placing::Placing};
use crate::{
    config::{NodeConfig, Role},
    placement::Capacity,
    rollout::{Replica, Route, State},
    routing::{ALL_QUERIES, CorpusRouting, Last, Node, Replicas, RoutingSnapshot, Trial, VersionRouting},
};

/// A node as it said it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeRecord {
    /// What it is.
    pub role: Role,
    /// gRPC `host:port`.
    pub address: String,
    /// Admin `host:port`; empty: none.
    pub admin: String,
    /// Zone; empty: none.
    pub zone: String,
    /// An operator wants it empty of queries.
    pub drained: bool,
    /// It says that it leaves.
    pub leaving: bool,
    /// An operator wants no shard on it.
    #[serde(default)]
    pub emptied: bool,
    /// What it can hold; 0: it does not say.
    #[serde(default)]
    pub capacity: Capacity,
    /// How it does among its peers.
    #[serde(default)]
    pub standing: Standing,
    /// How often it went down of late, when its standing changed last.
    #[serde(default, skip_serializing_if = "none")]
    pub falls: u32,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde gives a reference")]
fn none(count: &u32) -> bool {
    *count == 0
}

/// What the health of a node means for who is asked. Stored, because the snapshot follows from what is stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Asked like any other.
    #[default]
    Good,
    /// Named last.
    SubHealthy,
    /// Not asked where others answer.
    Faulty,
}

impl NodeRecord {
    /// A node of which no more is known.
    pub fn new(role: Role, address: &str) -> Self {
        Self {
            role,
            address: address.to_owned(),
            admin: String::new(),
            zone: String::new(),
            drained: false,
            leaving: false,
            emptied: false,
            capacity: Capacity::default(),
            standing: Standing::Good,
            falls: 0,
        }
    }

    /// It, after it said what it is; what others decided of it stays.
    pub fn heard(&self, said: &Self) -> Self {
        let Self { drained, emptied, standing, falls, .. } = *self;
        Self { drained, emptied, standing, falls, ..said.clone() }
    }

    /// Whether it said that already.
    pub fn says(&self, said: &Self) -> bool {
        let Self { role, address, admin, zone, leaving, capacity, .. } = self;
        *role == said.role
            && *address == said.address
            && *admin == said.admin
            && *zone == said.zone
            && *leaving == said.leaving
            && *capacity == said.capacity
    }
}

impl From<&NodeConfig> for NodeRecord {
    fn from(node: &NodeConfig) -> Self {
        Self { admin: node.admin.clone(), zone: node.zone.clone(), ..Self::new(node.role, &node.address) }
    }
}

/// What is stored.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Desired {
    /// Of the newest snapshot.
    pub epoch: Epoch,
    /// Nodes by id.
    pub nodes: BTreeMap<NodeId, NodeRecord>,
    /// Rollouts and placement of each corpus.
    pub corpora: BTreeMap<String, State>,
    /// What is computed of placements.
    pub placings: BTreeMap<String, Placing>,
    /// The last look at the trial of each corpus.
    pub gates: BTreeMap<String, Arc<Kept>>,
}

impl Desired {
    /// The snapshot, with the epoch of the newest.
    pub fn snapshot(&self) -> RoutingSnapshot {
        let nodes = self.nodes.iter().filter(|(_, node)| node.role != Role::Topology);
        let nodes = nodes.map(|(id, record)| {
            let NodeRecord { role, address, admin, zone, .. } = record.clone();
            (id.clone(), Node { role, address, admin, zone })
        });
        let corpora = self.corpora.iter().map(|(name, state)| (name.clone(), self.routing(state)));
        RoutingSnapshot {
            epoch: self.epoch,
            nodes: nodes.collect(),
            corpora: corpora.collect(),
            last: self.last(),
        }
    }

    /// Leaves that are asked after others.
    fn last(&self) -> BTreeMap<NodeId, Last> {
        let away: BTreeSet<&NodeId> = self.corpora.values().flat_map(|state| &state.seen.away).collect();
        let leaves = self.nodes.iter().filter(|(_, record)| record.role == Role::Leaf);
        let why = |(id, record): (&NodeId, &NodeRecord)| {
            let why = if record.drained || record.leaving {
                Last::Leaving
            } else if record.standing == Standing::Faulty || away.contains(id) {
                Last::Faulty
            } else {
                return None;
            };
            Some((id.clone(), why))
        };
        leaves.filter_map(why).collect()
    }

    fn routing(&self, state: &State) -> CorpusRouting {
        let mut lists = Lists::default();
        let mut wanted: BTreeMap<Version, BTreeMap<ShardId, Vec<NodeId>>> = BTreeMap::new();
        for replica in state.seen.replicas() {
            for version in state.wanted(&replica).into_iter().flatten() {
                let Replica { shard, node } = replica.clone();
                wanted.entry(version).or_default().entry(shard).or_default().push(node);
            }
        }
        let versions = wanted.into_iter().map(|(version, shards)| {
            let held =
                shards.iter().map(|(shard, nodes)| (shard.clone(), self.held(state, version, shard, nodes)));
            let held: Vec<_> = held.collect();
            let routing = VersionRouting { wanted: lists.shared(shards), held: lists.shared(held) };
            (version, routing)
        });
        let route = state.route();
        CorpusRouting {
            pins: route.pins(),
            trial: trial(&route),
            placed_shards: u32::try_from(state.seen.placed.len()).unwrap_or(u32::MAX),
            versions: versions.collect(),
            ..CorpusRouting::default()
        }
    }

    /// All who answer from it, the best first.
    fn held(&self, state: &State, version: Version, shard: &ShardId, nodes: &[NodeId]) -> Vec<NodeId> {
        let holds = |node: &&NodeId| {
            state.seen.holds(version, &Replica { shard: shard.clone(), node: (*node).clone() })
        };
        let mut held: Vec<NodeId> = nodes.iter().filter(holds).cloned().collect();
        held.sort_by_key(|node| {
            let (leaves, standing) = self
                .nodes
                .get(node)
                .map_or((false, Standing::Good), |it| (it.drained || it.leaving, it.standing));
            (leaves, state.seen.away.contains(node), standing)
        });
        held
    }
}

/// The comparison that a route asks for.
fn trial(route: &Route) -> Option<Trial> {
    let (candidate, control) = (route.candidate.as_ref()?, route.live?);
    let of_all = |percent: u8| u32::from(percent) * ALL_QUERIES / 100;
    Some(Trial {
        version: candidate.version,
        control,
        shadow: of_all(candidate.shadow_percent),
        compared: of_all(candidate.control_percent),
        gate: candidate.gate,
    })
}

/// Replica lists, each kept once.
#[derive(Default)]
struct Lists(BTreeMap<Vec<NodeId>, Arc<[NodeId]>>);

impl Lists {
    fn shared(&mut self, shards: impl IntoIterator<Item = (ShardId, Vec<NodeId>)>) -> Replicas {
        let some = shards.into_iter().filter(|(_, nodes)| !nodes.is_empty());
        let each = some.map(|(shard, nodes)| {
            let list = self.0.entry(nodes.clone()).or_insert_with(|| nodes.into()).clone();
            (shard, list)
        });
        each.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rollout::{Event, Hold, Report, step};

    #[test]
    fn who_is_away_is_named_after_those_that_are_here_and_all_who_hold_it_are_named() {
        let leaves = ["a", "b", "c"].map(NodeId::from);
        let shard = ShardId::new("main", 0);
        let holds = |node: &NodeId| Report {
            replica: Replica { shard: shard.clone(), node: node.clone() },
            version: Version(1),
            hold: Hold::Resident,
        };
        let away = |node: &NodeId| Event::Node { node: node.clone(), away: true };
        let events = [
            Event::Placed([(shard.clone(), leaves.to_vec())].into()),
            Event::Held(leaves.iter().map(holds).collect()),
            away(&leaves[0]),
        ];
        let state = events.into_iter().fold(State::serving(Version(1)), |state, event| step(&state, event).0);
        let mut desired = Desired {
            nodes: leaves.iter().map(|node| (node.clone(), NodeRecord::new(Role::Leaf, "h:1"))).collect(),
            corpora: [("web".to_owned(), state.clone())].into(),
            ..Desired::default()
        };
        let asked = |desired: &Desired| {
            let snapshot = desired.snapshot();
            snapshot.holders("web", Version(1), &shard).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(asked(&desired), ["b", "c", "a"]);
        let last = |desired: &Desired| {
            desired.snapshot().last.into_iter().map(|(node, why)| (node.to_string(), why)).collect::<Vec<_>>()
        };
        assert_eq!(last(&desired), [("a".to_owned(), Last::Faulty)]);
        // Of one in three it is not certain that it is not the service that is cut off.
        desired.corpora.insert("web".to_owned(), step(&state, away(&leaves[1])).0);
        assert_eq!(asked(&desired), ["c", "a", "b"]);
        desired.nodes.entry(leaves[2].clone()).and_modify(|record| record.standing = Standing::SubHealthy);
        assert_eq!(asked(&desired), ["c", "a", "b"], "slow is better than not there");
        desired.nodes.entry(leaves[2].clone()).and_modify(|record| record.drained = true);
        assert_eq!(asked(&desired), ["a", "b", "c"]);
        assert_eq!(last(&desired)[2], ("c".to_owned(), Last::Leaving));
    }
}
