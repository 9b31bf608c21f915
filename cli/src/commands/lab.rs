//! `canopy lab`: the production engine on model leaves under a clock of its own, for figures and capacity planning. No
//! index, no socket; minutes of model time take seconds.

pub mod fleet;
mod output;
pub mod overload;
pub mod rollout;
pub mod safety;
pub mod tail;

use anyhow::Result;
use clap::Subcommand;

/// The labs.
#[derive(Subcommand)]
pub enum Command {
    /// How the tail grows with the number of shards, and what hedging makes of it
    Tail(Box<tail::Args>),
    /// Whether hedging does harm at any load, or when the load jumps; fails where it does
    Safety(safety::Args),
    /// How large a tree has to be, and what its tail will be
    Fleet(fleet::Args),
    /// What a burst leaves behind: without protection, with timeouts, and with all there is
    Overload(overload::Args),
    /// What queries feel while a version comes to the leaves; with --power what its gates find
    Rollout(Box<rollout::Args>),
}

/// Runs one.
pub async fn run(command: Command) -> Result<()> {
    // A lab has a runtime of its own for each arm; this one only waits.
    tokio::task::spawn_blocking(move || match command {
        Command::Tail(args) => tail::run(&args),
        Command::Safety(args) => safety::run(&args),
        Command::Fleet(args) => fleet::run(&args),
        Command::Overload(args) => overload::run(&args),
        Command::Rollout(args) => rollout::run(&args),
    })
    .await?
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
