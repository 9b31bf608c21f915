//! `canopy lab safety`: arguments, and the table that people read.

use anyhow::Result;
use canopy_lab::{
    policy::Policy,
    safety::{self, EXTRA, Settings, plot, report::Report},
};

use super::{
    output::{self, Forms, Output, percent, ratio, table},
    share,
};
use crate::say::say;

/// `canopy lab safety`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy lab safety --plot safety.svg\n          \
              canopy lab safety --shards 1 --queries 50000 --hiccups 0 --no-uncapped")]
pub struct Args {
    /// Loads, as shares of what the leaves can do; by default 10 to 90 %
    #[arg(long, value_delimiter = ',', value_parser = share, value_name = "10%,…")]
    loads: Vec<f64>,
    /// A jump of the load: FROM:TO
    #[arg(long, value_parser = step, default_value = "40%:95%", value_name = "FROM:TO")]
    step: (f64, f64),
    /// No jump
    #[arg(long)]
    no_step: bool,
    /// No arm with hedges that nothing bounds
    #[arg(long)]
    no_uncapped: bool,
    /// Extra requests allowed per request
    #[arg(long, value_parser = share, default_value = "5%")]
    budget: f64,
    /// Share of calls that take 180 to 220 ms
    #[arg(long, value_parser = share, default_value = "0.5%")]
    hiccups: f64,
    /// Shards
    #[arg(long, default_value_t = 10)]
    shards: u32,
    /// Replicas of each shard
    #[arg(long, default_value_t = 2)]
    replicas: u32,
    /// Workers of a leaf
    #[arg(long, default_value_t = 1)]
    workers: u32,
    /// Queries measured in each arm at each load with each seed
    #[arg(long, default_value_t = 5000)]
    queries: u64,
    /// Queries before them that are not measured
    #[arg(long, default_value_t = 1000)]
    warmup: u64,
    /// First seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many seeds
    #[arg(long, default_value_t = 10)]
    seeds: u32,
    /// Virtual milliseconds in one model millisecond
    #[arg(long, default_value_t = 5)]
    scale: u32,
    #[command(flatten)]
    output: Output,
}

fn step(text: &str) -> Result<(f64, f64), String> {
    let (from, to) =
        text.split_once(':').ok_or_else(|| format!("{text:?} is not FROM:TO, such as 40%:95%"))?;
    Ok((share(from)?, share(to)?))
}

impl Args {
    fn settings(&self) -> Settings {
        let mut settings = Settings::default();
        if !self.loads.is_empty() {
            settings.loads.clone_from(&self.loads);
        }
        settings.step = (!self.no_step).then_some(self.step);
        settings.uncapped = !self.no_uncapped;
        settings.policy = Policy { budget: self.budget, ..settings.policy };
        settings.seeds = self.seeds;
        settings.threads = self.output.threads();
        let workload = &mut settings.workload;
        workload.latency.hiccups.share = self.hiccups;
        (workload.shards, workload.replicas, workload.workers) = (self.shards, self.replicas, self.workers);
        (workload.queries, workload.warmup) = (self.queries, self.warmup);
        (workload.seed, workload.scale) = (self.seed, self.scale);
        settings
    }
}

/// Runs it. Fails where the policy breaks a bound.
pub fn run(args: &Args) -> Result<()> {
    let settings = args.settings();
    settings.check()?;
    let report = output::watch(settings.queries(), |progress| safety::run(&settings, progress))?;
    args.output.shown.write(&Forms {
        report: &report,
        svg: Some(&plot::svg),
        print: &print,
        failures: &report.broken,
    })
}

fn print(report: &Report) {
    let wild = report.rows.iter().any(|row| row.uncapped.is_some());
    let mut header = vec![
        "load",
        "p99 off, ms",
        "p50 x",
        "mean x",
        "p99 x",
        "allowed",
        "extra",
        "of budget",
        "work",
        "safe",
    ];
    if wild {
        header.extend(["unbounded: p99 x", "extra", "demand", "diverges"]);
    }
    let yes = |yes: bool| if yes { "yes" } else { "no" }.to_owned();
    let rows = report.rows.iter().map(|row| {
        let mut cells = vec![
            row.place.clone(),
            super::output::ms(row.off.times.p99),
            ratio(Some(row.p50)),
            ratio(Some(row.mean)),
            ratio(Some(row.p99)),
            format!("{:.2}", row.bound),
            percent(row.judged.extra),
            format!("{:.2} ({:.2})", row.extra_of_budget, row.most_extra_of_budget),
            format!("{} to {}", percent(row.off.executed), percent(row.judged.executed)),
            yes(row.broken.is_empty()),
        ];
        if let Some(wild) = &row.uncapped {
            cells.extend([
                format!("{:.1}", wild.p99),
                percent(wild.arm.extra),
                percent(wild.demand),
                yes(wild.diverges),
            ]);
        }
        cells
    });
    say!("{}", table(&header, &[], rows));
    say!(
        "x: {} over no hedges, same arrivals and service times, median of {} seeds (upper 95 % bound, an order statistic: \
         that bound is what is judged); extra of budget: at most {EXTRA} (the seed with the most)",
        report.policy.name(),
        report.seeds
    );
}
