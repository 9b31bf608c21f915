//! Ring of slow queries with their timeline, for `/debug/slow`.

use std::{collections::VecDeque, sync::Arc};

use parking_lot::Mutex;

/// Most entries kept.
const KEEP: usize = 128;

/// Recent slow queries. Cloning shares the ring.
#[derive(Clone, Default)]
pub struct SlowQueries(Arc<Mutex<VecDeque<serde_json::Value>>>);

impl SlowQueries {
    /// Adds one query's record (an object with `query_id`, `took_ms`, phases and per-shard times).
    pub fn push(&self, record: serde_json::Value) {
        let mut ring = self.0.lock();
        if ring.len() == KEEP {
            ring.pop_front();
        }
        ring.push_back(record);
    }

    /// Newest first.
    pub fn list(&self) -> Vec<serde_json::Value> {
        self.0.lock().iter().rev().cloned().collect()
    }
}
