//! What leaves say that they hold of a corpus of which no version is live: the service's store was lost, or the leaves served the
//! corpus from a file before there was a service.
//!
//! The failure this prevents: a service that places such a corpus as if it were new, by another placement than the one that
//! serves, so that shards are loaded where they are not and dropped where they are. Rules: the first placement is what is
//! there; as long as no version is live nothing is moved away from a leaf that answers.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::{NodeId, ShardId, Version};
use serde_json::{Value, json};

use super::control::Control;
use crate::{
    config::Role,
    placement::{CorpusShard, Desired, Placed, Placement},
    rollout::{Hold, Policy},
};

/// See the module.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Who answers from each shard, in rows.
    pub placed: BTreeMap<ShardId, Vec<NodeId>>,
    /// From which versions.
    pub versions: BTreeSet<Version>,
    /// Leaves that were not heard of since this service started: what they hold is not known.
    pub unheard: Vec<NodeId>,
}

impl Control {
    /// What leaves hold of a corpus; nothing where a version is live or comes.
    pub(super) fn found(&self, corpus: &str) -> Found {
        let known = self.desired.corpora.get(corpus);
        if known.is_some_and(|state| state.live.is_some() || state.active.is_some()) {
            return Found::default();
        }
        self.said_of(corpus)
    }

    /// What leaves that are here say that they hold of a corpus.
    pub(super) fn said_of(&self, corpus: &str) -> Found {
        let mut found = Found::default();
        let mut retiring: BTreeMap<ShardId, Vec<NodeId>> = BTreeMap::new();
        let is_leaf = |node: &NodeId| self.desired.nodes.get(node).is_some_and(|it| it.role == Role::Leaf);
        for (node, known) in self.presence.iter().filter(|(node, _)| is_leaf(node)) {
            if known.incarnation.is_none() {
                // Also when its time to come is over by now.
                found.unheard.push(node.clone());
            }
            if !known.here {
                continue;
            }
            let ours = |held: &&super::presence::Held| held.corpus == corpus && held.hold == Hold::Resident;
            for held in known.held.iter().filter(ours) {
                let Some(shard) = &held.shard else { continue };
                let lists = if held.retiring { &mut retiring } else { &mut found.placed };
                let nodes = lists.entry(shard.clone()).or_default();
                if nodes.last() != Some(node) {
                    nodes.push(node.clone());
                }
                if !held.retiring {
                    found.versions.insert(held.version);
                }
            }
        }
        for (shard, nodes) in retiring {
            found.placed.entry(shard).or_insert(nodes);
        }
        // Rows over all leaves: else the first row of every shard, which takes a new version first, would be the same few.
        for (shard, nodes) in &mut found.placed {
            let turn = shard.number as usize % nodes.len().max(1);
            nodes.rotate_left(turn);
        }
        found
    }

    /// Why a version can't be the first one here: leaves answer from another, beside which nobody would look at it.
    pub(super) fn compared_with_nothing(&self, corpus: &str, to: Version, policy: &Policy) -> Option<String> {
        let held = self.found(corpus).versions;
        let newest = held.last().filter(|_| !policy.is_at_once() && !held.contains(&to))?;
        Some(format!(
            "leaves answer {corpus} from {newest}, which is not live by what is stored here, so {to} would be compared with nothing; \
             begin with what serves: canopy rollout start --corpus {corpus} --version {} --at-once, and start {to} then; or \
             take {to} unseen, with --at-once",
            newest.0
        ))
    }

    /// Corpora that leaves hold and of which no version is live or comes: nodes answer them as before, and nothing can be done with
    /// them here.
    pub fn lost_status(&self) -> Value {
        let led = |corpus: &str| {
            let state = self.desired.corpora.get(corpus);
            state.is_some_and(|state| {
                state.live.is_some() || state.active.is_some() || state.waiting.is_some()
            })
        };
        let held = self.presence.values().filter(|known| known.here).flat_map(|known| known.held.iter());
        let held = held.filter(|held| held.shard.is_some() && held.hold == Hold::Resident && !held.retiring);
        let lost: BTreeSet<&str> =
            held.map(|held| held.corpus.as_str()).filter(|corpus| !led(corpus)).collect();
        let one = |corpus: &str| {
            let found = self.said_of(corpus);
            let leaves: BTreeSet<&NodeId> = found.placed.values().flatten().collect();
            json!({
                "corpus": corpus, "versions": found.versions, "shards": found.placed.len(), "leaves": leaves.len(),
                "placed": self.desired.corpora.contains_key(corpus),
            })
        };
        lost.into_iter().map(one).collect()
    }

    /// Where each shard of a corpus is: as it is placed, or as it was found.
    pub(super) fn stands(&self, corpus: &str, found: &Found) -> BTreeMap<ShardId, Vec<NodeId>> {
        let mut placed =
            self.desired.corpora.get(corpus).map_or_else(BTreeMap::new, |state| state.seen.placed.clone());
        placed.extend(found.placed.clone());
        placed
    }
}

impl Found {
    /// Whether there is something to go on from.
    pub fn is_any(&self) -> bool {
        !self.placed.is_empty()
    }

    /// What to know before it is placed.
    pub fn warnings(&self, corpus: &str) -> Vec<String> {
        if !self.is_any() {
            return Vec::new();
        }
        let versions: Vec<String> = self.versions.iter().map(ToString::to_string).collect();
        let newest = self.versions.last().map_or(0, |version| version.0);
        let mut warnings = vec![format!(
            "no version of {corpus} is live here, and leaves hold {} shards of {}: they are taken over where they are, and nothing \
             is moved away from them before one is: canopy rollout start --corpus {corpus} --version {newest} --at-once",
            self.placed.len(),
            if versions.is_empty() { "it".to_owned() } else { versions.join(", ") },
        )];
        if let Some(first) = self.unheard.first() {
            warnings.push(format!(
                "{} leaves were not heard of since the service started ({first}, …), and what they hold is not known: wait for \
                 them and look again",
                self.unheard.len()
            ));
        }
        warnings
    }
}

/// What was found as it is, where that is what is asked for: nothing is moved for a better balance before a version is live.
pub(super) fn as_it_is(desired: &Desired, last: &Placed, made: Placement) -> Placement {
    let stays = |node: &NodeId| desired.leaves.get(node).is_some_and(|leaf| !leaf.draining);
    let same = |(shard, nodes): (&CorpusShard, &Vec<NodeId>)| {
        last.get(shard).is_some_and(|before| before.len() == nodes.len() && before.iter().all(stays))
    };
    if !made.placed.iter().all(same) {
        return made;
    }
    let placed = made.placed.into_keys().filter_map(|shard| Some((shard.clone(), last.get(&shard)?.clone())));
    Placement { placed: placed.collect(), unmet: Vec::new() }
}
