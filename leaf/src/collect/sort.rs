//! The order a request asks for, as numbers that compare fast within a segment.
//!
//! Each criterion of a document becomes one number; smaller comes first. Present values: type rank and value, turned
//! round when descending; missing values come after all others in both directions. Text is compared by its ordinal in
//! the segment, doubled, so that a cursor's text that the segment does not have still has a place between two words. A
//! field with several values counts by the one that comes first. Only the entries of the page are turned back into
//! values, and only those are compared between segments and shards: ordinals and document numbers never leave here (a
//! cursor compared with local numbers skips other shards' documents).

use canopy_common::{
    ids::KeyHash,
    topk::{Order, SortKey, SortValue},
};
use canopy_format::schema::Kind;
use canopy_indexer::index_schema::IndexSchema;
use canopy_proto::{convert, v1};
use tantivy::{
    DocId,
    columnar::{ColumnType, TermOrdHit},
    f64_to_u64, i64_to_u64, u64_to_f64, u64_to_i64,
};

use crate::{
    error::{Error, Result},
    query::fields::{ValueField, value_field},
    view::{FieldColumn, Segment, rank_of},
};

/// Sorts by score.
const SCORE: &str = "_score";
const MISSING: u128 = 1 << 100;
const PRESENT: u128 = (1 << 72) - 1;

/// The order of a request.
pub struct Sorting {
    by: Vec<(By, bool)>,
    /// Hits carry values (the request named an order).
    pub values: bool,
}

enum By {
    Score,
    Field(ValueField),
}

impl Sorting {
    /// Reads the order of a request; no criterion means by score.
    pub fn new(schema: &IndexSchema, sort: &[v1::SortBy]) -> Result<Self> {
        let mut by = Vec::with_capacity(sort.len().max(1));
        for criterion in sort {
            let what = if criterion.field == SCORE {
                By::Score
            } else {
                By::Field(value_field(schema, &criterion.field)?)
            };
            by.push((what, criterion.descending));
        }
        let values = !by.is_empty();
        if !values {
            by.push((By::Score, true));
        }
        Ok(Self { by, values })
    }

    /// Whether the order needs scores.
    pub fn by_score(&self) -> bool {
        self.by.iter().any(|(by, _)| matches!(by, By::Score))
    }

    /// The order between segments.
    pub fn order(&self) -> Order {
        let descending =
            if self.values { self.by.iter().map(|(_, descending)| *descending).collect() } else { vec![] };
        Order { descending }
    }

    /// Reads a cursor.
    pub fn after(&self, after: &v1::After) -> Result<SortKey> {
        let wanted = if self.values { self.by.len() } else { 0 };
        if after.sort.len() != wanted {
            let message = format!("the cursor has {} sort values; the order has {wanted}", after.sort.len());
            return Err(Error::invalid("after", message));
        }
        if after.score.is_nan() {
            return Err(Error::invalid("after", "the cursor's score is not a number"));
        }
        let key = KeyHash::from_parts(after.key_high, after.key_low);
        let values = after.sort.iter().map(convert::sort_value).collect();
        Ok(SortKey { stage: 0, values, score: after.score, key })
    }

    /// The order in a segment.
    pub fn in_segment(&self, segment: &Segment) -> Result<SegmentSorting> {
        let criteria = self.by.iter().map(|(by, descending)| {
            let (columns, mixed) = match by {
                By::Score => (None, false),
                By::Field(field) => (Some(segment.columns(&field.name)?), field.kind == Kind::Map),
            };
            Ok(Criterion { columns, mixed, descending: *descending })
        });
        Ok(SegmentSorting { criteria: criteria.collect::<Result<_>>()? })
    }
}

/// The order in a segment.
pub struct SegmentSorting {
    criteria: Vec<Criterion>,
}

struct Criterion {
    /// `None`: by score.
    columns: Option<Vec<FieldColumn>>,
    /// An attribute: its numbers have a type per segment, so they are compared as floats.
    mixed: bool,
    descending: bool,
}

fn pack(rank: u8, value: u64) -> u128 {
    (u128::from(rank) << 64) | u128::from(value)
}

impl SegmentSorting {
    /// The first criterion of a document.
    #[inline]
    pub fn first(&self, doc: DocId, score: f32) -> u128 {
        self.criteria[0].place(doc, score)
    }

    /// The others; `None` when there is one only.
    pub fn rest(&self, doc: DocId, score: f32) -> Option<Box<[u128]>> {
        let rest = &self.criteria[1..];
        (!rest.is_empty()).then(|| rest.iter().map(|criterion| criterion.place(doc, score)).collect())
    }

    /// Where a cursor stands in this segment.
    pub fn place_of(&self, after: &SortKey) -> Result<(u128, Option<Box<[u128]>>)> {
        let score = [SortValue::F64(after.score.into())];
        let values = if after.values.is_empty() { &score[..] } else { &after.values };
        let mut places = Vec::with_capacity(values.len());
        for (criterion, value) in self.criteria.iter().zip(values) {
            places.push(criterion.place_of(value)?);
        }
        let rest = (places.len() > 1).then(|| places[1..].into());
        Ok((places.first().copied().unwrap_or(0), rest))
    }

    /// The values of a place.
    pub fn values(&self, first: u128, rest: Option<&[u128]>) -> Result<Vec<SortValue>> {
        let places = std::iter::once(first).chain(rest.unwrap_or_default().iter().copied());
        self.criteria.iter().zip(places).map(|(criterion, place)| criterion.value(place)).collect()
    }
}

impl Criterion {
    fn direct(&self, present: u128) -> u128 {
        if self.descending { !present & PRESENT } else { present }
    }

    fn number(&self, column: &FieldColumn, number: u64) -> u128 {
        match column.kind {
            ColumnType::Str => pack(5, 2 * number + 1),
            ColumnType::I64 if self.mixed => pack(4, f64_to_u64(u64_to_i64(number) as f64)),
            ColumnType::U64 if self.mixed => pack(4, f64_to_u64(number as f64)),
            kind => pack(rank_of(kind), number),
        }
    }

    #[inline]
    fn place(&self, doc: DocId, score: f32) -> u128 {
        let Some(columns) = &self.columns else { return self.direct(pack(4, f64_to_u64(score.into()))) };
        let mut place = MISSING;
        for column in columns {
            for number in column.values.values_for_doc(doc) {
                place = place.min(self.direct(self.number(column, number)));
            }
        }
        place
    }

    fn place_of(&self, value: &SortValue) -> Result<u128> {
        let float = |x: f64| pack(4, f64_to_u64(x));
        let present = match value {
            SortValue::Missing => return Ok(MISSING),
            SortValue::Bool(yes) => pack(1, u64::from(*yes)),
            SortValue::I64(n) if self.mixed => float(*n as f64),
            SortValue::U64(n) if self.mixed => float(*n as f64),
            SortValue::I64(n) => pack(2, i64_to_u64(*n)),
            SortValue::U64(n) => pack(3, *n),
            SortValue::F64(x) => float(*x),
            SortValue::Text(text) => {
                let words = self.columns.iter().flatten().find_map(|column| column.words.as_ref());
                let Some(words) = words else { return Ok(self.direct(pack(5, 0))) };
                let hit = words.dictionary().term_ord_or_next(text.as_bytes());
                let place = match hit.map_err(Error::engine("look up keyword"))? {
                    TermOrdHit::Exact(ord) => 2 * ord + 1,
                    TermOrdHit::Next(ord) => 2 * ord.min(words.num_terms() as u64),
                };
                pack(5, place)
            }
        };
        Ok(self.direct(present))
    }

    fn value(&self, place: u128) -> Result<SortValue> {
        if place == MISSING {
            return Ok(SortValue::Missing);
        }
        let present = self.direct(place);
        let number = present as u64;
        Ok(match present >> 64 {
            1 => SortValue::Bool(number > 0),
            2 => SortValue::I64(u64_to_i64(number)),
            3 => SortValue::U64(number),
            4 => SortValue::F64(u64_to_f64(number)),
            _ => {
                let words = self.columns.iter().flatten().find(|column| column.words.is_some());
                SortValue::Text(words.map_or(Ok(String::new()), |column| column.word(number / 2))?)
            }
        })
    }
}
