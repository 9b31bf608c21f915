//! Survives a mapped file that can't be read.
//!
//! Reading a mapped page that the disk can't give, or that lies beyond the end of a file that was cut, is not an error
//! the program sees: the kernel sends SIGBUS and the process dies, and with it every other shard of the leaf, and again
//! after each restart. Rule: inside of a watched mapping the page is replaced by zeros and the mapping marked as
//! faulted, so that the query ends, its answer is thrown away and the shard is quarantined; outside of them, and when
//! somebody sent the signal, it does what it did before.
//!
//! The handler may interrupt any thread anywhere, in the allocator or with a lock held, so it touches nothing but what is
//! fixed at compile time: an array of atomics, `errno`, and system calls. What it reads of a slot is one word: from two,
//! a slot that changes hands could look like a mapping that nobody has, and foreign memory would be overwritten.
//!
//! Only memory access faults. A system call that is given an unreadable page fails with an error of its own.
//! Units: bytes of address space; places are kept in units of 4 KiB.

use std::sync::{
    Once, OnceLock,
    atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

use memmap2::Mmap;
use parking_lot::Mutex;

/// Mappings watched at a time: some seven files a shard. One that finds no slot is not watched, and said so once.
const SLOTS: usize = 32 * 1024;
/// Bits of a place that hold its length; 1 TiB, and addresses of 48 bits.
const LENGTH_BITS: u32 = 28;
/// A place is counted in these, whatever the page size.
const UNIT: usize = 4096;
/// Pages replaced one by one; then the rest of the mapping at once. A file that was cut has millions of them, each would
/// cost a query a walk through the slots, and each is a mapping of its own, of which a process has 65,530.
const ONE_BY_ONE: u32 = 16;

struct Slot {
    /// First unit and number of units; 0: free.
    place: AtomicU64,
    faults: AtomicU32,
}

static TABLE: [Slot; SLOTS] = [const { Slot { place: AtomicU64::new(0), faults: AtomicU32::new(0) } }; SLOTS];
/// Slots from here on were never used.
static USED: AtomicUsize = AtomicUsize::new(0);
static FREE: Mutex<Vec<usize>> = Mutex::new(Vec::new());
static PREVIOUS: OnceLock<libc::sigaction> = OnceLock::new();
static PAGE: AtomicUsize = AtomicUsize::new(UNIT);

/// Watches one mapping until it is dropped, which must be before the mapping is.
pub struct Watch(usize);

impl Watch {
    /// Watches a mapping of a file; `None` when all slots are taken.
    pub fn over(mapping: &Mmap) -> Option<Self> {
        install();
        let slot = pack(mapping.as_ptr() as usize, mapping.len()).and_then(|place| {
            let slot = free_slot()?;
            // A slot is handed over with no faults before it has a place, and the handler looks for places only.
            TABLE[slot].faults.store(0, Ordering::SeqCst);
            TABLE[slot].place.store(place, Ordering::SeqCst);
            Some(slot)
        });
        if slot.is_none() {
            static SAID: Once = Once::new();
            SAID.call_once(|| {
                tracing::warn!(
                    "more than {SLOTS} files are mapped: the rest are not watched for bad sectors"
                );
            });
        }
        slot.map(Self)
    }

    /// Whether a page could not be read since. A thread that has read a page of zeros sees it: the mark was set before
    /// the page was put there.
    pub fn faulted(&self) -> bool {
        TABLE[self.0].faults.load(Ordering::Acquire) > 0
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        TABLE[self.0].place.store(0, Ordering::SeqCst);
        FREE.lock().push(self.0);
    }
}

fn free_slot() -> Option<usize> {
    if let Some(slot) = FREE.lock().pop() {
        return Some(slot);
    }
    let next = USED.fetch_add(1, Ordering::SeqCst);
    if next >= SLOTS {
        USED.store(SLOTS, Ordering::SeqCst);
    }
    (next < SLOTS).then_some(next)
}

/// A place as one word; `None` when it is empty or does not fit, which no mapping of a file of ours is.
fn pack(start: usize, length: usize) -> Option<u64> {
    let (first, units) = ((start / UNIT) as u64, length.div_ceil(UNIT) as u64);
    let fits = units > 0 && units < 1 << LENGTH_BITS && first < 1 << (u64::BITS - LENGTH_BITS);
    fits.then_some(first << LENGTH_BITS | units)
}

/// First unit and number of units.
fn unpack(place: u64) -> (usize, usize) {
    ((place >> LENGTH_BITS) as usize, (place & ((1 << LENGTH_BITS) - 1)) as usize)
}

fn install() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        // SAFETY: plain calls; the structures live on this stack or for ever. A zeroed `sigaction` is a valid one: no
        // flags, an empty mask, the default action. The handler has the signature that SA_SIGINFO asks for. It runs on
        // the thread's alternate stack where there is one, since the fault may be met at the end of the other.
        unsafe {
            let page = libc::sysconf(libc::_SC_PAGESIZE);
            PAGE.store(usize::try_from(page).unwrap_or(UNIT), Ordering::SeqCst);
            // What was there is noted before the handler can run and look for it.
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

/// Only atomics, `errno` and system calls: it may run at any point of any thread. Nothing in it can panic.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid `info`.
    let code = unsafe { (*info).si_code };
    // Only then is there an address: of a signal that a process sent, the same bytes are its id and its user.
    let unreadable =
        [libc::BUS_ADRERR, libc::BUS_OBJERR, libc::BUS_MCEERR_AR, libc::BUS_MCEERR_AO].contains(&code);
    if unreadable {
        // SAFETY: as above; the code says that the kernel filled the address in.
        let address = unsafe { (*info).si_addr() } as usize;
        if let Some((slot, start, length)) = watched(address) {
            let nth = slot.faults.fetch_add(1, Ordering::SeqCst);
            let page = PAGE.load(Ordering::SeqCst);
            let replaced =
                if nth < ONE_BY_ONE { replace(address & !(page - 1), page) } else { replace(start, length) };
            if replaced {
                return;
            }
        }
    }
    pass_on(signal, code, info, context);
}

/// The watched mapping that holds an address, with its start and length.
fn watched(address: usize) -> Option<(&'static Slot, usize, usize)> {
    let unit = address / UNIT;
    let used = USED.load(Ordering::SeqCst).min(SLOTS);
    TABLE.iter().take(used).find_map(|slot| {
        let (first, units) = unpack(slot.place.load(Ordering::SeqCst));
        (first..first + units).contains(&unit).then_some((slot, first * UNIT, units * UNIT))
    })
}

/// Puts pages of zeros where unreadable ones are. `start` is at the beginning of a page; of the last page all is taken.
fn replace(start: usize, length: usize) -> bool {
    // SAFETY: the pages lie in a live mapping of ours: the thread that faulted is reading it, so it is borrowed, and a
    // watch ends before its mapping does. The mapping is only ever read, through pointers that do not mind where its
    // bytes come from, and is unmapped as a whole. Two threads may do this at a time: zeros replace zeros. `errno` is put
    // back, since the interrupted code may be about to look at it.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let mapped = libc::mmap(
            start as *mut libc::c_void,
            length,
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
fn pass_on(signal: libc::c_int, code: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let sent = code <= 0;
    let previous = PREVIOUS.get().map(|previous| (previous.sa_sigaction, previous.sa_flags));
    // SAFETY: a handler that was installed before us is called the way it asked to be; its address is one of a function
    // of that signature, since the kernel would have called it so.
    unsafe {
        match previous {
            // A fault can't be ignored: the kernel ends the process then.
            Some((libc::SIG_IGN, _)) if sent => {}
            None | Some((libc::SIG_DFL | libc::SIG_IGN, _)) => {
                // The default comes into force when the faulting instruction runs again; a signal that was sent is
                // sent again, and comes when this handler has returned.
                libc::signal(signal, libc::SIG_DFL);
                if sent {
                    libc::raise(signal);
                }
            }
            Some((handler, flags)) if flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            Some((handler, _)) => {
                let handler: extern "C" fn(libc::c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::File, io::Write};

    use super::*;

    fn mapped(pages: usize) -> (File, Mmap) {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&vec![7_u8; pages * UNIT]).unwrap();
        // SAFETY: the test's own file; that it is cut is what is tested.
        let mmap = unsafe { Mmap::map(&file).unwrap() };
        (file, mmap)
    }

    fn at(mmap: &Mmap, page: usize) -> u8 {
        std::hint::black_box(mmap)[page * UNIT]
    }

    #[test]
    fn a_file_that_is_cut_reads_as_zeros_and_is_marked() {
        let (file, mmap) = mapped(16);
        let (_kept, whole) = mapped(16);
        let (watch, other) = (Watch::over(&mmap).unwrap(), Watch::over(&whole).unwrap());
        assert_eq!(at(&mmap, 15), 7);
        assert!(!watch.faulted());
        file.set_len(10).unwrap();
        assert_eq!((at(&mmap, 10), at(&mmap, 15), at(&whole, 15)), (0, 0, 7));
        assert!(watch.faulted() && !other.faulted());
    }

    #[test]
    fn a_large_file_that_is_cut_costs_a_few_faults_and_a_slot_begins_anew() {
        let (file, mmap) = mapped(4096);
        let watch = Watch::over(&mmap).unwrap();
        file.set_len(0).unwrap();
        let sum: u32 = (0..4096).map(|page| u32::from(at(&mmap, page))).sum();
        assert_eq!(sum, 0);
        let slot = watch.0;
        assert_eq!(TABLE[slot].faults.load(Ordering::SeqCst), ONE_BY_ONE + 1);
        drop((watch, mmap));
        for _ in 0..64 {
            let (_file, mmap) = mapped(1);
            assert!(!Watch::over(&mmap).unwrap().faulted());
        }
    }

    #[test]
    fn places_are_one_word_and_what_does_not_fit_is_not_watched() {
        for (start, length) in [(0x7fff_ffff_f000, UNIT), (UNIT, 1), (UNIT * 9, UNIT * 5 + 3)] {
            let (first, units) = unpack(pack(start, length).unwrap());
            assert_eq!((first * UNIT, units), (start, length.div_ceil(UNIT)));
        }
        for (start, length) in [(UNIT, 0), (UNIT, 1 << 40), (1 << 48, UNIT)] {
            assert_eq!(pack(start, length), None, "{start:x} {length}");
        }
    }

    /// How a child ends that does this.
    fn child(act: impl Fn()) -> libc::c_int {
        // SAFETY: the child only does `act`, which takes no lock and no memory, and ends; an alarm ends it if it hangs.
        unsafe {
            let child = libc::fork();
            assert!(child >= 0, "{}", std::io::Error::last_os_error());
            if child == 0 {
                libc::alarm(20);
                act();
                libc::_exit(0);
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
            status
        }
    }

    #[test]
    fn a_fault_that_is_not_ours_ends_the_process_as_ever_and_one_of_ours_does_not() {
        let (file, unwatched) = mapped(4);
        let (ours, watched) = mapped(4);
        let watch = Watch::over(&watched).unwrap();
        file.set_len(0).unwrap();
        ours.set_len(0).unwrap();
        let status = child(|| {
            at(&unwatched, 2);
        });
        assert!(libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGBUS, "{status:x}");
        let status = child(|| {
            at(&watched, 2);
        });
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:x}");
        assert!(!watch.faulted(), "that was in the child");
    }
}
