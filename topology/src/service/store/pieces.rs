//! Documents in pieces, for stores that take small values only: etcd refuses a request above 1.5 MiB, and a corpus on tens of
//! thousands of leaves is more than that. Only pieces that are different are written.
//!
//! The key of a piece is the document's with `/` and five digits; a document of nothing has one empty piece. Units: bytes.

use std::collections::BTreeMap;

use super::Documents;
use crate::error::{Error, Result};

/// Largest piece.
const PIECE: usize = 128 << 10;

/// What makes one set of pieces into another.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Pieces that are put.
    pub put: Vec<(String, Vec<u8>)>,
    /// Keys that go.
    pub gone: Vec<String>,
}

/// Takes documents apart.
fn apart(documents: &Documents) -> BTreeMap<String, &[u8]> {
    let mut pieces = BTreeMap::new();
    for (key, bytes) in documents {
        let none: &[u8] = &[];
        let chunks = bytes.chunks(PIECE).chain(bytes.is_empty().then_some(none));
        pieces.extend(chunks.enumerate().map(|(number, chunk)| (format!("{key}/{number:05}"), chunk)));
    }
    pieces
}

/// Pieces that are different.
pub fn changes(from: &Documents, to: &Documents) -> Changes {
    let (from, to) = (apart(from), apart(to));
    let put = to.iter().filter(|(key, bytes)| from.get(*key) != Some(*bytes));
    Changes {
        put: put.map(|(key, bytes)| (key.clone(), bytes.to_vec())).collect(),
        gone: from.into_keys().filter(|key| !to.contains_key(key)).collect(),
    }
}

/// Puts pieces together again. Errors: one is missing.
pub fn together(pieces: BTreeMap<String, Vec<u8>>) -> Result<Documents> {
    let mut documents = Documents::new();
    let mut next = 0;
    for (key, bytes) in pieces {
        let damaged = |reason: &str| Error::Document { key: key.clone(), reason: reason.to_owned() };
        let (document, number) = key.rsplit_once('/').ok_or_else(|| damaged("it has no number"))?;
        let number: usize = number.parse().map_err(|_| damaged("its number is none"))?;
        if number == 0 {
            next = 0;
        }
        if number != next || (number > 0) != documents.contains_key(document) {
            return Err(damaged("the piece before it is missing"));
        }
        next += 1;
        documents.entry(document.to_owned()).or_default().extend(bytes);
    }
    Ok(documents)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::btree_map, prelude::*};

    use super::*;

    fn owned(documents: &Documents) -> BTreeMap<String, Vec<u8>> {
        apart(documents).into_iter().map(|(key, bytes)| (key, bytes.to_vec())).collect()
    }

    fn documents() -> impl Strategy<Value = Documents> {
        let length = prop_oneof![0..200_usize, PIECE - 2..PIECE + 2, 2 * PIECE..4 * PIECE];
        btree_map(
            "[a-c]/[a-c]{1,2}",
            (length, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]),
            0..6,
        )
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn pieces_are_small_and_changes_lead_from_one_to_the_other(from in documents(), to in documents()) {
            let mut pieces = owned(&from);
            prop_assert!(pieces.values().all(|piece| piece.len() <= PIECE));
            let Changes { put, gone } = changes(&from, &to);
            for key in gone {
                prop_assert!(pieces.remove(&key).is_some());
            }
            pieces.extend(put);
            prop_assert_eq!(together(pieces).unwrap(), to);
        }
    }

    #[test]
    fn a_piece_that_is_missing_is_noticed() {
        let whole =
            owned(&Documents::from([("a".to_owned(), vec![1; 3 * PIECE]), ("b".to_owned(), vec![2])]));
        for lost in ["a/00000", "a/00001"] {
            let mut pieces = whole.clone();
            pieces.remove(lost);
            let error = together(pieces).unwrap_err().to_string();
            assert!(error.contains("the piece before it is missing"), "{error}");
        }
        assert!(together([("a".to_owned(), vec![])].into()).unwrap_err().to_string().contains("no number"));
    }
}
