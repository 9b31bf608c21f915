//! The place where a page ended, as one opaque word that the client hands back.
//!
//! A cursor is stateless, so that no node has to remember it: it holds the last hit's place in the total order (sort
//! values, score, key hash), the version it was read from and a fingerprint of the query. The next page asks for hits
//! strictly after that place in that version, which is why pages neither repeat nor go back, whichever replica
//! answers. Layout, big endian: format 1, corpus hash 8, version 8, fingerprint 8, position 4, score 4, key hash 16,
//! number of sort values 1, each a tag and its bytes, checksum 8; base64 without padding.
//!
//! Rule: a cursor that was changed, or comes from another corpus or query, is 400 naming `cursor`; one of a version
//! that is gone is 410. The checksum finds damage, not forgery: a forged cursor can only name another place in the
//! same public order.

use base64::{Engine, engine::general_purpose::URL_SAFE_NO_PAD};
use canopy_common::{
    error::Failure,
    ids::{KeyHash, Version},
    topk::{SortKey, SortValue},
};
use canopy_proto::{convert::sort_value_to_wire, v1};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

/// Longest cursor that is read, characters.
const MAX_LENGTH: usize = 64 << 10;
const FORMAT: u8 = 1;
const SEED: u64 = 0x6361_6e6f_7079_0001;

/// Where a page ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Cursor {
    /// Version that was searched.
    pub version: Version,
    /// Of the parameters that decide the order.
    pub fingerprint: u64,
    /// Hits on the pages before.
    pub position: u32,
    /// The last hit's place.
    pub place: SortKey,
}

impl Cursor {
    /// The word for the client.
    pub fn write(&self, corpus: &str) -> String {
        let mut bytes = vec![FORMAT];
        bytes.extend(xxh3_64(corpus.as_bytes()).to_be_bytes());
        bytes.extend(self.version.0.to_be_bytes());
        bytes.extend(self.fingerprint.to_be_bytes());
        bytes.extend(self.position.to_be_bytes());
        bytes.extend(self.place.score.to_bits().to_be_bytes());
        bytes.extend(self.place.key.0.to_be_bytes());
        bytes.push(self.place.values.len() as u8);
        for value in &self.place.values {
            write_value(&mut bytes, value);
        }
        bytes.extend(xxh3_64_with_seed(&bytes, SEED).to_be_bytes());
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads a client's word for a query on `corpus` with `fingerprint`.
    pub fn read(text: &str, corpus: &str, fingerprint: u64) -> Result<Self, Failure> {
        let damaged =
            || Failure::invalid("cursor", "cursor is damaged; send it back exactly as it was given");
        if text.len() > MAX_LENGTH {
            return Err(damaged().with_limit(MAX_LENGTH as u64));
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| damaged())?;
        let (body, sum) = bytes.split_last_chunk::<8>().ok_or_else(damaged)?;
        if xxh3_64_with_seed(body, SEED) != u64::from_be_bytes(*sum) {
            return Err(damaged());
        }
        let mut rest = body;
        let (cursor, home) = read_body(&mut rest).filter(|_| rest.is_empty()).ok_or_else(damaged)?;
        if home != xxh3_64(corpus.as_bytes()) {
            return Err(Failure::invalid(
                "cursor",
                format!("cursor belongs to another corpus than {corpus}"),
            ));
        }
        if cursor.fingerprint != fingerprint {
            let message = "cursor belongs to another query; keep q, filter, sort, collapse and profile, \
                           or search again without it";
            return Err(Failure::invalid("cursor", message));
        }
        Ok(cursor)
    }

    /// The place for the wire.
    pub fn after(&self) -> v1::After {
        let (key_high, key_low) = self.place.key.parts();
        let sort = self.place.values.iter().map(sort_value_to_wire).collect();
        v1::After { sort, score: self.place.score, key_high, key_low }
    }
}

fn write_value(bytes: &mut Vec<u8>, value: &SortValue) {
    match value {
        SortValue::Missing => bytes.push(0),
        SortValue::Text(text) => {
            bytes.push(1);
            bytes.extend((text.len() as u32).to_be_bytes());
            bytes.extend(text.as_bytes());
        }
        SortValue::I64(n) => tagged(bytes, 2, n.to_be_bytes()),
        SortValue::U64(n) => tagged(bytes, 3, n.to_be_bytes()),
        SortValue::F64(n) => tagged(bytes, 4, n.to_bits().to_be_bytes()),
        SortValue::Bool(b) => bytes.extend([5, u8::from(*b)]),
    }
}

fn tagged(bytes: &mut Vec<u8>, tag: u8, value: [u8; 8]) {
    bytes.push(tag);
    bytes.extend(value);
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (head, tail) = rest.split_first_chunk::<N>()?;
    *rest = tail;
    Some(*head)
}

fn read_body(rest: &mut &[u8]) -> Option<(Cursor, u64)> {
    if take::<1>(rest)? != [FORMAT] {
        return None;
    }
    let home = u64::from_be_bytes(take(rest)?);
    let version = Version(u64::from_be_bytes(take(rest)?));
    let fingerprint = u64::from_be_bytes(take(rest)?);
    let position = u32::from_be_bytes(take(rest)?);
    let score = f32::from_bits(u32::from_be_bytes(take(rest)?));
    let key = KeyHash(u128::from_be_bytes(take(rest)?));
    let [count] = take::<1>(rest)?;
    let values = (0..count).map(|_| read_value(rest)).collect::<Option<Vec<_>>>()?;
    let place = SortKey { stage: 0, values, score, key };
    Some((Cursor { version, fingerprint, position, place }, home))
}

fn read_value(rest: &mut &[u8]) -> Option<SortValue> {
    let [tag] = take::<1>(rest)?;
    Some(match tag {
        0 => SortValue::Missing,
        1 => {
            let length = u32::from_be_bytes(take(rest)?) as usize;
            let (text, tail) = rest.split_at_checked(length)?;
            *rest = tail;
            SortValue::Text(std::str::from_utf8(text).ok()?.to_owned())
        }
        2 => SortValue::I64(i64::from_be_bytes(take(rest)?)),
        3 => SortValue::U64(u64::from_be_bytes(take(rest)?)),
        4 => SortValue::F64(f64::from_bits(u64::from_be_bytes(take(rest)?))),
        5 => SortValue::Bool(take::<1>(rest)? != [0]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor() -> Cursor {
        let values = vec![
            SortValue::Missing,
            SortValue::Text("grüße".into()),
            SortValue::I64(i64::MIN),
            SortValue::U64(u64::MAX),
            SortValue::F64(-0.5),
            SortValue::Bool(true),
        ];
        Cursor {
            version: Version(u64::MAX),
            fingerprint: 42,
            position: 9_990,
            place: SortKey { stage: 0, values, score: 7.25, key: KeyHash(u128::MAX - 5) },
        }
    }

    #[test]
    fn a_cursor_reads_what_it_writes_to_the_bit() {
        let word = cursor().write("web");
        assert!(word.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_'), "{word}");
        assert_eq!(Cursor::read(&word, "web", 42), Ok(cursor()));
        let after = cursor().after();
        assert_eq!(KeyHash::from_parts(after.key_high, after.key_low), cursor().place.key);
        assert_eq!(after.sort.len(), 6);
    }

    #[test]
    fn damage_anywhere_is_found_and_names_the_field() {
        let word = cursor().write("web");
        for at in 0..word.len() {
            let mut bytes = word.clone().into_bytes();
            bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(bytes).unwrap();
            let failure = Cursor::read(&changed, "web", 42).unwrap_err();
            assert_eq!(failure.field.as_deref(), Some("cursor"), "{changed}");
        }
        for end in 0..word.len() {
            assert!(Cursor::read(&word[..end], "web", 42).is_err());
        }
        for bad in ["", "####", "é", &"A".repeat(MAX_LENGTH + 1)] {
            assert!(Cursor::read(bad, "web", 42).is_err());
        }
    }

    #[test]
    fn a_cursor_of_another_corpus_or_query_is_refused() {
        let word = cursor().write("web");
        assert!(Cursor::read(&word, "news", 42).unwrap_err().message.contains("another corpus"));
        assert!(Cursor::read(&word, "web", 43).unwrap_err().message.contains("another query"));
    }
}
