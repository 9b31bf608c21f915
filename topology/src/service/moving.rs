//! What is on its way: which shards are moved, what that waits for, and when a leaf that was emptied can be forgotten.
//!
//! The failure this prevents: a move that waits for something that nobody names, and a leaf that can't be forgotten for a reason
//! that is not the reason. Rule: whatever waits says for what, and for how long where that is known.

use canopy_common::ids::{NodeId, ShardId};
use serde_json::{Value, json};

use super::{
    control::Control,
    placing::{Placing, all_answer},
};
use crate::{
    config::Role,
    error::{Error, Result},
    rollout::State,
    span,
};

impl Control {
    /// Forgets a node that is away for good.
    pub fn forget(&mut self, node: &NodeId, by: &str) -> Result<Vec<String>> {
        let shown: String = node.0.chars().take(80).collect();
        if self.desired.nodes.get(node).is_none_or(|record| record.role == Role::Topology) {
            return Err(Error::invalid("node", format!("there is no node {shown:?}")));
        }
        if self.is_here(node) {
            return Err(Error::Refused(format!(
                "{node} is here; stop it, it is forgotten when its lease is out"
            )));
        }
        for (corpus, state) in &self.desired.corpora {
            let target = self.desired.placings.get(corpus).into_iter().flat_map(|placing| &placing.target);
            let holds =
                |(shard, nodes): (&ShardId, &Vec<NodeId>)| nodes.contains(node).then(|| shard.to_string());
            let leaves = self.desired.placings.get(corpus).is_some_and(|placing| {
                !placing.target.is_empty() && !placing.target.values().any(|nodes| nodes.contains(node))
            });
            if let Some(shard) = state.seen.placed.iter().find_map(holds).filter(|_| leaves) {
                let what =
                    self.holds_up(corpus).unwrap_or_else(|| "every shard answers elsewhere".to_owned());
                return Err(Error::Refused(format!(
                    "{node} is being emptied, and is asked for {shard} of {corpus} until {what}; forget it then"
                )));
            }
            if let Some(shard) = state.seen.placed.iter().chain(target).find_map(holds) {
                return Err(Error::Refused(format!(
                    "{shard} of {corpus} is placed on {node}; move it first: canopy topology place --corpus {corpus} --remove {node}"
                )));
            }
        }
        self.desired.nodes.remove(node);
        self.presence.remove(node);
        self.roots.remove(node);
        self.batches.remove(node);
        let done = format!("{by} forgets {node}");
        self.note_audit(done.clone());
        self.tell_roots();
        self.refresh();
        Ok(vec![done])
    }

    /// What is placed and what is moved, of a corpus.
    pub(super) fn placing_status(&self, corpus: &str, state: &State) -> Value {
        let nothing = Placing::default();
        let placing = self.desired.placings.get(corpus).unwrap_or(&nothing);
        let on_its_way = |(shard, nodes): &(&ShardId, &Vec<NodeId>)| {
            state.seen.placed.get(*shard) != Some(*nodes) || !all_answer(state, shard, nodes)
        };
        let moving = placing.target.iter().filter(on_its_way);
        json!({
            "by": if self.configured.contains(corpus) { "the configuration" } else { placing.by.as_str() },
            "replicas": placing.replicas,
            "moving": moving.map(|(shard, _)| shard.to_string()).collect::<Vec<_>>(),
            "waits": if placing.target.is_empty() { None } else { self.holds_up(corpus) },
        })
    }

    /// What has to be over before a shard that was moved is dropped where it was; `None`: nothing but the new replicas.
    pub(super) fn holds_up(&self, corpus: &str) -> Option<String> {
        let state = self.desired.corpora.get(corpus)?;
        let Some(active) = &state.active else {
            let found = state.live.is_none() && self.said_of(corpus).is_any();
            return found.then(|| format!("a version of {corpus} is live"));
        };
        let left = active.left_ms().map_or_else(String::new, |left| format!(", {} left", span::words(left)));
        Some(format!("the rollout to {} is over ({}{left})", active.request.to, active.label()))
    }
}
