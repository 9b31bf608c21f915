//! `canopy`: every role and every tool of the tree in one binary.

use std::process::ExitCode;

use canopy_cli::{commands, failure, say};
use clap::Parser;

fn main() -> ExitCode {
    let line = commands::Line::parse();
    let runtime = match canopy_common::threads::runtime() {
        Ok(runtime) => runtime,
        Err(error) => {
            say::write_aside(format_args!("error: the runtime can't start: {error}\n"));
            return ExitCode::FAILURE;
        }
    };
    let result = runtime.block_on(commands::run(line));
    // Threads that still search must not keep the process from ending.
    runtime.shutdown_background();
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say::write_aside(format_args!("error: {}\n", failure::line(&error)));
            ExitCode::from(failure::status(&error))
        }
    }
}
