//! Shards that are placed by the service: which leaves should hold them is computed ([`crate::placement`]), shown, and reached
//! step by step.
//!
//! Load first, drop after: while a shard is moved its old replicas stay and the new ones are added; the old ones go when every new
//! one answers from the version that serves, and no rollout is under way. So no query ever finds fewer replicas of a shard than
//! the smaller of what it had and what it shall have, and a service that starts again goes on where it was.
//!
//! What is placed are the shards of all versions that are kept: more shards are placed before a version with more of them is
//! rolled out, and those that no version has any more may go after one with fewer.
//!
//! Rule: a placement in the service's configuration beats a computed one; a corpus that has one is not placed here. Nothing is
//! moved unless somebody asks for it: a leaf that joins stays empty until the next `canopy topology place`.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use canopy_common::ids::{NodeId, ShardId, Version, valid_name};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{
    control::Control,
    found::{Found, as_it_is},
};
use crate::{
    config::{MAX_SHARDS_PER_GROUP, Role},
    error::{Error, Result},
    placement::{Capacity, CorpusShard, Desired, Group, Leaf, Placed, Plan, ShardNeeds, place, plan},
    rollout::{Event, Replica, State},
};

/// Where the shards of a corpus are to be. Stored.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Placing {
    /// Replicas wanted of each shard, by group.
    pub replicas: BTreeMap<String, u32>,
    /// Who shall hold each shard, while that is not so yet.
    pub target: BTreeMap<ShardId, Vec<NodeId>>,
    /// Who wanted it.
    pub by: String,
}

/// What somebody wants of a placement.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PlaceAsked {
    /// Of which corpus.
    pub corpus: String,
    /// Whose replicas and shards; empty: all of it.
    pub group: String,
    /// Of each shard; 0: as many as now.
    pub replicas: u32,
    /// Of the group; 0: as many as now.
    pub shards: u32,
    /// Leaves that are emptied.
    pub remove: Vec<NodeId>,
    /// The plan that was shown; empty: whatever comes out.
    pub plan: String,
    /// Who.
    pub by: String,
}

/// A placement that could be.
struct Proposal {
    replicas: BTreeMap<String, u32>,
    target: BTreeMap<ShardId, Vec<NodeId>>,
    plan: Plan,
    unmet: Vec<String>,
    /// What it goes on from where no version is live.
    found: Found,
    /// Whether the size of any shard is known.
    sized: bool,
    /// Why it can't be done.
    refused: Option<String>,
}

const NO_MORE: &str = "its placement is in the configuration of the topology service, which beats one that is computed: \
                       take it out of [[topology.placements]] there and restart the service";

impl Control {
    /// Plans, or also begins; what was done, and the plan.
    pub fn place(&mut self, asked: &PlaceAsked, dry_run: bool) -> Result<(Vec<String>, Value)> {
        let proposal = self.propose(asked)?;
        let document = proposal.document(asked);
        if dry_run {
            return Ok((Vec::new(), document));
        }
        // What was agreed to is done, or nothing.
        let made = proposal.name(asked);
        if !asked.plan.is_empty() && asked.plan != made {
            let shown: String = asked.plan.chars().take(80).collect();
            return Err(Error::Refused(format!(
                "plan {shown} is not what would be done now, which is plan {made} with {} moves: leaves, sizes or placements \
                 changed since it was shown; nothing was done, look at it again",
                proposal.plan.moves.len()
            )));
        }
        if let Some(reason) = proposal.refused {
            return Err(Error::Refused(reason));
        }
        let Proposal { replicas, target, plan, found, sized, .. } = proposal;
        let fetched = if sized { format!(", {} bytes are fetched", plan.bytes) } else { String::new() };
        let mut done =
            vec![format!("{} places {}: {} moves{fetched}", asked.by, asked.corpus, plan.moves.len())];
        for node in &asked.remove {
            if let Some(record) = self.desired.nodes.get_mut(node) {
                // It answers until others do.
                record.emptied = true;
                done.push(format!("{} empties {node}", asked.by));
            }
        }
        let at_first: BTreeMap<_, _> = target
            .keys()
            .filter_map(|shard| Some((shard.clone(), found.placed.get(shard)?.clone())))
            .collect();
        let placing = Placing { replicas, target, by: asked.by.clone() };
        self.desired.placings.insert(asked.corpus.clone(), placing);
        self.desired.corpora.entry(asked.corpus.clone()).or_default();
        if !at_first.is_empty() {
            self.apply(&asked.corpus, Event::Placed(at_first));
        }
        done.extend(found.warnings(&asked.corpus));
        if let (false, Some(what)) = (plan.moves.is_empty(), self.holds_up(&asked.corpus)) {
            done.push(format!(
                "nothing is dropped before {what}; canopy rollout status shows how far that is"
            ));
        }
        for line in &done {
            self.note_audit(line.clone());
        }
        self.advance_placings();
        self.refresh();
        Ok((done, document))
    }

    /// Notes how much a replica of a shard takes.
    pub(super) fn measure(&mut self, corpus: &str, shard: &ShardId, bytes: u64, memory: u64) {
        let key = CorpusShard { corpus: corpus.into(), shard: shard.clone() };
        let size = self.sizes.entry(key).or_default();
        *size = (size.0.max(bytes), size.1.max(memory));
    }

    /// Takes a placement of the configuration over: at once where there was none, else like any other move.
    pub(super) fn place_as_configured(&mut self, corpus: &str, placed: BTreeMap<ShardId, Vec<NodeId>>) {
        self.configured.insert(corpus.to_owned());
        let known = self.desired.corpora.entry(corpus.to_owned()).or_default();
        if known.seen.placed == placed {
            self.desired.placings.remove(corpus);
            return;
        }
        self.note_audit(format!("{corpus}: placed by the configuration: {} shards", placed.len()));
        let by = "the configuration".to_owned();
        let placing = Placing { replicas: BTreeMap::new(), target: placed, by };
        self.desired.placings.insert(corpus.to_owned(), placing);
        self.advance_placings();
    }

    /// Goes on with what is moved, as far as it can.
    pub(super) fn advance_placings(&mut self) {
        let moving: Vec<String> = self
            .desired
            .placings
            .iter()
            .filter(|(_, placing)| !placing.target.is_empty())
            .map(|(corpus, _)| corpus.clone())
            .collect();
        for corpus in moving {
            let (Some(state), Some(placing)) =
                (self.desired.corpora.get(&corpus), self.desired.placings.get(&corpus))
            else {
                continue;
            };
            let said = if state.live.is_none() { self.said_of(&corpus).placed } else { BTreeMap::new() };
            let next = between(state, &placing.target, &said);
            let there =
                next == placing.target && next.iter().all(|(shard, nodes)| all_answer(state, shard, nodes));
            if next != state.seen.placed {
                self.apply(&corpus, Event::Placed(next));
            }
            if there {
                self.note_audit(format!("{corpus}: every shard is where it shall be"));
                if let Some(placing) = self.desired.placings.get_mut(&corpus) {
                    placing.target.clear();
                }
            }
        }
    }

    fn propose(&self, asked: &PlaceAsked) -> Result<Proposal> {
        let groups = self.groups(asked)?;
        let desired = Desired { leaves: self.pool(asked)?, groups };
        let named = |(shard, nodes)| {
            let corpus = asked.corpus.as_str().into();
            (CorpusShard { corpus, shard }, nodes)
        };
        let found = self.found(&asked.corpus);
        let last: Placed = self.stands(&asked.corpus, &found).into_iter().map(named).collect();
        let mut made = place(&desired, &last).map_err(|problems| {
            let (key, reason) = problems.into_iter().next().unwrap_or_default();
            Error::invalid(key, reason)
        })?;
        if found.is_any() {
            made = as_it_is(&desired, &last, made);
        }
        let mut plan = plan(&desired, &last, &made.placed);
        plan.warnings.extend(self.absent(&plan));
        plan.warnings.extend(found.warnings(&asked.corpus));
        let sized = self.sizes.keys().any(|shard| *shard.corpus == *asked.corpus);
        if !sized {
            plan.warnings.push(
                "how large the shards are is not known before a leaf holds one: all count alike; place again later to see whether \
                 the bytes are even too"
                    .to_owned(),
            );
        }
        let wanted = |shard: &CorpusShard| {
            let group = desired.groups.iter().find(|group| *group.name == *shard.shard.group);
            group.map_or(0, |group| group.replicas as usize)
        };
        let short = made.placed.iter().any(|(shard, nodes)| nodes.len() < wanted(shard));
        let refused = if self.configured.contains(&asked.corpus) {
            Some(format!("{}: {NO_MORE}", asked.corpus))
        } else {
            short.then(|| made.unmet.join("; "))
        };
        let target = made.placed.into_iter().map(|(shard, nodes)| (shard.shard, nodes)).collect();
        let replicas = desired.groups.iter().map(|group| (group.name.clone(), group.replicas)).collect();
        Ok(Proposal { replicas, target, plan, unmet: made.unmet, found, sized, refused })
    }

    /// The groups of the corpus, as they are wanted.
    fn groups(&self, asked: &PlaceAsked) -> Result<Vec<Group>> {
        if !valid_name(&asked.corpus) {
            return Err(Error::invalid("corpus", "it is not a name; use a-z, 0-9, - and _"));
        }
        let mut known = self.placed_groups(&asked.corpus);
        let new = if asked.group.is_empty() { "main" } else { &asked.group };
        if asked.shards > MAX_SHARDS_PER_GROUP {
            let message = format!("{} shards; write 1 to {MAX_SHARDS_PER_GROUP}", asked.shards);
            return Err(Error::invalid("shards", message));
        }
        if asked.shards > 0 {
            let (numbers, _) = known.entry(new.to_owned()).or_default();
            if let Some((version, shard)) = self.kept(&asked.corpus, new, asked.shards) {
                let message = format!(
                    "{new} has {} shards, and {version} has {shard}; they go when no version that is kept has them",
                    numbers.len()
                );
                return Err(Error::invalid("shards", message));
            }
            numbers.retain(|number| *number < asked.shards);
            numbers.extend(0..asked.shards);
        }
        if known.is_empty() {
            let message =
                format!("{:?} is not placed yet; say how many shards it has, and replicas", asked.corpus);
            return Err(Error::invalid("corpus", message));
        }
        if !asked.group.is_empty() && !known.contains_key(&asked.group) {
            let names: Vec<String> = known.into_keys().collect();
            let message = format!("there is none of that name; placed are: {}", names.join(", "));
            return Err(Error::invalid("group", message));
        }
        known.into_iter().map(|(name, (numbers, most))| self.group(asked, name, &numbers, most)).collect()
    }

    /// A placed shard from number `least` on that a version has, or may have, which is kept; also one that leaves only say they hold.
    fn kept(&self, corpus: &str, group: &str, least: u32) -> Option<(Version, ShardId)> {
        let beyond = |shard: &&ShardId| *shard.group == *group && shard.number >= least;
        let found = self.found(corpus);
        if let Some((version, shard)) = found.versions.last().zip(found.placed.keys().find(beyond)) {
            return Some((*version, shard.clone()));
        }
        let state = self.desired.corpora.get(corpus)?;
        state.seen.placed.keys().filter(beyond).find_map(|shard| {
            let has = |version: &Version| !state.seen.lacks(*version, shard);
            Some((state.pinned().into_iter().find(has)?, shard.clone()))
        })
    }

    /// Of each group: its shards, and the most replicas that one of them has or shall have.
    fn placed_groups(&self, corpus: &str) -> BTreeMap<String, (BTreeSet<u32>, u32)> {
        let placing = self.desired.placings.get(corpus);
        let target = placing.map(|placing| &placing.target).filter(|target| !target.is_empty());
        let stands = self.stands(corpus, &self.found(corpus));
        let mut known: BTreeMap<String, (BTreeSet<u32>, u32)> = BTreeMap::new();
        for (shard, nodes) in target.unwrap_or(&stands) {
            let (numbers, most) = known.entry(shard.group.to_string()).or_default();
            numbers.insert(shard.number);
            *most = (*most).max(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
        }
        known
    }

    fn group(&self, asked: &PlaceAsked, name: String, numbers: &BTreeSet<u32>, most: u32) -> Result<Group> {
        if numbers.iter().next_back().is_some_and(|last| *last as usize + 1 != numbers.len()) {
            let message = format!(
                "{name}: its placed shards have gaps; place 0 to the last with the configuration first"
            );
            return Err(Error::invalid("group", message));
        }
        let placing = self.desired.placings.get(&asked.corpus);
        let before = placing.and_then(|placing| placing.replicas.get(&name).copied()).unwrap_or(most);
        let ours = asked.group.is_empty() || asked.group == name;
        let replicas = if ours && asked.replicas > 0 { asked.replicas } else { before };
        let corpus: Arc<str> = asked.corpus.as_str().into();
        let size = |number: &u32| {
            let shard = ShardId::new(&name, *number);
            self.sizes.get(&CorpusShard { corpus: corpus.clone(), shard }).copied()
        };
        // What nobody has reported yet counts alike, and like the mean of what somebody has.
        let known: Vec<(u64, u64)> = numbers.iter().filter_map(size).collect();
        let mean = |of: fn(&(u64, u64)) -> u64| {
            let sum: u128 = known.iter().map(|size| u128::from(of(size))).sum();
            u64::try_from(sum / (known.len() as u128).max(1)).unwrap_or(u64::MAX)
        };
        let unknown = (mean(|size| size.0), mean(|size| size.1));
        let needs = |number: &u32| {
            let (disk, memory) = size(number).unwrap_or(unknown);
            ShardNeeds { memory: memory.max(1), disk: disk.max(1), replicas: None }
        };
        let shards = numbers.iter().map(needs).collect();
        Ok(Group { corpus: corpus.clone(), name, class: None, replicas, shards })
    }

    /// Leaves that the corpus can be placed on, with what other corpora leave of them.
    fn pool(&self, asked: &PlaceAsked) -> Result<BTreeMap<NodeId, Leaf>> {
        for node in &asked.remove {
            if self.desired.nodes.get(node).is_none_or(|record| record.role != Role::Leaf) {
                let node: String = node.0.chars().take(80).collect();
                return Err(Error::invalid("remove", format!("there is no leaf {node:?}")));
            }
        }
        let (mut others, mut holds): (BTreeMap<&NodeId, (u64, u64)>, BTreeSet<&NodeId>) = Default::default();
        for (corpus, state) in &self.desired.corpora {
            for (shard, nodes) in &state.seen.placed {
                if *corpus == asked.corpus {
                    holds.extend(nodes);
                    continue;
                }
                let key = CorpusShard { corpus: corpus.as_str().into(), shard: shard.clone() };
                let size = self.sizes.get(&key).copied().unwrap_or_default();
                for node in nodes {
                    let taken = others.entry(node).or_default();
                    *taken = (taken.0.saturating_add(size.0), taken.1.saturating_add(size.1));
                }
            }
        }
        let leaves = self.desired.nodes.iter().filter(|(_, record)| record.role == Role::Leaf);
        let leaf = |(id, record): (&NodeId, &super::desired::NodeRecord)| {
            // One that is away and holds nothing may never come.
            if !self.is_here(id) && !holds.contains(id) {
                return None;
            }
            let (disk, memory) = others.get(id).copied().unwrap_or_default();
            // A rollout holds two versions at once. What a leaf does not say does not limit it.
            let room = |stated: u64, taken: u64| {
                if stated == 0 { UNKNOWN } else { (stated / 2).saturating_sub(taken) }
            };
            let Capacity { memory: all, disk: space, cores } = record.capacity;
            let capacity =
                Capacity { memory: room(all, memory), disk: room(space, disk), cores: cores.max(1) };
            let draining = record.emptied || record.drained || record.leaving || asked.remove.contains(id);
            Some((id.clone(), Leaf { zone: record.zone.clone(), class: String::new(), capacity, draining }))
        };
        Ok(leaves.filter_map(leaf).collect())
    }

    /// Leaves that a plan loads on and that are away.
    fn absent(&self, plan: &Plan) -> Vec<String> {
        let loads: BTreeSet<&NodeId> = plan.moves.iter().filter_map(|it| it.load.as_ref()).collect();
        let away = loads.into_iter().filter(|node| !self.is_here(node));
        away.map(|node| format!("{node} is away: what it shall load waits for it")).collect()
    }
}

/// What a leaf that does not say counts as: so much that nothing ever takes it up, and sums of it stay exact enough.
const UNKNOWN: u64 = 1 << 50;

/// Whether all of these answer from the version that serves.
pub(super) fn all_answer(state: &State, shard: &ShardId, nodes: &[NodeId]) -> bool {
    let Some(live) = state.live else { return true };
    nodes.iter().all(|node| {
        let replica = Replica { shard: shard.clone(), node: node.clone() };
        state.seen.holds(live, &replica) && !state.seen.away.contains(node)
    })
}

/// The placement that can be had now on the way to another: of each shard the next when that answers, else both; and before a
/// version is live the old one, where leaves say that they hold it.
fn between(
    state: &State,
    target: &BTreeMap<ShardId, Vec<NodeId>>,
    said: &BTreeMap<ShardId, Vec<NodeId>>,
) -> BTreeMap<ShardId, Vec<NodeId>> {
    let (placed, none) = (&state.seen.placed, Vec::new());
    let mut next = BTreeMap::new();
    for (shard, new) in target {
        let old = placed.get(shard).unwrap_or(&none);
        let mut both: Vec<NodeId> =
            old.iter().chain(new.iter().filter(|node| !old.contains(node))).cloned().collect();
        // A rollout counts its replicas: none goes under it.
        let found = said.get(shard).is_some_and(|nodes| old.iter().any(|node| nodes.contains(node)));
        if found {
            both.clone_from(old);
        } else if state.active.is_none() && all_answer(state, shard, new) {
            both.clone_from(new);
        }
        next.insert(shard.clone(), both);
    }
    // Shards that shall be no more go when all others are where they shall be.
    if next.iter().any(|(shard, nodes)| target.get(shard) != Some(nodes)) {
        let gone = placed.iter().filter(|(shard, _)| !target.contains_key(*shard));
        next.extend(gone.map(|(shard, nodes)| (shard.clone(), nodes.clone())));
    }
    next
}

impl Proposal {
    /// Its name: the same for what does the same, whatever its bytes are measured to be meanwhile.
    fn name(&self, asked: &PlaceAsked) -> String {
        let moves: Vec<Value> =
            self.plan.moves.iter().map(|one| json!([one.shard, one.load, one.drop])).collect();
        let remove: BTreeSet<&NodeId> = asked.remove.iter().collect();
        let what =
            json!([asked.corpus, remove, self.replicas, self.target.iter().collect::<Vec<_>>(), moves]);
        format!("{:016x}", xxhash_rust::xxh3::xxh3_64(what.to_string().as_bytes()))
    }

    fn document(&self, asked: &PlaceAsked) -> Value {
        json!({
            "corpus": asked.corpus,
            "plan": self.name(asked),
            "replicas": self.replicas,
            "moves": self.plan.moves,
            "bytes": self.sized.then_some(self.plan.bytes),
            "total_bytes": self.sized.then_some(self.plan.total_bytes),
            "warnings": self.plan.warnings,
            "unmet": self.unmet,
            "refused": self.refused,
        })
    }
}

#[cfg(test)]
mod tests;
