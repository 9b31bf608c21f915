//! `lab safety`: whether hedging does harm anywhere. At each load, and when the load jumps, the same arrivals and service
//! times are run without hedges, with the policy that is judged, and with hedges that nothing bounds.
//!
//! Hedges help most where leaves are idle, and there they are easily shown. The danger is the other end: copies that
//! answer slowness with load, and load with more copies, until all the work is copies. So what is judged is the worst
//! end of the ratio and not its middle: the upper 95 % bound of its median over the seeds, for the median, the mean and
//! the 99th percentile alike. The unbounded arm shows that the danger is there: a copy after the 95th percentile of one
//! call, no budget, and nobody stops a loser.

pub mod plot;
pub mod report;

use crate::{
    arm::{self, Outcome},
    error::{Error, Result},
    exact::Scatter,
    jobs,
    leaf::Cancel,
    policy::{Hedge, Policy},
    scale::Scale,
    statistics::Ratio,
    tail,
    workload::{Rate, Workload},
};
use report::{Arm, Report, Row, Uncapped};

/// Fewest seeds that say how high a median may be.
const SEEDS: u32 = 5;
/// Extra requests allowed, over the budget.
pub const EXTRA: f64 = 1.1;
/// An unbounded arm whose 99th percentile is so many times the unhedged one is seen to diverge.
const DIVERGED: f64 = 3.0;

/// Where the arms are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Place {
    /// Load.
    pub load: f64,
    /// From the first measured query on.
    pub then: Option<f64>,
}

impl Place {
    /// Most that the ratios may be.
    fn bound(self) -> f64 {
        if self.then.is_some() || self.load > 0.85 { 1.10 } else { 1.05 }
    }

    /// The load of the measured queries.
    fn measured(self) -> f64 {
        self.then.unwrap_or(self.load)
    }

    fn workload(self, settings: &Settings, seed: u64) -> Workload {
        let mut workload = Workload { seed, ..settings.workload.clone() };
        let rate = |from, load| Rate { from, per_ms: workload.rate_at(load) };
        let mut rates = vec![rate(0.0, self.load)];
        if let Some(then) = self.then {
            rates.push(rate(workload.warmup as f64 / rates[0].per_ms, then));
        }
        workload.rates = rates;
        workload
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0}%", 100.0 * self.load)?;
        self.then.map_or(Ok(()), |then| write!(f, " to {:.0}%", 100.0 * then))
    }
}

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Everything but the rates.
    pub workload: Workload,
    /// Steady loads, as shares of what the leaves can do.
    pub loads: Vec<f64>,
    /// A jump of the load.
    pub step: Option<(f64, f64)>,
    /// The policy that is judged.
    pub policy: Policy,
    /// Whether unbounded hedges are shown too.
    pub uncapped: bool,
    /// So many times wider bounds; 1 but in a run that is too short for them.
    pub slack: f64,
    /// Seeds, from the workload's upwards.
    pub seeds: u32,
    /// Threads.
    pub threads: usize,
}

impl Default for Settings {
    /// `auto` within 5 % at 10 to 90 % and from 40 to 95 %, ten shards with hiccups, ten seeds.
    fn default() -> Self {
        let workload = Workload { shards: 10, warmup: 1000, scale: 5, ..Workload::queued(0.005, 0.5) };
        Self {
            workload,
            loads: (1..10).map(|tenth| f64::from(tenth) / 10.0).collect(),
            step: Some((0.4, 0.95)),
            policy: Policy::hedge(Hedge::Auto),
            uncapped: true,
            slack: 1.0,
            seeds: 10,
            threads: 1,
        }
    }
}

impl Settings {
    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<()> {
        Error::within("seeds", self.seeds, SEEDS, 1000)?;
        Error::within("workers", self.workload.workers, 1, 1024)?;
        for place in self.places() {
            Error::within("loads", place.load, 0.01, 0.99)?;
            Error::within("step", place.measured(), 0.01, 2.0)?;
            place.workload(self, self.workload.seed).check()?;
        }
        if self.places().is_empty() {
            return Err(Error::setting("loads", "at least one load or a step is needed"));
        }
        Error::within("budget", self.policy.budget, 0.001, 1.0)?;
        self.policy.check()
    }

    /// Loads and the step.
    pub fn places(&self) -> Vec<Place> {
        let steady = self.loads.iter().map(|load| Place { load: *load, then: None });
        steady.chain(self.step.map(|(load, then)| Place { load, then: Some(then) })).collect()
    }

    /// Queries that will be sent.
    pub fn queries(&self) -> u64 {
        let runs = self.places().len() * self.arms().len() * self.seeds as usize;
        (self.workload.queries + self.workload.warmup) * runs as u64
    }

    /// Without hedges, as judged, and without bounds.
    fn arms(&self) -> Vec<(Policy, Cancel)> {
        let cancel = self.workload.cancel;
        let off = Policy { hedge: Hedge::Off, ..self.policy.clone() };
        let mut arms = vec![(off, cancel), (self.policy.clone(), cancel)];
        if self.uncapped {
            let delay = Scatter::unhedged(self.workload.latency).quantile(0.95, 1);
            let wild = Policy { budget: 1.0, hedge: Hedge::Delay(delay), ..self.policy.clone() };
            let wild = wild.with("extra_work", 1.0).with("extra_work_burst", 1_000_000);
            arms.push((wild, Cancel::Never));
        }
        arms
    }
}

/// Runs all arms everywhere. `progress` hears of queries sent.
pub fn run(settings: &Settings, progress: &(dyn Fn(u64) + Sync)) -> Result<Report> {
    settings.check()?;
    let (places, arms) = (settings.places(), settings.arms());
    let mut jobs = Vec::new();
    for place in &places {
        for (policy, cancel) in &arms {
            for seed in 0..u64::from(settings.seeds) {
                let workload = place.workload(settings, settings.workload.seed + seed);
                jobs.push((Workload { cancel: *cancel, ..workload }, policy));
            }
        }
    }
    let outcomes =
        jobs::run(&jobs, settings.threads, |(workload, policy)| arm::run(workload, policy, &progress))?;
    let per_arm = settings.seeds as usize;
    let by_place = places.iter().zip(outcomes.chunks(per_arm * arms.len()));
    let rows = by_place
        .map(|(place, outcomes)| row(settings, *place, &outcomes.chunks(per_arm).collect::<Vec<_>>()));
    Ok(Report::of(settings, rows.collect::<Result<_>>()?))
}

fn row(settings: &Settings, place: Place, arms: &[&[Outcome]]) -> Result<Row> {
    let (off, judged) = (arms[0], arms[1]);
    let ratio = |of: &dyn Fn(&Outcome) -> f64| {
        let ratios: Vec<f64> = judged.iter().zip(off).map(|(judged, off)| of(judged) / of(off)).collect();
        let worst = (0..ratios.len()).max_by(|a, b| ratios[*a].total_cmp(&ratios[*b])).unwrap_or(0);
        Ratio::of(&ratios).map(|ratio| (ratio, settings.workload.seed + worst as u64))
    };
    let none = || Error::setting("seeds", "at least one is needed");
    let (p99, worst_seed) = ratio(&|outcome| outcome.ms(0.99)).ok_or_else(none)?;
    let budget = settings.policy.budget;
    // A short run may spend what the bucket holds at its begin; over all seeds that is little.
    let burst = settings.policy.settings(Scale::new(1)?)?.extra_work_burst;
    let saved =
        |outcome: &Outcome| f64::from(burst) / (outcome.counts.arrived - outcome.counts.copies).max(1) as f64;
    let overdrawn = judged.iter().any(|outcome| outcome.extra() > EXTRA * budget + saved(outcome));
    let mut row = Row {
        place: place.to_string(),
        load: place.load,
        then: place.then,
        bound: place.bound() * settings.slack,
        extra_bound: EXTRA * settings.slack,
        off: arm_of(off)?,
        judged: arm_of(judged)?,
        p50: ratio(&|outcome| outcome.ms(0.5)).ok_or_else(none)?.0,
        mean: ratio(&|outcome| outcome.latency.mean()).ok_or_else(none)?.0,
        p99,
        worst_seed,
        extra_of_budget: judged.iter().map(Outcome::extra).sum::<f64>() / judged.len() as f64 / budget,
        most_extra_of_budget: judged.iter().map(Outcome::extra).fold(0.0, f64::max) / budget,
        overdrawn,
        uncapped: arms.get(2).map(|wild| uncapped(place, wild, off)).transpose()?,
        broken: Vec::new(),
    };
    row.judge();
    Ok(row)
}

fn arm_of(outcomes: &[Outcome]) -> Result<Arm> {
    let mut latency = arm::histogram()?;
    for outcome in outcomes {
        latency.add(&outcome.latency).map_err(|error| Error::Lost(error.to_string()))?;
    }
    let mean = |value: fn(&Outcome) -> f64| outcomes.iter().map(value).sum::<f64>() / outcomes.len() as f64;
    Ok(Arm {
        times: tail::times(&latency),
        extra: mean(Outcome::extra),
        executed: mean(|outcome| outcome.executed),
        history: tail::report::history(outcomes),
    })
}

fn uncapped(place: Place, wild: &[Outcome], off: &[Outcome]) -> Result<Uncapped> {
    let ratios: Vec<f64> = wild.iter().zip(off).map(|(wild, off)| wild.ms(0.99) / off.ms(0.99)).collect();
    let p99 = Ratio::of(&ratios).map_or(f64::NAN, |ratio| ratio.median);
    let arm = arm_of(wild)?;
    // Nobody stops a loser, so what came is what has to be done.
    let demand = place.measured() * (1.0 + arm.extra);
    Ok(Uncapped { arm, p99, demand, diverges: demand >= 1.0 && p99 >= DIVERGED })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_have_their_loads_and_bounds() {
        let settings = Settings::default();
        settings.check().unwrap();
        let places = settings.places();
        assert_eq!(places.len(), 10);
        assert!(places[..8].iter().all(|place| place.bound() == 1.05));
        assert!(places[8..].iter().all(|place| place.bound() == 1.10));
        assert_eq!((places[0].to_string(), places[9].to_string()), ("10%".into(), "40% to 95%".into()));
        let step = places[9].workload(&settings, 3);
        let arrivals: Vec<f64> = step.arrivals().collect();
        let rate = |from: usize, to: usize| (to - from) as f64 / (arrivals[to] - arrivals[from]);
        let (before, after) = (rate(0, 900), rate(1100, 5900));
        assert!((before / step.rate_at(0.4) - 1.0).abs() < 0.15, "{before}");
        assert!((after / step.rate_at(0.95) - 1.0).abs() < 0.07, "{after}");
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        let refused = |settings: Settings, name: &str| {
            let text = settings.check().unwrap_err().to_string();
            assert!(text.starts_with(name), "{text}");
        };
        refused(Settings { seeds: 4, ..Settings::default() }, "seeds: 4");
        refused(Settings { loads: vec![1.2], ..Settings::default() }, "loads: 1.2");
        refused(Settings { loads: vec![], step: None, ..Settings::default() }, "loads: at least");
        let workload = Workload { workers: 0, ..Settings::default().workload };
        refused(Settings { workload, ..Settings::default() }, "workers: 0");
    }
}
