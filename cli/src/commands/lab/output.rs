//! What all labs do around their run: progress on a terminal, the chart where one was asked for, then the report as people
//! or programs read it, and an error when the run says that it failed.

use std::{fs, io::IsTerminal, path::PathBuf, thread::available_parallelism};

use anyhow::{Context, Result, bail};
use comfy_table::{CellAlignment, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;

use crate::say::say;

/// Flags of every lab that runs something.
#[derive(clap::Args)]
pub struct Output {
    /// Threads; by default one for each core
    #[arg(long)]
    threads: Option<usize>,
    #[command(flatten)]
    pub shown: Shown,
}

/// How a report is shown.
#[derive(clap::Args)]
pub struct Shown {
    /// Writes a chart
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Draws a report.
pub type Draw<'a, R> = dyn Fn(&R) -> canopy_lab::Result<String> + 'a;

/// A report in its three forms.
pub struct Forms<'a, R> {
    /// As programs read it.
    pub report: &'a R,
    /// As a chart, where there is something to draw.
    pub svg: Option<&'a Draw<'a, R>>,
    /// As people read it.
    pub print: &'a dyn Fn(&R),
    /// Why the run failed, although it has a report; empty: it did not.
    pub failures: &'a [String],
}

impl Output {
    /// As many threads as asked for, else as there are cores.
    pub fn threads(&self) -> usize {
        self.threads.unwrap_or_else(|| available_parallelism().map_or(1, std::num::NonZero::get))
    }
}

impl Shown {
    /// Whether a chart is asked for.
    pub fn plots(&self) -> bool {
        self.plot.is_some()
    }

    /// Writes what was asked for. A failed run is shown too, and ends with an error.
    pub fn write<R: Serialize>(&self, forms: &Forms<'_, R>) -> Result<()> {
        if let Some((path, svg)) = self.plot.as_ref().zip(forms.svg) {
            let svg = svg(forms.report)?;
            fs::write(path, svg).with_context(|| format!("{} can't be written", path.display()))?;
        }
        if self.json {
            say!("{}", serde_json::to_string_pretty(forms.report)?);
        } else {
            (forms.print)(forms.report);
        }
        if !forms.failures.is_empty() {
            bail!("{}", forms.failures.join("\n"));
        }
        Ok(())
    }
}

/// Runs a lab that sends so many queries, with their progress; silent off a terminal.
pub fn watch<R>(queries: u64, run: impl FnOnce(&(dyn Fn(u64) + Sync)) -> canopy_lab::Result<R>) -> Result<R> {
    let terminal = std::io::stderr().is_terminal();
    let bar = if terminal { ProgressBar::new(queries) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} queries {per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    let report = run(&|queries| bar.inc(queries))?;
    bar.finish_and_clear();
    Ok(report)
}

/// A table whose numbers stand right, but for the columns in `left`.
pub fn table(header: &[&str], left: &[usize], rows: impl IntoIterator<Item = Vec<String>>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_HORIZONTAL_ONLY);
    table.set_header(header);
    table.add_rows(rows);
    for column in (0..header.len()).filter(|column| !left.contains(column)) {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Milliseconds, as exact as they are worth.
pub fn ms(value: f64) -> String {
    if value < 100.0 { format!("{value:.1}") } else { format!("{value:.0}") }
}

/// `4.98%`.
pub fn percent(value: f64) -> String {
    format!("{:.2}%", 100.0 * value)
}

/// `0.177 (<0.181)`: a ratio and its upper bound.
pub fn ratio(ratio: Option<canopy_lab::statistics::Ratio>) -> String {
    ratio.map_or_else(
        || "-".to_owned(),
        |ratio| {
            let upper = ratio.upper.map_or_else(String::new, |upper| format!(" (<{upper:.3})"));
            format!("{:.3}{upper}", ratio.median)
        },
    )
}
