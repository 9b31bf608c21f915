//! What the leaf tells of itself: started, ready, status.
//!
//! Ready means: it would answer. The check runs a real query on every shard that is served, on the search threads and through
//! their queue, so that stuck threads show; its result is kept for a second (a failure for a tenth of one), so that probes cost
//! next to nothing; what the board says is never kept. A leaf that still opens shards, serves none of those it should hold, or
//! is leaving is not ready; nor is one that starts and is further behind the log than `max_lag`. One that should hold nothing (a spare) is, since it does all that is asked of it. So is one where a
//! shard failed or is quarantined while others answer: to turn it away would take the sound ones too, and callers are told of
//! that one. What it lacks is in its status (`lacking`), which `canopy status` counts as not well. Liveness is the process' own
//! and depends on nobody.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use canopy_common::{admin::Health, deadline::Deadline};
use futures::{FutureExt, future::BoxFuture};
use tokio::{
    sync::{Mutex, oneshot},
    time::Instant,
};

use crate::{
    executor::{Lane, Task, Turn},
    load,
    node::Parts,
    shards::{Serving, State, warm},
    stop::Stop,
};

/// How long a result is kept.
const FRESH: Duration = Duration::from_secs(1);
/// How long a failure is kept.
const AGAIN: Duration = Duration::from_millis(100);
/// Longest wait for the probes of all shards.
const PATIENCE: Duration = Duration::from_millis(1500);

/// Shards named as asked most.
const BUSIEST: usize = 10;

/// Health of one leaf.
pub struct LeafHealth {
    parts: Arc<Parts>,
    last: Mutex<Option<(Instant, Result<(), String>)>>,
    /// Whether it was once no further behind the log than it may be.
    kept_up: AtomicBool,
}

impl LeafHealth {
    /// Health of these parts.
    pub fn new(parts: Arc<Parts>) -> Self {
        Self { parts, last: Mutex::new(None), kept_up: AtomicBool::new(false) }
    }

    /// What is to be asked, as the board has it now. Never kept: a failure from before all was opened would outlive it.
    fn to_ask(&self) -> Result<Vec<Arc<Serving>>, String> {
        let board = &self.parts.shards.board;
        let counts = board.counts();
        let of = |state| counts.get(&state).copied().unwrap_or(0);
        let nothing = !board.wants_any();
        if nothing && !board.settled() {
            return Err("it is not known yet what this leaf should hold".to_owned());
        }
        if nothing && !self.parts.routing.now().nodes.contains_key(&self.parts.shards.node) {
            return Err("the topology does not know this leaf".to_owned());
        }
        if !board.settled() {
            return Err(format!("opening: {} shards to go, {} serve", board.opening(), of(State::Serving)));
        }
        let servings: Vec<_> = self.parts.shards.directory.snapshot().all().cloned().collect();
        if servings.is_empty() && !nothing {
            let (bad, failed) = (of(State::Quarantined), of(State::Failed));
            return Err(format!("no shard serves: {bad} quarantined, {failed} could not be opened"));
        }
        self.lag(&servings)?;
        Ok(servings)
    }

    /// A leaf that starts is not ready while it is far behind the log. Later it stays ready, since its peers are no better; and with a
    /// log that is away it answers with what it has.
    fn lag(&self, servings: &[Arc<Serving>]) -> Result<(), String> {
        if self.kept_up.load(Ordering::Relaxed) {
            return Ok(());
        }
        let (now, most) = (self.parts.clock.now_us(), self.parts.config.overlay.max_lag);
        for serving in servings {
            let lag = serving.view().lag.clone();
            let behind = Duration::from_millis(lag.ms(now));
            if !lag.stale() && behind > most.0 {
                let (shard, behind) = (&serving.shard, behind.as_secs_f64());
                return Err(format!(
                    "shard {shard} is {behind:.1} s behind the log; at most {most} at a start"
                ));
            }
        }
        self.kept_up.store(!servings.is_empty(), Ordering::Relaxed);
        Ok(())
    }

    /// Asks them all on the search threads.
    async fn ask(&self, servings: Vec<Arc<Serving>>) -> Result<(), String> {
        let (tell, told) = oneshot::channel();
        let (parts, deadline) = (self.parts.clone(), Deadline::after(PATIENCE));
        let task = Task {
            lane: Lane::Probe,
            deadline,
            owner: 0,
            run: Box::new(move |turn| {
                let result = match turn {
                    Turn::Run(_) => probe(&parts, &servings, deadline),
                    Turn::Expired(_) | Turn::Shed(_) | Turn::Closed => {
                        Err("the search threads are stuck".to_owned())
                    }
                };
                let _asker_may_be_gone = tell.send(result);
            }),
        };
        self.parts.executor.submit(vec![task]);
        match tokio::time::timeout(PATIENCE, told).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) | Err(_) => Err("the search threads are stuck".to_owned()),
        }
    }
}

/// Asks every shard; one that turns out damaged is quarantined and counts no more.
fn probe(parts: &Arc<Parts>, servings: &[Arc<Serving>], deadline: Deadline) -> Result<(), String> {
    let stop = Stop::new(deadline, Arc::default());
    let mut answered = 0;
    for serving in servings {
        let result = warm::check(&serving.view(), &serving.probe, &stop);
        match parts.shards.judge(serving, result.as_ref().err()) {
            None => answered += 1,
            Some(failure) if serving.retired() => {
                tracing::warn!(shard = %serving.shard, %failure, "a readiness check found damage");
            }
            Some(failure) => return Err(format!("shard {}: {failure}", serving.shard)),
        }
    }
    if answered > 0 || servings.is_empty() { Ok(()) } else { Err("no shard answers".to_owned()) }
}

impl Health for LeafHealth {
    fn started(&self) -> bool {
        self.parts.shards.board.settled()
    }

    fn ready(&self) -> BoxFuture<'_, Result<(), String>> {
        async {
            if self.parts.drain.leaving() {
                return Err("draining".to_owned());
            }
            let servings = self.to_ask()?;
            let mut last = self.last.lock().await;
            if let Some((at, result)) = &*last
                && at.elapsed() < if result.is_ok() { FRESH } else { AGAIN }
            {
                return result.clone();
            }
            let result = self.ask(servings).await;
            *last = Some((Instant::now(), result.clone()));
            result
        }
        .boxed()
    }

    fn status(&self) -> serde_json::Value {
        let parts = &self.parts;
        serde_json::json!({
            "role": "leaf",
            "node": parts.shards.node.to_string(),
            "epoch": parts.routing.now().epoch.0,
            "draining": parts.drain.leaving(),
            "threads": parts.executor.threads(),
            "queued": parts.executor.queued(),
            "running": parts.calls.running(),
            "in_flight_shards": parts.metrics.in_flight.get(),
            "busiest": load::busiest(&parts.shards, BUSIEST),
            "views": parts.shards.leases.len(),
            "lag_ms": load::lag_ms(&parts.shards, parts.clock.now_us()),
            "shards": parts.shards.board.to_json(parts.clock.now_us()),
            "lacking": parts.shards.board.lacking_json(),
            "passed_over": parts.shards.board.passed_over(),
        })
    }
}
