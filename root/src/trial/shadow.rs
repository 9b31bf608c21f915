//! A shadow query: what was just answered, asked of both versions.

use std::sync::Arc;

use canopy_common::ids::Version;
use canopy_proto::v1::QueryRequest;
use canopy_topology::{
    gates::agreement::{DEPTH, overlap, rank_biased_overlap},
    routing::Trial,
};
use tokio::time::Instant;
use tracing::Instrument;

use super::{Fault, counts, record, refuses};
use crate::{
    answer::Answer,
    error::Result,
    search::{Asked, Root, Trail},
};

/// What one version said to it, and how long that took.
type Said = (Result<Answer>, f64);

fn keys(answer: &Answer) -> Vec<String> {
    answer.hits.iter().take(DEPTH).map(|hit| hit.key.clone()).collect()
}

impl Root {
    /// Asks both versions, unless too many are being asked.
    pub(super) fn shadow(self: &Arc<Self>, asked: &Asked, trial: Trial) {
        let Ok(place) = self.trials.shadows.clone().try_acquire_owned() else { return };
        let (root, request) = (self.clone(), asked.request.clone());
        let span = tracing::info_span!("shadow", query = %asked.query, corpus = request.corpus);
        let shadowing = async move {
            // In random order, so that what the first one warms favours neither.
            let (old, new) = if root.dice.next_u64().is_multiple_of(2) {
                let old = root.ask_version(&request, trial.control, Some(trial.version)).await;
                (old, root.ask_version(&request, trial.version, Some(trial.control)).await)
            } else {
                let new = root.ask_version(&request, trial.version, Some(trial.control)).await;
                (root.ask_version(&request, trial.control, Some(trial.version)).await, new)
            };
            drop(place);
            // What the new version alone refuses was good.
            if counts(&old.0) && (counts(&new.0) || refuses(&new.0)) {
                root.compared(&request.corpus, &trial, &old, &new);
            }
        };
        tokio::spawn(shadowing.instrument(span));
    }

    /// Asks one version, as a batch query of our own; of the leaves that hold another one too, if that is named.
    pub(crate) async fn ask_version(
        &self,
        request: &QueryRequest,
        version: Version,
        beside: Option<Version>,
    ) -> Said {
        let request = QueryRequest {
            version: version.0,
            cursor: String::new(),
            min_offset: String::new(),
            snippet: Some(false),
            explain: false,
            trace: false,
            priority: "batch".to_owned(),
            ..request.clone()
        };
        let asked = Asked { query: self.dice.query_id(), arrival: Instant::now(), limit: None, request };
        let mut trail = Trail { beside, ..Trail::since(asked.arrival) };
        let result = self.unnoted(&asked, &mut trail).await;
        (result, trail.timeline.took_ms())
    }

    fn compared(&self, corpus: &str, trial: &Trial, old: &Said, new: &Said) {
        self.trials.change(corpus, trial, |seen| {
            let seen = &mut seen.comparison;
            record(&mut seen.control, &old.0, old.1, Fault::None);
            record(&mut seen.treatment, &new.0, new.1, Fault::None);
            // Of parts it can't be said what the versions would have had in common.
            if let (Ok(old), Ok(new)) = (&old.0, &new.0)
                && old.coverage.complete
                && new.coverage.complete
            {
                let (old, new) = (keys(old), keys(new));
                seen.overlap.record(overlap(&old, &new, DEPTH));
                seen.rank_biased_overlap.record(rank_biased_overlap(&old, &new));
            }
        });
    }
}
