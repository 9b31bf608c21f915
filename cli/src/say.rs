//! Output of the commands. `println!` panics when nobody reads any more (`canopy search … | head -1`); a command ends
//! quietly then, as other tools do.

use std::{
    fmt::Arguments,
    io::{ErrorKind, Write, stdout},
    process::exit,
};

/// Writes to standard output. Ends the process when its reader is gone.
pub fn write(text: Arguments<'_>) {
    let mut out = stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        if error.kind() == ErrorKind::BrokenPipe {
            exit(0);
        }
        eprintln!("error: standard output: {error}");
        exit(1);
    }
}

/// A line on standard output.
macro_rules! say {
    () => { $crate::say::write(format_args!("\n")) };
    ($($text:tt)*) => { $crate::say::write(format_args!("{}\n", format_args!($($text)*))) };
}

pub(crate) use say;
