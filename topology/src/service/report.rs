//! A node's word: what it is, what it holds. It registers the node, renews its lease, and moves rollouts on.
//!
//! A report is the whole condition of a node, not a change of it, so that one that is lost or told twice does no harm: what a
//! leaf held before and does not name any more, it does not hold. Everything is checked before anything is taken over.
//!
//! Tens of thousands of leaves report each second, and nearly always the same as before. So a word is compared first
//! ([`Control::renew`]): what changes nothing that is stored is noted in memory, at the cost of the word itself. The others are
//! taken over together ([`Control::hear_all`]), as one change.

use std::{
    collections::{BTreeMap, BTreeSet},
    hash::Hasher,
    sync::Arc,
};

use canopy_common::{
    ids::{Epoch, NodeId, Version, valid_name},
    plain::plain_chars,
};
use canopy_proto::topology::{self as wire, held};
use tokio::time::Instant;
use xxhash_rust::xxh3::Xxh3Default;

use super::{
    control::{Control, some},
    desired::NodeRecord,
    presence::{Held, Load, Presence},
};
use crate::{
    config::{Role, dialable},
    error::{Error, Result},
    gates::wire::Seen,
    health::Health,
    placement::Capacity,
    rollout::{Event, Hold, Replica, Report},
};

/// Most things that one node may say that it holds.
const MOST_HELD: usize = 65_536;
/// Most trials that one root may tell of.
const MOST_TRIALS: usize = 256;
/// Longest reason that is kept, characters.
const REASON: usize = 500;

/// A report after all checks.
pub struct Word {
    pub(super) node: NodeId,
    record: NodeRecord,
    incarnation: u64,
    held: Arc<[Held]>,
    said: u64,
    load: Load,
    trials: Vec<Seen>,
    batch: u64,
    epoch: Epoch,
}

impl Word {
    /// Checks a report. Errors: the field at fault.
    pub fn check(report: &wire::NodeReport) -> Result<Self> {
        let name = |field: &str, text: &str| {
            if valid_name(text) {
                return Ok(());
            }
            let text: String = text.chars().take(80).collect();
            Err(Error::invalid(field, format!("{text:?} is not a name; use a-z, 0-9, - and _")))
        };
        name("node", &report.node)?;
        if !report.zone.is_empty() {
            name("zone", &report.zone)?;
        }
        let role = Role::parse(&report.role)
            .filter(|role| role.takes_queries())
            .ok_or_else(|| Error::invalid("role", "it is none of root, aggregator, leaf"))?;
        for (field, address) in [("address", &report.address), ("admin", &report.admin)] {
            let may_be_empty = field == "admin" && address.is_empty();
            if !may_be_empty && !dialable(address) {
                let address: String = address.chars().take(80).collect();
                return Err(Error::invalid(field, format!("{address:?} is not host:port")));
            }
        }
        if report.held.len() > MOST_HELD {
            let message = format!("{} entries; the limit is {MOST_HELD}", report.held.len());
            return Err(Error::invalid("held", message));
        }
        if report.trials.len() > MOST_TRIALS {
            let message = format!("{} entries; the limit is {MOST_TRIALS}", report.trials.len());
            return Err(Error::invalid("trials", message));
        }
        let trials = report.trials.iter().map(Seen::from_wire).collect();
        let held = report.held.iter().map(held_of).collect::<Result<Arc<[_]>>>()?;
        let wire::Capacity { memory, disk, cores } = report.capacity.unwrap_or_default();
        let record = NodeRecord {
            admin: report.admin.clone(),
            zone: report.zone.clone(),
            leaving: report.draining,
            capacity: Capacity { memory, disk, cores },
            ..NodeRecord::new(role, &report.address)
        };
        Ok(Self {
            node: NodeId::from(report.node.as_str()),
            record,
            incarnation: report.incarnation,
            said: digest(&report.held),
            held,
            load: load(report.load.as_ref())?,
            trials,
            batch: report.batch,
            epoch: Epoch(report.epoch),
        })
    }
}

/// Of everything that is said to be held.
fn digest(held: &[wire::Held]) -> u64 {
    let mut hasher = Xxh3Default::new();
    for one in held {
        for text in [&one.corpus, &one.shard, &one.reason] {
            hasher.write_u64(text.len() as u64);
            hasher.write(text.as_bytes());
        }
        for number in [one.version, one.state as u64, u64::from(one.everywhere), one.bytes, one.memory] {
            hasher.write_u64(number);
        }
    }
    hasher.finish()
}

fn load(load: Option<&wire::Load>) -> Result<Load> {
    let Some(load) = load else { return Ok(Load::default()) };
    if load.shards.len() > MOST_HELD {
        let message = format!("{} entries; the limit is {MOST_HELD}", load.shards.len());
        return Err(Error::invalid("load.shards", message));
    }
    let named = |one: &wire::ShardLoad| {
        let corpus = valid_name(&one.corpus).then(|| one.corpus.clone())?;
        Some(((corpus, one.shard.parse().ok()?), one.queries))
    };
    let latency = load.latency_p90_us;
    Ok(Load {
        queries: load.queries,
        errors: load.errors,
        latency_p90_us: if latency.is_finite() { latency.max(0.0) } else { 0.0 },
        lag_ms: load.lag_ms,
        shards: Arc::new(load.shards.iter().filter_map(named).collect()),
    })
}

fn held_of(held: &wire::Held) -> Result<Held> {
    if !valid_name(&held.corpus) {
        return Err(Error::invalid("held.corpus", "it is not a name; use a-z, 0-9, - and _"));
    }
    let shard = match held.shard.as_str() {
        "" => None,
        shard => Some(
            shard.parse().map_err(|_| Error::invalid("held.shard", "it is not a shard, such as main/3"))?,
        ),
    };
    let hold = match held.state() {
        held::State::Loading => Hold::Loading,
        held::State::Resident | held::State::Retiring => Hold::Resident,
        held::State::Void => Hold::Void,
        held::State::Failed => {
            let reason = plain_chars(&held.reason).take(REASON).collect();
            Hold::Failed { reason, everywhere: held.everywhere }
        }
    };
    Ok(Held {
        corpus: held.corpus.clone(),
        shard,
        version: Version(held.version),
        hold,
        retiring: held.state() == held::State::Retiring,
        bytes: held.bytes,
        memory: held.memory,
    })
}

/// What leaves said of each corpus, to be taken over at once.
type Said = BTreeMap<String, Vec<Report>>;

impl Control {
    /// Takes over what a node said. Errors: another process is the node.
    #[cfg(test)]
    pub fn hear(&mut self, word: Word, now: Instant) -> Result<()> {
        self.hear_all(vec![word], now).pop().unwrap_or(Ok(()))
    }

    /// A word that changes nothing that is stored, noted at once; `None`: it changes something.
    pub fn renew(&mut self, word: &Word, now: Instant) -> Option<Result<()>> {
        if let Err(refused) = self.admits(word) {
            return Some(Err(refused));
        }
        if self.changes(word) {
            return None;
        }
        self.note(word, now);
        self.take_trials(word);
        Some(Ok(()))
    }

    /// Takes over what nodes said, one result each.
    pub fn hear_all(&mut self, words: Vec<Word>, now: Instant) -> Vec<Result<()>> {
        let (mut said, mut results) = (Said::new(), Vec::new());
        let mut heard = BTreeSet::new();
        let mut back = Vec::new();
        for word in words {
            // What a leaf does not name any more is seen only when its word before was taken over.
            if !heard.insert(word.node.clone()) {
                self.take(&mut said);
            }
            let (node, was) = (word.node.clone(), self.presence.get(&word.node).is_some_and(|it| !it.here));
            results.push(self.admits(&word).map(|()| self.hear_one(word, now, &mut said)));
            if was && self.is_here(&node) {
                back.push(node);
            }
        }
        self.take(&mut said);
        if !back.is_empty() {
            let are = if back.len() == 1 { "is" } else { "are" };
            self.note_audit(format!("{} {are} here again", some(&back)));
        }
        self.advance_placings();
        self.refresh();
        results
    }

    fn take(&mut self, said: &mut Said) {
        for (corpus, reports) in std::mem::take(said) {
            self.apply(&corpus, Event::Held(reports));
        }
    }

    /// Whether the process that speaks is the node.
    fn admits(&self, word: &Word) -> Result<()> {
        let Some(record) = self.desired.nodes.get(&word.node) else { return self.has_room(word) };
        let Some(known) = self.presence.get(&word.node) else { return Ok(()) };
        let admitted = known.admits(word.incarnation, record.address == word.record.address, record.leaving);
        admitted
            .map_err(|error| Error::Refused(format!("{} at {} is taken: {error}", word.node, record.address)))
    }

    /// Whether a node that is not known may be let in: a name that changes with every report would else be kept for ever.
    fn has_room(&self, word: &Word) -> Result<()> {
        let most = self.most_nodes;
        if self.desired.nodes.len() < most {
            return Ok(());
        }
        Err(Error::Refused(format!(
            "{} is new, and {most} nodes are known already, which is topology.max_nodes; forget those that are gone \
             (canopy topology forget NODE), or raise it",
            word.node
        )))
    }

    /// Whether a word changes anything that is stored.
    fn changes(&self, word: &Word) -> bool {
        let (Some(record), Some(known)) = (self.desired.nodes.get(&word.node), self.presence.get(&word.node))
        else {
            return true;
        };
        let same = known.here && known.said == Some(word.said) && record.says(&word.record);
        if !same || known.incarnation != Some(word.incarnation) || word.epoch > self.desired.epoch {
            return true;
        }
        match word.record.role {
            Role::Leaf => word.held.iter().any(|held| self.moves(&word.node, held)),
            Role::Root => self.hopeless(&word.held).is_some(),
            Role::Aggregator | Role::Ingest | Role::Topology => false,
        }
    }

    /// Whether what was said before counts by now: the version is wanted again, or the shard was placed.
    fn moves(&self, node: &NodeId, held: &Held) -> bool {
        let (Some(state), Some(shard)) = (self.desired.corpora.get(&held.corpus), &held.shard) else {
            return false;
        };
        let replica = Replica { shard: shard.clone(), node: node.clone() };
        if !state.seen.is_placed(&replica) {
            return false;
        }
        let holds = state.seen.holds(held.version, &replica);
        match &held.hold {
            Hold::Resident | Hold::Void => !holds && state.pinned().contains(&held.version),
            Hold::Absent | Hold::Loading => holds,
            Hold::Failed { .. } => {
                let told = |rollout: &crate::rollout::state::Rollout| {
                    rollout.request.to == held.version
                        && rollout.started.contains(&replica)
                        && !rollout.has_failed(&replica)
                };
                holds || state.active.as_ref().is_some_and(told)
            }
        }
    }

    /// Notes what is not stored.
    fn note(&mut self, word: &Word, now: Instant) {
        let known = self.presence.entry(word.node.clone()).or_insert_with(|| Presence::expected(now));
        if known.incarnation != Some(word.incarnation) {
            if known.incarnation.is_some() {
                known.health = Health::joining();
            }
            known.judged = word.load.clone();
        }
        known.at = now;
        known.here = true;
        known.incarnation = Some(word.incarnation);
        known.load = word.load.clone();
    }

    fn take_trials(&mut self, word: &Word) {
        if word.record.role == Role::Root
            && self.batches.insert(word.node.clone(), word.batch) != Some(word.batch)
        {
            for seen in &word.trials {
                self.compare(seen);
            }
        }
    }

    fn hear_one(&mut self, word: Word, now: Instant, said: &mut Said) {
        self.overtake(word.epoch);
        let was = self.desired.nodes.get(&word.node);
        let record = was.map_or_else(|| word.record.clone(), |was| was.heard(&word.record));
        let new = was != Some(&record);
        let role = record.role;
        if new {
            self.desired.nodes.insert(word.node.clone(), record);
        }
        // A service that is started anew expects everybody, also who was away by what it has stored.
        let away = self.desired.corpora.values().any(|state| state.seen.away.contains(&word.node));
        let back = away || self.presence.get(&word.node).is_none_or(|known| !known.here);
        self.note(&word, now);
        if let Some(known) = self.presence.get_mut(&word.node) {
            (known.said, known.held) = (Some(word.said), word.held.clone());
        }
        self.take_trials(&word);
        if role == Role::Root {
            self.hear_root(&word, new || back);
        }
        if back {
            self.tell(&word.node, false);
        }
        if role == Role::Leaf {
            self.hear_leaf(&word, said);
        }
    }

    fn hear_root(&mut self, word: &Word, other: bool) {
        if let Some((corpus, reason)) = self.hopeless(&word.held) {
            self.apply(&corpus, Event::Abort { by: format!("{}: {reason}", word.node) });
        }
        let has = word.held.iter().filter(|held| held.shard.is_none() && held.hold == Hold::Resident);
        let has: BTreeSet<_> = has.map(|held| (held.corpus.clone(), held.version)).collect();
        if self.roots.insert(word.node.clone(), has.clone()) != Some(has) || other {
            self.tell_roots();
        }
    }

    /// A root that can never open the statistics of the version that is rolled out ends its rollout, with the reason.
    fn hopeless(&self, held: &[Held]) -> Option<(String, String)> {
        held.iter().find_map(|held| {
            let Hold::Failed { reason, everywhere: true } = &held.hold else { return None };
            let active = self.desired.corpora.get(&held.corpus)?.active.as_ref()?;
            let ours = held.shard.is_none() && active.request.to == held.version && !active.goes_back();
            ours.then(|| (held.corpus.clone(), reason.clone()))
        })
    }

    fn hear_leaf(&mut self, word: &Word, said: &mut Said) {
        let mut named: BTreeMap<&str, BTreeSet<(Replica, Version)>> = BTreeMap::new();
        for held in word.held.iter() {
            let Some(shard) = held.shard.clone() else { continue };
            if held.bytes > 0 {
                self.measure(&held.corpus, &shard, held.bytes, held.memory);
            }
            if !self.desired.corpora.contains_key(&held.corpus) {
                continue;
            }
            let replica = Replica { shard, node: word.node.clone() };
            named.entry(&held.corpus).or_default().insert((replica.clone(), held.version));
            let report = Report { replica, version: held.version, hold: held.hold.clone() };
            said.entry(held.corpus.clone()).or_default().push(report);
        }
        // What is not named is not there.
        for (corpus, state) in &self.desired.corpora {
            let named = named.remove(corpus.as_str()).unwrap_or_default();
            let gone = state.seen.held_by(&word.node).into_iter().filter(|held| !named.contains(held));
            let mut gone =
                gone.map(|(replica, version)| Report { replica, version, hold: Hold::Absent }).peekable();
            if gone.peek().is_some() {
                said.entry(corpus.clone()).or_default().extend(gone);
            }
        }
    }
}
