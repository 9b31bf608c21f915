//! Output of the commands. `println!` panics when nobody reads any more (`canopy search … | head -1`); a command ends
//! quietly then, as other tools do. `eprintln!` panics too; what is said aside is lost then, and the work goes on.

use std::{
    fmt::Arguments,
    io::{ErrorKind, Write, stderr, stdout},
    process::exit,
};

/// Writes to standard output. Ends the process when its reader is gone.
pub fn write(text: Arguments<'_>) {
    let mut out = stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(0);
        }
        write_aside(format_args!("error: standard output: {error}\n"));
        exit(1);
    }
}

/// Writes to standard error, where somebody reads it.
pub fn write_aside(text: Arguments<'_>) {
    let _nobody_reads = stderr().lock().write_fmt(text);
}

/// A line on standard error.
macro_rules! aside {
    ($($text:tt)*) => { $crate::say::write_aside(format_args!("{}\n", format_args!($($text)*))) };
}

/// A line on standard output.
macro_rules! say {
    () => { $crate::say::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::say::write(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use aside;
pub(crate) use say;
