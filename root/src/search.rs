//! The story of a query at the root: one snapshot, read, plan, gather, judge, fetch, page. Everything happens under
//! one deadline that began when the request arrived; dropping the future stops all of it, down to the leaves.

use std::{sync::Arc, time::Duration};

use canopy_aggregator::gather::{Gathered, Gatherer};
use canopy_common::{
    clock::WallClock,
    deadline::Deadline,
    drain::Drain,
    ids::{AttemptId, QueryId},
    request::RequestContext,
    rng::Dice,
    telemetry::SlowQueries,
};
use canopy_proto::v1;
use canopy_topology::routing::RoutingSnapshot;
use tokio::{sync::Semaphore, time::Instant};

use crate::{
    account,
    answer::{Answer, Warning},
    config::RootConfig,
    error::{Error, Result},
    fetch,
    incidents::Incidents,
    language::Reader,
    metrics::Metrics,
    page::{self, Sheet},
    plan,
    request::Wanted,
    timeline::Timeline,
    versions::Versions,
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
    pub routing: Arc<RoutingSnapshot>,
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
    /// Places for running queries.
    pub places: Arc<Semaphore>,
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

/// What is kept of a query for its record: filled as it goes, so that a failed one leaves a trail too.
pub struct Trail {
    /// Its phases.
    pub timeline: Timeline,
    /// What the search brought.
    pub gathered: Gathered,
}

impl Trail {
    /// Of a query that arrived then.
    pub fn since(arrival: Instant) -> Self {
        Self { timeline: Timeline::since(arrival), gathered: Gathered::default() }
    }
}

impl Root {
    /// Answers one query, counts it, and records it when it was slow or went wrong.
    pub async fn search(&self, asked: &Asked) -> Result<Answer> {
        let _busy = self.drain.busy();
        let running = self.metrics.running();
        let mut trail = Trail::since(asked.arrival);
        let result = self.answer(asked, &mut trail).await;
        running.ended(&trail.timeline, &result);
        crate::record::keep(self, asked, &trail, &result);
        result
    }

    /// Answers one query without counting or recording it: the readiness probe is not a client.
    pub async fn answer(&self, asked: &Asked, trail: &mut Trail) -> Result<Answer> {
        let busy = || Error::Busy(self.config.max_in_flight);
        let _place = self.places.try_acquire().map_err(|_| busy())?;
        let corpus = self.versions.corpus(&asked.request.corpus)?;
        let wanted = Wanted::check(&asked.request, &corpus, &self.config)?;
        let context = context(asked, &wanted)?;
        let _stop_when_dropped = context.cancel.clone().drop_guard();

        let now_us = self.clock.now_us();
        let parsed = self.reader.read(&asked.request, &corpus, context.deadline, now_us).await?;
        let nothing = parsed.finds_nothing();
        let truncated = parsed.expansion_truncated;
        let warnings = parsed.warnings.iter().map(Warning::from).collect();
        let request = Arc::new(plan::search(asked.query, &wanted, parsed, &corpus, &self.routing));
        trail.timeline.end("parse");

        trail.gathered = if nothing {
            account::nothing_to_find(&request)
        } else {
            self.gatherer.search(&context, &self.routing, request.clone()).await
        };
        trail.timeline.end("search");

        let coverage = account::of(&corpus, &trail.gathered);
        account::judge(&coverage, &trail.gathered, wanted.min_coverage)?;
        let hits = plan::page(std::mem::take(&mut trail.gathered.hits), &wanted);
        let documents = fetch::documents(self, &context, &request, &wanted, &corpus, &hits, trail).await;
        trail.timeline.end("fetch");

        let sheet = Sheet {
            asked,
            wanted: &wanted,
            corpus: &corpus,
            request: &request,
            coverage: &coverage,
            truncated,
            nothing,
            warnings,
        };
        let mut answer = page::assemble(&sheet, &trail.gathered, &hits, &documents);
        trail.timeline.end("page");
        if wanted.trace {
            answer.trace = Some(crate::timeline::trace(&self.node, &trail.timeline, &trail.gathered));
        }
        answer.took_ms = trail.timeline.took_ms();
        Ok(answer)
    }
}

fn context(asked: &Asked, wanted: &Wanted) -> Result<RequestContext> {
    let budget = asked.limit.map_or(wanted.timeout, |limit| limit.min(wanted.timeout));
    let deadline = Deadline::at(asked.arrival + budget);
    if deadline.expired() {
        return Err(Error::TooLate(budget.as_millis() as u64));
    }
    let context = RequestContext::new(asked.query, AttemptId(0), deadline);
    Ok(RequestContext { priority: wanted.priority, ..context })
}
