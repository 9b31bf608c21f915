//! `canopy lab overload`: arguments, and the table that people read.

use anyhow::Result;
use canopy_lab::overload::{
    self, Settings, plot,
    report::{Arm, Report, Run},
};

use super::{
    millis,
    output::{self, Forms, Output, table},
    share,
};
use crate::say::say;

/// `canopy lab overload`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy lab overload --plot overload.svg\n          \
              canopy lab overload --steady 300% --seeds 10")]
pub struct Args {
    /// Load before and after the burst, as a share of what the leaves can do
    #[arg(long, value_parser = share, default_value = "70%")]
    load: f64,
    /// Load in the burst
    #[arg(long, value_parser = share, default_value = "150%")]
    burst: f64,
    /// Instead of a burst, this load all the time, for 20 s or until --end
    #[arg(long, value_parser = share, conflicts_with_all = ["load", "burst", "from", "until"])]
    steady: Option<f64>,
    /// The burst begins
    #[arg(long, value_parser = millis, default_value = "10s")]
    from: f64,
    /// The burst ends
    #[arg(long, value_parser = millis, default_value = "20s")]
    until: f64,
    /// The run ends; by default after 50 s
    #[arg(long, value_parser = millis)]
    end: Option<f64>,
    /// How long a client waits for an answer
    #[arg(long, value_parser = millis, default_value = "350ms")]
    patience: f64,
    /// How often it asks at most
    #[arg(long, default_value_t = 3)]
    attempts: u32,
    /// Shards
    #[arg(long, default_value_t = 4)]
    shards: u32,
    /// Replicas of each shard
    #[arg(long, default_value_t = 2)]
    replicas: u32,
    /// Workers of a leaf
    #[arg(long, default_value_t = 4)]
    workers: u32,
    /// Queries that the root lets run at once in any case; above it the limit adapts
    #[arg(long, default_value_t = 64)]
    min_in_flight: u32,
    /// Share of calls that take 180 to 220 ms
    #[arg(long, value_parser = share, default_value = "0")]
    hiccups: f64,
    /// Seed
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// So many seeds, from that one on; each is a run of its own
    #[arg(long, default_value_t = 1)]
    seeds: u32,
    #[command(flatten)]
    output: Output,
}

/// Runs it.
pub fn run(args: &Args) -> Result<()> {
    let second = |ms: f64| (ms / 1000.0).round() as u32;
    let end = second(args.end.unwrap_or(if args.steady.is_some() { 20_000.0 } else { 50_000.0 }));
    let burst = (second(args.from).min(end), second(args.until).min(end), end);
    let mut settings = Settings {
        shards: args.shards,
        replicas: args.replicas,
        workers: args.workers,
        load: args.steady.unwrap_or(args.load),
        burst: args.steady.unwrap_or(args.burst),
        times: if args.steady.is_some() { (0, end, end) } else { burst },
        patience: args.patience,
        attempts: args.attempts,
        in_flight: (args.min_in_flight, 1024),
        seed: args.seed,
        seeds: args.seeds,
        threads: args.output.threads(),
        ..Settings::default()
    };
    settings.latency.hiccups.share = args.hiccups;
    settings.check()?;
    let queries = settings.queries() * settings.arms.len() as u64;
    let report = output::watch(queries, |progress| overload::run(&settings, progress))?;
    args.output.shown.write(&Forms { report: &report, svg: Some(&plot::svg), print: &print, failures: &[] })
}

/// Rows of the table by time; more seconds than that are summed up.
const ROWS: usize = 25;

fn print(report: &Report) {
    let step = report.arms.first().map_or(1, |arm| arm.seconds.len().div_ceil(ROWS)).max(1);
    let named: Vec<String> =
        report.arms.iter().map(|arm| format!("{}: good/s", arm.protection.as_str())).collect();
    let header: Vec<&str> = ["s", "offered/s"].into_iter().chain(named.iter().map(String::as_str)).collect();
    let seconds = report.arms.first().map_or(0, |arm| arm.seconds.len());
    let rows = (0..seconds).step_by(step).map(|from| {
        let to = (from + step).min(seconds);
        let rate = |value: u64| (value as f64 / (to - from) as f64).round().to_string();
        let mut cells = vec![from.to_string()];
        cells.push(rate(report.arms[0].seconds[from..to].iter().map(|line| line.offered).sum()));
        for arm in &report.arms {
            cells.push(rate(arm.seconds[from..to].iter().map(|line| line.good).sum()));
        }
        cells
    });
    say!("{}", table(&header, &[], rows));
    let header = [
        "arm",
        "before",
        "in it, of capacity",
        "busy",
        "refused",
        "refusal p50/p99/max ms",
        "after",
        "asked after",
        "well after",
        "begun at leaves",
    ];
    say!("{}", table(&header, &[0], report.arms.iter().map(line)));
    let seeds = report.arms.first().map_or(1, |arm| arm.runs.len());
    say!(
        "the leaves can do {:.0} queries per second; before, after: answered by all shards in time, of those that came{}",
        report.capacity,
        if seeds > 1 {
            format!("; the worst of {seeds} seeds, for capacity the median before it")
        } else {
            String::new()
        }
    );
}

/// The worst of all seeds.
fn line(arm: &Arm) -> Vec<String> {
    let values =
        |value: &dyn Fn(&Run) -> Option<f64>| arm.runs.iter().filter_map(value).collect::<Vec<f64>>();
    let least = |value: &dyn Fn(&Run) -> Option<f64>| values(value).into_iter().min_by(f64::total_cmp);
    let most = |value: &dyn Fn(&Run) -> Option<f64>| values(value).into_iter().max_by(f64::total_cmp);
    let text = |value: Option<f64>, unit: &str| {
        value.map_or_else(|| "-".to_owned(), |value| format!("{value:.3}{unit}"))
    };
    let times = |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2}x"));
    let refusal = |of: fn(&Run) -> f64| format!("{:.1}", most(&|run| Some(of(run))).unwrap_or_default());
    let burst = if arm.runs.len() > 1 {
        format!("{:.3}, {:.3}", arm.burst.median, arm.burst.worst)
    } else {
        text(Some(arm.burst.median), "")
    };
    let well = arm.runs.iter().map(|run| run.well_after).collect::<Option<Vec<u32>>>();
    vec![
        arm.protection.as_str().to_owned(),
        text(least(&|run| run.before), ""),
        burst,
        text(least(&|run| Some(run.busy)), ""),
        text(most(&|run| Some(run.refused)), ""),
        [refusal(|run| run.refusals.p50), refusal(|run| run.refusals.p99), refusal(|run| run.refusals.max)]
            .join(" / "),
        text(least(&|run| run.after), ""),
        times(most(&|run| run.attempts_after)),
        well.map_or_else(|| "never".to_owned(), |all| format!("{} s", all.into_iter().max().unwrap_or(0))),
        times(most(&|run| Some(run.begun))),
    ]
}
