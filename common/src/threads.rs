//! How many threads wait for sockets and timers. One less than the machine has cores, at least one: searching has its own
//! threads, and so has the system's work for the network. On a small machine this is what a hop costs: a request that
//! wakes a second, sleeping thread for half of its steps takes a third longer than one that stays on its thread (two
//! cores: 390 against 290 us from client to root to leaf and back).
//!
//! `TOKIO_WORKER_THREADS`, the library's own variable, decides otherwise.

use std::{io, thread};

use tokio::runtime::{Builder, Runtime};

/// The runtime of a process.
pub fn runtime() -> io::Result<Runtime> {
    let mut builder = Builder::new_multi_thread();
    #[expect(clippy::disallowed_methods, reason = "decided before there is a configuration")]
    let decided = std::env::var_os("TOKIO_WORKER_THREADS").is_some();
    if !decided {
        builder.worker_threads(waiting(thread::available_parallelism().map_or(1, usize::from)));
    }
    builder.enable_all().build()
}

/// Of so many cores.
fn waiting(cores: usize) -> usize {
    cores.saturating_sub(1).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_is_left_to_searching_where_there_are_two() {
        assert_eq!([0, 1, 2, 3, 16].map(waiting), [1, 1, 1, 2, 15]);
        assert_eq!(runtime().unwrap().block_on(async { 7 }), 7);
    }
}
