//! `canopy lab`: the production engine on model leaves under a clock of its own, for figures and capacity planning. No
//! index, no socket; minutes of model time take seconds.

pub mod overload;
pub mod tail;

use std::{fs, io::IsTerminal, path::Path, thread::available_parallelism};

use anyhow::{Context, Result};
use clap::Subcommand;
use indicatif::{ProgressBar, ProgressStyle};

/// The labs.
#[derive(Subcommand)]
pub enum Command {
    /// How the tail grows with the number of shards, and what hedging makes of it
    Tail(Box<tail::Args>),
    /// What a burst leaves behind: without protection, with timeouts, and with all there is
    Overload(overload::Args),
}

/// Runs one.
pub async fn run(command: Command) -> Result<()> {
    // A lab has a runtime of its own for each arm; this one only waits.
    tokio::task::spawn_blocking(move || match command {
        Command::Tail(args) => tail::run(&args),
        Command::Overload(args) => overload::run(&args),
    })
    .await?
}

/// Progress over queries; silent off a terminal.
fn bar(queries: u64) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(queries) } else { ProgressBar::hidden() };
    let style = ProgressStyle::with_template("{bar:40} {human_pos}/{human_len} queries {per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

/// As many threads as asked for, else as there are cores.
fn threads(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| available_parallelism().map_or(1, std::num::NonZero::get))
}

fn write_plot(path: &Path, svg: &str) -> Result<()> {
    fs::write(path, svg).with_context(|| format!("{} can't be written", path.display()))
}

/// `0.5%` or `0.005`.
fn share(text: &str) -> Result<f64, String> {
    let (number, of) = text.strip_suffix('%').map_or((text, 1.0), |number| (number, 100.0));
    match number.trim().parse::<f64>() {
        Ok(value) if value.is_finite() => Ok(value / of),
        _ => Err(format!("{text:?} is not a share; write 0.5% or 0.005")),
    }
}

/// Milliseconds of `8ms`.
fn millis(text: &str) -> Result<f64, String> {
    let time: canopy_common::config::Time = text.parse()?;
    Ok(time.0.as_secs_f64() * 1000.0)
}
