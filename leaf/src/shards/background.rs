//! Threads for work that nobody waits for: verifying, opening and warming a version beside one that is served, and letting go of
//! one. They give way: the system runs a search thread first where both want a core. A thread of its own for each piece
//! of work, since one that gave way once can't be made equal again without privileges.
//!
//! A lower share is not enough: a thread that holds a core keeps it to the end of its slice, 1.4 ms on two cores and more on
//! many, and a search that wakes meanwhile waits for that. Such threads have the shortest slice there is, which brought p99 while
//! versions are swapped one after the other as fast as it goes from 1.5 to 2 times that without to below 1.25 (`bench/swaps.py`).

use std::{io, thread};

use tokio::sync::oneshot;

/// How far a thread that gives way stands behind the others ("nice"): about a tenth of a core where all cores are wanted.
const BEHIND: libc::c_int = 10;
/// The lowest priority there is.
const LOWEST: libc::c_int = 19;

/// How long such a thread keeps a core that a search wants, ns: the shortest that Linux takes. It knows slices since 6.12, and ignores
/// them before.
const SLICE: u64 = 100_000;

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

/// From now on this thread gives way. That the kernel may refuse (a sandbox, a real-time policy) is no reason not to work.
fn give_way() {
    // SAFETY: plain calls with a structure of the size that it names; 0 names the calling thread. A lower priority needs no
    // privilege, and what is beyond the lowest is the lowest.
    unsafe {
        let behind = (libc::getpriority(libc::PRIO_PROCESS, 0) + BEHIND).min(LOWEST);
        libc::setpriority(libc::PRIO_PROCESS, 0, behind);
        let mut attributes: libc::sched_attr = std::mem::zeroed();
        attributes.size = size_of::<libc::sched_attr>() as u32;
        attributes.sched_flags = libc::SCHED_FLAG_KEEP_POLICY as u64;
        attributes.sched_nice = behind;
        attributes.sched_runtime = SLICE;
        libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nice() -> libc::c_int {
        // SAFETY: a plain call.
        unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) }
    }

    /// The slice of this thread as it was set; 0 where the kernel knows none.
    fn slice() -> u64 {
        // SAFETY: a plain call with a structure of the size that is named.
        unsafe {
            let mut attributes: libc::sched_attr = std::mem::zeroed();
            let size = size_of::<libc::sched_attr>() as u32;
            assert_eq!(libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, size, 0), 0);
            attributes.sched_runtime
        }
    }

    #[tokio::test]
    async fn only_the_thread_that_gives_way_has_a_lower_priority_and_a_short_slice() {
        let (mine, whole) = (nice(), slice());
        let (low, short) = run("low", Priority::Low, || (nice(), slice())).await.unwrap();
        assert_eq!(low, (mine + BEHIND).min(LOWEST));
        assert_eq!(short, if whole == 0 { 0 } else { SLICE });
        assert_eq!(run("equal", Priority::Equal, || (nice(), slice())).await.unwrap(), (mine, whole));
        assert_eq!((nice(), slice()), (mine, whole));
        let broken = run("broken", Priority::Equal, || panic!("on purpose")).await;
        assert!(broken.is_err_and(|error| error.to_string().contains("broken off")));
    }
}
