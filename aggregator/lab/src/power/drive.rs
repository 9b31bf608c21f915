//! One run of a case: the steps one after the other, each judged at every look until it is stopped or over.

use std::sync::Arc;

use canopy_aggregator::gather::Gathered;
use canopy_common::{config::Time, ids::Version};
use canopy_topology::{
    gates::{Arm, Comparison, Gate, GatePolicy, Judgement, latencies::Latencies, rank::rank_test},
    rollout::{Policy, Step, Verdict},
    routing::{RoutingSnapshot, Trial},
};
use parking_lot::Mutex;
use tokio::{task::JoinSet, time::sleep_until};

use super::{Case, Control, Expects, Settings};
use crate::{
    arm, draw,
    error::{Error, Result},
    rollout::{
        drive::{Pinned, answered, ask},
        service::{Loading, NEW, Service, TICK_S},
    },
    world::{VERSION, World},
};

/// Stream of the draws that put a query into an arm.
const ARM: u64 = 0xa11a;
/// Stream of the draws of queries without a hit.
const ZERO: u64 = 0x2e50;
/// Queries between two words of the roots to the service.
const BATCH: u64 = 100;
/// The chance at which the rank test alone would have spoken.
const RANK_ALPHA: f64 = 0.01;

/// How a version was stopped.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Catch {
    /// In the step of this share.
    pub percent: u8,
    /// With so many queries of the smaller arm.
    pub sample: u64,
    /// By which metric.
    pub metric: String,
    /// At once, or for somebody to look.
    pub hard: bool,
}

/// What a run came to.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Run {
    /// Its seed.
    pub seed: u64,
    /// `None`: it was not stopped.
    pub caught: Option<Catch>,
    /// What the gates said last, with the numbers.
    pub said: String,
    /// Whether the rank test alone would have spoken over the whole planned sample of the first step; `None`: not asked.
    pub by_ranks: Option<bool>,
}

/// What the roots saw in a step: since they were last asked, and, of the latencies, in all.
#[derive(Default)]
struct Seen {
    new: Comparison,
    all: [Latencies; 2],
}

/// How the two arms of a step ask.
struct Arms {
    trial: Trial,
    control: Control,
    routing: Arc<RoutingSnapshot>,
}

impl Arms {
    fn of(service: &Service, control: Control) -> Result<Self> {
        let trial = service.corpus().and_then(|corpus| corpus.trial);
        let trial = trial.ok_or_else(|| Error::Lost("the step has no trial".to_owned()))?;
        Ok(Self { trial, control, routing: service.routing().clone() })
    }

    /// As a root pins a query of a trial.
    fn pin(&self, query: u64, treated: bool) -> Pinned {
        let (version, other) = (self.trial.version, self.trial.control);
        let (version, other) = if treated { (version, other) } else { (other, version) };
        let beside = (treated || self.control == Control::SameLeaves).then_some(other);
        Pinned { query, version, beside }
    }
}

/// One run under way.
struct Course<'a> {
    settings: &'a Settings,
    case: &'a Case,
    seed: u64,
    world: Arc<World>,
    running: JoinSet<()>,
    said: String,
}

impl Course<'_> {
    /// Sends one query of an arm and does not wait for it; what it sees goes into `seen`.
    async fn send(&mut self, (query, at): (u64, f64), arms: &Arms, seen: &Arc<Mutex<Seen>>) -> Result<()> {
        let intended = self.world.start + self.world.scale.span(at);
        sleep_until(intended).await;
        while let Some(done) = self.running.try_join_next() {
            done.map_err(arm::lost)?;
        }
        let treated = draw::unit(&[self.seed, ARM, query]) < 0.5;
        let share = if treated { self.case.zero_results } else { self.settings.zero_results };
        let empty = draw::unit(&[self.seed, ZERO, query]) < share;
        let (world, routing, seen) = (self.world.clone(), arms.routing.clone(), seen.clone());
        let (pinned, deadline) = (arms.pin(query, treated), self.settings.workload.deadline);
        self.running.spawn(async move {
            let (took, gathered) = ask(&world, &routing, pinned, intended, deadline).await;
            seen.lock().add(treated, took, empty, &gathered);
        });
        Ok(())
    }

    /// Queries before the first step, of the old version over all leaves, so that the engine knows its leaves.
    async fn warm(
        &mut self,
        arrivals: &mut impl Iterator<Item = (u64, f64)>,
        routing: &Arc<RoutingSnapshot>,
    ) {
        for (query, at) in arrivals.take(self.settings.workload.warmup as usize) {
            let (world, routing) = (self.world.clone(), routing.clone());
            let (intended, deadline) = (world.start + world.scale.span(at), self.settings.workload.deadline);
            let live = Pinned { query, version: Version(VERSION), beside: None };
            sleep_until(intended).await;
            self.running.spawn(async move {
                let _unmeasured = ask(&world, &routing, live, intended, deadline).await;
            });
        }
    }

    /// One step, judged until it is stopped or has been judged for long enough; and what its latencies were in all.
    async fn step(
        &mut self,
        percent: u8,
        arms: &Arms,
        arrivals: &mut impl Iterator<Item = (u64, f64)>,
    ) -> Result<(Option<Catch>, [Latencies; 2])> {
        let seen: Arc<Mutex<Seen>> = Arc::default();
        let mut gate = Gate::new(GatePolicy::of(percent, self.settings.sample), Vec::new());
        let until = self.settings.sample * u64::from(self.case.rounds);
        let mut caught = None;
        loop {
            for _ in 0..BATCH {
                let next = arrivals.next().ok_or_else(|| Error::Lost("queries ran out".to_owned()))?;
                self.send(next, arms, &seen).await?;
            }
            let (batch, sample) = {
                let mut seen = seen.lock();
                let sample = seen.all.iter().map(Latencies::len).min().unwrap_or(0);
                (std::mem::take(&mut seen.new), sample)
            };
            gate.take(&batch);
            let over = sample >= until;
            // A step of more rounds ends somewhere within one: with a last look at what is there.
            let last = over && self.case.rounds > 1;
            let judgement = gate.judge(last).filter(|_| caught.is_none());
            if let Some(judgement) = judgement {
                self.said = judgement.reason();
                caught = (judgement.verdict > Verdict::Wait).then(|| Catch::of(percent, &judgement));
            }
            // The whole sample is there for the rank test.
            if over || (caught.is_some() && !self.ranked()) {
                let all = std::mem::take(&mut seen.lock().all);
                return Ok((caught, all));
            }
        }
    }

    /// Whether the rank test is asked too: of faults.
    fn ranked(&self) -> bool {
        matches!(self.case.expects, Expects::Caught(_))
    }
}

impl Catch {
    fn of(percent: u8, judgement: &Judgement) -> Self {
        let worst = judgement.findings.iter().find(|finding| finding.verdict == judgement.verdict);
        // The numbers in it differ from run to run.
        let name = worst.map_or("", |worst| worst.metric.as_str());
        let metric = name.split(|c: char| c.is_ascii_digit()).next().unwrap_or("").trim().to_owned();
        Self { percent, sample: judgement.sample, metric, hard: judgement.verdict == Verdict::HardBreach }
    }
}

impl Seen {
    fn add(&mut self, treated: bool, took: f64, empty: bool, gathered: &Gathered) {
        let (control, treatment) = (&mut self.new.control, &mut self.new.treatment);
        let arm: &mut Arm = if treated { treatment } else { control };
        arm.queries += 1;
        arm.partial += u64::from(answered(gathered).count() < gathered.shards.len());
        arm.zero_results += u64::from(empty);
        let us = (took * 1000.0) as u64;
        arm.latencies.record(us);
        self.all[usize::from(treated)].record(us);
    }
}

/// Runs it.
pub(super) async fn drive(settings: &Settings, case: &Case, seed: u64) -> Result<Run> {
    let workload = settings.workload(case, seed);
    let world = Arc::new(World::new(&workload, &settings.policy)?);
    let mut service = Service::new(world.clone(), Loading { takes: 0.0, slowdown: 1.0 })?;
    let mut arrivals = workload.arrivals().enumerate().map(|(query, at)| (query as u64, at));
    let mut course = Course { settings, case, seed, world, running: JoinSet::new(), said: String::new() };
    course.warm(&mut arrivals, service.routing()).await;
    // Without a sample of its own a step is over when the lab says so.
    let bake = Time::ms((TICK_S * 1000.0) as u64);
    let steps = case.steps.iter().chain([&100]).map(|percent| Step { percent: *percent, bake, sample: 0 });
    service.start(0.0, Policy { steps: steps.collect(), ..Policy::default() })?;
    let mut run = Run { seed, caught: None, said: String::new(), by_ranks: None };
    for percent in &case.steps {
        let step = service.judged.take().filter(|step| step.percent == *percent);
        step.ok_or_else(|| {
            Error::Lost(format!("the step of {percent} % did not come: {:?}", service.marks))
        })?;
        let arms = Arms::of(&service, case.control)?;
        let (caught, [control, treatment]) = course.step(*percent, &arms, &mut arrivals).await?;
        if course.ranked() && run.by_ranks.is_none() {
            run.by_ranks = rank_test(&control, &treatment).map(|test| test.p < RANK_ALPHA);
        }
        run.caught = caught;
        if run.caught.is_some() {
            break;
        }
        service.tick(0.0)?;
    }
    while let Some(done) = course.running.join_next().await {
        done.map_err(arm::lost)?;
    }
    let strangers = course.world.counts().not_held;
    if strangers > 0 {
        return Err(Error::Lost(format!(
            "{strangers} calls for v{NEW} or v{VERSION} came to leaves without it"
        )));
    }
    run.said = course.said;
    Ok(run)
}
