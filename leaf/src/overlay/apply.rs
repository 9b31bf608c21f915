//! Records of the log -> what a shard shows. A batch is decoded, its keys are found in the base at once, then each record
//! is decided on in the order of the log and done: its document goes into the pending part, what it replaces is hidden.
//!
//! The failures this prevents: one bad record that stops all behind it, and half a document. Rules: a record that can't
//! be applied is a dead letter with its reason and nothing else; a panic over one record is its own (decoding and
//! analysing run guarded); what was applied is passed over by its offset when it comes again. Every record counts as
//! looked at, so the offsets never stand.

use std::{
    collections::BTreeMap,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use canopy_common::ids::KeyHash;
use canopy_format::{
    document::{Document, Patch},
    operation::Action,
    store::Ordering,
};
use canopy_indexer::index_schema::{IndexDocument, Place, Writes};
use canopy_proto::ingest::DeadLetter;
use roaring::RoaringBitmap;
use tokio::time::Instant;

use super::{
    config::{OverlayConfig, Policy},
    ground::Ground,
    merge::{self, Job, Shape},
    part::Part,
    state::{Decision, Fields, Keys, Known, Spot, Stamp, Write, after, decide},
    write::Pending,
};
use crate::{
    error::{Error, Result},
    view::{Overlay, ShardView},
};

mod read;

pub use read::Incoming;
use read::{Understood, letter, understand, unread};

/// What became of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Done.
    pub applied: u64,
    /// Older than what is known of their key, or delivered again.
    pub stale: u64,
    /// Dead letters.
    pub refused: u64,
    /// Kept in the log only.
    pub deferred: u64,
}

/// Everything that was replayed onto a base.
pub struct Applied {
    pub(super) ground: Arc<Ground>,
    pub(super) keys: Keys,
    pub(super) parts: Vec<Part>,
    pub(super) tombstones: RoaringBitmap,
    pub(super) offsets: BTreeMap<u32, u64>,
    pub(super) next_part: u32,
    pending: Option<Pending>,
    policy: Policy,
    max_documents: u64,
    max_bytes: u64,
    live: u64,
    deferred: u64,
    /// Since the start.
    pub counts: Counts,
}

/// What a decision comes to.
enum Outcome {
    Nothing,
    Refused(String),
    Gone,
    Deferred,
    /// The document, its newest put, and the same as JSON where that is at hand.
    Shown(Box<Document>, Stamp, Option<Bytes>),
}

impl Applied {
    /// Nothing yet: `offsets` are those of the version's cut.
    pub fn new(ground: Arc<Ground>, config: &OverlayConfig, offsets: BTreeMap<u32, u64>) -> Self {
        Self {
            ground,
            keys: Keys::default(),
            parts: Vec::new(),
            tombstones: RoaringBitmap::new(),
            offsets,
            next_part: 0,
            pending: None,
            policy: config.policy,
            max_documents: config.max_documents,
            max_bytes: config.max_bytes.0,
            live: 0,
            deferred: 0,
            counts: Counts::default(),
        }
    }

    /// From what a checkpoint held.
    pub(super) fn restore(mut self, keys: Keys, parts: Vec<Part>, tombstones: RoaringBitmap) -> Self {
        self.live = parts.iter().map(|part| u64::from(part.live())).sum();
        self.deferred = keys.all().filter(|(_, known)| known.spot == Spot::Deferred).count() as u64;
        self.next_part = parts.iter().map(|part| part.number + 1).max().unwrap_or(0);
        Self { keys, parts, tombstones, ..self }
    }

    /// Next offset of each partition.
    pub fn offsets(&self) -> &BTreeMap<u32, u64> {
        &self.offsets
    }

    /// Live documents, and those kept in the log only.
    pub fn documents(&self) -> (u64, u64) {
        (self.live, self.deferred)
    }

    /// Base documents that are hidden.
    pub fn tombstones(&self) -> u64 {
        self.tombstones.len()
    }

    /// Memory, about.
    pub fn bytes(&self) -> u64 {
        let parts: u64 = self.parts.iter().map(|part| part.bytes).sum();
        let pending = self.pending.as_ref().map_or(0, Pending::bytes);
        parts + pending + self.keys.bytes() + self.tombstones.serialized_size() as u64
    }

    /// Applies records, ascending in each partition; a part is closed when it takes `budget`. Everything below `next` was looked at
    /// then. Dead letters are added to `letters`. Errors: the engine failed; nothing of this shard can be trusted then.
    pub fn apply(
        &mut self,
        records: &[Incoming],
        next: &BTreeMap<u32, u64>,
        budget: usize,
        letters: &mut Vec<DeadLetter>,
    ) -> Result<()> {
        let mut understood = Vec::with_capacity(records.len());
        let mut seen = self.offsets.clone();
        for incoming in records {
            let at = seen.entry(incoming.partition).or_default();
            if incoming.offset < *at {
                self.counts.stale += 1;
                continue;
            }
            *at = incoming.offset + 1;
            let read = catch_unwind(AssertUnwindSafe(|| understand(&self.ground, incoming)));
            let panicked = |_| Err(unread(incoming, "the reader panicked over it".to_owned()));
            match read.unwrap_or_else(panicked) {
                Ok(Some(record)) => understood.push(record),
                Ok(None) => {}
                Err(letter) => self.refuse(*letter, letters),
            }
        }
        let mut unknown: Vec<KeyHash> = understood.iter().map(|record| record.key).collect();
        unknown.retain(|key| self.keys.get(*key).is_none());
        unknown.sort_unstable();
        unknown.dedup();
        let found = self.ground.find(&unknown)?;
        for record in understood {
            let known = self.keys.get(record.key).or_else(|| found.get(&record.key)).cloned();
            self.one(record, known.as_ref(), budget, letters)?;
        }
        self.offsets = seen;
        for (partition, next) in next {
            let at = self.offsets.entry(*partition).or_default();
            *at = (*at).max(*next);
        }
        Ok(())
    }

    fn refuse(&mut self, letter: DeadLetter, letters: &mut Vec<DeadLetter>) {
        self.counts.refused += 1;
        letters.push(letter);
    }

    /// Does one record; `known`: what is known of its key, in the base too.
    fn one(
        &mut self,
        record: Understood,
        known: Option<&Known>,
        budget: usize,
        letters: &mut Vec<DeadLetter>,
    ) -> Result<()> {
        let Understood { key, kind, stamp, fields, action, partition, offset, record } = record;
        let write = Write { kind, stamp, fields: &fields };
        let decision = decide(known, &write);
        let old = known.map_or(Spot::Gone, |known| known.spot);
        let next = |spot| after(known, &write, &decision, spot);
        let spot = match self.outcome(&decision, action, known, stamp, record.document.clone())? {
            Outcome::Nothing => {
                self.counts.stale += 1;
                return Ok(());
            }
            Outcome::Refused(reason) => {
                self.refuse(letter(partition, offset, &record, reason), letters);
                return Ok(());
            }
            // Where the log decides, nothing older can come: what is nowhere need not be remembered.
            Outcome::Gone if known.is_none() && self.ground.ordering == Ordering::Log => {
                self.counts.applied += 1;
                return Ok(());
            }
            Outcome::Gone => Spot::Gone,
            Outcome::Deferred => Spot::Deferred,
            Outcome::Shown(document, put, whole) => {
                let patched = next(Spot::Gone).and_then(|known| known.fields);
                let laid_out = self.lay_out(&document, put, offset, patched.as_deref());
                let Some(laid_out) = laid_out else {
                    self.refuse(letter(partition, offset, &record, PANICKED.to_owned()), letters);
                    return Ok(());
                };
                let schema = &self.ground.view.base.schema.schema;
                let whole = whole.unwrap_or_else(|| document.to_whole(schema).into());
                self.add(laid_out, whole, budget)?
            }
        };
        self.hide(old, spot);
        self.counts.applied += 1;
        self.counts.deferred += u64::from(spot == Spot::Deferred);
        if let Some(known) = next(spot) {
            self.keys.set(key, known);
        }
        if self.pending.as_ref().is_some_and(Pending::full) {
            self.close()?;
        }
        Ok(())
    }

    fn outcome(
        &self,
        decision: &Decision,
        action: Action,
        known: Option<&Known>,
        stamp: Stamp,
        whole: Bytes,
    ) -> Result<Outcome> {
        let old = known.map_or(Spot::Gone, |known| known.spot);
        let in_log_only = if old == Spot::Deferred { Some(Outcome::Deferred) } else { None };
        let unkept = || {
            let field = self.ground.unkept.as_deref()?;
            Some(Outcome::Refused(format!(
                "{field}: this version does not keep it, so a document that has it can't be changed in part; put the \
                 whole document, or build a version that keeps all fields"
            )))
        };
        Ok(match (decision, action) {
            (Decision::NoDocument, _) => {
                Outcome::Refused("there is no document of this key to patch; put one".to_owned())
            }
            (Decision::Delete, _) => Outcome::Gone,
            (Decision::Put { .. }, Action::Put(_)) if self.full(old) => Outcome::Deferred,
            (Decision::Put { keep }, Action::Put(document)) if keep.is_empty() => {
                Outcome::Shown(Box::new(document), stamp, Some(whole))
            }
            (Decision::Put { keep }, Action::Put(mut document)) => {
                if let Some(other) = in_log_only.or_else(unkept) {
                    return Ok(other);
                }
                self.ground.keep(&mut document, &self.read(old)?, keep);
                Outcome::Shown(Box::new(document), stamp, None)
            }
            (Decision::Patch { set }, Action::Patch(patch)) => match in_log_only.or_else(unkept) {
                Some(other) => other,
                None if self.full(old) => Outcome::Deferred,
                None => {
                    let put = known.map_or(stamp, |known| known.stamp);
                    Outcome::Shown(Box::new(self.patched(&patch, set, old)?), put, None)
                }
            },
            // An action is of the kind that was decided on.
            (Decision::Stale | Decision::Put { .. } | Decision::Patch { .. }, _) => Outcome::Nothing,
        })
    }

    /// A document with some fields of a patch.
    fn patched(&self, patch: &Patch, set: &[u16], old: Spot) -> Result<Document> {
        let schema = &self.ground.view.base.schema.schema;
        let mut document = self.read(old)?;
        document
            .patch(schema, patch, |name| self.ground.number(name).is_some_and(|field| set.contains(&field)));
        Ok(document)
    }

    /// Whether a document that is not in the overlay yet is not let in.
    fn full(&self, old: Spot) -> bool {
        self.policy == Policy::Defer
            && !matches!(old, Spot::Part { .. })
            && (self.live >= self.max_documents || self.bytes() >= self.max_bytes)
    }

    /// A live document with every field.
    fn read(&self, spot: Spot) -> Result<Document> {
        let gone = || Error::Damaged {
            shard: self.ground.view.shard.clone(),
            reason: "a document of the overlay is not where it should be".to_owned(),
        };
        match spot {
            Spot::Base(number) => self.ground.base_document(number),
            Spot::Part { part, doc } => match &self.pending {
                Some(pending) if pending.number() == part => {
                    let whole = pending.whole(doc).ok_or_else(gone)?;
                    let schema = &self.ground.view.base.schema.schema;
                    let fields = serde_json::from_slice(&whole).map_err(|_| gone())?;
                    Document::from_whole(schema, fields).map_err(|_| gone())
                }
                _ => {
                    let part = self.parts.iter().find(|held| held.number == part).ok_or_else(gone)?;
                    self.ground.part_document(&part.segment, doc)
                }
            },
            Spot::Gone | Spot::Deferred => Err(gone()),
        }
    }

    /// Analyses; `None`: it panicked.
    fn lay_out(
        &self,
        document: &Document,
        put: Stamp,
        offset: u64,
        patched: Option<&Fields>,
    ) -> Option<IndexDocument> {
        let (ground, schema) = (&self.ground, &self.ground.view.base.schema);
        let name = |(field, stamp): (&u16, &Stamp)| Some((ground.name(*field)?.to_owned(), *stamp));
        let fields = patched.into_iter().flatten().filter_map(name).collect();
        let (place, writes) = (Place { order: put.order, offset }, Writes { tie: put.tie, fields });
        let work = AssertUnwindSafe(|| schema.document_of(document, &ground.analyzer, place, &writes));
        catch_unwind(work).ok()
    }

    fn add(&mut self, document: IndexDocument, whole: Bytes, budget: usize) -> Result<Spot> {
        let pending = match &mut self.pending {
            Some(pending) => pending,
            none => {
                let number = self.next_part;
                self.next_part += 1;
                none.insert(Pending::new(number, &self.ground.view.base.schema, budget)?)
            }
        };
        Ok(Spot::Part { part: pending.number(), doc: pending.add(document, whole)? })
    }

    /// The document at `old` is at `new` now, or no more.
    fn hide(&mut self, old: Spot, new: Spot) {
        let deleted = (new == Spot::Gone).then(Instant::now);
        match old {
            Spot::Base(number) => drop(self.tombstones.insert(number)),
            Spot::Part { part, doc } => {
                self.live -= 1;
                match &mut self.pending {
                    Some(pending) if pending.number() == part => pending.hide(doc, deleted),
                    _ => {
                        if let Some(held) = self.parts.iter_mut().find(|held| held.number == part) {
                            held.hide(doc, deleted);
                        }
                    }
                }
            }
            Spot::Deferred => self.deferred -= 1,
            Spot::Gone => {}
        }
        self.live += u64::from(matches!(new, Spot::Part { .. }));
        self.deferred += u64::from(new == Spot::Deferred);
    }

    /// Closes the pending part: what is in it is seen by the next view.
    pub fn close(&mut self) -> Result<()> {
        if let Some(pending) = self.pending.take() {
            let view = &self.ground.view;
            self.parts.extend(pending.close(&view.shard, &view.base.schema)?);
        }
        Ok(())
    }

    /// What queries see from now on; the pending part is closed.
    pub fn view(&self) -> ShardView {
        let (mut documents, mut bytes) = (0, 0);
        let parts = self.parts.iter().map(|part| {
            documents += u64::from(part.live());
            bytes += part.bytes;
            part.view(documents <= self.max_documents && bytes <= self.max_bytes)
        });
        let overlay = Overlay { parts: parts.collect(), documents: self.live, deferred: self.deferred };
        self.ground.view.with_overlay(overlay, self.tombstones.clone(), self.offsets.clone())
    }

    /// The next merge, if one is due; parts with documents deleted before `unclean` are written anew.
    pub fn merge(&mut self, unclean: Option<Instant>) -> Option<Job> {
        let shape = |part: &Part| Shape {
            number: part.number,
            documents: u64::from(part.documents()),
            hidden: part.hidden.len(),
            unclean: part.deleted.is_some_and(|since| unclean.is_some_and(|unclean| since <= unclean)),
        };
        let shapes: Vec<Shape> = self.parts.iter().map(shape).collect();
        let of = merge::plan(&shapes)?;
        let parts: Vec<&Part> = self.parts.iter().filter(|part| of.contains(&part.number)).collect();
        let job = Job::new(self.next_part, &parts);
        self.next_part += 1;
        Some(job)
    }

    /// A merge has ended.
    pub fn merged(&mut self, job: &Job, part: Option<Part>) {
        let at = self.parts.iter().position(|held| job.of.contains(&held.number)).unwrap_or(0);
        self.parts.retain(|held| !job.of.contains(&held.number));
        if let Some(mut part) = part {
            merge::settle(&mut part, &job.of, &mut self.keys);
            self.parts.insert(at.min(self.parts.len()), part);
        }
    }
}

const PANICKED: &str = "it could not be analysed: the engine panicked over it";
