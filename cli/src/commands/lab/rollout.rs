//! `canopy lab rollout`: arguments, and what they make of the two labs of a rollout. The tables that people read are in
//! `table`.

mod table;

use anyhow::{Result, bail};
use canopy_lab::{
    power,
    rollout::{self, RATE, plot},
    workload::Rate,
};

use super::{
    millis,
    output::{self, Forms, Output},
    share,
};

/// `canopy lab rollout`.
#[derive(clap::Args)]
#[command(
    after_help = "Example:  canopy lab rollout --replicas 6 --warm-up-seconds 30 --warm-up-slowdown 1.5 --target-p99 40 --rate 450 --plot rollout.svg\n          \
              canopy lab rollout --waves 6,3,2,1 --no-canary --hiccups 0.5%\n          \
              canopy lab rollout --power --runs 100 --json"
)]
pub struct Args {
    /// What the gates of a rollout find instead, and how often they stop a good version
    #[arg(long)]
    power: bool,
    /// Replicas of each shard
    #[arg(long, default_value_t = 6)]
    replicas: u32,
    /// Shards; by default 4, with --power 1
    #[arg(long)]
    shards: Option<u32>,
    /// Share of calls that take 180 to 220 ms; by default none, with --power 1 %
    #[arg(long, value_parser = share)]
    hiccups: Option<f64>,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Virtual milliseconds in one model millisecond
    #[arg(long, default_value_t = 5)]
    scale: u32,
    #[command(flatten)]
    output: Output,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    gates: Gates,
}

/// What is shown of loading.
#[derive(clap::Args)]
#[command(next_help_heading = "Loading")]
struct Load {
    /// How long a leaf fetches and warms a version
    #[arg(long, default_value_t = 30.0, conflicts_with = "power")]
    warm_up_seconds: f64,
    /// How many times longer its calls take meanwhile
    #[arg(long, default_value_t = 1.5, conflicts_with = "power")]
    warm_up_slowdown: f64,
    /// The 99th percentile that the root should keep, ms
    #[arg(long, default_value_t = 40.0, conflicts_with = "power")]
    target_p99: f64,
    /// Queries per second
    #[arg(long, default_value_t = RATE, conflicts_with = "power")]
    rate: f64,
    /// Workers of a leaf, each with one call at a time and a queue before them
    #[arg(long, default_value_t = 1, conflicts_with = "power")]
    workers: u32,
    /// Replicas of a shard that load at once, an arm each; by default all, half of them, 1
    #[arg(long, value_delimiter = ',', value_name = "N,…", conflicts_with = "power")]
    waves: Vec<u32>,
    /// No arm with the steps 1, 10, 50 and 100 %
    #[arg(long, conflicts_with = "power")]
    no_canary: bool,
    /// Time of each of these steps
    #[arg(long, value_parser = millis, default_value = "20s", conflicts_with = "power")]
    bake: f64,
    /// Time before the first leaf loads, and after the last
    #[arg(long, value_parser = millis, default_value = "20s", conflicts_with = "power")]
    lead: f64,
    /// Of so much time a percentile is taken
    #[arg(long, value_parser = millis, default_value = "5s", conflicts_with = "power")]
    window: f64,
    /// How many seeds
    #[arg(long, default_value_t = 5, conflicts_with = "power")]
    seeds: u32,
}

/// What is shown of the gates.
#[derive(clap::Args)]
#[command(next_help_heading = "With --power")]
struct Gates {
    /// Runs of each version; 500 for a figure
    #[arg(long, default_value_t = 20, requires = "power")]
    runs: u32,
    /// Planned queries of each arm in a step
    #[arg(long, default_value_t = 4_600, requires = "power")]
    sample: u64,
    /// Steps that are judged, per cent of the queries
    #[arg(long, value_delimiter = ',', value_name = "PERCENT,…", requires = "power")]
    steps: Vec<u8>,
    /// How long the good version is judged in each, in planned samples
    #[arg(long, default_value_t = 2, requires = "power")]
    rounds: u32,
    /// Of the calls of the version with more hiccups, their share
    #[arg(long, value_parser = share, default_value = "2%", requires = "power")]
    more_hiccups: f64,
    /// How many times longer the usual calls of the slower version take
    #[arg(long, default_value_t = 1.1, requires = "power")]
    slower: f64,
    /// Share of the queries of a good version that have no hit
    #[arg(long, value_parser = share, default_value = "2%", requires = "power")]
    zero_results: f64,
    /// And of the version with a broken field
    #[arg(long, value_parser = share, default_value = "20%", requires = "power")]
    broken: f64,
}

impl Args {
    fn loading(&self) -> rollout::Settings {
        let (mut settings, load) = (rollout::Settings::default(), &self.load);
        let workload = &mut settings.workload;
        (workload.replicas, workload.shards) = (self.replicas, self.shards.unwrap_or(workload.shards));
        (workload.workers, workload.seed, workload.scale) = (load.workers, self.seed, self.scale);
        workload.latency.hiccups.share = self.hiccups.unwrap_or(workload.latency.hiccups.share);
        workload.rates = vec![Rate { from: 0.0, per_ms: load.rate / 1000.0 }];
        (settings.target, settings.seeds) = (load.target_p99, load.seeds);
        (settings.warm_up, settings.slowdown) = (load.warm_up_seconds, load.warm_up_slowdown);
        settings.waves.clone_from(&load.waves);
        if load.waves.is_empty() {
            settings.waves = vec![self.replicas, self.replicas.div_ceil(2), 1];
            settings.waves.dedup();
        }
        if load.no_canary {
            settings.steps.clear();
        }
        [settings.bake, settings.lead, settings.window] =
            [load.bake, load.lead, load.window].map(|ms| ms / 1000.0);
        settings.threads = self.output.threads();
        settings
    }

    fn gates(&self) -> power::Settings {
        let (mut settings, gates) = (power::Settings::default(), &self.gates);
        let workload = &mut settings.workload;
        (workload.replicas, workload.shards) = (self.replicas, self.shards.unwrap_or(workload.shards));
        (workload.seed, workload.scale) = (self.seed, self.scale);
        workload.latency.hiccups.share = self.hiccups.unwrap_or(workload.latency.hiccups.share);
        (settings.runs, settings.sample, settings.rounds) = (gates.runs, gates.sample, gates.rounds);
        if !gates.steps.is_empty() {
            settings.steps.clone_from(&gates.steps);
        }
        (settings.hiccups, settings.slower) = (gates.more_hiccups, gates.slower);
        (settings.zero_results, settings.broken) = (gates.zero_results, gates.broken);
        settings.threads = self.output.threads();
        settings
    }
}

/// Runs it. Fails where the run shows that something is wrong with it, or with the gates.
pub fn run(args: &Args) -> Result<()> {
    if args.power {
        if args.output.shown.plots() {
            bail!("--plot: with --power there is no course in time to draw; leave it out");
        }
        let settings = args.gates();
        settings.check()?;
        let report = output::watch(settings.queries(), |progress| power::run(&settings, progress))?;
        let failures = &report.faults;
        return args.output.shown.write(&Forms {
            report: &report,
            svg: None,
            print: &table::gates,
            failures,
        });
    }
    let settings = args.loading();
    settings.check()?;
    let report = output::watch(settings.queries(), |progress| rollout::run(&settings, progress))?;
    let failures = &report.faults;
    args.output.shown.write(&Forms {
        report: &report,
        svg: Some(&plot::svg),
        print: &table::loading,
        failures,
    })
}
