//! Threads for work that nobody waits for: verifying, opening and warming a version beside one that is served, and letting go of
//! one. They give way: the system runs a search thread first where both want a core. A thread of its own for each piece
//! of work, since one that gave way once can't be made equal again without privileges.

use std::{io, thread};

use tokio::sync::oneshot;

/// How far a thread that gives way stands behind the others ("nice"): about a tenth of a core where all cores are wanted.
const BEHIND: libc::c_int = 10;

/// Whether a thread gives way to searches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Priority {
    /// Like any other: nothing is served yet.
    Equal,
    /// Gives way.
    Low,
}

/// Runs blocking work on a thread of its own; what it gives. Errors: no thread could be started, or the work panicked.
pub async fn run<T: Send + 'static>(
    name: &str,
    priority: Priority,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<T> {
    let (tell, told) = oneshot::channel();
    start(name, priority, move || {
        let _nobody_may_wait = tell.send(work());
    })?;
    told.await.map_err(|_| io::Error::other("it was broken off"))
}

/// Starts work that nobody waits for.
pub fn start(name: &str, priority: Priority, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    // The thread sees the runtime's clock.
    let runtime = tokio::runtime::Handle::try_current().ok();
    let thread = thread::Builder::new().name(name.to_owned()).spawn(move || {
        let _clock = runtime.as_ref().map(tokio::runtime::Handle::enter);
        if priority == Priority::Low {
            give_way();
        }
        work();
    });
    thread.map(drop)
}

/// From now on this thread gives way.
fn give_way() {
    // SAFETY: plain calls; on Linux 0 names the calling thread. They can only fail by lacking a privilege, which a lower
    // priority does not need. What is beyond the lowest is the lowest.
    unsafe {
        let now = libc::getpriority(libc::PRIO_PROCESS, 0);
        libc::setpriority(libc::PRIO_PROCESS, 0, now + BEHIND);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> libc::c_int {
        // SAFETY: a plain call.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    #[tokio::test]
    async fn only_the_thread_that_gives_way_has_a_lower_priority() {
        let mine = nice();
        assert_eq!(run("low", Priority::Low, nice).await.unwrap(), (mine + BEHIND).min(19));
        assert_eq!(run("equal", Priority::Equal, nice).await.unwrap(), mine);
        assert_eq!(nice(), mine);
        let broken = run("broken", Priority::Equal, || panic!("on purpose")).await;
        assert!(broken.is_err_and(|error| error.to_string().contains("broken off")));
    }
}
