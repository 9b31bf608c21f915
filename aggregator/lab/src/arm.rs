//! Runs one arm: a workload under a policy, open loop, on a runtime of its own whose clock moves only when nothing is
//! left to do. Latencies count from the intended arrival; nothing waits for answers before it asks on.
//!
//! The same workload, policy and seed have the same history, down to the order in which queries end; a run that fails
//! says which seed repeats it.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use canopy_aggregator::gather::Gathered;
use canopy_common::{deadline::Deadline, ids::AttemptId, request::RequestContext};
use canopy_proto::v1;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::{
    task::{JoinError, JoinSet},
    time::{Instant, sleep_until},
};

use crate::{
    draw,
    error::{Error, Result},
    leaf::Counts,
    policy::Policy,
    workload::Workload,
    world::World,
};

/// Queries between two reports of progress.
const PROGRESS: u64 = 500;

/// What an arm measured. Queries of the warm-up are in none of it but `calls`.
#[derive(Debug, Clone)]
pub struct Outcome {
    /// Latencies, model microseconds.
    pub latency: Histogram<u64>,
    /// What happened at the leaves.
    pub counts: Counts,
    /// The same by place of the replica.
    pub by_replica: Vec<Counts>,
    /// Shards that answered, of all queries.
    pub answered: u64,
    /// Queries that all shards answered.
    pub complete: u64,
    /// Queries with an answer whose account differs from what the leaves did.
    pub false_flags: u64,
    /// What the engine says of its attempts.
    pub tail: v1::TailReport,
    /// Every measured query in the order in which they ended, mixed into one number: two runs with the same one went
    /// the same way.
    pub history: u64,
    /// From the first to the last measured arrival, model ms.
    pub span: f64,
    /// Time that workers were taken, as a share of all workers' time; 0 without queues.
    pub executed: f64,
    /// Calls that came to the leaves, warm-up included.
    pub calls: u64,
    /// CPU microseconds that it took, where the system says so.
    pub cpu_us: Option<f64>,
}

impl Outcome {
    /// A quantile of the latencies, model ms.
    pub fn ms(&self, quantile: f64) -> f64 {
        self.latency.value_at_quantile(quantile) as f64 / 1000.0
    }

    /// Share of the queries that took longer than this, model ms.
    pub fn share_above(&self, ms: f64) -> f64 {
        let below = self.latency.count_between(0, (ms * 1000.0) as u64);
        1.0 - below as f64 / self.latency.len() as f64
    }

    /// Copies that came to the leaves, per first call.
    pub fn extra(&self) -> f64 {
        let first = self.counts.arrived - self.counts.copies;
        self.counts.copies as f64 / first.max(1) as f64
    }

    /// Calls whose work had begun elsewhere before, per first call.
    pub fn twice(&self) -> f64 {
        let first = self.counts.arrived - self.counts.copies;
        self.counts.twice as f64 / first.max(1) as f64
    }
}

/// An empty histogram of model microseconds: 1 us to 1 h, three digits.
pub fn histogram() -> Result<Histogram<u64>> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).map_err(|error| Error::Lost(error.to_string()))
}

struct Tally {
    latency: Histogram<u64>,
    answered: u64,
    complete: u64,
    false_flags: u64,
    history: u64,
    tail: v1::TailReport,
}

impl Tally {
    fn add(&mut self, world: &World, query: u64, took_ms: f64, gathered: &Gathered) {
        self.latency.saturating_record(((took_ms * 1000.0).round() as u64).max(1));
        let says = |reply: &v1::ShardReply| reply.outcome == v1::Outcome::Answered as i32;
        let answered = gathered.shards.iter().filter(|reply| says(reply)).count();
        self.answered += answered as u64;
        self.complete += u64::from(answered == world.siblings.len());
        let both = gathered.shards.iter().zip(&world.siblings);
        let wrong = both.filter(|(reply, siblings)| says(reply) != siblings.finished(query)).count();
        self.false_flags += u64::from(wrong > 0 || gathered.shards.len() != world.siblings.len());
        let tail = &gathered.tail;
        let event = [query, took_ms.to_bits(), answered as u64, u64::from(tail.attempts)];
        self.history = draw::bits(&[self.history, draw::bits(&event)]);
        self.tail.attempts += tail.attempts;
        self.tail.hedges += tail.hedges;
        self.tail.hedges_won += tail.hedges_won;
        self.tail.retries += tail.retries;
        self.tail.budget_denied += tail.budget_denied;
    }
}

/// CPU time of this thread so far, microseconds; Linux says it.
fn cpu_us() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    Some(text.split_whitespace().next()?.parse::<f64>().ok()? / 1000.0)
}

/// Runs it. `progress` hears of queries sent.
pub fn run(workload: &Workload, policy: &Policy, progress: &dyn Fn(u64)) -> Result<Outcome> {
    workload.check()?;
    policy.check()?;
    let which = || format!("{} with {} shards", policy.name(), workload.shards);
    alone(which, workload.seed, drive(workload, policy, progress))
}

/// Runs one arm of any lab on a runtime of its own, whose clock moves only when nothing is left to do. One that is lost
/// says which it was and which seed repeats it, whether it ended too early or panicked.
pub(crate) fn alone<T>(
    which: impl FnOnce() -> String,
    seed: u64,
    arm: impl Future<Output = Result<T>>,
) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    let ran = catch_unwind(AssertUnwindSafe(|| runtime.block_on(arm)));
    ran.unwrap_or_else(|panic| Err(Error::Lost(said(&*panic)))).map_err(|error| match error {
        Error::Lost(why) => Error::Lost(format!("{} and seed {seed}: {why}", which())),
        other => other,
    })
}

/// What a panic said.
fn said(panic: &(dyn Any + Send)) -> String {
    let text =
        panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    format!("it panicked: {}", text.unwrap_or("without a word"))
}

/// Why a query has no end.
pub(crate) fn lost(error: JoinError) -> Error {
    let why = error.to_string();
    Error::Lost(error.try_into_panic().map_or(why, |panic| said(&*panic)))
}

async fn drive(workload: &Workload, policy: &Policy, progress: &dyn Fn(u64)) -> Result<Outcome> {
    let before = cpu_us();
    let world = Arc::new(World::new(workload, policy)?);
    let tally = Arc::new(Mutex::new(Tally {
        latency: histogram()?,
        answered: 0,
        complete: 0,
        false_flags: 0,
        history: 0,
        tail: v1::TailReport::default(),
    }));
    let mut running = JoinSet::new();
    let (mut first, mut last) = (0.0, 0.0);
    for (query, at) in workload.arrivals().enumerate() {
        let query = query as u64;
        if query == workload.warmup {
            first = at;
        }
        last = at;
        let intended = world.start + world.scale.span(at);
        sleep_until(intended).await;
        while let Some(done) = running.try_join_next() {
            done.map_err(lost)?;
        }
        let measured = (query >= workload.warmup).then(|| tally.clone());
        running.spawn(ask(world.clone(), query, intended, world.scale.span(workload.deadline), measured));
        if query % PROGRESS == PROGRESS - 1 {
            progress(PROGRESS);
        }
    }
    while let Some(done) = running.join_next().await {
        done.map_err(lost)?;
    }
    let counts = world.counts();
    let workers = f64::from(workload.workers) * f64::from(workload.shards) * f64::from(workload.replicas);
    let executed = if workers > 0.0 { world.scale.ms(counts.busy) / (workers * (last - first)) } else { 0.0 };
    let tally = tally.lock();
    Ok(Outcome {
        latency: tally.latency.clone(),
        counts,
        by_replica: world.counts_by_replica(workload.replicas as usize),
        answered: tally.answered,
        complete: tally.complete,
        false_flags: tally.false_flags,
        tail: tally.tail,
        history: tally.history,
        span: last - first,
        executed,
        calls: world.calls(),
        cpu_us: cpu_us().zip(before).map(|(after, before)| after - before),
    })
}

async fn ask(
    world: Arc<World>,
    query: u64,
    intended: Instant,
    budget: std::time::Duration,
    tally: Option<Arc<Mutex<Tally>>>,
) {
    let (id, request) = world.query(query);
    let caller = &world.callers[query as usize % world.callers.len()];
    let context = RequestContext::new(id, AttemptId(0), Deadline::at(intended + budget));
    let gathered = caller.search(&context, &world.routing, request).await;
    let took = world.scale.ms(intended.elapsed());
    if let Some(tally) = tally {
        tally.lock().add(&world, query, took, &gathered);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Hedge;

    fn workload(seed: u64) -> Workload {
        Workload { queries: 600, warmup: 100, shards: 5, seed, scale: 5, ..Workload::queued(0.005, 0.5) }
    }

    #[test]
    fn the_same_seed_has_the_same_history_and_another_seed_another() {
        let policy = Policy::hedge(Hedge::Auto);
        let history = |seed| run(&workload(seed), &policy, &|_| {}).unwrap().history;
        let first = history(1);
        assert_eq!(first, history(1));
        assert_ne!(first, history(2));
        let off = run(&workload(1), &Policy::hedge(Hedge::Off), &|_| {}).unwrap().history;
        assert_ne!(first, off);
    }

    #[test]
    fn what_fails_says_which_seed_repeats_it() {
        let failed =
            run(&workload(77), &Policy::hedge(Hedge::Off), &|_| panic!("no more paper")).unwrap_err();
        let text = failed.to_string();
        assert!(text.contains("off with 5 shards and seed 77: it panicked: no more paper"), "{text}");
    }
}
