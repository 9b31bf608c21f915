//! Decisions on writes against a reference: the newest write of each field, by stamp.

use proptest::prelude::*;

use super::*;

/// A document is nothing but which write set each of its fields.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Made(Option<BTreeMap<u16, Stamp>>, bool);

impl Spot for Made {
    fn gone() -> Self {
        Self(None, false)
    }
    fn is_gone(&self) -> bool {
        self.0.is_none()
    }
    fn is_base(&self) -> bool {
        self.1
    }
}

const FIELDS: u16 = 3;

#[derive(Debug, Clone)]
struct Op {
    kind: Kind,
    stamp: Stamp,
    fields: Vec<u16>,
}

fn apply(known: Option<Known<Made>>, op: &Op) -> Option<Known<Made>> {
    let write = Write { kind: op.kind, stamp: op.stamp, fields: &op.fields };
    let decision = decide(known.as_ref(), &write);
    let old = known.as_ref().and_then(|known| known.spot.0.clone()).unwrap_or_default();
    let made = match &decision {
        Decision::Put { keep } => {
            let of = |field| (field, if keep.contains_key(&field) { old[&field] } else { op.stamp });
            Made(Some((0..FIELDS).map(of).collect()), false)
        }
        Decision::Patch { set } => {
            let mut made = old;
            made.extend(set.iter().map(|field| (*field, op.stamp)));
            Made(Some(made), false)
        }
        _ => Made::gone(),
    };
    after(known.as_ref(), &write, &decision, made)
}

fn all<'a>(known: Option<Known<Made>>, ops: impl IntoIterator<Item = &'a Op>) -> Option<Known<Made>> {
    ops.into_iter().fold(known, apply)
}

fn base(order: u64, tie: u64) -> Known<Made> {
    let stamp = Stamp { order, tie };
    let made = Made(Some((0..FIELDS).map(|field| (field, stamp)).collect()), true);
    Known::new(made, stamp, Fields::new())
}

fn op(kinds: &'static [Kind]) -> impl Strategy<Value = Op> {
    let fields = proptest::collection::btree_set(0..FIELDS, 1..3);
    (0..kinds.len(), 0..12u64, 0..3u128, fields).prop_map(move |(kind, order, hash, fields)| {
        let kind = kinds[kind];
        let stamp = Stamp::of_producer(order, kind, hash << 120);
        Op { kind, stamp, fields: fields.into_iter().collect() }
    })
}

fn ops(kinds: &'static [Kind]) -> impl Strategy<Value = Vec<Op>> {
    proptest::collection::vec(op(kinds), 0..12)
}

/// What the rules say without any history: the newest put or delete, newer patches over it.
fn reference(ops: &[Op]) -> Option<BTreeMap<u16, Stamp>> {
    let newest = ops.iter().filter(|op| op.kind != Kind::Patch).max_by_key(|op| op.stamp)?;
    let of = |field: u16| {
        let set = ops.iter().filter(|op| op.kind == Kind::Patch && op.fields.contains(&field));
        (field, set.map(|op| op.stamp).max().unwrap_or_default().max(newest.stamp))
    };
    (newest.kind == Kind::Put).then(|| (0..FIELDS).map(of).collect())
}

proptest! {
    #[test]
    fn puts_and_deletes_end_the_same_in_any_order(
        (first, second) in ops(&[Kind::Put, Kind::Delete]).prop_flat_map(|ops| {
            (Just(ops.clone()), Just(ops).prop_shuffle())
        })
    ) {
        prop_assert_eq!(all(None, &first), all(None, &second));
    }

    #[test]
    fn patches_of_a_document_commute_with_puts(
        (first, second) in ops(&[Kind::Put, Kind::Patch]).prop_flat_map(|ops| {
            (Just(ops.clone()), Just(ops).prop_shuffle())
        })
    ) {
        let ends = [all(Some(base(0, 1)), &first), all(Some(base(0, 1)), &second)];
        let made = |end: &Option<Known<Made>>| end.as_ref().and_then(|known| known.spot.0.clone());
        prop_assert_eq!(made(&ends[0]), made(&ends[1]));
        let start = Op { kind: Kind::Put, stamp: Stamp { order: 0, tie: 1 }, fields: vec![] };
        let expected = reference(&[&[start], first.as_slice()].concat());
        prop_assert_eq!(made(&ends[0]), expected);
    }

    #[test]
    fn what_is_repeated_changes_nothing(ops in ops(&[Kind::Put, Kind::Patch, Kind::Delete]), from in 0..12usize) {
        let end = all(None, &ops);
        let again = all(end.clone(), &ops[from.min(ops.len())..]);
        // Only a patch that came before its document may find it now; without one, nothing changes.
        let early = ops.iter().any(|op| op.kind == Kind::Patch);
        prop_assert!(early || again == end);
        let twice: Vec<Op> = ops.iter().flat_map(|op| [op.clone(), op.clone()]).collect();
        prop_assert_eq!(all(None, &twice), end);
    }

    #[test]
    fn a_version_in_between_changes_nothing(
        ops in ops(&[Kind::Put, Kind::Patch, Kind::Delete]), at in 0..12usize
    ) {
        let at = at.min(ops.len());
        let middle = all(None, &ops[..at]);
        // What a version keeps: a document with its stamps, or the order of a delete.
        let kept = middle.clone().map(|known| match known.spot.0 {
            Some(made) => Known { spot: Made(Some(made), true), ..known },
            None => Known::grave(known.stamp.order),
        });
        let (end, expected) = (all(kept, &ops[at..]), all(middle, &ops[at..]));
        let made = |end: Option<Known<Made>>| end.and_then(|known| known.spot.0);
        prop_assert_eq!(made(end), made(expected));
    }
}

#[test]
fn the_log_wins_over_a_build_of_the_same_order() {
    let stamp = Stamp::of_producer(5, Kind::Put, 1 << 100);
    let put = Op { kind: Kind::Put, stamp, fields: vec![] };
    assert_eq!(apply(Some(base(5, 0)), &put).unwrap().stamp, stamp);
    assert!(apply(Some(base(6, 0)), &put).unwrap().spot.1, "an older one does not");
    assert!(apply(Some(base(5, u64::MAX)), &put).unwrap().spot.1, "nor where the tie is known");
    let dead = apply(Some(Known::grave(5)), &put).unwrap();
    assert!(!dead.live());
}
