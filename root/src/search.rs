//! The story of a query at the root: admit it, pin it to one snapshot and one version ([`crate::pin`]), and ask ([`crate::ask`]);
//! once more when that version is lost. Everything happens under one deadline that began when the request arrived; dropping
//! the future stops all of it, down to the leaves.

use std::{sync::Arc, time::Duration};

use canopy_aggregator::gather::{Gathered, Gatherer, lesson::Lesson};
use canopy_common::{
    clock::WallClock,
    deadline::Deadline,
    drain::Drain,
    ids::{QueryId, Version},
    limit::{Gate, Pass, Refusal},
    request::Priority,
    rng::Dice,
    telemetry::SlowQueries,
};
use canopy_proto::v1;
use canopy_topology::routing::Routing;
use tokio::time::Instant;

use crate::{
    answer::Answer,
    ask::Got,
    canary::Canary,
    config::RootConfig,
    error::{Error, Result},
    incidents::Incidents,
    ladder::{Degradation, Step},
    language::Reader,
    metrics::Metrics,
    pin::{self, Repinned},
    query_log::{self, QueryLog},
    timeline::Timeline,
    trial::{Trials, Tried},
    versions::{CorpusState, Versions},
};

/// What answers queries: shared by HTTP, gRPC, the search page and the readiness probe.
pub struct Root {
    /// This process.
    pub node: String,
    /// Limits and defaults.
    pub config: RootConfig,
    /// The engine.
    pub gatherer: Arc<Gatherer>,
    /// Who serves what.
    pub routing: Routing,
    /// Open versions.
    pub versions: Arc<Versions>,
    /// Reads query texts.
    pub reader: Reader,
    /// Names queries.
    pub dice: Dice,
    /// For `now` in dates.
    pub clock: Arc<dyn WallClock>,
    /// Numbers.
    pub metrics: Metrics,
    /// Slow queries.
    pub slow: SlowQueries,
    /// One log line per incident.
    pub incidents: Incidents,
    /// Lets queries in.
    pub gate: Arc<Gate>,
    /// What is left out under load.
    pub degradation: Degradation,
    /// What it sees of versions on trial.
    pub trials: Trials,
    /// A sample of the queries, written down.
    pub query_log: QueryLog,
    /// Tries unseen shapes; `None`: off.
    pub canary: Option<Canary>,
    /// Waits for running queries.
    pub drain: Drain,
}

/// One query as it arrived.
pub struct Asked {
    /// Its name.
    pub query: QueryId,
    /// When the first byte of it was here; the deadline counts from then.
    pub arrival: Instant,
    /// The transport's own limit, when it has one.
    pub limit: Option<Duration>,
    /// What is asked.
    pub request: v1::QueryRequest,
}

impl Asked {
    /// Whether it wants to wait for what was written: how long it takes says nothing of those who answer.
    pub fn waits(&self) -> bool {
        !self.request.min_offset.is_empty()
    }
}

/// What is kept of a query for its record: filled as it goes, so that a failed one leaves a trail too.
pub struct Trail {
    /// Its phases.
    pub timeline: Timeline,
    /// The version it was pinned to, once it was.
    pub corpus: Option<Arc<CorpusState>>,
    /// Its part in a trial.
    pub tried: Option<Tried>,
    /// A query of our own: what becomes of it says nothing of what people get.
    pub own: bool,
    /// What the search brought.
    pub gathered: Gathered,
    /// Of a query of our own: a version that whoever is asked must hold too.
    pub beside: Option<Version>,
    /// It was asked again, because its version could not answer it whole.
    pub repinned: Option<Repinned>,
    /// What the first of two searches cost.
    pub spent: v1::TailReport,
}

impl Trail {
    /// Of a query that arrived then.
    pub fn since(arrival: Instant) -> Self {
        Self {
            timeline: Timeline::since(arrival),
            corpus: None,
            tried: None,
            own: false,
            gathered: Gathered::default(),
            beside: None,
            repinned: None,
            spent: v1::TailReport::default(),
        }
    }
}

impl Root {
    /// Answers one query, counts it, and records it when it was slow or went wrong.
    pub async fn search(self: &Arc<Self>, asked: &Asked) -> Result<Answer> {
        let _busy = self.drain.busy();
        let running = self.metrics.running();
        let mut trail = Trail::since(asked.arrival);
        let result = self.answer(asked, &mut trail).await;
        running.ended(&trail.timeline, &result);
        crate::record::keep(self, asked, &trail, &result);
        query_log::note(self, asked, &trail, &result);
        self.tried(asked, &trail, &result);
        result
    }

    /// Answers the readiness probe's query: it is counted and recorded nowhere, and what it takes says nothing of what
    /// queries take.
    pub async fn probe(&self, asked: &Asked) -> Result<()> {
        self.unnoted(asked, &mut Trail::since(asked.arrival)).await.map(drop)
    }

    /// Answers a query of our own.
    pub(crate) async fn unnoted(&self, asked: &Asked, trail: &mut Trail) -> Result<Answer> {
        let _pass = self.enter(asked).await?;
        trail.own = true;
        self.admitted(asked, trail, Step::Spare).await
    }

    async fn answer(&self, asked: &Asked, trail: &mut Trail) -> Result<Answer> {
        let (pass, step) = self.enter(asked).await?;
        let result = self.admitted(asked, trail, step).await;
        teach(pass, &trail.gathered, asked, &result);
        result
    }

    /// Lets a query in before any work, or refuses it. What the request says of itself is only hinted at here: it is
    /// checked once there is a place.
    async fn enter(&self, asked: &Asked) -> Result<(Pass, Step)> {
        let request = &asked.request;
        let priority = if request.priority == "batch" { Priority::Batch } else { Priority::Interactive };
        let timeout = match request.timeout_ms {
            0 => self.config.default_timeout.0,
            ms => Duration::from_millis(u64::from(ms)),
        };
        let timeout = asked.limit.map_or(timeout, |limit| limit.min(timeout));
        let entered = self.gate.enter(priority, Deadline::at(asked.arrival + timeout)).await;
        let entered = entered.and_then(|pass| match self.degradation.step(&self.gate) {
            Step::Refuse if priority == Priority::Batch => Err(Refusal::Full(self.gate.admission().limit())),
            step => Ok((pass, step)),
        });
        self.metrics.entered(&self.gate, entered.as_ref().map(|(_, step)| *step).map_err(|refusal| *refusal));
        entered.map_err(Error::Busy)
    }

    async fn admitted(&self, asked: &Asked, trail: &mut Trail, step: Step) -> Result<Answer> {
        let mut pinned = self.pin(asked, trail).await?;
        loop {
            // Each has fewer ways left: no other, and no more following.
            let got = self.ask(asked, trail, step, &pinned).await;
            if let Some(next) = self.followed(asked, trail, &pinned).await {
                pinned = next;
                continue;
            }
            let (why, words) = match got {
                Ok(Got::Answer(answer)) => return Ok(*answer),
                Ok(Got::Lost(why)) => (why, pin::missing(&pinned.corpus, &trail.gathered)),
                Err(error) => match self.refused_alone(&pinned, asked, &error).await {
                    Some(words) => (pin::REFUSED, words),
                    None => return Err(error),
                },
            };
            pinned = self.repin(pinned, trail, why, words);
        }
    }
}

/// Lets the limit learn from a query that was searched. One that waits for offsets takes its time on purpose: only what was
/// refused below says something.
fn teach(pass: Pass, gathered: &Gathered, asked: &Asked, result: &Result<Answer>) {
    let searched = matches!(result, Ok(_) | Err(Error::NothingAnswered { .. } | Error::UnderCoverage { .. }));
    match gathered.lesson() {
        Lesson::Ended if searched && !asked.waits() => pass.ended(),
        Lesson::Cut if searched => pass.cut(),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
