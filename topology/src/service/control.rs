//! What the service does with what it hears: pure, so that every history can be tested; the loop around it stores and sends.
//!
//! Rules: a node that was not heard of for its lease is away, and back with its next word; after a start of the service
//! every known node has a whole lease to be heard of again; a version is ready at the roots when every root that is here
//! has its statistics. Units: monotonic time of this process.

use std::{
    collections::{BTreeMap, BTreeSet},
    iter,
    sync::Arc,
    time::Duration,
};

use canopy_common::{
    config::Section,
    ids::{Epoch, NodeId, ShardId, Version},
};
use canopy_proto::topology::JudgeTask;
use tokio::time::Instant;

use super::{
    desired::{Desired, NodeRecord},
    judging::{Judging, With},
    presence::Presence,
    replicas::Lacking,
};
use crate::{
    config::{Role, TopologyConfig},
    error::{Error, Result},
    gates::{Judgement, judged::JudgedQuery, wire::Seen},
    placement::CorpusShard,
    rollout::{Effect, Event, Policy, step},
    routing::{LAST_EPOCH, RoutingSnapshot, Trial},
};

/// How long a node is taken for here after its last word.
pub const LEASE: Duration = Duration::from_secs(3);

/// Nodes that one line of the audit log names.
pub(super) const NAMED: usize = 5;

/// The service's mind.
#[derive(Clone)]
pub struct Control {
    pub(super) desired: Desired,
    /// Nodes, as far as they were heard of since this service started.
    pub(super) presence: BTreeMap<NodeId, Presence>,
    /// Bytes on disk and in memory of a replica of each shard.
    pub(super) sizes: BTreeMap<CorpusShard, (u64, u64)>,
    /// Queries a second of each shard, over the last ten seconds or so.
    pub(super) heat: BTreeMap<CorpusShard, f64>,
    /// Since when replicas lack what they should hold.
    pub(super) lacking: Lacking,
    /// When nodes were judged last.
    pub(super) looked: Instant,
    /// Corpora that the configuration places.
    pub(super) configured: BTreeSet<String>,
    /// Nodes beyond which no new one is let in.
    pub(super) most_nodes: usize,
    /// Versions whose statistics each root has.
    pub(super) roots: BTreeMap<NodeId, BTreeSet<(String, Version)>>,
    snapshot: Arc<RoutingSnapshot>,
    judging: BTreeMap<String, Judging>,
    /// Of the trials that each root told of last.
    pub(super) batches: BTreeMap<NodeId, u64>,
    audit: Vec<String>,
}

impl Control {
    /// Goes on from what was stored. `fresh`: the epoch to begin at when nothing was, above all that another store gave.
    pub fn new(mut desired: Desired, fresh: Epoch, now: Instant) -> Self {
        // Above what was published before, which another build may have made of the same state.
        desired.epoch = if desired.epoch == Epoch(0) { fresh } else { Epoch(desired.epoch.0 + 1) };
        let presence = desired.nodes.iter().filter(|(_, record)| record.role != Role::Topology);
        let presence =
            presence.map(|(node, record)| (node.clone(), super::health::expected(record, now))).collect();
        let snapshot = Arc::new(desired.snapshot());
        let mut control = Self {
            desired,
            presence,
            sizes: BTreeMap::new(),
            heat: BTreeMap::new(),
            lacking: Lacking::new(),
            looked: now,
            configured: BTreeSet::new(),
            most_nodes: TopologyConfig::default().max_nodes as usize,
            roots: BTreeMap::new(),
            snapshot,
            judging: BTreeMap::new(),
            batches: BTreeMap::new(),
            audit: Vec::new(),
        };
        let corpora: Vec<String> = control.desired.corpora.keys().cloned().collect();
        for corpus in corpora {
            control.apply(&corpus, Event::Restarted);
        }
        control
    }

    /// What is to be stored.
    pub fn desired(&self) -> &Desired {
        &self.desired
    }

    /// The newest snapshot.
    pub fn snapshot(&self) -> &Arc<RoutingSnapshot> {
        &self.snapshot
    }

    /// What was done since it was last asked, for the audit log.
    pub fn audited(&mut self) -> Vec<String> {
        std::mem::take(&mut self.audit)
    }

    /// Takes over nodes and placements of the configuration. Nodes that only registered stay.
    pub fn configure(&mut self, config: &TopologyConfig) -> Result<()> {
        if let Some((key, reason)) = config.problems().into_iter().next() {
            return Err(Error::invalid(format!("topology.{key}"), reason));
        }
        self.most_nodes = config.max_nodes as usize;
        // Writers and leaves find an ingest in the file.
        for node in config.nodes.iter().filter(|node| node.role != Role::Ingest) {
            let id = NodeId::from(node.id.as_str());
            let new = NodeRecord::from(node);
            // One that never comes is away after a lease, like any other.
            if node.role != Role::Topology {
                self.presence.entry(id.clone()).or_insert_with(|| Presence::expected(self.looked));
            }
            let record = self.desired.nodes.entry(id).or_insert_with(|| new.clone());
            let NodeRecord { role, address, admin, zone, .. } = new;
            *record = NodeRecord { role, address, admin, zone, ..record.clone() };
        }
        let mut placed: BTreeMap<&str, BTreeMap<ShardId, Vec<NodeId>>> = BTreeMap::new();
        for placement in &config.placements {
            let nodes: Vec<NodeId> =
                placement.replicas.iter().map(|leaf| NodeId::from(leaf.as_str())).collect();
            let shards = placement.shards.iter().filter_map(|shard| shard.parse().ok());
            placed.entry(&placement.corpus).or_default().extend(shards.map(|shard| (shard, nodes.clone())));
        }
        for (corpus, placed) in placed {
            self.place_as_configured(corpus, placed);
        }
        for placement in config.placements.iter().filter(|placement| placement.version > 0) {
            let state = &self.desired.corpora[&placement.corpus];
            if state.live.is_none() && state.active.is_none() {
                let (to, by, policy) =
                    (Version(placement.version), "the configuration".to_owned(), Policy::default());
                self.apply(&placement.corpus, Event::Start { to, by, policy, supersede: false });
            }
        }
        self.refresh();
        Ok(())
    }

    /// A command on a corpus. Errors: no such corpus, or why it was refused.
    pub fn command(&mut self, corpus: &str, event: Event) -> Result<Vec<String>> {
        self.known(corpus)?;
        let before = self.audit.len();
        let refused = self.apply(corpus, event);
        // A version that is wanted from now on may be open at the roots already.
        self.tell_roots();
        self.refresh();
        match refused {
            Some(reason) => Err(Error::Refused(reason)),
            None => Ok(self.audit[before..].to_vec()),
        }
    }

    /// The rollouts of a corpus.
    pub fn known(&self, corpus: &str) -> Result<&crate::rollout::State> {
        self.desired.corpora.get(corpus).ok_or_else(|| {
            let names: Vec<_> = self.desired.corpora.keys().cloned().collect();
            let found = self.said_of(corpus);
            if found.is_any() {
                let message = format!(
                    "{corpus} is not placed here, and leaves hold {} shards of it (has the service lost its store?); place it first, \
                     which takes them over where they are: canopy topology place --corpus {corpus}",
                    found.placed.len()
                );
                return Error::invalid("corpus", message);
            }
            let corpus: String = corpus.chars().take(80).collect();
            let placed = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            let message = format!(
                "corpus {corpus:?} is not placed, and placed are: {placed}; place it first: canopy topology place --corpus {corpus} \
                 --shards N --replicas N"
            );
            Error::invalid("corpus", message)
        })
    }

    /// An operator wants a node empty of queries, or back.
    pub fn drain(&mut self, node: &NodeId, undo: bool, by: &str) -> Result<Vec<String>> {
        let Some(record) = self.desired.nodes.get_mut(node) else {
            let node: String = node.0.chars().take(80).collect();
            return Err(Error::invalid("node", format!("there is no node {node:?}")));
        };
        if record.role != Role::Leaf {
            let role = record.role.as_str();
            let message =
                format!("{node} is a {role}; only leaves are drained here: stop it, it leaves by itself");
            return Err(Error::invalid("node", message));
        }
        if record.drained != undo && !(undo && record.emptied) {
            let state = if undo { "not drained" } else { "drained already" };
            return Ok(vec![format!("{node} is {state}; nothing was changed")]);
        }
        record.drained = !undo;
        // Taken back, it may hold shards again.
        record.emptied &= !undo;
        let done = format!("{by} {} {node}", if undo { "takes back" } else { "drains" });
        self.audit.push(done.clone());
        self.refresh();
        let alone = if undo { None } else { self.alone(node) };
        Ok(iter::once(done).chain(alone).collect())
    }

    /// What is to be known of a node that is drained: the shards that no other leaf would answer.
    fn alone(&self, node: &NodeId) -> Option<String> {
        let answers = |node: &NodeId| {
            let record = self.desired.nodes.get(node);
            self.is_here(node) && record.is_some_and(|it| !it.drained && !it.emptied && !it.leaving)
        };
        let only = self.desired.corpora.iter().flat_map(|(corpus, state)| {
            let shards = state.seen.placed.iter();
            let ours = shards.filter(|(_, nodes)| nodes.contains(node) && !nodes.iter().any(answers));
            ours.map(move |(shard, _)| format!("{corpus} {shard}"))
        });
        let only: Vec<String> = only.collect();
        (!only.is_empty()).then(|| {
            format!(
                "do not stop {node}: no other leaf that is here and not drained holds {}; queries go to it until one does",
                some(&only)
            )
        })
    }

    /// Time went by.
    pub fn tick(&mut self, elapsed: Duration, now: Instant) {
        if elapsed > LEASE / 2 {
            // It was this process that stood still: everybody has a whole lease to be heard of again.
            self.presence
                .values_mut()
                .filter(|known| known.here)
                .for_each(|known| known.at = known.at.max(now));
        }
        self.lapse(now);
        self.look_when_due(now);
        self.settle_health();
        self.tell_roots();
        let busy: Vec<String> = self
            .desired
            .corpora
            .iter()
            .filter(|(_, state)| state.active.is_some())
            .map(|(name, _)| name.clone())
            .collect();
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        for corpus in busy {
            // What was seen counts before the time does: the last look of a step comes before the next step.
            self.judge(&corpus, elapsed_ms);
            self.apply(&corpus, Event::Tick { elapsed_ms });
        }
        self.advance_placings();
        self.refresh();
    }

    /// A line of the audit log.
    pub(super) fn note_audit(&mut self, line: String) {
        self.audit.push(line);
    }

    /// What a root saw of a trial.
    pub(super) fn compare(&mut self, seen: &Seen) {
        if let Some(judging) = self.judging.get_mut(&seen.corpus) {
            judging.take(seen);
        }
    }

    /// Judges the trial of a corpus, as far as it was seen.
    fn judge(&mut self, corpus: &str, elapsed_ms: u64) {
        let active = self.desired.corpora.get(corpus).and_then(|state| state.active.as_ref());
        let last = active.is_some_and(|rollout| rollout.step_ends(elapsed_ms));
        let Some(judging) = self.judging.get_mut(corpus) else { return };
        let before = judging.looks();
        let judged = judging.judge(last);
        if judging.looks() != before {
            self.desired.gates.insert(corpus.to_owned(), Arc::new(judging.kept()));
        }
        if let Some(judged) = judged {
            self.apply(corpus, judged);
        }
    }

    /// The judgement that is being made, for people.
    pub(super) fn judgement(&self, corpus: &str) -> Option<Judgement> {
        self.judging.get(corpus).map(Judging::now)
    }

    /// Trials whose judged queries a root is to ask.
    pub(super) fn judge_tasks(&mut self, root: &NodeId) -> Vec<JudgeTask> {
        let (presence, nodes) = (&self.presence, &self.desired.nodes);
        let here = |node: &NodeId| {
            presence.get(node).is_some_and(|known| known.here)
                && nodes.get(node).is_some_and(|it| it.role == Role::Root && !it.leaving)
        };
        if !here(root) {
            return Vec::new();
        }
        let asked = self.judging.values_mut().filter_map(|judging| {
            judging.asks(root, here).then(|| {
                let Seen { corpus, versions: (version, control), gate, .. } = judging.of().clone();
                JudgeTask { corpus, version, control, gate }
            })
        });
        asked.collect()
    }

    /// The judged queries of a gate. Errors: there is no such gate any more.
    pub(super) fn judged_queries(&self, corpus: &str, gate: u64) -> Result<Vec<JudgedQuery>> {
        let active = self.known(corpus)?.active.as_ref().filter(|rollout| rollout.trial() == gate);
        let active = active.ok_or_else(|| Error::Refused(format!("gate {gate} of {corpus} is over")))?;
        active.request.policy.judged.queries().map_err(|reason| Error::invalid("judged", reason))
    }

    /// Who was not heard of for too long is away.
    fn lapse(&mut self, now: Instant) {
        let late = self.late(now);
        if late.is_empty() {
            return;
        }
        for node in &late {
            if let Some(known) = self.presence.get_mut(node) {
                known.here = false;
            }
            self.roots.remove(node);
            self.tell(node, true);
        }
        let said = |node: &NodeId| self.desired.nodes.get(node).is_some_and(|record| record.leaving);
        let (left, lost): (Vec<NodeId>, Vec<NodeId>) = late.into_iter().partition(said);
        let lines = [
            (left, ["has left, as it said", "have left, as they said"].map(str::to_owned)),
            (lost, ["is", "are"].map(|are| format!("{are} away: not heard of for {LEASE:?}"))),
        ];
        for (nodes, [one, more]) in lines.into_iter().filter(|(nodes, _)| !nodes.is_empty()) {
            let word = if nodes.len() == 1 { one } else { more };
            self.audit.push(format!("{} {word}", some(&nodes)));
        }
    }

    /// Whose lease is out by now.
    fn late(&self, now: Instant) -> Vec<NodeId> {
        let late = |known: &Presence| known.here && now.saturating_duration_since(known.at) > LEASE;
        self.presence.iter().filter(|(_, known)| late(known)).map(|(node, _)| node.clone()).collect()
    }

    /// Whether time that went by changes nothing that is stored.
    pub(super) fn rests(&self, elapsed: Duration, now: Instant) -> bool {
        elapsed <= LEASE / 2
            && self.late(now).is_empty()
            && self.desired.corpora.values().all(|state| state.active.is_none())
            && self.settled()
    }

    /// Whether a node is here.
    pub(super) fn is_here(&self, node: &NodeId) -> bool {
        self.presence.get(node).is_some_and(|known| known.here)
    }

    /// Tells the corpora that have the node whether it is away.
    pub(super) fn tell(&mut self, node: &NodeId, away: bool) {
        let placed: Vec<String> = self
            .desired
            .corpora
            .iter()
            .filter(|(_, state)| {
                state.seen.away.contains(node) != away
                    && state.seen.placed.values().any(|nodes| nodes.contains(node))
            })
            .map(|(name, _)| name.clone())
            .collect();
        for corpus in placed {
            self.apply(&corpus, Event::Node { node: node.clone(), away });
        }
        if self.desired.nodes.get(node).is_some_and(|record| record.role == Role::Root) {
            self.tell_roots();
        }
    }

    /// Tells the corpora which versions every root has.
    pub(super) fn tell_roots(&mut self) {
        let mut here: Vec<&BTreeSet<(String, Version)>> = Vec::new();
        for (id, record) in self.desired.nodes.iter().filter(|(_, record)| record.role == Role::Root) {
            if record.leaving || !self.is_here(id) {
                continue;
            }
            // Until every root was heard since this service started, the roots are as they were.
            let Some(has) = self.roots.get(id) else { return };
            here.push(has);
        }
        // A root that lacks what is live has just joined, and answers nobody yet.
        let live =
            || self.desired.corpora.iter().filter_map(|(name, state)| Some((name.clone(), state.live?)));
        let ready: Vec<_> =
            here.iter().filter(|has| live().all(|version| has.contains(&version))).copied().collect();
        let mut sets = if ready.is_empty() { here } else { ready }.into_iter().cloned();
        let everywhere =
            sets.next().map(|first| sets.fold(first, |all, next| &all & &next)).unwrap_or_default();
        let corpora: Vec<String> = self.desired.corpora.keys().cloned().collect();
        for corpus in corpora {
            let of_corpus = everywhere.iter().filter(|(name, _)| *name == corpus);
            self.apply(&corpus, Event::Roots(of_corpus.map(|(_, version)| *version).collect()));
        }
    }

    /// One step of a corpus; why it was refused.
    pub(super) fn apply(&mut self, corpus: &str, event: Event) -> Option<String> {
        let state = self.desired.corpora.get(corpus)?;
        let (next, effects) = step(state, event);
        if next != *state {
            self.desired.corpora.insert(corpus.to_owned(), next);
        }
        let mut refused = None;
        for effect in effects {
            match effect {
                Effect::Audit { what, .. } => self.audit.push(format!("{corpus}: {what}")),
                Effect::Refused { reason } => refused = Some(reason),
                Effect::Judge { gate, trial, version, control, step, judged, baseline, unlike } => {
                    let trial = Trial { version, control, shadow: 0, compared: 0, gate: trial };
                    let with = With { judged, baseline, unlike };
                    let mut judging = Judging::begin(corpus, gate, &trial, &step, with);
                    if !self.desired.gates.get(corpus).is_some_and(|kept| judging.resume(kept)) {
                        self.desired.gates.remove(corpus);
                    }
                    self.judging.insert(corpus.to_owned(), judging);
                }
                // Snapshots are made from the state.
                Effect::Load { .. } | Effect::Drop { .. } | Effect::Route(_) => {}
            }
        }
        if self.desired.corpora.get(corpus).is_none_or(|state| state.active.is_none()) {
            self.judging.remove(corpus);
            self.desired.gates.remove(corpus);
        }
        refused
    }

    /// A node goes by an epoch above all of this service's: its store is older than the tree. What it says from now on is newer.
    pub(super) fn overtake(&mut self, epoch: Epoch) {
        let own = self.desired.epoch;
        if epoch > own && epoch < LAST_EPOCH {
            self.audit
                .push(format!("a node goes by epoch {}, above {}: this store is older", epoch.0, own.0));
            self.desired.epoch = Epoch(epoch.0 + 1);
            self.snapshot = Arc::new(self.desired.snapshot());
        }
    }

    /// A new snapshot, when anything that nodes go by is different.
    pub(super) fn refresh(&mut self) {
        let next = self.desired.snapshot();
        if next != *self.snapshot {
            self.desired.epoch = Epoch(self.desired.epoch.0 + 1);
            self.snapshot = Arc::new(RoutingSnapshot { epoch: self.desired.epoch, ..next });
        }
    }
}

/// Nodes by name, as many as a line of the audit log bears: thousands may turn at once.
pub(super) fn some(all: &[impl ToString]) -> String {
    let names = all.iter().take(NAMED).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    match all.len() {
        0..=NAMED => names,
        count => format!("{count} ({names} and {} more)", count - NAMED),
    }
}

#[cfg(test)]
mod tests;
