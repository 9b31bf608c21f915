//! What the engine counts, under the name of the role that runs it: `canopy_root_...`, `canopy_aggregator_...`. Labels
//! are closed sets of words; nodes, shards, versions and keys are never labels.

use std::time::Duration;

use canopy_common::{coverage::Outcome, telemetry::metrics};
use prometheus::{Histogram, IntCounter, Registry};

use crate::gather::{Decision, retry::Retry};

/// Counters of one engine.
#[derive(Clone)]
pub struct GatherMetrics {
    attempts: IntCounter,
    transparent: IntCounter,
    counted: IntCounter,
    outcomes: [IntCounter; 6],
    decisions: [IntCounter; 6],
    /// Messages that broke the contract.
    pub malformed: IntCounter,
    /// Replies refused because the query's merge was full.
    pub over_memory: IntCounter,
    /// Branches that were asked again for more hits.
    pub widened: IntCounter,
    /// Shards asked of a node that does not have them in that version.
    pub wrong_epoch: IntCounter,
    /// Searches that waited for a newer routing snapshot.
    pub stale: IntCounter,
    /// Items that a fetch was asked for.
    pub fetch_wanted: IntCounter,
    /// Items that it filled.
    pub fetch_filled: IntCounter,
    latency: Histogram,
    branch_latency: Histogram,
}

const OUTCOMES: [&str; 6] = ["answered", "timed_out", "failed", "shed", "unavailable", "skipped"];
const DECISIONS: [&str; 6] = ["all", "all_but", "adaptive", "deadline", "cancelled", "lost"];

impl GatherMetrics {
    /// Registers the counters of `role`.
    pub fn new(role: &str, registry: &Registry) -> Self {
        let name = |what: &str| format!("canopy_{role}_{what}");
        let counter = |what: &str, help: &str| metrics::counter(registry, &name(what), help);
        let labelled =
            |what: &str, help: &str, label: &str| metrics::counters(registry, &name(what), help, label);
        let retries = labelled("retries_total", "attempts sent again to another node", "kind");
        let outcomes = labelled("shards_total", "asked shards by how they ended", "outcome");
        let decisions = labelled("gathers_total", "searches by why they stopped waiting", "decision");
        Self {
            attempts: counter("attempts_total", "calls sent to the level below"),
            transparent: retries.with_label_values(&["transparent"]),
            counted: retries.with_label_values(&["counted"]),
            outcomes: OUTCOMES.map(|word| outcomes.with_label_values(&[word])),
            decisions: DECISIONS.map(|word| decisions.with_label_values(&[word])),
            malformed: counter("malformed_replies_total", "replies that broke the contract"),
            over_memory: counter("merge_refused_total", "replies refused because the merge was full"),
            widened: counter("widened_total", "branches asked again, because they may hold more of the page"),
            wrong_epoch: counter(
                "wrong_epoch_total",
                "shards asked of a node that does not have them in that version",
            ),
            stale: counter("stale_plans_total", "searches that waited for a newer routing snapshot"),
            fetch_wanted: counter("fetch_wanted_total", "hits whose fields were wanted"),
            fetch_filled: counter("fetch_filled_total", "hits whose fields came"),
            latency: metrics::latency(registry, &name("gather_seconds"), "time from plan to decision"),
            branch_latency: metrics::latency(
                registry,
                &name("attempt_seconds"),
                "time of one attempt, to its end",
            ),
        }
    }

    pub(crate) fn sent(&self, retry: Option<Retry>) {
        self.attempts.inc();
        match retry {
            Some(Retry::Transparent) => self.transparent.inc(),
            Some(Retry::Counted) => self.counted.inc(),
            None => {}
        }
    }

    pub(crate) fn attempt_ended(&self, took: Duration) {
        self.branch_latency.observe(took.as_secs_f64());
    }

    pub(crate) fn settled(&self, outcome: &Outcome) {
        let at = OUTCOMES.iter().position(|word| *word == outcome.as_str());
        if let Some(at) = at {
            self.outcomes[at].inc();
        }
    }

    pub(crate) fn finished(&self, decision: Decision, took: Duration) {
        let at = match decision {
            Decision::All => 0,
            Decision::AllBut => 1,
            Decision::Adaptive => 2,
            Decision::Deadline => 3,
            Decision::Cancelled => 4,
            Decision::Lost => 5,
        };
        self.decisions[at].inc();
        self.latency.observe(took.as_secs_f64());
    }
}
