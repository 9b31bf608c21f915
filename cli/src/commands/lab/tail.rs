//! `canopy lab tail`: arguments, and what they make of a preset. The table that people read is in `table`.

mod table;

use anyhow::{Result, anyhow, bail};
use canopy_aggregator::pick::Strategy;
use canopy_lab::{
    latency::Body,
    leaf::{Cancel, Slowness},
    policy::{Hedge, Policy, Wait},
    preset,
    tail::{self, Settings, plot},
    workload::Rate,
};

use super::{
    millis,
    output::{self, Forms, Output},
    share,
};

/// `canopy lab tail`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy lab tail --preset course --plot tail.svg\n          \
              canopy lab tail --shards 100 --hiccups 0.5% --replicas 3 --hedge off,quantile:0.95,auto --queries 50000\n          \
              canopy lab tail --shards 100 --workers 1 --load 60% --hedge off,auto,tied --seeds 10 --json")]
pub struct Args {
    /// A named workload that the other flags change: course, l1, q0 or q1
    #[arg(long, default_value = "l1")]
    preset: String,
    /// Numbers of shards
    #[arg(long, value_delimiter = ',', value_name = "S,…")]
    shards: Vec<u32>,
    /// Replicas of each shard
    #[arg(long)]
    replicas: Option<u32>,
    /// Queries measured in each arm
    #[arg(long)]
    queries: Option<u64>,
    /// Queries before them that are not measured
    #[arg(long)]
    warmup: Option<u64>,
    /// Arms, by how they hedge: off, auto, delay:MS, quantile:P, tied, factor:N; the first is compared with
    #[arg(long, value_delimiter = ',', value_name = "MODE,…")]
    hedge: Vec<Hedge>,
    /// Arms, by how they pick: adaptive, random, affinity, round_robin, least_outstanding, power_of_two
    #[arg(long, value_delimiter = ',', value_name = "HOW,…")]
    pick: Vec<String>,
    /// Arms, by the extra requests allowed per request
    #[arg(long, value_delimiter = ',', value_parser = share, value_name = "5%,…")]
    budget: Vec<f64>,
    /// Mean time of a shard
    #[arg(long, value_parser = millis, value_name = "8ms")]
    mean: Option<f64>,
    /// Spread: sigma of the logarithm of that time
    #[arg(long)]
    sigma: Option<f64>,
    /// Exponential times instead of lognormal ones
    #[arg(long, conflicts_with = "sigma")]
    exponential: bool,
    /// Share of calls that take much longer
    #[arg(long, value_parser = share, value_name = "0.5%")]
    hiccups: Option<f64>,
    /// Shortest of those
    #[arg(long, value_parser = millis, value_name = "180ms")]
    hiccup_from: Option<f64>,
    /// Longest of those
    #[arg(long, value_parser = millis, value_name = "220ms")]
    hiccup_to: Option<f64>,
    /// The first replica of each shard is so many times slower
    #[arg(long, value_name = "TIMES")]
    slow: Option<f64>,
    /// All leaves are slower for a while: TIMES:FROM:TO, such as 3:10s:12s
    #[arg(long, value_parser = slowness, value_name = "TIMES:FROM:TO")]
    slowness: Vec<Slowness>,
    /// Workers of a leaf, each with one call at a time and a queue before them; 0: no queues
    #[arg(long)]
    workers: Option<u32>,
    /// Load of all workers, as a share
    #[arg(long, value_parser = share, value_name = "60%", conflicts_with = "qps")]
    load: Option<f64>,
    /// From an instant on another load: AT:LOAD, such as 20s:95%
    #[arg(long, value_parser = step, value_name = "AT:LOAD", requires = "load")]
    step: Vec<(f64, f64)>,
    /// Queries per second of model time
    #[arg(long)]
    qps: Option<f64>,
    /// Where abandoned work stops: running, queued or never
    #[arg(long, value_parser = cancel, value_name = "WHERE")]
    cancel: Option<Cancel>,
    /// Nodes that ask, each with its own view of the load
    #[arg(long)]
    callers: Option<u32>,
    /// Deadline of a query
    #[arg(long, value_parser = millis, value_name = "250ms")]
    deadline: Option<f64>,
    /// Time of a message from leaf to leaf
    #[arg(long, value_parser = millis, value_name = "50us")]
    travel: Option<f64>,
    /// all, all_but:K or adaptive
    #[arg(long)]
    completion: Option<String>,
    /// adaptive: share of the documents that is enough
    #[arg(long, value_parser = share, default_value = "99%")]
    enough: f64,
    /// adaptive: share of the time left that the rest gets then
    #[arg(long, value_parser = share, default_value = "5%")]
    grace: f64,
    /// Any other setting of the engine, by its name in [gather]
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long)]
    seeds: Option<u32>,
    /// Virtual milliseconds in one model millisecond
    #[arg(long)]
    scale: Option<u32>,
    #[command(flatten)]
    output: Output,
}

fn slowness(text: &str) -> Result<Slowness, String> {
    let bad = || format!("{text:?} is not TIMES:FROM:TO, such as 3:10s:12s");
    let mut parts = text.split(':');
    let (Some(times), Some(from), Some(to), None) = (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return Err(bad());
    };
    let factor = times.parse().map_err(|_| bad())?;
    Ok(Slowness { factor, from: millis(from)?, to: millis(to)? })
}

fn step(text: &str) -> Result<(f64, f64), String> {
    let (at, load) =
        text.split_once(':').ok_or_else(|| format!("{text:?} is not AT:LOAD, such as 20s:95%"))?;
    Ok((millis(at)?, share(load)?))
}

fn cancel(text: &str) -> Result<Cancel, String> {
    match text {
        "running" => Ok(Cancel::Running),
        "queued" => Ok(Cancel::Queued),
        "never" => Ok(Cancel::Never),
        _ => Err(format!("{text:?} is none of running, queued, never")),
    }
}

fn strategy(text: &str) -> Result<Strategy> {
    serde_json::from_value(text.into()).map_err(|error| anyhow!("--pick {text}: {error}"))
}

impl Args {
    fn settings(&self) -> Result<Settings> {
        let mut settings = preset::tail(&self.preset)?;
        self.workload(&mut settings)?;
        if !self.shards.is_empty() {
            settings.shards.clone_from(&self.shards);
        }
        settings.arms = self.arms(&settings.arms)?;
        settings.seeds = self.seeds.unwrap_or(settings.seeds);
        settings.threads = self.output.threads();
        Ok(settings)
    }

    fn workload(&self, settings: &mut Settings) -> Result<()> {
        let workload = &mut settings.workload;
        let set = |field: &mut f64, flag: Option<f64>| *field = flag.unwrap_or(*field);
        let mean = self.mean.unwrap_or(match workload.latency.body {
            Body::Lognormal { mean, .. } | Body::Exponential { mean } | Body::Fixed { mean } => mean,
        });
        workload.latency.body = if self.exponential {
            Body::Exponential { mean }
        } else {
            Body::Lognormal { mean, sigma: self.sigma.unwrap_or(0.5) }
        };
        set(&mut workload.latency.hiccups.share, self.hiccups);
        set(&mut workload.latency.hiccups.from, self.hiccup_from);
        set(&mut workload.latency.hiccups.to, self.hiccup_to);
        set(&mut workload.slow, self.slow);
        set(&mut workload.deadline, self.deadline);
        set(&mut workload.travel, self.travel);
        workload.slowness.extend(&self.slowness);
        workload.replicas = self.replicas.unwrap_or(workload.replicas);
        workload.workers = self.workers.unwrap_or(workload.workers);
        workload.cancel = self.cancel.unwrap_or(workload.cancel);
        workload.callers = self.callers.unwrap_or(workload.callers);
        workload.queries = self.queries.unwrap_or(workload.queries);
        workload.warmup = self.warmup.unwrap_or((workload.queries / 10).min(2000));
        workload.scale = self.scale.unwrap_or(workload.scale);
        workload.seed = self.seed;
        let load = self.load.or((workload.workers > 0).then_some(0.6));
        if let Some(qps) = self.qps {
            workload.rates = vec![Rate { from: 0.0, per_ms: qps / 1000.0 }];
        } else if let Some(load) = load {
            if workload.workers == 0 {
                bail!("--load needs --workers: without queues there is no load");
            }
            if workload.deadline < 60_000.0 && self.deadline.is_none() {
                workload.deadline = 60_000.0;
            }
            let steps = std::iter::once((0.0, load)).chain(self.step.iter().copied());
            workload.rates =
                steps.map(|(from, load)| Rate { from, per_ms: workload.rate_at(load) }).collect();
        }
        Ok(())
    }

    fn arms(&self, preset: &[Policy]) -> Result<Vec<Policy>> {
        let wait = match self.completion.as_deref() {
            None | Some("all") => Wait::All,
            Some("adaptive") => Wait::Adaptive { enough: self.enough, grace: self.grace },
            Some(text) => match text.strip_prefix("all_but:").map(str::parse) {
                Some(Ok(missing)) => Wait::AllBut(missing),
                _ => bail!("--completion {text:?} is none of all, all_but:K, adaptive"),
            },
        };
        let hedges: Vec<Hedge> = if self.hedge.is_empty() {
            preset.iter().map(|policy| policy.hedge).collect()
        } else {
            self.hedge.clone()
        };
        let picks = if self.pick.is_empty() { vec!["adaptive".to_owned()] } else { self.pick.clone() };
        let budgets = if self.budget.is_empty() { vec![0.05] } else { self.budget.clone() };
        let mut arms = Vec::new();
        for pick in &picks {
            let pick = strategy(pick)?;
            for hedge in &hedges {
                for budget in &budgets {
                    let mut policy = Policy { pick, budget: *budget, wait, ..Policy::hedge(*hedge) };
                    for setting in &self.set {
                        let (key, value) = setting
                            .split_once('=')
                            .ok_or_else(|| anyhow!("--set {setting:?} is not NAME=VALUE"))?;
                        let value = serde_json::from_str(value).unwrap_or_else(|_| value.into());
                        policy.set.insert(key.to_owned(), value);
                    }
                    arms.push(policy);
                    // Without copies a budget changes nothing.
                    if *hedge == Hedge::Off {
                        break;
                    }
                }
            }
        }
        Ok(arms)
    }
}

/// Runs it.
pub fn run(args: &Args) -> Result<()> {
    let settings = args.settings()?;
    settings.check()?;
    let report = output::watch(settings.queries(), |progress| tail::run(&settings, progress))?;
    let failures = &report.faults;
    args.output.shown.write(&Forms { report: &report, svg: Some(&plot::svg), print: &table::print, failures })
}
