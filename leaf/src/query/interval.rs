//! An interval of values in the numbers of a column.
//!
//! Whole numbers are compared exactly with floats: `price > 2.5` on whole numbers means `>= 3`, and a bound beyond the
//! type's range never wraps. Text is an interval of the words that the segment has.

use tantivy::{
    columnar::{ColumnType, TermOrdHit},
    f64_to_u64, i64_to_u64,
};

use super::fields::Scalar;
use crate::{
    error::{Error, Result},
    view::FieldColumn,
};

/// An interval; a bound is a value and whether it belongs to the interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Interval {
    /// Lower bound.
    pub lower: Option<(Scalar, bool)>,
    /// Upper bound.
    pub upper: Option<(Scalar, bool)>,
}

impl Interval {
    /// The interval in a column's numbers, both ends inclusive. `None`: nothing of this column is in it.
    pub fn of(&self, column: &FieldColumn) -> Result<Option<(u64, u64)>> {
        if self.lower.is_none() && self.upper.is_none() {
            return Ok(Some((0, u64::MAX)));
        }
        let family = self.lower.as_ref().or(self.upper.as_ref()).map_or(0, |(value, _)| value.family());
        let ends = match column.kind {
            ColumnType::Str if family == 0 => self.words(column)?,
            ColumnType::Bool if family == 2 => self.bools(),
            ColumnType::I64 if family == 1 => self
                .wholes(i64::MIN.into(), i64::MAX.into())
                .map(|(a, b)| (i64_to_u64(a as i64), i64_to_u64(b as i64))),
            ColumnType::U64 if family == 1 => {
                self.wholes(0, u64::MAX.into()).map(|(a, b)| (a as u64, b as u64))
            }
            ColumnType::F64 if family == 1 => self.floats(),
            _ => None,
        };
        Ok(ends.filter(|(low, high)| low <= high))
    }

    fn words(&self, column: &FieldColumn) -> Result<Option<(u64, u64)>> {
        let Some(words) = &column.words else { return Ok(None) };
        // Number of words below a text, and whether the text itself is one.
        let place = |text: &str| -> Result<(u64, bool)> {
            let hit = words.dictionary().term_ord_or_next(text.as_bytes());
            Ok(match hit.map_err(Error::engine("look up keyword"))? {
                TermOrdHit::Exact(ord) => (ord, true),
                TermOrdHit::Next(ord) => (ord.min(words.num_terms() as u64), false),
            })
        };
        let low = match &self.lower {
            Some((Scalar::Text(text), inclusive)) => {
                let (below, exact) = place(text)?;
                below + u64::from(exact && !inclusive)
            }
            _ => 0,
        };
        let end = match &self.upper {
            Some((Scalar::Text(text), inclusive)) => {
                let (below, exact) = place(text)?;
                below + u64::from(exact && *inclusive)
            }
            _ => words.num_terms() as u64,
        };
        Ok(end.checked_sub(1).map(|high| (low, high)))
    }

    fn bools(&self) -> Option<(u64, u64)> {
        let number = |bound: &Option<(Scalar, bool)>| match bound {
            Some((Scalar::Bool(yes), inclusive)) => Some((u64::from(*yes), *inclusive)),
            _ => None,
        };
        let low = number(&self.lower).map_or(0, |(n, inclusive)| n + u64::from(!inclusive));
        let high = match number(&self.upper) {
            Some((n, true)) => n,
            Some((n, false)) => n.checked_sub(1)?,
            None => 1,
        };
        Some((low, high))
    }

    fn wholes(&self, min: i128, max: i128) -> Option<(i128, i128)> {
        let low = match &self.lower {
            Some((Scalar::Whole(n), inclusive)) => n + i128::from(!inclusive),
            Some((Scalar::Float(x), inclusive)) => {
                let up = x.ceil();
                (up as i128).saturating_add(i128::from(!inclusive && up == *x))
            }
            _ => min,
        };
        let high = match &self.upper {
            Some((Scalar::Whole(n), inclusive)) => n - i128::from(!inclusive),
            Some((Scalar::Float(x), inclusive)) => {
                let down = x.floor();
                (down as i128).saturating_sub(i128::from(!inclusive && down == *x))
            }
            _ => max,
        };
        (low <= max && high >= min).then(|| (low.max(min), high.min(max)))
    }

    fn floats(&self) -> Option<(u64, u64)> {
        let low = match &self.lower {
            Some((Scalar::Float(x), true)) => {
                if *x == 0.0 {
                    -0.0
                } else {
                    *x
                }
            }
            Some((Scalar::Float(x), false)) => {
                if *x == 0.0 {
                    f64::from_bits(1)
                } else {
                    x.next_up()
                }
            }
            Some((Scalar::Whole(n), inclusive)) => {
                let near = *n as f64;
                let whole = near as i128;
                if whole < *n || (whole == *n && !inclusive) {
                    near.next_up()
                } else if near == 0.0 {
                    -0.0
                } else {
                    near
                }
            }
            _ => f64::NEG_INFINITY,
        };
        let high = match &self.upper {
            Some((Scalar::Float(x), true)) => x + 0.0,
            Some((Scalar::Float(x), false)) => {
                if *x == 0.0 {
                    -f64::from_bits(1)
                } else {
                    x.next_down()
                }
            }
            Some((Scalar::Whole(n), inclusive)) => {
                let near = *n as f64;
                let whole = near as i128;
                if whole > *n || (whole == *n && !inclusive) { near.next_down() } else { near }
            }
            _ => f64::INFINITY,
        };
        (low <= high).then(|| (f64_to_u64(low), f64_to_u64(high)))
    }
}
