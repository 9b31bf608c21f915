//! `lab overload`: a tree that is asked more than it can do for a while, by clients that ask again when no answer comes.
//!
//! Three arms. **none**: queues without bounds, nobody stops work whose client has gone. **timeouts**: each call of the
//! root has a timeout, which ends the waiting and not the work. Both collapse and stay so after the burst: every answer
//! comes too late, so every query is asked three times, which is more than can be done (a metastable failure).
//! **protected**: deadlines that stop work, leaves that give back what can't be in time, a gate at the root, the
//! engine's own breaker and throttle, and clients that respect a pushback. It answers what it can, refuses the rest at
//! once, and is well when the burst is over.
//!
//! Time is not scaled here: the limits that adapt have constants of real time, and 8 ms are coarse enough.

mod client;
pub mod plot;
pub mod report;

use std::sync::Arc;

use canopy_common::limit::{Admission, Bounds, Gate};
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::{
    task::JoinSet,
    time::{Duration, sleep_until},
};

use crate::{
    arm,
    error::{Error, Result},
    jobs,
    latency::Latency,
    leaf::{Cancel, Counts},
    policy::{Hedge, Policy},
    workload::{Protect, Rate, Workload},
    world::World,
};
use client::{Client, Second, Tally};
use report::{Arm, Report};

/// What an arm does against overload.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Protection {
    /// Nothing.
    None,
    /// Timeouts of calls.
    Timeouts,
    /// All there is.
    Protected,
}

impl Protection {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Timeouts, Self::Protected];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Timeouts => "timeouts",
            Self::Protected => "protected",
        }
    }
}

/// What to run. Loads are shares of what the leaves can do.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// Time of one call.
    pub latency: Latency,
    /// Shards.
    pub shards: u32,
    /// Replicas of each.
    pub replicas: u32,
    /// Workers of a leaf.
    pub workers: u32,
    /// Load before and after the burst.
    pub load: f64,
    /// Load in the burst.
    pub burst: f64,
    /// The burst: from, to, and the end of the run, s.
    pub times: (u32, u32, u32),
    /// How long a client waits for an answer, ms.
    pub patience: f64,
    /// How often it asks at most.
    pub attempts: u32,
    /// Bounds of the root's adaptive limit.
    pub in_flight: (u32, u32),
    /// Arms.
    pub arms: Vec<Protection>,
    /// Seed.
    pub seed: u64,
    /// So many seeds, from that one on.
    pub seeds: u32,
    /// Threads.
    #[serde(skip)]
    pub threads: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            latency: Latency::with_hiccups(0.0),
            shards: 4,
            replicas: 2,
            workers: 4,
            load: 0.7,
            burst: 1.5,
            times: (10, 20, 50),
            patience: 350.0,
            attempts: 3,
            in_flight: (64, 1024),
            arms: Protection::ALL.to_vec(),
            seed: 1,
            seeds: 1,
            threads: 1,
        }
    }
}

impl Settings {
    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<()> {
        let (from, to, end) = self.times;
        Error::within("end", end, 2, 3600)?;
        Error::within("until", to, from, end)?;
        Error::within("load", self.load, 0.01, 20.0)?;
        Error::within("burst", self.burst, 0.01, 20.0)?;
        Error::within("patience", self.patience, 10.0, 60_000.0)?;
        Error::within("attempts", self.attempts, 1, 10)?;
        Error::within("workers", self.workers, 1, 1024)?;
        Error::within("seeds", self.seeds, 1, 1000)?;
        Error::within("min-in-flight", self.in_flight.0, 1, self.in_flight.1)?;
        self.workload(Protection::None, self.seed).check()
    }

    /// Queries per second that the leaves can do.
    pub fn capacity(&self) -> f64 {
        1000.0 * self.workload(Protection::None, self.seed).rate_at(1.0)
    }

    /// Workers of all leaves.
    pub(crate) fn all_workers(&self) -> u32 {
        self.shards * self.replicas * self.workers
    }

    /// Queries that one arm sends with one seed.
    pub fn queries(&self) -> u64 {
        let (from, to, end) = (f64::from(self.times.0), f64::from(self.times.1), f64::from(self.times.2));
        let load = (from + end - to) * self.load + (to - from) * self.burst;
        (load * 1000.0 * self.latency.mean().recip() * f64::from(self.replicas * self.workers)) as u64
    }

    fn workload(&self, protection: Protection, seed: u64) -> Workload {
        let protected = protection == Protection::Protected;
        let mut workload = Workload {
            latency: self.latency,
            shards: self.shards,
            replicas: self.replicas,
            workers: self.workers,
            cancel: if protected { Cancel::Running } else { Cancel::Never },
            // As a leaf of four threads is by default.
            protected: protected.then_some(Protect { room: 256, shed_after: 100.0 }),
            queries: u64::MAX,
            warmup: 0,
            seed,
            scale: 1,
            ..Workload::plain(0.0)
        };
        let at = |load: f64| workload.rate_at(load);
        let (from, to) = (f64::from(self.times.0) * 1000.0, f64::from(self.times.1) * 1000.0);
        workload.rates = vec![
            Rate { from: 0.0, per_ms: at(self.load) },
            Rate { from, per_ms: at(self.burst) },
            Rate { from: to, per_ms: at(self.load) },
        ];
        workload.queries = self.queries().max(1) * 2;
        workload
    }
}

/// Runs all arms. `progress` hears of queries sent.
pub fn run(settings: &Settings, progress: &(dyn Fn(u64) + Sync)) -> Result<Report> {
    settings.check()?;
    let seeds = settings.seed..settings.seed.saturating_add(u64::from(settings.seeds));
    let one = |arm: &Protection| seeds.clone().map(|seed| (*arm, seed)).collect::<Vec<_>>();
    let runs: Vec<(Protection, u64)> = settings.arms.iter().flat_map(one).collect();
    let runs = jobs::run(&runs, settings.threads, |(protection, seed)| {
        let which = || format!("the arm {}", protection.as_str());
        arm::alone(which, *seed, drive(settings, *protection, *seed, progress))
    })?;
    let runs = runs.chunks(settings.seeds as usize);
    let arms = settings.arms.iter().zip(runs).map(|(arm, runs)| Arm::of(settings, *arm, runs)).collect();
    Ok(Report { lab: "overload".to_owned(), settings: settings.clone(), capacity: settings.capacity(), arms })
}

async fn drive(
    settings: &Settings,
    protection: Protection,
    seed: u64,
    progress: &dyn Fn(u64),
) -> Result<Vec<Second>> {
    let workload = settings.workload(protection, seed);
    // The engine's own retries and hedges are another lab's matter; only the protected arm has them.
    let policy = match protection {
        Protection::None | Protection::Timeouts => Policy::hedge(Hedge::Off).with("max_attempts", 1),
        Protection::Protected => Policy::hedge(Hedge::Auto),
    };
    let world = Arc::new(World::new(&workload, &policy)?);
    let (min, max) = settings.in_flight;
    let gate = Gate::new(Admission::new(Bounds { min, max }), 64, Duration::from_millis(50));
    let tally = Arc::new(Mutex::new(Tally::new(settings.times.2 as usize)));
    let client = Arc::new(Client {
        world: world.clone(),
        gate: (protection == Protection::Protected).then(|| Arc::new(gate)),
        stops: protection != Protection::None,
        patience: world.scale.span(settings.patience),
        attempts: settings.attempts,
        tally: tally.clone(),
    });
    let mut running = JoinSet::new();
    let mut begun = Vec::new();
    for (query, at) in workload.arrivals().enumerate() {
        let second = (at / 1000.0) as usize;
        while begun.len() < second {
            begun.push(world.counts());
        }
        if second >= settings.times.2 as usize {
            break;
        }
        let intended = world.start + world.scale.span(at);
        sleep_until(intended).await;
        while let Some(done) = running.try_join_next() {
            done.map_err(arm::lost)?;
        }
        running.spawn(client.clone().ask(query as u64, intended, second));
        if query % 500 == 499 {
            progress(500);
        }
    }
    // Who still waits is waited for: the last seconds count too.
    while let Some(done) = running.join_next().await {
        done.map_err(arm::lost)?;
    }
    begun.resize(settings.times.2 as usize, world.counts());
    let mut seconds = std::mem::take(&mut tally.lock().seconds);
    let mut before = Counts::default();
    for (second, until) in seconds.iter_mut().zip(begun) {
        second.begun = until.begun - before.begun;
        second.busy = until.busy.saturating_sub(before.busy);
        before = until;
    }
    Ok(seconds)
}
