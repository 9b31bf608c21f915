//! Rows by shard, in memory up to a budget; above it the fullest shard is sorted and spilled as a run.
//!
//! Rule: whoever brings the rows that exceed the budget spills before going on, so memory stays at the budget plus
//! one batch per thread, and readers are slowed to the speed of the disk. Small builds never touch it.

use std::{
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
};

use parking_lot::Mutex;

use super::{row::Row, spill::Spill};
use crate::error::Result;

/// What the partition holds of one shard at the end: rows sorted, and runs on disk.
pub(crate) struct Bucket {
    pub(crate) rows: Vec<Row>,
    pub(crate) spill: Spill,
}

struct Slot {
    rows: Mutex<Vec<Row>>,
    /// Memory of `rows`; read without the lock to find the fullest.
    held: AtomicU64,
    spill: Mutex<Spill>,
}

/// Rows of all shards.
pub(crate) struct Partition {
    slots: Vec<Slot>,
    held: AtomicU64,
    budget: u64,
}

impl Partition {
    /// For `shards` shards, holding `budget` bytes in memory, spilling into `directory`.
    pub(crate) fn new(shards: u32, budget: u64, directory: &std::path::Path) -> Self {
        let path = |shard: u32| -> PathBuf { directory.join(format!("spill-{shard:04}")) };
        let slot = |shard| Slot {
            rows: Mutex::default(),
            held: AtomicU64::new(0),
            spill: Mutex::new(Spill::new(path(shard))),
        };
        Self { slots: (0..shards).map(slot).collect(), held: AtomicU64::new(0), budget }
    }

    /// Adds rows of one shard.
    pub(crate) fn add(&self, shard: u32, rows: Vec<Row>) -> Result<()> {
        let bytes: u64 = rows.iter().map(Row::memory).sum();
        let slot = &self.slots[shard as usize];
        self.held.fetch_add(bytes, Ordering::Relaxed);
        {
            let mut held = slot.rows.lock();
            held.extend(rows);
            slot.held.fetch_add(bytes, Ordering::Relaxed);
        }
        while self.exceeded() {
            let fullest = self.slots.iter().max_by_key(|slot| slot.held.load(Ordering::Relaxed));
            let Some(fullest) = fullest.filter(|slot| slot.held.load(Ordering::Relaxed) > 0) else { break };
            let mut spill = fullest.spill.lock();
            // who had to wait for another thread's run may find that it was enough
            if self.exceeded() {
                self.spill(fullest, &mut spill)?;
            }
        }
        Ok(())
    }

    fn exceeded(&self) -> bool {
        self.held.load(Ordering::Relaxed) > self.budget
    }

    fn spill(&self, slot: &Slot, spill: &mut Spill) -> Result<()> {
        let (mut rows, bytes) = {
            let mut held = slot.rows.lock();
            (std::mem::take(&mut *held), slot.held.swap(0, Ordering::Relaxed))
        };
        if !rows.is_empty() {
            rows.sort_unstable_by(Row::order);
            spill.append(rows.into_iter().map(Ok))?;
        }
        self.held.fetch_sub(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Ends partitioning. Rows stay in memory when all of them fit into `keep` bytes, else everything is spilled, so
    /// that the shard writers have the memory.
    pub(crate) fn close(self, keep: u64) -> Result<Vec<Bucket>> {
        if self.held.load(Ordering::Relaxed) > keep {
            self.slots.iter().try_for_each(|slot| self.spill(slot, &mut slot.spill.lock()))?;
        }
        let bucket = |slot: Slot| {
            let mut rows = slot.rows.into_inner();
            rows.sort_unstable_by(Row::order);
            Bucket { rows, spill: slot.spill.into_inner() }
        };
        Ok(self.slots.into_iter().map(bucket).collect())
    }
}
