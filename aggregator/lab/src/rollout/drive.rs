//! One arm with one seed: queries come when they come, each goes by the routing snapshot of its arrival, and between two of
//! them the service ticks.

use std::sync::Arc;

use canopy_aggregator::gather::Gathered;
use canopy_common::{
    deadline::Deadline,
    ids::{AttemptId, Version},
    request::RequestContext,
};
use canopy_proto::v1;
use canopy_topology::routing::RoutingSnapshot;
use parking_lot::Mutex;
use tokio::{
    task::JoinSet,
    time::{Instant, sleep_until},
};

use super::{
    Plan, Settings,
    service::{Loading, Mark, NEW, Service, TICK_S},
};
use crate::{
    arm, draw,
    error::{Error, Result},
    world::{VERSION, World},
};

/// Stream of the numbers that pin queries to versions.
const STABLE: u64 = 0x57ab;
/// Queries between two reports of progress.
const PROGRESS: u64 = 500;

/// Queries of one window.
#[derive(Debug, Clone, Default)]
pub(super) struct Window {
    /// Their latencies, model microseconds; sorted when the arm has ended.
    pub times: Vec<u32>,
    /// Of them, pinned to the new version.
    pub new: u64,
}

/// What one arm measured with one seed.
#[derive(Debug, Clone, Default)]
pub(super) struct Run {
    /// By time of arrival.
    pub windows: Vec<Window>,
    /// From the first leaf's loading to the end of the rollout's last step, model ms; `None`: no rollout, or it did not end.
    pub took: Option<(f64, f64)>,
    /// What happened.
    pub marks: Vec<Mark>,
    /// Most replicas of one shard that loaded at once.
    pub most: usize,
    /// Queries that some shard did not answer.
    pub incomplete: u64,
    /// Answers with a shard from another version than the query's.
    pub mixed: u64,
    /// Calls for a version that the leaf does not hold.
    pub not_held: u64,
    /// All that happened, mixed into one number.
    pub history: u64,
}

/// A query, and how it is pinned.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pinned {
    /// Its number.
    pub query: u64,
    /// To which version.
    pub version: Version,
    /// The version that its leaves must hold too.
    pub beside: Option<Version>,
}

/// Asks it, by a snapshot; how long it took, model ms, and what came.
pub(crate) async fn ask(
    world: &World,
    routing: &Arc<RoutingSnapshot>,
    Pinned { query, version, beside }: Pinned,
    intended: Instant,
    deadline: f64,
) -> (f64, Gathered) {
    let (id, request) = world.query_of(query, version.0, beside.map_or(0, |beside| beside.0));
    let caller = &world.callers[query as usize % world.callers.len()];
    let context = RequestContext::new(id, AttemptId(0), Deadline::at(intended + world.scale.span(deadline)));
    let gathered = caller.search(&context, routing, request).await;
    (world.scale.ms(intended.elapsed()), gathered)
}

/// Shards that answered.
pub(crate) fn answered(gathered: &Gathered) -> impl Iterator<Item = &v1::ShardReply> {
    gathered.shards.iter().filter(|reply| reply.outcome == v1::Outcome::Answered as i32)
}

impl Run {
    fn add(&mut self, window: usize, pinned: Pinned, took: f64, gathered: &Gathered) {
        let version = pinned.version;
        if self.windows.len() <= window {
            self.windows.resize(window + 1, Window::default());
        }
        let window = &mut self.windows[window];
        window.times.push((took * 1000.0).round() as u32);
        window.new += u64::from(version.0 == NEW);
        let all = answered(gathered).count();
        self.incomplete += u64::from(all < gathered.shards.len());
        self.mixed += u64::from(answered(gathered).any(|reply| reply.version != version.0));
        let event = [pinned.query, took.to_bits(), all as u64, version.0];
        self.history = draw::bits(&[self.history, draw::bits(&event)]);
    }
}

/// Runs it.
pub(super) async fn drive(
    settings: &Settings,
    plan: Plan,
    seed: u64,
    progress: &(dyn Fn(u64) + Sync),
) -> Result<Run> {
    let workload = settings.workload_of(seed);
    let world = Arc::new(World::new(&workload, &settings.policy)?);
    let loading = Loading { takes: settings.warm_up * 1000.0, slowdown: settings.slowdown };
    let mut stage =
        Stage { service: Service::new(world.clone(), loading)?, settings, plan, begun: None, done: None };
    let (lead, end) = (settings.lead * 1000.0, settings.end() * 1000.0);
    let tally: Arc<Mutex<Run>> = Arc::default();
    let (mut running, mut tick) = (JoinSet::new(), 0.0);
    for (query, at) in workload.arrivals().enumerate().take_while(|(_, at)| *at < end) {
        let query = query as u64;
        while tick <= at {
            sleep_until(world.start + world.scale.span(tick)).await;
            stage.tick(tick, lead)?;
            tick += TICK_S * 1000.0;
        }
        let intended = world.start + world.scale.span(at);
        sleep_until(intended).await;
        while let Some(done) = running.try_join_next() {
            done.map_err(arm::lost)?;
        }
        let stable = draw::bits(&[seed, STABLE, query]);
        let pinned = stage.service.corpus().and_then(|corpus| corpus.pinned(stable));
        let pinned = Pinned { query, version: pinned.unwrap_or(Version(VERSION)), beside: None };
        let (world, routing, tally) = (world.clone(), stage.service.routing().clone(), tally.clone());
        let (window, deadline) = ((at / settings.window / 1000.0) as usize, workload.deadline);
        running.spawn(async move {
            let (took, gathered) = ask(&world, &routing, pinned, intended, deadline).await;
            tally.lock().add(window, pinned, took, &gathered);
        });
        if query % PROGRESS == PROGRESS - 1 {
            progress(PROGRESS);
        }
    }
    while let Some(done) = running.join_next().await {
        done.map_err(arm::lost)?;
    }
    let mut run = std::mem::take(&mut *tally.lock());
    run.windows.iter_mut().for_each(|window| window.times.sort_unstable());
    run.took = stage.begun.zip(stage.done);
    run.most = stage.service.most;
    run.marks = std::mem::take(&mut stage.service.marks);
    run.not_held = world.counts().not_held;
    if plan != Plan::None && run.took.is_none() {
        let last = run.marks.last().map_or("nothing happened", |mark| mark.what.as_str());
        return Err(Error::Lost(format!("the rollout did not end; last: {last}")));
    }
    Ok(run)
}

/// The service, and how far the rollout is.
struct Stage<'a> {
    service: Service,
    settings: &'a Settings,
    plan: Plan,
    begun: Option<f64>,
    done: Option<f64>,
}

impl Stage<'_> {
    fn tick(&mut self, at: f64, lead: f64) -> Result<()> {
        self.service.tick(at)?;
        if self.begun.is_none() && at >= lead && self.plan != Plan::None {
            self.begun = Some(at);
            if self.plan == Plan::AtOnce {
                self.service.push(at);
            } else {
                self.service.start(at, self.settings.rollout(self.plan))?;
            }
        }
        if self.done.is_none() && self.service.done() {
            self.done = Some(at);
        }
        Ok(())
    }
}
