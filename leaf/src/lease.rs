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

    /// A query with this deadline leases the view; the number for its reply. A view that was retired while the query searched it
    /// is found again from here on.
    pub fn hold(&self, serving: &Arc<Serving>, deadline: Deadline) -> u64 {
        let until = self.now_us() + (deadline.remaining() + self.grace).as_micros() as u64;
        serving.leased_until_us.fetch_max(until, Ordering::SeqCst);
        if serving.retired() {
            let mut table = self.table.lock();
            if !serving.revoked.load(Ordering::SeqCst) {
                table.insert(serving.lease, serving.clone());
            }
        }
        serving.lease
    }

    /// The view of a lease; `None` when it is unknown or has ended.
    pub fn find(&self, lease: u64) -> Option<Arc<Serving>> {
        let found = self.table.lock().get(&lease).cloned()?;
        (!self.ended(&found)).then_some(found)
    }

    /// Whether a query has the view that may still ask for it.
    pub fn held(&self, serving: &Serving) -> bool {
        serving.leased_until_us.load(Ordering::SeqCst) > self.now_us()
    }

    fn ended(&self, serving: &Serving) -> bool {
        serving.retired() && !self.held(serving)
    }

    /// The view is served no more; its leases run on.
    pub fn retire(&self, serving: &Serving) {
        serving.retired.store(true, Ordering::SeqCst);
        self.sweep();
    }

    /// The view must not be read any more.
    pub fn revoke(&self, serving: &Serving) {
        let mut table = self.table.lock();
        serving.revoked.store(true, Ordering::SeqCst);
        table.remove(&serving.lease);
    }

    /// Lets go of views whose last lease has ended, and of the oldest beyond the limit.
    pub fn sweep(&self) {
        let mut gone = Vec::new();
        let mut table = self.table.lock();
        let retired: Vec<u64> =
            table.iter().filter(|(_, serving)| serving.retired()).map(|(lease, _)| *lease).collect();
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

#[cfg(test)]
mod tests {
    use canopy_proto::v1::SearchRequest;

    use super::*;
    use crate::{fixture, shards::files::ShardFiles};

    fn serving(leases: &Leases, version: u64) -> Arc<Serving> {
        let view = fixture::view(0, version);
        let files = ShardFiles::default();
        let lease = leases.number();
        let serving = Arc::new(Serving::new("web".into(), view, files, SearchRequest::default(), lease));
        leases.add(serving.clone());
        serving
    }

    fn after_ms(ms: u64) -> Deadline {
        Deadline::after(Duration::from_millis(ms))
    }

    #[tokio::test(start_paused = true)]
    async fn a_retired_view_lives_as_long_as_its_last_lease() {
        let leases = Leases::new(1 << 40, Duration::from_millis(100), 8);
        let old = serving(&leases, 1);
        assert_eq!(leases.hold(&old, after_ms(50)), old.lease);
        leases.hold(&old, after_ms(400));
        leases.hold(&old, after_ms(10));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert!(leases.find(old.lease).is_some(), "a view that is served is always found");
        leases.hold(&old, after_ms(400));
        leases.retire(&old);
        tokio::time::advance(Duration::from_millis(450)).await;
        assert!(leases.find(old.lease).is_some());
        tokio::time::advance(Duration::from_millis(60)).await;
        assert!(leases.find(old.lease).is_none(), "its last lease has ended");
        assert_eq!(leases.len(), 1);
        let held = Arc::downgrade(&old);
        drop(old);
        leases.sweep();
        assert!(leases.is_empty() && held.upgrade().is_none(), "its files are let go");
    }

    #[tokio::test(start_paused = true)]
    async fn a_view_that_retires_while_it_is_searched_is_there_for_the_fetch() {
        let leases = Leases::new(9, Duration::from_millis(100), 8);
        let (old, bad) = (serving(&leases, 1), serving(&leases, 2));
        leases.retire(&old);
        leases.retire(&bad);
        leases.revoke(&bad);
        assert!(leases.find(old.lease).is_none());
        leases.hold(&old, after_ms(50));
        leases.hold(&bad, after_ms(50));
        assert!(leases.find(old.lease).is_some() && leases.find(bad.lease).is_none());
        tokio::time::advance(Duration::from_millis(151)).await;
        leases.sweep();
        assert!(leases.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn retired_views_are_bounded_and_a_revoked_one_is_gone() {
        let leases = Leases::new(7, Duration::from_mins(1), 2);
        let views: Vec<_> = (1..6).map(|version| serving(&leases, version)).collect();
        for view in &views[..4] {
            leases.hold(view, after_ms(60_000));
            leases.retire(view);
        }
        assert_eq!(leases.len(), 3);
        assert!(leases.find(views[1].lease).is_none(), "the oldest went first");
        assert!(leases.find(views[2].lease).is_some() && leases.find(views[4].lease).is_some());
        leases.revoke(&views[4]);
        assert!(leases.find(views[4].lease).is_none());
        assert!(leases.find(0).is_none() && leases.find(u64::MAX).is_none());
    }
}
