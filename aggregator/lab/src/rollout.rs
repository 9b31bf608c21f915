//! `lab rollout`: what queries feel while a tree takes up a new version. A leaf that fetches and warms works more slowly for
//! a while, whatever it is asked; how many leaves of a shard do so at once is all the difference between a rollout that
//! nobody notices and one that looks like an outage.
//!
//! Arms: **no rollout**; **all at once**, as a plain push does it (the tree's own rollout never does: of a shard with two
//! replicas one stays out of it); **by N**, as the production state machine ([`canopy_topology::rollout`]) loads replicas
//! when that many may; **canary**, one by one with the steps 1, 10, 50 and 100 % between. In all of them the routing
//! snapshot of the topology service says which version a query is pinned to and which leaves hold it. All arms see the
//! same arrivals and service times.
//!
//! Left out: the shadow step (a model leaf has no hits to compare) and the judgement of the steps, which is
//! [`crate::power`]'s matter; here every version is good, and each step passes when its bake time is over.

pub(crate) mod drive;
pub mod plot;
pub mod report;
pub(crate) mod service;

use canopy_common::config::Time;
use canopy_topology::rollout::{Policy as Rollout, Step};
use serde::{Deserialize, Serialize};

use crate::{
    arm,
    error::{Error, Result},
    jobs,
    policy::{Hedge, Policy},
    workload::{Rate, Workload},
};
use report::Report;

/// How a version comes to the leaves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Plan {
    /// Not at all: what the others are compared with.
    None,
    /// To all in the same moment.
    AtOnce,
    /// So many replicas of a shard at a time.
    Waves(u32),
    /// One at a time, with a growing share of the queries.
    Canary,
}

impl std::fmt::Display for Plan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::None => f.write_str("no rollout"),
            Self::AtOnce => f.write_str("all at once"),
            Self::Waves(replicas) => write!(f, "by {replicas}"),
            Self::Canary => f.write_str("canary"),
        }
    }
}

/// What to run. Times of the rollout are seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// What is asked of the tree; how many queries follows from the rate and the time.
    pub workload: Workload,
    /// What the engine does about the tail.
    pub policy: Policy,
    /// The 99th percentile that the root should keep, ms.
    pub target: f64,
    /// How long a leaf fetches and warms.
    pub warm_up: f64,
    /// How many times longer its calls take meanwhile.
    pub slowdown: f64,
    /// Replicas of a shard that load at once, an arm each; as many as there are: all at once.
    pub waves: Vec<u32>,
    /// Shares of the canary's steps, per cent; empty: no such arm.
    pub steps: Vec<u8>,
    /// Time of each of these steps.
    pub bake: f64,
    /// Time before the first leaf loads, and after the last.
    pub lead: f64,
    /// Of so many seconds a percentile is taken.
    pub window: f64,
    /// Seeds, from the workload's upwards.
    pub seeds: u32,
    /// Threads.
    #[serde(skip)]
    pub threads: usize,
}

/// Queries per second of the default.
pub const RATE: f64 = 450.0;
/// After the last query was pinned to the old version it stays for so long.
const RETAIN: Time = Time::ms(5_000);
/// Longest run, s.
const LONGEST: f64 = 7_200.0;

impl Default for Settings {
    /// Six replicas of four shards at 60 % load, 40 ms, 30 s of warm-up at 1.5 times the time.
    fn default() -> Self {
        let workload = Workload {
            shards: 4,
            replicas: 6,
            warmup: 0,
            scale: 5,
            rates: vec![Rate { from: 0.0, per_ms: RATE / 1000.0 }],
            ..Workload::queued(0.0, 0.6)
        };
        Self {
            workload,
            policy: Policy::hedge(Hedge::Auto),
            target: 40.0,
            warm_up: 30.0,
            slowdown: 1.5,
            waves: vec![6, 3, 1],
            steps: vec![1, 10, 50, 100],
            bake: 20.0,
            lead: 20.0,
            window: 5.0,
            seeds: 5,
            threads: 1,
        }
    }
}

impl Settings {
    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<()> {
        let replicas = self.workload.replicas;
        Error::within("target-p99", self.target, 0.1, 600_000.0)?;
        Error::within("warm-up-seconds", self.warm_up, 0.5, 3_600.0)?;
        Error::within("warm-up-slowdown", self.slowdown, 1.0, 100.0)?;
        self.waves.iter().try_for_each(|wave| Error::within("waves", *wave, 1, replicas))?;
        Error::within("bake", self.bake, 0.0, 3_600.0)?;
        Error::within("window", self.window, 0.5, 600.0)?;
        Error::within("lead", self.lead, self.window, 3_600.0)?;
        Error::within("seeds", self.seeds, 1, 1000)?;
        if self.waves.is_empty() && self.steps.is_empty() {
            return Err(Error::setting("waves", "at least one number of replicas or the canary is needed"));
        }
        if let Some((key, reason)) = self.rollout(Plan::Canary).problems().first().filter(|_| self.canary()) {
            return Err(Error::setting("steps", format!("{key}: {reason}")));
        }
        let end = self.end();
        if end > LONGEST {
            let why = format!("the longest arm takes {end:.0} s, at most {LONGEST:.0} are run; shorten it");
            return Err(Error::setting("warm-up-seconds", why));
        }
        self.policy.check()?;
        self.workload_of(self.workload.seed).check()
    }

    fn canary(&self) -> bool {
        !self.steps.is_empty()
    }

    /// The arms, in the order of the report.
    pub fn plans(&self) -> Vec<Plan> {
        let wave = |wave: &u32| match *wave {
            all if all >= self.workload.replicas => Plan::AtOnce,
            some => Plan::Waves(some),
        };
        let first = std::iter::once(Plan::None).chain(self.waves.iter().map(wave));
        first.chain(self.canary().then_some(Plan::Canary)).collect()
    }

    /// When all arms have ended, s.
    pub fn end(&self) -> f64 {
        let replicas = self.workload.replicas;
        let by = self.waves.iter().copied().min().unwrap_or(1);
        let waves = if self.canary() { replicas } else { replicas.div_ceil(by) };
        let loads = f64::from(waves) * (self.warm_up + service::TICK_S);
        let rest = self.steps.len() as f64 * self.bake + RETAIN.0.as_secs_f64();
        let end = 2.0 * self.lead + loads + rest;
        (end / self.window).ceil() * self.window
    }

    /// Queries that will be sent, about.
    pub fn queries(&self) -> u64 {
        self.queries_of_run() * self.plans().len() as u64 * u64::from(self.seeds)
    }

    fn queries_of_run(&self) -> u64 {
        let rate = self.workload.rates.first().map_or(0.0, |rate| rate.per_ms);
        (rate * 1000.0 * self.end()) as u64
    }

    /// More queries than come until the end.
    fn workload_of(&self, seed: u64) -> Workload {
        let queries = self.queries_of_run() / 10 * 11 + 1000;
        Workload { queries, warmup: 0, seed, ..self.workload.clone() }
    }

    /// How the state machine is told to go.
    fn rollout(&self, plan: Plan) -> Rollout {
        let time = |seconds: f64| Time::ms((seconds * 1000.0) as u64);
        let step = |percent, bake| Step { percent, bake: time(bake), sample: 0 };
        let (steps, max_unavailable) = match plan {
            Plan::Canary => (self.steps.iter().map(|percent| step(*percent, self.bake)).collect(), 1),
            Plan::Waves(replicas) => (vec![step(100, 0.0)], replicas),
            Plan::None | Plan::AtOnce => (vec![step(100, 0.0)], self.workload.replicas),
        };
        Rollout { steps, max_unavailable, retain: RETAIN, grace: RETAIN, ..Rollout::default() }
    }
}

/// Runs all arms. `progress` hears of queries sent.
pub fn run(settings: &Settings, progress: &(dyn Fn(u64) + Sync)) -> Result<Report> {
    settings.check()?;
    let plans = settings.plans();
    let seeds = settings.workload.seed..settings.workload.seed.saturating_add(u64::from(settings.seeds));
    let of = |plan: &Plan| seeds.clone().map(|seed| (*plan, seed)).collect::<Vec<_>>();
    let all: Vec<(Plan, u64)> = plans.iter().flat_map(of).collect();
    let runs = jobs::run(&all, settings.threads, |(plan, seed)| {
        arm::alone(|| format!("the arm {plan}"), *seed, drive::drive(settings, *plan, *seed, progress))
    })?;
    let runs: Vec<&[drive::Run]> = runs.chunks(settings.seeds as usize).collect();
    Ok(Report::of(settings, &plans, &runs))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arms_follow_from_waves_and_steps() {
        let settings = Settings::default();
        settings.check().unwrap();
        let names: Vec<String> = settings.plans().iter().map(ToString::to_string).collect();
        assert_eq!(names, ["no rollout", "all at once", "by 3", "by 1", "canary"]);
        assert_eq!(settings.rollout(Plan::Waves(3)).max_unavailable, 3);
        assert_eq!(settings.rollout(Plan::Canary).steps.len(), 4);
        // 2 x 20 s, six loads, four steps, 5 s.
        assert!((settings.end() - 310.0).abs() < 1e-9, "{}", settings.end());
        let short = Settings { steps: vec![], waves: vec![3], ..settings };
        assert!((short.end() - 110.0).abs() < 1e-9, "{}", short.end());
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let refused = |settings: Settings, name: &str| {
            let text = settings.check().unwrap_err().to_string();
            assert!(text.starts_with(name), "{text}");
        };
        let default = Settings::default;
        refused(Settings { waves: vec![7], ..default() }, "waves: 7 is outside 1..6");
        refused(Settings { waves: vec![], steps: vec![], ..default() }, "waves: at least one");
        refused(Settings { slowdown: 0.5, ..default() }, "warm-up-slowdown: 0.5");
        refused(Settings { steps: vec![10, 1, 100], ..default() }, "steps: steps[1].percent");
        refused(Settings { steps: vec![10], ..default() }, "steps: steps: the last step is 10 %");
        refused(Settings { warm_up: 3_000.0, ..default() }, "warm-up-seconds: the longest arm takes");
    }
}
