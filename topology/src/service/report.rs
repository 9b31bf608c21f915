//! A node's word: what it is, what it holds. It registers the node, renews its lease, and moves rollouts on.
//!
//! A report is the whole condition of a node, not a change of it, so that one that is lost or told twice does no harm: what a
//! leaf held before and does not name any more, it does not hold. Everything is checked before anything is taken over.

use std::collections::{BTreeMap, BTreeSet};

use canopy_common::ids::{Epoch, NodeId, ShardId, Version, valid_name};
use canopy_proto::topology::{self as wire, held};
use tokio::time::Instant;

use super::{control::Control, desired::NodeRecord};
use crate::{
    config::{Role, dialable},
    error::{Error, Result},
    gates::wire::Seen,
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
    node: NodeId,
    record: NodeRecord,
    held: Vec<(String, Option<ShardId>, Version, Hold)>,
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
        let held = report.held.iter().map(held_of).collect::<Result<Vec<_>>>()?;
        let record = NodeRecord {
            role,
            address: report.address.clone(),
            admin: report.admin.clone(),
            zone: report.zone.clone(),
            drained: false,
            leaving: report.draining,
        };
        Ok(Self {
            node: NodeId::from(report.node.as_str()),
            record,
            held,
            trials,
            batch: report.batch,
            epoch: Epoch(report.epoch),
        })
    }
}

fn held_of(held: &wire::Held) -> Result<(String, Option<ShardId>, Version, Hold)> {
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
        held::State::Failed => {
            let reason = held.reason.chars().take(REASON).collect();
            Hold::Failed { reason, everywhere: held.everywhere }
        }
    };
    Ok((held.corpus.clone(), shard, Version(held.version), hold))
}

impl Control {
    /// Takes over what a node said.
    pub fn hear(&mut self, word: Word, now: Instant) {
        let Word { node, record, held, trials, batch, epoch } = word;
        self.overtake(epoch);
        let drained = self.desired.nodes.get(&node).is_some_and(|known| known.drained);
        let record = NodeRecord { drained, ..record };
        let (role, was) = (record.role, self.desired.nodes.insert(node.clone(), record.clone()));
        let new = was.as_ref() != Some(&record);
        let back = self.heard.insert(node.clone(), now).is_none();
        if role == Role::Root {
            if self.batches.insert(node.clone(), batch) != Some(batch) {
                for seen in &trials {
                    self.compare(seen);
                }
            }
            self.judge_statistics(&node, &held);
            let has = held.iter().filter(|(_, shard, _, hold)| shard.is_none() && *hold == Hold::Resident);
            let has: BTreeSet<_> = has.map(|(corpus, _, version, _)| (corpus.clone(), *version)).collect();
            let other = self.roots.insert(node.clone(), has.clone()) != Some(has);
            if other || new || back {
                self.tell_roots();
            }
        }
        if back {
            self.tell(&node, false);
        }
        if role == Role::Leaf {
            self.hear_leaf(&node, held);
        }
        self.refresh();
    }

    /// A root that can never open the statistics of the version that is rolled out ends its rollout, with the reason.
    fn judge_statistics(&mut self, node: &NodeId, held: &[(String, Option<ShardId>, Version, Hold)]) {
        for (corpus, shard, version, hold) in held {
            let Hold::Failed { reason, everywhere: true } = hold else { continue };
            let active = self.desired.corpora.get(corpus).and_then(|state| state.active.as_ref());
            if shard.is_none()
                && active.is_some_and(|active| active.request.to == *version && !active.goes_back())
            {
                self.apply(corpus, Event::Abort { by: format!("{node}: {reason}") });
            }
        }
    }

    fn hear_leaf(&mut self, node: &NodeId, held: Vec<(String, Option<ShardId>, Version, Hold)>) {
        let mut said: BTreeMap<String, Vec<Report>> = BTreeMap::new();
        for (corpus, shard, version, hold) in held {
            let Some(shard) = shard else { continue };
            let replica = Replica { shard, node: node.clone() };
            said.entry(corpus).or_default().push(Report { replica, version, hold });
        }
        let corpora: Vec<String> = self.desired.corpora.keys().cloned().collect();
        for corpus in corpora {
            let mut reports = said.remove(&corpus).unwrap_or_default();
            let state = &self.desired.corpora[&corpus];
            // What is not named is not there.
            let named: BTreeSet<(Replica, Version)> =
                reports.iter().map(|report| (report.replica.clone(), report.version)).collect();
            let gone = state.seen.held_by(node).into_iter().filter(|held| !named.contains(held));
            let gone: Vec<_> =
                gone.map(|(replica, version)| Report { replica, version, hold: Hold::Absent }).collect();
            reports.extend(gone);
            if !reports.is_empty() {
                self.apply(&corpus, Event::Held(reports));
            }
        }
    }
}
