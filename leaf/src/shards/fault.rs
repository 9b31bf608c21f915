//! Survives a mapped file that can't be read.
//!
//! Reading a mapped page that the disk can't give, or that lies beyond the end of a file that was cut, is not an error
//! the program sees: the kernel sends SIGBUS and the process dies, and with it every other shard of the leaf, and again
//! after each restart. Rule: inside of a watched mapping the page is replaced by zeros and the mapping marked as
//! faulted, so that the query ends, its answer is thrown away and the shard is quarantined; outside of them the signal
//! does what it did before.
//!
//! Everything the handler touches is fixed at compile time: an array of slots with atomics, and two system calls.
//! Units: bytes of address space.

use std::sync::{
    Once, OnceLock,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use parking_lot::Mutex;

/// Mappings watched at a time: some seven files a shard. One that finds no slot is simply not watched.
const SLOTS: usize = 32 * 1024;

struct Slot {
    start: AtomicUsize,
    end: AtomicUsize,
    faulted: AtomicBool,
}

static TABLE: [Slot; SLOTS] = [const {
    Slot { start: AtomicUsize::new(0), end: AtomicUsize::new(0), faulted: AtomicBool::new(false) }
}; SLOTS];
/// Slots from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE: AtomicUsize = AtomicUsize::new(4096);

/// Watches one mapping until it is dropped, which must be before the mapping is.
pub struct Watch(usize);

impl Watch {
    /// Watches the pages that hold `bytes`; `None` when all slots are taken.
    pub fn over(bytes: &[u8]) -> Option<Self> {
        install();
        let slot = FREE.lock().pop().or_else(|| {
            let next = USED.fetch_add(1, Ordering::SeqCst);
            if next >= SLOTS {
                USED.store(SLOTS, Ordering::SeqCst);
            }
            (next < SLOTS).then_some(next)
        })?;
        let start = bytes.as_ptr() as usize;
        TABLE[slot].faulted.store(false, Ordering::SeqCst);
        TABLE[slot].start.store(start, Ordering::SeqCst);
        TABLE[slot].end.store(start + bytes.len(), Ordering::SeqCst);
        Some(Self(slot))
    }

    /// Whether a page could not be read since.
    pub fn faulted(&self) -> bool {
        TABLE[self.0].faulted.load(Ordering::Relaxed)
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        TABLE[self.0].end.store(0, Ordering::SeqCst);
        TABLE[self.0].start.store(0, Ordering::SeqCst);
        FREE.lock().push(self.0);
    }
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: plain calls; the structures live on this stack or for ever.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            PAGE.store(usize::try_from(page).unwrap_or(4096), Ordering::SeqCst);
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) == 0 {
                let _only_once = PREVIOUS.set(before);
            }
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_bus_error as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&raw mut action.sa_mask);
            if libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) != 0 {
                tracing::warn!("bus errors are not handled: an unreadable file will end this process");
            }
        }
    });
}

/// Only atomics and system calls: it may run at any point of any thread.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid `info`; only fields of a fault signal are read.
    let address = unsafe { (*info).si_addr() } as usize;
    let used = USED.load(Ordering::SeqCst).min(SLOTS);
    let watched = TABLE[..used]
        .iter()
        .find(|slot| (slot.start.load(Ordering::SeqCst)..slot.end.load(Ordering::SeqCst)).contains(&address));
    if let Some(slot) = watched {
        slot.faulted.store(true, Ordering::SeqCst);
        if replace_page(address) {
            return;
        }
    }
    pass_on(signal, info, context);
}

/// Puts a page of zeros where the unreadable one is.
fn replace_page(address: usize) -> bool {
    let page = PAGE.load(Ordering::SeqCst);
    // SAFETY: the page lies in a live mapping of ours (watches end before their mapping), which is only ever read; errno
    // is put back, since the interrupted code may be about to look at it.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let mapped = libc::mmap(
            (address & !(page - 1)) as *mut libc::c_void,
            page,
            libc::PROT_READ,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
            -1,
            0,
        );
        *errno = before;
        mapped != libc::MAP_FAILED
    }
}

/// Not ours: what would have happened without us.
fn pass_on(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let previous = PREVIOUS
        .get()
        .filter(|previous| previous.sa_sigaction != libc::SIG_DFL && previous.sa_sigaction != libc::SIG_IGN);
    // SAFETY: the handler that was installed before us, called the way it asked to be; or the default action, which
    // comes into force when the faulting instruction runs again.
    unsafe {
        match previous {
            Some(previous) if previous.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(previous.sa_sigaction);
                handler(signal, info, context);
            }
            Some(previous) => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(previous.sa_sigaction);
                handler(signal);
            }
            None => {
                libc::signal(signal, libc::SIG_DFL);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    #[test]
    fn a_file_that_is_cut_reads_as_zeros_and_is_marked() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7_u8; 64 << 10]).unwrap();
        // SAFETY: the test's own file.
        let mmap = unsafe { memmap2::Mmap::map(&file).unwrap() };
        let watch = Watch::over(&mmap).unwrap();
        let other = Watch::over(b"not mapped").unwrap();
        assert_eq!(mmap[60 << 10], 7);
        assert!(!watch.faulted());
        file.set_len(10).unwrap();
        assert_eq!(std::hint::black_box(&mmap)[40 << 10], 0);
        assert_eq!(std::hint::black_box(&mmap)[60 << 10], 0);
        assert!(watch.faulted() && !other.faulted());
        drop((watch, other));
        let _kept_open = fs::metadata("/");
    }
}
