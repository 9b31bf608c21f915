//! View leases: phase two of a query reads the very view that phase one searched, so that an address means the same
//! document, even when a newer view is served by then.
//!
//! A lease names a view, not a query: all queries on a view share its number and push its end out to their own deadline
//! plus some grace (the fetch comes after the search's deadline). So the query path costs one atomic and no lock, and
//! there are at most as many leases as views. Rules: a view that is still served is always found; one that was retired
//! is found until its last lease ends; of retired views at most `limit` are kept, the oldest go first; a quarantined
//! view is never found. Numbers start at random, so that a restarted leaf does not know the leases of its past.
//! Units: microseconds since the table was made.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use canopy_common::deadline::Deadline;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::shards::directory::Serving;

/// The views that may be asked for by number.
pub struct Leases {
    begun: Instant,
    next: AtomicU64,
    grace: Duration,
    limit: usize,
    table: Mutex<BTreeMap<u64, Arc<Serving>>>,
}

impl Leases {
    /// An empty table whose numbers begin near `seed`; leases outlast a query's deadline by `grace`.
    pub fn new(seed: u64, grace: Duration, limit: usize) -> Self {
        Self {
            begun: Instant::now(),
            next: AtomicU64::new(seed >> 1),
            grace,
            limit,
            table: Mutex::new(BTreeMap::new()),
        }
    }

    /// A number for a new view; never 0.
    pub fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// From now on the view is found by its number.
    pub fn add(&self, serving: Arc<Serving>) {
        self.table.lock().insert(serving.lease, serving);
    }

    fn now_us(&self) -> u64 {
        self.begun.elapsed().as_micros() as u64
    }

    /// A query with this deadline leases the view; the number for its reply.
    pub fn hold(&self, serving: &Serving, deadline: Deadline) -> u64 {
        let until = self.now_us() + (deadline.remaining() + self.grace).as_micros() as u64;
        serving.leased_until_us.fetch_max(until, Ordering::Relaxed);
        serving.lease
    }

    /// The view of a lease; `None` when it is unknown or has ended.
    pub fn find(&self, lease: u64) -> Option<Arc<Serving>> {
        let found = self.table.lock().get(&lease).cloned()?;
        (!self.ended(&found)).then_some(found)
    }

    fn ended(&self, serving: &Serving) -> bool {
        serving.retired()
            && serving.leased_until_us.load(Ordering::Relaxed) <= self.now_us()
    }

    /// The view is served no more; its leases run on.
    pub fn retire(&self, serving: &Serving) {
        serving.retired.store(true, Ordering::Relaxed);
        self.sweep();
    }

    /// The view must not be read any more.
    pub fn revoke(&self, serving: &Serving) {
        self.table.lock().remove(&serving.lease);
    }

    /// Lets go of views whose last lease has ended, and of the oldest beyond the limit.
    pub fn sweep(&self) {
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        let retired: Vec<u64> = table
            .iter()
            .filter(|(_, serving)| serving.retired())
            .map(|(lease, _)| *lease)
            .collect();
        let over = retired.len().saturating_sub(self.limit);
        for (place, lease) in retired.into_iter().enumerate() {
            if place < over || table.get(&lease).is_some_and(|serving| self.ended(serving)) {
                gone.extend(table.remove(&lease));
            }
        }
        drop(table);
        // Unmapping happens here, outside of the lock.
        drop(gone);
    }

    /// Views held, served or not.
    pub fn len(&self) -> usize {
        self.table.lock().len()
    }

    /// Whether no view is held.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
