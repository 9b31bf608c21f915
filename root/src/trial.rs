//! What this root sees of versions on trial, for the topology service: queries pinned to the new version beside an equal part
//! of those pinned to the old; in the shadow step, queries that are asked of both.
//!
//! A shadow query is asked after its answer has gone out, as a batch query, one of a few at a time, and its answer is dropped:
//! what is tried must not cost the people who ask. Rules: an error counts when it could be the version's fault, so neither bad
//! input nor a refusal for load; a query whose client names the version is no part of a trial. Sums are given away when they are
//! taken, so that every query is told once.

use std::sync::Arc;

use canopy_topology::{
    gates::{
        Arm,
        agreement::{DEPTH, overlap, rank_biased_overlap},
        wire::Seen,
    },
    routing::{Part, RoutingSnapshot, Trial},
};
use parking_lot::Mutex;
use tokio::{sync::Semaphore, time::Instant};
use tracing::Instrument;

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
}

/// Whether a query is part of a trial.
pub fn of(routing: &RoutingSnapshot, corpus: &CorpusState, choice: Choice) -> Option<Tried> {
    let Choice::Pinned(stable) = choice else { return None };
    let trial = routing.corpora.get(&corpus.manifest.corpus)?.trial?;
    let part = trial.part(corpus.manifest.version, stable)?;
    Some(Tried { trial, part })
}

/// Whether it says something of the version.
fn counts(result: &Result<Answer>) -> bool {
    match result {
        Ok(_) => true,
        Err(error) => matches!(
            error,
            Error::UnderCoverage { .. } | Error::NothingAnswered { .. } | Error::Deadly | Error::Io { .. }
        ),
    }
}

fn record(arm: &mut Arm, result: &Result<Answer>, took_ms: f64) {
    arm.queries += 1;
    match result {
        Err(_) => arm.errors += 1,
        Ok(answer) => {
            arm.partial += u64::from(!answer.coverage.complete);
            arm.zero_results += u64::from(answer.hits.is_empty());
        }
    }
    arm.latencies.record((took_ms * 1e3) as u64);
}

fn keys(answer: &Answer) -> Vec<String> {
    answer.hits.iter().take(DEPTH).map(|hit| hit.key.clone()).collect()
}

impl Trials {
    fn change(&self, corpus: &str, trial: &Trial, change: impl FnOnce(&mut Seen)) {
        let new = Seen::of(corpus, trial.version, trial.control);
        let mut all = self.seen.lock();
        let at = match all.iter().position(|seen| seen.same(&new)) {
            Some(at) => at,
            None if all.len() < MOST => {
                all.push(new);
                all.len() - 1
            }
            None => return,
        };
        change(&mut all[at]);
    }

    /// What was seen since it was last taken.
    pub fn take(&self) -> Vec<Seen> {
        std::mem::take(&mut *self.seen.lock())
    }
}

impl Root {
    /// A query has ended: counts it in its trial, and asks the version on trial too when it is to be shadowed.
    pub(crate) fn tried(self: &Arc<Self>, asked: &Asked, trail: &Trail, result: &Result<Answer>) {
        let Some(Tried { trial, part }) = trail.tried else { return };
        if !counts(result) {
            return;
        }
        let (corpus, took_ms) = (&asked.request.corpus, trail.timeline.took_ms());
        match part {
            Part::Treatment => self.trials.change(corpus, &trial, |seen| {
                record(&mut seen.comparison.treatment, result, took_ms);
            }),
            Part::Control => self.trials.change(corpus, &trial, |seen| {
                record(&mut seen.comparison.control, result, took_ms);
            }),
            Part::Shadowed => {
                if let Ok(answer) = result {
                    self.shadow(asked, trial, answer, took_ms);
                }
            }
        }
    }

    /// Asks the version on trial what was just answered from the other.
    fn shadow(self: &Arc<Self>, asked: &Asked, trial: Trial, live: &Answer, took_ms: f64) {
        let Ok(place) = self.trials.shadows.clone().try_acquire_owned() else { return };
        let (root, live) = (self.clone(), live.clone());
        let request = canopy_proto::v1::QueryRequest {
            version: trial.version.0,
            cursor: String::new(),
            snippet: Some(false),
            explain: false,
            trace: false,
            priority: "batch".to_owned(),
            ..asked.request.clone()
        };
        let query = self.dice.query_id();
        let span = tracing::info_span!("shadow", %query, corpus = request.corpus);
        let shadowing = async move {
            let asked = Asked { query, arrival: Instant::now(), limit: None, request };
            let mut trail = Trail::since(asked.arrival);
            let result = root.unnoted(&asked, &mut trail).await;
            drop(place);
            if !counts(&result) {
                return;
            }
            root.trials.change(&asked.request.corpus, &trial, |seen| {
                let seen = &mut seen.comparison;
                record(&mut seen.treatment, &result, trail.timeline.took_ms());
                if let Ok(answer) = &result {
                    let (old, new) = (keys(&live), keys(answer));
                    seen.overlap.record(overlap(&old, &new, DEPTH));
                    seen.rank_biased_overlap.record(rank_biased_overlap(&old, &new));
                }
                record(&mut seen.control, &Ok(live), took_ms);
            });
        };
        tokio::spawn(shadowing.instrument(span));
    }
}

#[cfg(test)]
mod tests;
