//! Which of the writes of a key count: what is known of a key, and what a further write of it does. One place, used by the
//! overlay of a leaf and by whoever absorbs the log into a version, so that both end in the same documents.
//!
//! The failure this prevents: a document that comes back from the dead, is there twice, or is another one on another
//! replica, because a write was delivered again or late. Rules: every write has a stamp, and the newest stamp of a *field*
//! wins: a put sets all fields, a patch some, a delete ends them all. So of a key one stamp is kept, that of its newest
//! put or delete, and beside it those of fields that were patched since. A delete is remembered: an older put that comes
//! later changes nothing. A patch of a key that has no document is refused, it would make half a one. What is decided
//! depends on the stamps only, so repetition changes nothing, nor does the order in which puts and deletes come.
//!
//! A document of a version has the stamp of its own write. Where a build made it of its input, nobody knows the tie (0):
//! a write of the log wins over it at the same order, since it was accepted after it. Where ties are known they decide.

use std::collections::BTreeMap;

/// Which of two writes of a key is newer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stamp {
    /// The offset, or the producer's number.
    pub order: u64,
    /// Decides between two of one order: what is done, then a hash of the document. 0 where orders can't be equal, and where
    /// it is not known.
    pub tie: u64,
}

/// What is done to a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// All fields are set.
    Put,
    /// Some fields are set.
    Patch,
    /// It goes.
    Delete,
}

impl Stamp {
    /// Of a record in a corpus ordered by the log.
    pub fn of_log(offset: u64) -> Self {
        Self { order: offset, tie: 0 }
    }

    /// Of a record in a corpus ordered by producers; `hash` is the xxh3-128 of its document. What is done comes first, by
    /// its number on the wire, so that of a put and a delete of one order the delete wins wherever they meet.
    pub fn of_producer(order: u64, kind: Kind, hash: u128) -> Self {
        let done: u64 = match kind {
            Kind::Put => 1,
            Kind::Patch => 2,
            Kind::Delete => 3,
        };
        Self { order, tie: (done << 62) | (hash >> 66) as u64 }
    }

    /// Of a delete of which only the order was kept: above every put and patch of that order.
    pub fn of_grave(order: u64) -> Self {
        Self { order, tie: u64::MAX }
    }
}

/// Where the document of a key is.
pub trait Spot: Clone {
    /// Nowhere: it was deleted.
    fn gone() -> Self;
    /// Whether it is nowhere.
    fn is_gone(&self) -> bool;
    /// Whether it is that of the version, unchanged.
    fn is_base(&self) -> bool;
}

/// Writes of fields that were patched after the document was put, by number in the schema.
pub type Fields = BTreeMap<u16, Stamp>;

/// What is known of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known<S> {
    /// Its newest put or delete.
    pub stamp: Stamp,
    /// Where its document is.
    pub spot: S,
    /// Newer patches; `None`: none, which saves most of the memory.
    pub fields: Option<Box<Fields>>,
}

impl<S: Spot> Known<S> {
    /// A document at `spot`, of the write `stamp`, some fields of newer ones.
    pub fn new(spot: S, stamp: Stamp, fields: Fields) -> Self {
        Self { stamp, spot, fields: boxed(fields) }
    }

    /// A delete that a version remembers.
    pub fn grave(order: u64) -> Self {
        Self { stamp: Stamp::of_grave(order), spot: S::gone(), fields: None }
    }

    /// Whether there is a document, visible or not.
    pub fn live(&self) -> bool {
        !self.spot.is_gone()
    }

    /// The write of a field.
    pub fn field(&self, field: u16) -> Stamp {
        let patched = self.fields.as_ref().and_then(|fields| fields.get(&field));
        patched.copied().unwrap_or_default().max(self.stamp)
    }

    /// The newest write of any field.
    pub fn newest(&self) -> Stamp {
        let patched = self.fields.iter().flat_map(|fields| fields.values().copied()).max();
        patched.map_or(self.stamp, |patched| patched.max(self.stamp))
    }

    /// Whether a write comes after another of this key.
    fn precedes(&self, than: Stamp, write: Stamp) -> bool {
        let unknown = self.spot.is_base() && than.tie == 0;
        write > than || (unknown && write.order == than.order)
    }
}

fn boxed(fields: Fields) -> Option<Box<Fields>> {
    (!fields.is_empty()).then(|| Box::new(fields))
}

/// A write.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// What is done.
    pub kind: Kind,
    /// When.
    pub stamp: Stamp,
    /// The fields of a patch, by number in the schema.
    pub fields: &'a [u16],
}

/// What a write does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// Nothing: a newer write is known of all that it sets.
    Stale,
    /// The document is the given one, but for the fields of `keep`, which newer patches set: those are the old document's.
    Put {
        /// The fields that stay, with their writes.
        keep: Fields,
    },
    /// These fields are set, the others stay.
    Patch {
        /// Which.
        set: Vec<u16>,
    },
    /// The document goes.
    Delete,
    /// There is no document to patch.
    NoDocument,
}

/// What a write of a key does, of which `known` is known; `None`: neither log nor version has ever named it.
pub fn decide<S: Spot>(known: Option<&Known<S>>, write: &Write<'_>) -> Decision {
    let Some(known) = known else {
        return match write.kind {
            Kind::Put => Decision::Put { keep: Fields::new() },
            Kind::Delete => Decision::Delete,
            Kind::Patch => Decision::NoDocument,
        };
    };
    let newer = |than: Stamp| known.precedes(than, write.stamp);
    match write.kind {
        Kind::Put | Kind::Delete if !newer(known.stamp) => Decision::Stale,
        Kind::Delete => Decision::Delete,
        Kind::Put => {
            let patched = known.fields.iter().flat_map(|fields| fields.iter());
            let keep = patched.filter(|(_, stamp)| !newer(**stamp));
            Decision::Put { keep: keep.map(|(field, stamp)| (*field, *stamp)).collect() }
        }
        // What a newer delete ended, and what there never was, look the same to an older patch: it is too late.
        Kind::Patch if !known.live() => {
            if newer(known.stamp) {
                Decision::NoDocument
            } else {
                Decision::Stale
            }
        }
        Kind::Patch => {
            let set: Vec<u16> =
                write.fields.iter().copied().filter(|field| newer(known.field(*field))).collect();
            if set.is_empty() { Decision::Stale } else { Decision::Patch { set } }
        }
    }
}

/// What is known of a key after a write was done; its document is at `spot` now.
pub fn after<S: Spot>(
    known: Option<&Known<S>>,
    write: &Write<'_>,
    decision: &Decision,
    spot: S,
) -> Option<Known<S>> {
    match decision {
        Decision::Stale | Decision::NoDocument => known.cloned(),
        Decision::Delete => Some(Known { stamp: write.stamp, spot: S::gone(), fields: None }),
        Decision::Put { keep } => Some(Known { stamp: write.stamp, spot, fields: boxed(keep.clone()) }),
        Decision::Patch { set } => {
            let mut next = known?.clone();
            let fields = next.fields.get_or_insert_default();
            fields.extend(set.iter().map(|field| (*field, write.stamp)));
            next.spot = spot;
            Some(next)
        }
    }
}

#[cfg(test)]
mod tests;
