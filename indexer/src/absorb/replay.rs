//! What the log made of each key of a shard: the newest writes over the last version's document, by the same rules by which a
//! leaf's overlay shows them. One key at a time, in the order of their hashes; of a key one document is held.
//!
//! A document that was patched is read once more from its whole form, as any reader of the version will read it: a host
//! that a patch removed is that of the address again, here as there.

use std::collections::BTreeMap;

use canopy_common::ids::KeyHash;
use canopy_format::{
    document::{Document, Patch},
    graves::Grave,
    layout::slot,
    newest::{self, Decision, Fields, Kind, Known, Spot, Stamp, Write},
    schema::Schema,
    store::Ordering,
};
use serde_json::{Map, Value as Json};
use xxhash_rust::xxh3::xxh3_128;

use super::{
    Absorbed, Logged,
    base::{At, Shard},
    gather,
};
use crate::{
    build::{
        partition::Bucket,
        row::{Row, Written},
        sort::Merge,
        spill::Spill,
    },
    error::{Error, Result},
    index_schema::Writes,
};

/// Where the document of a key is while its operations are gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Where {
    Gone,
    Base,
    Made,
}

impl Spot for Where {
    fn gone() -> Self {
        Self::Gone
    }
    fn is_gone(&self) -> bool {
        *self == Self::Gone
    }
    fn is_base(&self) -> bool {
        *self == Self::Base
    }
}

/// What became of a key.
pub(super) struct Change {
    pub(super) key: KeyHash,
    /// Its document in the last version, which is no more.
    pub(super) old: Option<(At, Document)>,
    /// Its document from now on, and which write it is.
    pub(super) new: Option<(Document, Written)>,
    /// A delete to be remembered.
    pub(super) grave: Option<Grave>,
}

/// The changes of one shard.
pub(super) struct Replay<'a> {
    rows: Merge,
    spill: Spill,
    ahead: Option<Row>,
    base: &'a Shard,
    ordering: Ordering,
    numbers: BTreeMap<&'a str, u16>,
    pub(super) absorbed: Absorbed,
}

/// A key in the middle of its operations.
struct State {
    known: Option<Known<Where>>,
    document: Option<Document>,
}

impl<'a> Replay<'a> {
    pub(super) fn new(bucket: Bucket, base: &'a Shard, ordering: Ordering) -> Result<Self> {
        let (mut rows, spill) = Merge::of(bucket)?;
        let ahead = rows.next()?;
        let fields = base.schema.schema.fields.iter();
        let numbers = fields.zip(0..).map(|(field, number)| (field.name.as_str(), number)).collect();
        Ok(Self { rows, spill, ahead, base, ordering, numbers, absorbed: Absorbed::default() })
    }

    /// The next key that changed.
    pub(super) fn next(&mut self) -> Result<Option<Change>> {
        while let Some(first) = self.ahead.take() {
            let hash = first.hash;
            let at = self.base.find(KeyHash(hash))?;
            let whole = at.map(|at| self.base.whole(at)).transpose()?;
            let old = at.zip(whole.as_ref().map(|(document, _)| document.clone()));
            let mut state = self.begin(KeyHash(hash), whole);
            let mut key = old.as_ref().map(|(_, document)| document.key.clone());
            let (mut changed, mut row) = (false, Some(first));
            while let Some(current) = row.take_if(|row| row.hash == hash) {
                let logged = gather::logged(current)?;
                if let Some(first) = key.replace(logged.key.clone()).filter(|first| *first != logged.key) {
                    return Err(Error::KeyCollision { first, second: logged.key });
                }
                changed |= self.apply(&mut state, &logged)?;
                row = self.rows.next()?;
            }
            self.ahead = row;
            if changed && let Some(key) = key {
                return Ok(Some(self.change(&key, old, state)));
            }
        }
        Ok(None)
    }

    fn begin(&self, key: KeyHash, whole: Option<(Document, Written)>) -> State {
        let producer = self.ordering == Ordering::Producer;
        let Some((document, written)) = whole else {
            let grave = self.base.graves.get(key).filter(|_| producer);
            return State { known: grave.map(Known::grave), document: None };
        };
        // In the order of the log, everything that is read comes after everything in the version.
        let (stamp, fields) =
            if producer { self.stamps(&written) } else { (Stamp::default(), Fields::new()) };
        State { known: Some(Known::new(Where::Base, stamp, fields)), document: Some(document) }
    }

    fn stamps(&self, written: &Written) -> (Stamp, Fields) {
        let number = |(name, stamp): (&String, &Stamp)| Some((*self.numbers.get(name.as_str())?, *stamp));
        let fields = written.writes.fields.iter().filter_map(number).collect();
        (Stamp { order: written.order, tie: written.writes.tie }, fields)
    }

    fn schema(&self) -> &'a Schema {
        &self.base.schema.schema
    }

    /// Applies an operation; whether it changed anything.
    fn apply(&mut self, state: &mut State, logged: &Logged) -> Result<bool> {
        let schema = self.schema();
        let (given, patch) = match logged.kind {
            Kind::Put => {
                (read(&logged.document).and_then(|json| Document::from_whole(schema, json).ok()), None)
            }
            Kind::Patch => (None, read(&logged.document).map(|json| Patch::from_whole(schema, json).0)),
            Kind::Delete => (None, None),
        };
        // An ingest has checked all of it; under another schema it may be no document any more.
        let other = given.as_ref().is_some_and(|document| document.key != logged.key);
        if other || (given.is_none() && patch.is_none() && logged.kind != Kind::Delete) {
            self.absorbed.refused += 1;
            return Ok(false);
        }
        let named = patch.iter().flat_map(Patch::fields);
        let fields: Vec<u16> = named.filter_map(|name| self.numbers.get(name).copied()).collect();
        let stamp = match self.ordering {
            Ordering::Log => Stamp::of_log(logged.offset),
            Ordering::Producer => Stamp::of_producer(logged.order, logged.kind, xxh3_128(&logged.document)),
        };
        let write = Write { kind: logged.kind, stamp, fields: &fields };
        let decision = newest::decide(state.known.as_ref(), &write);
        match &decision {
            Decision::Stale => self.absorbed.stale += 1,
            Decision::NoDocument => self.absorbed.refused += 1,
            Decision::Delete => state.document = None,
            Decision::Put { keep } => {
                let old = state.document.take();
                state.document = given.map(|document| self.keep(document, old.as_ref(), keep));
            }
            Decision::Patch { set } => {
                let newer = |name: &str| self.numbers.get(name).is_some_and(|number| set.contains(number));
                if let (Some(document), Some(patch)) = (&mut state.document, &patch) {
                    document.patch(schema, patch, newer);
                }
            }
        }
        let changed = !matches!(decision, Decision::Stale | Decision::NoDocument);
        let patched = matches!(&decision, Decision::Patch { .. })
            || matches!(&decision, Decision::Put { keep } if !keep.is_empty());
        if patched && let Some(document) = &mut state.document {
            *document = settled(schema, document)?;
        }
        state.known = newest::after(state.known.as_ref(), &write, &decision, Where::Made);
        Ok(changed)
    }

    /// The given document with these fields of the old one.
    fn keep(&self, mut document: Document, old: Option<&Document>, fields: &Fields) -> Document {
        let Some(old) = old.filter(|_| !fields.is_empty()) else { return document };
        let mut all = read(&old.to_whole(self.schema())).unwrap_or_default();
        let names = self.numbers.iter().filter(|(_, number)| fields.contains_key(number));
        let kept = names.map(|(name, _)| ((*name).to_owned(), all.remove(*name).unwrap_or(Json::Null)));
        let (patch, _) = Patch::from_whole(self.schema(), kept.collect());
        document.patch(self.schema(), &patch, |_| true);
        document
    }

    fn change(&self, key: &str, old: Option<(At, Document)>, state: State) -> Change {
        let (hash, producer) = (KeyHash::of(key), self.ordering == Ordering::Producer);
        let known = state.known.filter(|_| producer);
        let grave = known.as_ref().filter(|known| !known.live()).map(|known| known.stamp.order);
        let grave = grave.map(|order| Grave { key: hash, slot: slot(key), order });
        let written = known.map(|known| self.written(&known)).unwrap_or_default();
        Change { key: hash, old, new: state.document.map(|document| (document, written)), grave }
    }

    fn written(&self, known: &Known<Where>) -> Written {
        let fields = known.fields.iter().flat_map(|fields| fields.iter());
        let name =
            |number: u16| self.schema().fields.get(usize::from(number)).map(|field| field.name.clone());
        let fields = fields.filter_map(|(number, stamp)| Some((name(*number)?, *stamp))).collect();
        Written { order: known.stamp.order, writes: Writes { tie: known.stamp.tie, fields } }
    }

    /// Removes the spill file; what was done.
    pub(super) fn finish(self) -> Result<Absorbed> {
        drop(self.rows);
        self.spill.remove()?;
        Ok(self.absorbed)
    }
}

fn read(bytes: &[u8]) -> Option<Map<String, Json>> {
    serde_json::from_slice(bytes).ok()
}

/// A patched document as it will be read back.
fn settled(schema: &Schema, document: &Document) -> Result<Document> {
    let whole = read(&document.to_whole(schema)).unwrap_or_default();
    let settled = Document::from_whole(schema, whole);
    settled.map_err(|reject| super::damaged("a patched document", reject.to_string()))
}
