//! Who follows the log of a corpus, from where, and how far behind: for backpressure and for operators.
//!
//! What counts is what was put into a follower's stream, and the stream takes no more than its reader reads; so a leaf that applies
//! slowly falls behind here too, within a few messages. Units: operations, microseconds.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

use crate::pressure::Behind;

/// Followers of one corpus.
#[derive(Default)]
pub struct Followers {
    next: AtomicU64,
    all: Mutex<BTreeMap<u64, Follower>>,
}

struct Follower {
    node: String,
    places: BTreeMap<u32, Place>,
    /// It was at the end once.
    caught_up: bool,
    left: Option<Instant>,
}

/// Where a follower is in a partition.
#[derive(Debug, Clone, Copy, Default)]
pub struct Place {
    /// Everything below was sent.
    pub next: u64,
    /// Event time of the first one that was not; 0: none.
    pub oldest_us: i64,
}

impl Followers {
    /// A stream begins. What is remembered of a stream of this node that ended is replaced by it.
    pub fn join(&self, node: &str, from: &BTreeMap<u32, u64>) -> u64 {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let places = from.iter().map(|(partition, next)| (*partition, Place { next: *next, oldest_us: 0 }));
        let follower =
            Follower { node: node.to_owned(), places: places.collect(), caught_up: false, left: None };
        let mut all = self.all.lock();
        all.retain(|_, other| other.left.is_none() || other.node != node);
        all.insert(id, follower);
        id
    }

    /// What a stream was sent.
    pub fn sent(&self, id: u64, partition: u32, place: Place) {
        if let Some(follower) = self.all.lock().get_mut(&id) {
            follower.places.insert(partition, place);
        }
    }

    /// A stream was sent all there is.
    pub fn caught_up(&self, id: u64) {
        if let Some(follower) = self.all.lock().get_mut(&id) {
            follower.caught_up = true;
        }
    }

    /// A stream ended.
    pub fn leave(&self, id: u64) {
        if let Some(follower) = self.all.lock().get_mut(&id) {
            follower.left = Some(Instant::now());
        }
    }

    /// How far the slowest one that counts is behind; those that left long ago are forgotten.
    pub fn behind(&self, ends: &BTreeMap<u32, u64>, now_us: i64, forget: Duration) -> Behind {
        let mut all = self.all.lock();
        all.retain(|_, follower| follower.left.is_none_or(|left| left.elapsed() < forget));
        let mut worst = Behind::default();
        for follower in all.values().filter(|follower| follower.caught_up) {
            worst.operations = worst.operations.max(follower.operations(ends));
            if follower.left.is_none() {
                worst.lag = worst.lag.max(follower.lag(now_us));
            }
        }
        worst
    }

    /// Nodes that were not sent an offset of a partition yet, and whether anybody follows it.
    pub fn without(&self, partition: u32, offset: u64) -> (Vec<String>, bool) {
        let all = self.all.lock();
        let here = || all.values().filter_map(|one| one.places.get(&partition).map(|place| (one, place)));
        let mut missing: Vec<_> =
            here().filter(|(_, place)| place.next <= offset).map(|(one, _)| one.node.clone()).collect();
        missing.dedup();
        (missing, here().next().is_some())
    }

    /// For operators.
    pub fn status(&self, ends: &BTreeMap<u32, u64>, now_us: i64) -> serde_json::Value {
        let all = self.all.lock();
        let one = |follower: &Follower| {
            json!({
                "node": follower.node,
                "connected": follower.left.is_none(),
                "caught_up": follower.caught_up,
                "partitions": follower.places.len(),
                "operations_behind": follower.operations(ends),
                "lag_ms": follower.lag(now_us).as_millis() as u64,
            })
        };
        all.values().map(one).collect()
    }
}

impl Follower {
    fn operations(&self, ends: &BTreeMap<u32, u64>) -> u64 {
        let behind = |(partition, place): (&u32, &Place)| {
            ends.get(partition).map_or(0, |end| end.saturating_sub(place.next))
        };
        self.places.iter().map(behind).fold(0, u64::saturating_add)
    }

    fn lag(&self, now_us: i64) -> Duration {
        let oldest = self.places.values().map(|place| place.oldest_us).filter(|us| *us > 0).min();
        let us = oldest.map_or(0, |oldest| now_us.saturating_sub(oldest));
        Duration::from_micros(u64::try_from(us).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn only_who_was_at_the_end_counts_and_who_left_is_forgotten() {
        let (followers, ends) = (Followers::default(), BTreeMap::from([(0, 100), (1, 10)]));
        let forget = Duration::from_mins(5);
        let behind = |now| followers.behind(&ends, now, forget);
        let slow = followers.join("leaf-1", &BTreeMap::from([(0, 40), (1, 10)]));
        followers.sent(slow, 0, Place { next: 40, oldest_us: 1_000_000 });
        assert_eq!(behind(9_000_000), Behind::default(), "it replays");
        followers.caught_up(slow);
        assert_eq!(behind(9_000_000), Behind { operations: 60, lag: Duration::from_secs(8) });
        let quick = followers.join("leaf-2", &BTreeMap::from([(1, 10)]));
        followers.caught_up(quick);
        assert_eq!(behind(0).operations, 60, "the slowest");
        followers.leave(slow);
        assert_eq!(behind(9_000_000), Behind { operations: 60, lag: Duration::ZERO });
        assert_eq!(followers.without(0, 40), (vec!["leaf-1".to_owned()], true));
        assert_eq!(followers.without(0, 39), (vec![], true));
        assert_eq!(followers.without(7, 0), (vec![], false));
        tokio::time::advance(forget).await;
        assert_eq!(behind(9_000_000), Behind::default());
    }

    #[test]
    fn a_stream_replaces_the_ended_one_of_its_node() {
        let (followers, from) = (Followers::default(), BTreeMap::from([(0, 0)]));
        let first = followers.join("leaf-1", &from);
        followers.leave(first);
        let _second = followers.join("leaf-1", &from);
        let _other_version = followers.join("leaf-1", &from);
        let status = followers.status(&BTreeMap::from([(0, 7)]), 0);
        assert_eq!(status.as_array().unwrap().len(), 2);
        assert_eq!(status[0]["operations_behind"], 7);
    }
}
