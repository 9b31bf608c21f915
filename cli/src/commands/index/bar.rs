//! Progress bars: on a terminal a bar, elsewhere nothing that would spoil a log.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

/// Progress over bytes; silent off a terminal.
pub fn bytes(total: u64, quiet: bool, what: &'static str) -> ProgressBar {
    let bar = if quiet || !std::io::stderr().is_terminal() {
        ProgressBar::hidden()
    } else {
        ProgressBar::new(total)
    };
    let style = ProgressStyle::with_template("{msg:12} {bar:40} {bytes}/{total_bytes} {bytes_per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    bar
}

/// Progress over documents; silent off a terminal.
pub fn documents(total: u64, what: String) -> ProgressBar {
    let bar = if std::io::stderr().is_terminal() { ProgressBar::new(total) } else { ProgressBar::hidden() };
    let style =
        ProgressStyle::with_template("{msg:12} {bar:40} {human_pos}/{human_len} documents {per_sec} {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(what);
    bar
}
