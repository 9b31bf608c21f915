//! `canopy lab overload`: arguments, and the table that people read.

use std::path::PathBuf;

use anyhow::Result;
use canopy_lab::overload::{self, Settings, plot, report::Report};
use comfy_table::{CellAlignment, Table, presets};

use super::{bar, millis, share, threads, write_plot};
use crate::say::say;

/// `canopy lab overload`.
#[derive(clap::Args)]
#[command(after_help = "Example:  canopy lab overload --plot overload.svg\n          \
              canopy lab overload --load 300% --burst 300% --end 20s")]
pub struct Args {
    /// Load before and after the burst, as a share of what the leaves can do
    #[arg(long, value_parser = share, default_value = "70%")]
    load: f64,
    /// Load in the burst
    #[arg(long, value_parser = share, default_value = "150%")]
    burst: f64,
    /// The burst begins
    #[arg(long, value_parser = millis, default_value = "10s")]
    from: f64,
    /// The burst ends
    #[arg(long, value_parser = millis, default_value = "20s")]
    until: f64,
    /// The run ends
    #[arg(long, value_parser = millis, default_value = "50s")]
    end: f64,
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
    /// Threads; by default one for each core
    #[arg(long)]
    threads: Option<usize>,
    /// Writes a chart
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Runs it.
pub fn run(args: &Args) -> Result<()> {
    let second = |ms: f64| (ms / 1000.0).round() as u32;
    let mut settings = Settings {
        shards: args.shards,
        replicas: args.replicas,
        workers: args.workers,
        load: args.load,
        burst: args.burst,
        times: (second(args.from), second(args.until), second(args.end)),
        patience: args.patience,
        attempts: args.attempts,
        in_flight: (args.min_in_flight, 1024),
        seed: args.seed,
        threads: threads(args.threads),
        ..Settings::default()
    };
    settings.times.0 = settings.times.0.min(settings.times.2);
    settings.times.1 = settings.times.1.min(settings.times.2);
    settings.latency.hiccups.share = args.hiccups;
    settings.check()?;
    let bar = bar(settings.queries() * settings.arms.len() as u64);
    let report = overload::run(&settings, &|queries| bar.inc(queries))?;
    bar.finish_and_clear();
    if let Some(path) = &args.plot {
        write_plot(path, &plot::svg(&report)?)?;
    }
    if args.json {
        say!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        print(&report);
    }
    Ok(())
}

/// Rows of the table by time; more seconds than that are summed up.
const ROWS: usize = 25;

fn right(table: &mut Table, columns: usize) {
    for column in 0..columns {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
}

fn print(report: &Report) {
    let step = report.arms.first().map_or(1, |arm| arm.seconds.len().div_ceil(ROWS)).max(1);
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    let mut header = vec!["s".to_owned(), "offered/s".to_owned()];
    header.extend(report.arms.iter().map(|arm| format!("{}: good/s", arm.protection.as_str())));
    let columns = header.len();
    table.set_header(header);
    let seconds = report.arms.first().map_or(0, |arm| arm.seconds.len());
    for from in (0..seconds).step_by(step) {
        let to = (from + step).min(seconds);
        let rate = |value: u64| (value as f64 / (to - from) as f64).round().to_string();
        let mut cells = vec![from.to_string()];
        cells.push(rate(report.arms[0].seconds[from..to].iter().map(|line| line.offered).sum()));
        for arm in &report.arms {
            cells.push(rate(arm.seconds[from..to].iter().map(|line| line.good).sum()));
        }
        table.add_row(cells);
    }
    right(&mut table, columns);
    say!("{table}");
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header([
        "arm",
        "before",
        "burst, of capacity",
        "after",
        "asked after",
        "well after",
        "begun at leaves",
        "slowest refusal",
    ]);
    for arm in &report.arms {
        table.add_row([
            arm.protection.as_str().to_owned(),
            format!("{:.3}", arm.before),
            format!("{:.3}", arm.burst),
            format!("{:.3}", arm.after),
            format!("{:.2}x", arm.attempts_after),
            arm.well_after.map_or_else(|| "never".to_owned(), |seconds| format!("{seconds} s")),
            format!("{:.2}x", arm.begun),
            format!("{:.1} ms", arm.slowest_refusal),
        ]);
    }
    say!("{table}");
    say!(
        "the leaves can do {:.0} queries per second; before, after: answered by all shards in time, of those that came",
        report.capacity
    );
}
