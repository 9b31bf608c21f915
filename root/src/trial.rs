//! What this root sees of versions on trial, for the topology service: queries pinned to the new version beside an equal part
//! of those pinned to the old; in the shadow step, queries that are asked of both.
//!
//! Both parts of a comparison are planned over the leaves that hold both versions, shard by shard. Otherwise a version that one
//! row holds, which nobody can hedge, is judged beside one that is hedged over all rows. A query of which some shard is on
//! no leaf in both versions is answered like any other and counted in neither arm.
//!
//! A shadow query is a pair, asked after its answer has gone out: of the old version and of the new, in random order, both as batch
//! queries on the same leaves, a few at a time. So what is tried costs the people who ask nothing; and the pair is fair: the
//! live answer, interactive, with its snippets and hedged over all, would look better than its shadow whatever the version.
//!
//! Rules: an error counts when it could be the version's fault, so neither bad input nor a refusal for load; but input that is
//! bad under the new version alone counts as its error, and a version that could not answer whole as a part, although the other
//! one answered instead ([`crate::pin`]); a query whose client names the version is no part of a trial. Sums are given away
//! when they are taken, so that every query is told once.

mod shadow;

use std::sync::Arc;

use canopy_aggregator::gather::Gatherer;
use canopy_common::{error::ErrorClass, ids::Version};
use canopy_topology::{
    gates::{Arm, judged::Paired, wire::Seen},
    routing::{Part, RoutingSnapshot, Trial},
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use crate::{
    answer::Answer,
    error::{Error, Result},
    search::{Asked, Root, Trail},
    versions::{Choice, CorpusState},
};

/// Shadow queries at a time.
const SHADOWS: usize = 4;
/// Trials that are told of at most.
const MOST: usize = 64;

/// The sums of this root.
pub struct Trials {
    seen: Mutex<Vec<Seen>>,
    shadows: Arc<Semaphore>,
}

impl Default for Trials {
    fn default() -> Self {
        Self { seen: Mutex::default(), shadows: Arc::new(Semaphore::new(SHADOWS)) }
    }
}

/// A query's part in a trial.
#[derive(Debug, Clone, Copy)]
pub struct Tried {
    trial: Trial,
    part: Part,
    /// Every shard of both versions is on some leaf that holds both.
    comparable: bool,
}

impl Tried {
    /// The word in the query log.
    pub fn arm(self) -> &'static str {
        match self.part {
            Part::Treatment => "treatment",
            Part::Control => "control",
            Part::Shadowed => "shadowed",
        }
    }

    /// The version that whoever is asked must hold too.
    pub fn beside(self) -> Option<Version> {
        match self.part {
            _ if !self.comparable => None,
            Part::Treatment => Some(self.trial.control),
            Part::Control => Some(self.trial.version),
            // What people see of a shadowed query is answered by whoever can.
            Part::Shadowed => None,
        }
    }
}

/// Whether a query is part of a trial.
pub fn of(
    gatherer: &Gatherer,
    routing: &Arc<RoutingSnapshot>,
    corpus: &CorpusState,
    choice: Choice,
) -> Option<Tried> {
    let Choice::Pinned(stable) = choice else { return None };
    let name = corpus.manifest.corpus.as_str();
    let trial = routing.corpora.get(name)?.trial?;
    let part = trial.part(corpus.manifest.version, stable)?;
    let (version, control) = (trial.version, trial.control);
    let other = if part == Part::Treatment { control } else { version };
    let both = gatherer.together().holders(routing, name, corpus.manifest.version, other);
    let on_some = |both: &canopy_topology::routing::Replicas| {
        let mut shards = corpus.shards.iter();
        shards.all(|(shard, _)| both.get(shard).is_some_and(|leaves| !leaves.is_empty()))
    };
    let comparable = both.is_some_and(|both| on_some(&both));
    Some(Tried { trial, part, comparable })
}

/// Whether it says something of the version.
pub(crate) fn counts(result: &Result<Answer>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => matches!(
            error,
            Error::UnderCoverage { .. } | Error::NothingAnswered { .. } | Error::Deadly | Error::Io { .. }
        ),
    }
}

/// Whether a version refuses what is asked: the new one's fault where the other one does not.
pub(crate) fn refuses(result: &Result<Answer>) -> bool {
    matches!(result, Err(Error::Refused(failure)) if failure.class == ErrorClass::InvalidArgument)
}

/// What its version did to a query, whatever came of it in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// It could not answer it whole.
    Lost,
    /// It refused it alone.
    Refused,
}

impl Fault {
    fn of(trail: &Trail) -> Self {
        match &trail.repinned {
            None => Self::None,
            Some(repinned) if repinned.refused() => Self::Refused,
            Some(_) => Self::Lost,
        }
    }
}

/// Counts a query in its arm.
fn record(arm: &mut Arm, result: &Result<Answer>, took_ms: f64, fault: Fault) {
    arm.queries += 1;
    match (result, fault) {
        (Err(_), _) | (_, Fault::Refused) => arm.errors += 1,
        (Ok(_), Fault::Lost) => arm.partial += 1,
        (Ok(answer), Fault::None) => {
            arm.partial += u64::from(!answer.coverage.complete);
            arm.zero_results += u64::from(answer.hits.is_empty());
        }
    }
    arm.latencies.record((took_ms * 1e3) as u64);
}

impl Trials {
    /// Changes what was seen of a trial; whether there was room for it.
    fn change(&self, corpus: &str, trial: &Trial, change: impl FnOnce(&mut Seen)) -> bool {
        let new = Seen::of(corpus, trial);
        let mut all = self.seen.lock();
        let at = match all.iter().position(|seen| seen.same(&new)) {
            Some(at) => at,
            None if all.len() < MOST => {
                all.push(new);
                all.len() - 1
            }
            None => return false,
        };
        change(&mut all[at]);
        true
    }

    /// The judged queries of a trial were all asked; whether that will be told.
    pub(crate) fn judged(&self, corpus: &str, trial: &Trial, paired: Paired) -> bool {
        self.change(corpus, trial, |seen| seen.comparison.judged = Some(paired))
    }

    /// What was seen since it was last taken.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock())
    }
}

impl Root {
    /// A query has ended: counts it in its trial, and asks both versions again when it is to be shadowed.
    pub(crate) fn tried(self: &Arc<Self>, asked: &Asked, trail: &Trail, result: &Result<Answer>) {
        let Some(Tried { trial, part, comparable }) = trail.tried else { return };
        let fault = Fault::of(trail);
        // A version that can't answer is at fault, also where nothing can be compared; what it refused, whatever came after.
        let at_fault = fault != Fault::None && part == Part::Treatment;
        if !(counts(result) || fault == Fault::Refused) || !(comparable || at_fault) {
            return;
        }
        // Its time is that of the log and not of a version.
        if asked.waits() && !at_fault {
            return;
        }
        let (corpus, took_ms) = (&asked.request.corpus, trail.timeline.took_ms());
        if part == Part::Shadowed {
            if result.is_ok() {
                self.shadow(asked, trial);
            }
            return;
        }
        self.trials.change(corpus, &trial, |seen| {
            let seen = &mut seen.comparison;
            let arm = if part == Part::Treatment { &mut seen.treatment } else { &mut seen.control };
            record(arm, result, took_ms, fault);
        });
    }
}

#[cfg(test)]
mod tests;
