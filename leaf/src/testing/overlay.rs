//! Views with an overlay, made from rows and a history of changes, in as many parts as asked; and the rows that are left
//! in the end, for an oracle.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use canopy_common::{
    ids::{KeyHash, ShardId},
    rng::Dice,
};
use roaring::RoaringBitmap;

use super::{Row, row, searcher};
use crate::view::{Overlay, Part, Segment, ShardView};

/// A put or a delete of a key.
#[derive(Debug, Clone)]
pub enum Change {
    /// The newest document.
    Put(Row),
    /// The key is gone.
    Delete(String),
}

/// Where a row is in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// In the base.
    Base,
    /// In this part.
    Part(usize),
}

/// A view and what a search of it must find.
pub struct Overlaid {
    /// Base and overlay.
    pub view: ShardView,
    /// Live rows.
    pub rows: Vec<Row>,
    /// Where they are.
    pub at: Vec<At>,
}

/// One segment of an overlay; its documents are in the order of the rows.
pub fn segment(rows: &[Row]) -> Segment {
    let (searcher, fields) = searcher(rows, 1);
    let [reader] = searcher.segment_readers() else { panic!("one segment") };
    Segment::open(&ShardId::new("main", 0), reader.clone(), &fields, 0).expect("segment")
}

/// Random changes: new documents, replaced ones, deleted ones, some keys several times.
pub fn changes(dice: &Dice, base: usize, count: usize, vocabulary: u64) -> Vec<Change> {
    let keys = base as u64 + base as u64 / 4;
    let change = |_| {
        let row = row(dice, dice.below(keys) as usize, vocabulary);
        if dice.below(4) == 0 { Change::Delete(row.key) } else { Change::Put(row) }
    };
    (0..count).map(change).collect()
}

/// The view after the changes, which came in `parts` steps; a step without documents makes no part.
pub fn overlaid(base: &ShardView, rows: &[Row], changes: &[Change], parts: usize) -> Overlaid {
    let mut written: Vec<(Segment, RoaringBitmap)> = Vec::new();
    let mut live: BTreeMap<KeyHash, (At, u32, Row)> = BTreeMap::new();
    for row in rows {
        live.insert(row.hash(), (At::Base, 0, row.clone()));
    }
    let mut gone = BTreeSet::new();
    for step in changes.chunks(changes.len().div_ceil(parts).max(1)) {
        let puts = step.iter().filter_map(|change| match change {
            Change::Put(row) => Some(row.clone()),
            Change::Delete(_) => None,
        });
        let puts: Vec<Row> = puts.collect();
        let part = written.len();
        if !puts.is_empty() {
            written.push((segment(&puts), RoaringBitmap::new()));
        }
        let mut doc = 0;
        for change in step {
            let key = match change {
                Change::Put(row) => row.hash(),
                Change::Delete(key) => KeyHash::of(key),
            };
            match live.remove(&key) {
                Some((At::Part(at), doc, _)) => {
                    written[at].1.insert(doc);
                }
                Some((At::Base, ..)) => {
                    gone.insert(key);
                }
                None => {}
            }
            if let Change::Put(row) = change {
                live.insert(key, (At::Part(part), doc, row.clone()));
                doc += 1;
            }
        }
    }
    let hidden = gone.iter().map(|key| {
        let address = base.find(*key).expect("find").expect("in the base");
        base.base.segments[address.segment_ord as usize].start + address.doc_id
    });
    let tombstones: RoaringBitmap = hidden.collect();
    let parts = written.into_iter().map(|(segment, hidden)| Part {
        segment: Arc::new(segment),
        hidden: Arc::new(hidden),
        optimised: true,
    });
    let parts: Vec<Part> = parts.collect();
    let documents = parts.iter().map(Part::live).sum();
    let offsets = [(0, changes.len() as u64)].into();
    let view = base.with_overlay(Overlay { parts, documents, deferred: 0 }, tombstones, offsets);
    let (at, rows) = live.into_values().map(|(at, _, row)| (at, row)).unzip();
    Overlaid { view, rows, at }
}
