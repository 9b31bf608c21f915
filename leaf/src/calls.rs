//! The searches that run at this leaf, so that a cancel finds its own.
//!
//! A cancel may overtake its request, which then must not start: it leaves a mark that waits for it a moment. One that comes
//! after its search has ended leaves none. The claim of a tied twin goes the same ways. An attempt's number is only unique at
//! the node that sent it: when two searches with the same numbers run here, a cancel could mean either, and stops neither (the
//! dropped stream still does). Units: the mark lives [`MARK`]; at most [`MOST`] marks and endings are remembered.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use canopy_common::ids::{AttemptId, QueryId};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::{call::Call, tie::Claim};

/// How long a cancel waits for its request, and an ended search is remembered.
pub const MARK: Duration = Duration::from_secs(2);
/// Marks and endings remembered at most.
pub const MOST: usize = 4096;
/// Shards that one cancel may name; more are all of them.
pub const MOST_SHARDS: usize = 1024;

type Key = (QueryId, AttemptId);

#[derive(Debug)]
enum Recent {
    /// Over; when it began, if it was tied.
    Ended(Option<Claim>),
    /// Told before it came.
    Marked(Mark),
}

/// What waits for a search that has not come yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mark {
    /// Cancelled: these shards, all when empty.
    Cancelled(Vec<u32>),
    /// Its twin has begun.
    Claimed,
}

#[derive(Default)]
struct State {
    running: BTreeMap<Key, Vec<Weak<Call>>>,
    recent: BTreeMap<Key, (Instant, Recent)>,
    order: VecDeque<(Instant, Key)>,
}

impl State {
    fn recent(&self, key: &Key) -> Option<&Recent> {
        let (until, recent) = self.recent.get(key)?;
        (*until > Instant::now()).then_some(recent)
    }

    fn remember(&mut self, key: Key, what: Recent) {
        let now = Instant::now();
        while self.order.len() >= MOST || self.order.front().is_some_and(|(until, _)| *until <= now) {
            let Some((until, old)) = self.order.pop_front() else { break };
            if self.recent.get(&old).is_some_and(|(kept, _)| *kept == until) {
                self.recent.remove(&old);
            }
        }
        self.recent.insert(key, (now + MARK, what));
        self.order.push_back((now + MARK, key));
    }
}

/// What a cancel did.
pub enum Cancelled {
    /// It is for this call.
    Running(Arc<Call>),
    /// Its search has ended, or could be one of several.
    Nothing,
    /// It came first and left a mark.
    Marked,
}

/// What the claim of a twin met.
pub enum Claimed {
    /// It is for this call.
    Running(Arc<Call>),
    /// For one that ended, and began then if it was tied and not stopped.
    Ended(Option<Claim>),
    /// Could be for several.
    Nothing,
    /// It came first and left a mark.
    Marked,
}

/// The registry.
#[derive(Default)]
pub struct Calls {
    numbers: AtomicU64,
    state: Mutex<State>,
}

impl Calls {
    /// A number for a new call.
    pub fn number(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A search begins; the mark that waited for it, if one did.
    pub fn begin(&self, query: QueryId, attempt: AttemptId, call: &Arc<Call>) -> Option<Mark> {
        let mut state = self.state.lock();
        let key = (query, attempt);
        state.running.entry(key).or_default().push(Arc::downgrade(call));
        let mark = match state.recent(&key) {
            Some(Recent::Marked(mark)) => Some(mark.clone()),
            _ => None,
        };
        if mark.is_some() {
            state.remember(key, Recent::Ended(None));
        }
        mark
    }

    /// A search has ended; `claim`: when it began, if it was tied.
    pub fn end(&self, query: QueryId, attempt: AttemptId, number: u64, claim: Option<Claim>) {
        let mut state = self.state.lock();
        let key = (query, attempt);
        if let Some(calls) = state.running.get_mut(&key) {
            calls.retain(|call| call.upgrade().is_some_and(|call| call.number != number));
            if calls.is_empty() {
                state.running.remove(&key);
            }
        }
        state.remember(key, Recent::Ended(claim));
    }

    /// Finds the search that a cancel is for, or leaves a mark for it.
    pub fn cancel(&self, query: QueryId, attempt: AttemptId, shards: &[u32]) -> Cancelled {
        let mut state = self.state.lock();
        let key = (query, attempt);
        if let Some(calls) = state.running.get(&key) {
            return match calls.as_slice() {
                [one] => one.upgrade().map_or(Cancelled::Nothing, Cancelled::Running),
                _ => Cancelled::Nothing,
            };
        }
        if matches!(state.recent(&key), Some(Recent::Ended(_))) {
            return Cancelled::Nothing;
        }
        state.remember(key, Recent::Marked(Mark::Cancelled(shards.to_vec())));
        Cancelled::Marked
    }

    /// Finds the search that the claim of its twin is for, or leaves a mark for it.
    pub fn claim(&self, query: QueryId, attempt: AttemptId) -> Claimed {
        let mut state = self.state.lock();
        let key = (query, attempt);
        if let Some(calls) = state.running.get(&key) {
            return match calls.as_slice() {
                [one] => one.upgrade().map_or(Claimed::Nothing, Claimed::Running),
                _ => Claimed::Nothing,
            };
        }
        match state.recent(&key) {
            Some(Recent::Ended(claim)) => {
                let claim = *claim;
                // Told once: a claim that comes twice is no second duplicate.
                state.remember(key, Recent::Ended(None));
                Claimed::Ended(claim)
            }
            Some(Recent::Marked(_)) => Claimed::Marked,
            None => {
                state.remember(key, Recent::Marked(Mark::Claimed));
                Claimed::Marked
            }
        }
    }

    /// Searches that run.
    pub fn running(&self) -> usize {
        self.state.lock().running.values().map(Vec::len).sum()
    }
}
