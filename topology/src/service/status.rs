//! What the service knows, for people: one line a node, one a corpus with its rollout.

use std::collections::BTreeMap;

use canopy_common::ids::NodeId;
use serde_json::{Value, json};

use super::{control::Control, desired::NodeRecord};
use crate::{
    config::Role,
    rollout::{Phase, State, Stop},
};

/// Shards that are named as asked most.
const HOTTEST: usize = 10;

impl Control {
    fn node_state(&self, id: &NodeId, record: &NodeRecord) -> &'static str {
        match (record.leaving, record.drained, self.is_here(id)) {
            (_, _, false) => "away",
            (true, _, true) => "leaving",
            (_, true, true) => "drained",
            (false, false, true) if record.emptied => "emptied",
            (false, false, true) => "here",
        }
    }

    /// How many nodes are in each state.
    pub fn node_counts(&self) -> BTreeMap<&'static str, i64> {
        let mut counts: BTreeMap<_, _> =
            ["away", "leaving", "drained", "emptied", "here"].map(|state| (state, 0)).into();
        for (id, record) in self.desired.nodes.iter().filter(|(_, record)| record.role != Role::Topology) {
            *counts.entry(self.node_state(id, record)).or_default() += 1;
        }
        counts
    }

    /// Nodes.
    pub fn nodes_status(&self) -> Value {
        let others = self.desired.nodes.iter().filter(|(_, record)| record.role != Role::Topology);
        let each = others.map(|(id, record)| {
            // Only leaves are judged.
            let known = self.presence.get(id).filter(|_| record.role == Role::Leaf);
            json!({
                "node": id.to_string(), "role": record.role.as_str(), "state": self.node_state(id, record),
                "address": record.address, "admin": record.admin, "zone": record.zone,
                "health": known.map(|known| known.health.condition.as_str()),
                "reason": known.map(|known| known.health.reason.as_str()),
            })
        });
        each.collect()
    }

    /// The shards that are asked most.
    pub fn hot_status(&self) -> Value {
        let each = self.hottest(HOTTEST).into_iter();
        let each = each.map(|(shard, heat)| json!({ "shard": shard.to_string(), "queries_per_second": (heat * 10.0).round() / 10.0 }));
        each.collect()
    }

    /// Corpora.
    pub fn corpora_status(&self) -> Value {
        let one = |(name, state): (&String, &State)| {
            let mut corpus = corpus(state);
            corpus["judgement"] = self.judgement(name).map_or(Value::Null, |judged| {
                json!({ "verdict": judged.verdict, "sample": judged.sample, "findings": judged.findings, "skipped": judged.skipped })
            });
            corpus["placement"] = self.placing_status(name, state);
            (name.clone(), corpus)
        };
        self.desired.corpora.iter().map(one).collect()
    }
}

fn corpus(state: &State) -> Value {
    let rollout = state.active.as_ref().map(|rollout| {
        let step = match rollout.phase {
            Phase::Load { step } | Phase::Bake { step } => Some(step),
            Phase::Retain | Phase::Back { .. } => None,
        };
        let failed: Vec<_> = rollout
            .failed
            .values()
            .map(|failed| json!({ "shard": failed.replica.shard, "node": failed.replica.node, "reason": failed.reason }))
            .collect();
        let to = rollout.request.to;
        json!({
            "id": rollout.request.id,
            "from": rollout.from,
            "to": to,
            "back": rollout.request.back,
            "by": rollout.request.by,
            "state": rollout.label(),
            "step": step,
            "steps": rollout.request.policy.steps.iter().map(|step| step.percent).collect::<Vec<_>>(),
            "stopped": rollout.stop.as_ref().map(|stop| match stop {
                Stop::Paused { by } => format!("paused by {by}"),
                Stop::Halted { reason } => format!("halted: {reason}"),
            }),
            "spent_ms": rollout.spent_ms,
            "waits": state.waits(),
            "left_ms": rollout.left_ms().filter(|_| rollout.stop.is_none()),
            // What is on a leaf that is away answers nobody.
            "resident": state.seen.placed.keys().map(|shard| state.seen.resident(to, shard)).sum::<usize>(),
            "replicas": state.seen.replicas().count(),
            "statistics_at_all_roots": state.seen.roots.contains(&to),
            "failed": failed,
        })
    });
    let ended: Vec<_> = state
        .ended
        .iter()
        .rev()
        .map(|ended| {
            json!({
                "id": ended.id, "from": ended.from, "to": ended.to,
                "back": ended.back, "outcome": ended.outcome.as_str(), "reason": ended.reason,
            })
        })
        .collect();
    json!({
        "live": state.live,
        "pins": state.route().pins(),
        "shards": state.seen.placed.len(),
        "rollout": rollout,
        "removing": state.removing,
        "needed": state.needed(),
        "waiting": state.waiting.as_ref().map(|request| json!({ "id": request.id, "to": request.to, "by": request.by })),
        "ended": ended,
    })
}
