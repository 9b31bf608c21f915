//! `lab tail`: how the tail of a root grows with the number of shards, and what each policy makes of it at which cost.
//!
//! Every arm sees the same arrivals and service times. The first arm is what the others are compared with. Where the
//! formulas of [`crate::exact`] apply, their values stand beside the measured ones.

pub mod deviation;
pub mod plot;
pub mod reference;
pub mod report;

use hdrhistogram::Histogram;

use crate::{
    arm::{self, Outcome},
    error::{Error, Result},
    exact, jobs,
    policy::Policy,
    statistics::Ratio,
    workload::Workload,
};
use report::{AnySlow, Report, Row, Times, Versus};

/// What to run.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Everything but the number of shards.
    pub workload: Workload,
    /// Numbers of shards.
    pub shards: Vec<u32>,
    /// Policies; the first is the one that the others are compared with.
    pub arms: Vec<Policy>,
    /// Seeds, from the workload's upwards.
    pub seeds: u32,
    /// Threads.
    pub threads: usize,
}

impl Settings {
    /// Refuses what has no meaning.
    pub fn check(&self) -> Result<()> {
        Error::within("seeds", self.seeds, 1, 1000)?;
        if self.shards.is_empty() || self.arms.is_empty() {
            return Err(Error::setting("shards", "at least one number of shards and one arm are needed"));
        }
        for shards in &self.shards {
            Workload { shards: *shards, ..self.workload.clone() }.check()?;
        }
        self.arms.iter().try_for_each(Policy::check)
    }

    /// Queries that will be sent.
    pub fn queries(&self) -> u64 {
        let runs = self.shards.len() * self.arms.len() * self.seeds as usize;
        (self.workload.queries + self.workload.warmup) * runs as u64
    }
}

struct Job<'a> {
    workload: Workload,
    policy: &'a Policy,
}

/// Runs all arms. `progress` hears of queries sent.
pub fn run(settings: &Settings, progress: &(dyn Fn(u64) + Sync)) -> Result<Report> {
    settings.check()?;
    let mut jobs = Vec::new();
    for shards in &settings.shards {
        for policy in &settings.arms {
            for seed in 0..u64::from(settings.seeds) {
                let seed = settings.workload.seed + seed;
                jobs.push(Job {
                    workload: Workload { shards: *shards, seed, ..settings.workload.clone() },
                    policy,
                });
            }
        }
    }
    let outcomes = jobs::run(&jobs, settings.threads, |job| arm::run(&job.workload, job.policy, &progress))?;
    let mut rows = Vec::new();
    let per_arm = settings.seeds as usize;
    for (at, outcomes_of_shards) in outcomes.chunks(per_arm * settings.arms.len()).enumerate() {
        let workload = Workload { shards: settings.shards[at], ..settings.workload.clone() };
        let base = &outcomes_of_shards[..per_arm];
        for (policy, arm) in settings.arms.iter().zip(outcomes_of_shards.chunks(per_arm)) {
            rows.push(row(&workload, policy, arm, base)?);
        }
    }
    let cost = outcomes.iter().filter_map(|outcome| outcome.cpu_us).sum::<f64>();
    let calls = outcomes.iter().map(|outcome| outcome.calls).sum::<u64>();
    let faults = rows.iter().flat_map(|row: &Row| {
        deviation::faults(row.shards, row.queries, row.deviation.as_ref(), row.any_slow.as_ref())
    });
    Ok(Report {
        lab: "tail".to_owned(),
        faults: faults.collect(),
        workload: settings.workload.clone(),
        seeds: settings.seeds,
        rows,
        cpu_us_per_call: cost / calls.max(1) as f64,
    })
}

fn row(workload: &Workload, policy: &Policy, arm: &[Outcome], base: &[Outcome]) -> Result<Row> {
    let mut latency = arm::histogram()?;
    for outcome in arm {
        latency.add(&outcome.latency).map_err(|error| Error::Lost(error.to_string()))?;
    }
    let mean = |value: &dyn Fn(&Outcome) -> f64| arm.iter().map(value).sum::<f64>() / arm.len() as f64;
    let asked = workload.queries as f64;
    let ratio = |quantile: f64| {
        let ratios: Vec<f64> =
            arm.iter().zip(base).map(|(arm, base)| arm.ms(quantile) / base.ms(quantile)).collect();
        Ratio::of(&ratios)
    };
    let versus = if std::ptr::eq(arm, base) {
        None
    } else {
        Some(Versus { p50: ratio(0.5), p99: ratio(0.99), p999: ratio(0.999) })
    };
    let (times, exact) = (times(&latency), reference::of(workload, policy));
    Ok(Row {
        arm: policy.name(),
        policy: policy.clone(),
        shards: workload.shards,
        queries: latency.len(),
        times,
        deviation: deviation::of(workload, policy, latency.len(), &times, exact.as_ref()),
        exact,
        extra: mean(&Outcome::extra),
        twice: mean(&Outcome::twice),
        executed: mean(&|outcome| outcome.executed),
        any_slow: any_slow(
            workload,
            policy,
            mean(&|outcome| outcome.share_above(workload.latency.hiccups.from)),
        ),
        coverage: mean(&|outcome| outcome.answered as f64 / (asked * f64::from(workload.shards))),
        complete: mean(&|outcome| outcome.complete as f64 / asked),
        false_flags: arm.iter().map(|outcome| outcome.false_flags).sum(),
        hedges: arm.iter().map(|outcome| u64::from(outcome.tail.hedges)).sum(),
        hedges_won: arm.iter().map(|outcome| u64::from(outcome.tail.hedges_won)).sum(),
        budget_denied: arm.iter().map(|outcome| u64::from(outcome.tail.budget_denied)).sum(),
        versus_first: versus,
        share_of_replicas: report::shares(arm),
        history: report::history(arm),
    })
}

/// Quantiles of a histogram of microseconds.
pub(crate) fn times(latency: &Histogram<u64>) -> Times {
    let at = |quantile: f64| latency.value_at_quantile(quantile) as f64 / 1000.0;
    Times {
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        max: latency.max() as f64 / 1000.0,
        mean: latency.mean() / 1000.0,
    }
}

/// Share of the queries that took at least as long as the shortest hiccup; exact where nothing was done about them.
fn any_slow(workload: &Workload, policy: &Policy, measured: f64) -> Option<AnySlow> {
    let exact = reference::unhedged(workload, policy)?;
    let share = workload.latency.hiccups.share;
    (share > 0.0).then(|| AnySlow {
        measured,
        exact: 1.0 - exact.done(workload.latency.hiccups.from, workload.shards),
        formula: exact::any_slow(share, workload.shards),
    })
}
