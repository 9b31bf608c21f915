//! Names and values of a query against the schema. An unknown name or a value of the wrong type is the caller's error
//! and names the field; a value that merely can't occur (300 in a field of bytes, 2.5 in whole numbers) matches nothing.
//!
//! Whole numbers are compared exactly with floats: `price > 2.5` on whole numbers means `>= 3`, and a bound beyond the
//! type's range never wraps. An attribute of a map has a type per document, so its values are matched by type; text
//! that reads as a number or bool matches those too, because whoever parsed the query could not know.

use canopy_format::schema::Kind;
use canopy_indexer::index_schema::{IndexSchema, STATIC_RANK};
use canopy_proto::v1::{self, value};
use tantivy::{Term, columnar::ColumnType, f64_to_u64, i64_to_u64, schema::Field};

use crate::{
    error::{Error, Result},
    view::FieldColumn,
};

/// A field with values (not text).
#[derive(Debug, Clone)]
pub struct ValueField {
    /// As the request names it; `attributes.color` for an attribute.
    pub name: String,
    /// Type; [`Kind::Map`] for an attribute.
    pub kind: Kind,
    /// The engine's field.
    pub field: Field,
}

/// A value of a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    /// Keyword.
    Text(String),
    /// Whole number, or microseconds of a date.
    Whole(i128),
    /// Float, never NaN.
    Float(f64),
    /// Boolean.
    Bool(bool),
}

/// An interval; a bound is a value and whether it belongs to the interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Interval {
    /// Lower bound.
    pub lower: Option<(Scalar, bool)>,
    /// Upper bound.
    pub upper: Option<(Scalar, bool)>,
}

/// A text field by name.
pub fn text_field(schema: &IndexSchema, name: &str) -> Result<Field> {
    schema.text_field(name).ok_or_else(|| {
        let declared = schema.schema.fields.iter().find(|field| field.name == name);
        Error::invalid(
            name,
            match declared {
                Some(field) if field.kind == Kind::Text => {
                    format!("field {name:?} has no index of its own; search \"text\", or set query = true in the schema")
                }
                Some(field) => format!("field {name:?} is {}, not text; use a filter", field.kind.name()),
                None => unknown(name),
            },
        )
    })
}

/// A field with values by name.
pub fn value_field(schema: &IndexSchema, name: &str) -> Result<ValueField> {
    let named = |kind, field| Ok(ValueField { name: name.to_owned(), kind, field });
    if let Some((kind, field)) = schema.values.get(name) {
        if *kind == Kind::Map {
            return Err(Error::invalid(
                name,
                format!("{name:?} is a map; name an attribute, such as {name}.color"),
            ));
        }
        return named(*kind, *field);
    }
    if name == STATIC_RANK {
        return named(Kind::F64, schema.static_rank);
    }
    if let Some((map, attribute)) = name.split_once('.')
        && let Some((Kind::Map, field)) = schema.values.get(map)
        && !attribute.is_empty()
    {
        return named(Kind::Map, *field);
    }
    let declared =
        schema.schema.fields.iter().any(|field| field.name == name) || schema.text_field(name).is_some();
    let text = || format!("field {name:?} is text; it has no values to filter, sort or count by");
    Err(Error::invalid(name, if declared { text() } else { unknown(name) }))
}

fn unknown(name: &str) -> String {
    let shown: String = name.chars().take(80).collect();
    format!("there is no field {shown:?}; see the schema of the corpus")
}

impl ValueField {
    /// Whether its values are in the inverted index (they always are in fast fields).
    pub fn indexed(&self, schema: &IndexSchema) -> bool {
        schema.engine.get_field_entry(self.field).is_indexed()
    }

    /// Reads a value that this field can be compared with.
    pub fn scalar(&self, value: Option<&v1::Value>) -> Result<Scalar> {
        use value::Kind::{Bool, DateUs, F64, I64, Text, U64};
        let given = value.and_then(|value| value.kind.as_ref());
        let scalar = match (self.kind, given) {
            (Kind::Keyword | Kind::Map, Some(Text(text))) => Scalar::Text(text.clone()),
            (Kind::I64 | Kind::U64 | Kind::F64 | Kind::Map, Some(I64(n))) => Scalar::Whole((*n).into()),
            (Kind::I64 | Kind::U64 | Kind::F64 | Kind::Map, Some(U64(n))) => Scalar::Whole((*n).into()),
            (Kind::I64 | Kind::U64 | Kind::F64 | Kind::Map, Some(F64(x))) if !x.is_nan() => Scalar::Float(*x),
            (Kind::Bool | Kind::Map, Some(Bool(yes))) => Scalar::Bool(*yes),
            (Kind::Date, Some(DateUs(us))) => Scalar::Whole((*us).into()),
            _ => {
                let wanted =
                    if self.kind == Kind::Map { "keyword, number or bool" } else { self.kind.name() };
                let what = match given {
                    None => "nothing",
                    Some(Text(_)) => "text",
                    Some(I64(_) | U64(_)) => "a whole number",
                    Some(F64(x)) if x.is_nan() => "not a number",
                    Some(F64(_)) => "a float",
                    Some(Bool(_)) => "a bool",
                    Some(DateUs(_)) => "a date",
                };
                return Err(Error::invalid(
                    &self.name,
                    format!("field {:?} is {wanted}; the value is {what}", self.name),
                ));
            }
        };
        Ok(scalar)
    }

    /// The index terms of documents that have exactly this value.
    pub fn terms(&self, schema: &IndexSchema, value: &Scalar) -> Vec<Term> {
        match (self.kind, value) {
            (Kind::Keyword, Scalar::Text(text)) => vec![Term::from_field_text(self.field, text)],
            (Kind::Bool, Scalar::Bool(yes)) => vec![Term::from_field_bool(self.field, *yes)],
            (Kind::I64 | Kind::Date, _) => {
                let number = value.whole().and_then(|n| i64::try_from(n).ok());
                number.map(|n| Term::from_field_i64(self.field, n)).into_iter().collect()
            }
            (Kind::U64, _) => {
                let number = value.whole().and_then(|n| u64::try_from(n).ok());
                number.map(|n| Term::from_field_u64(self.field, n)).into_iter().collect()
            }
            (Kind::F64, _) => match value.float() {
                // Two numbers in the index, one value for everybody else.
                Some(0.0) => [0.0, -0.0].map(|zero| Term::from_field_f64(self.field, zero)).into(),
                Some(x) => vec![Term::from_field_f64(self.field, x)],
                None => vec![],
            },
            (Kind::Map, _) => self.attribute_terms(schema, value),
            _ => vec![],
        }
    }

    fn attribute_terms(&self, schema: &IndexSchema, value: &Scalar) -> Vec<Term> {
        let Some(path) = schema.map_term(&self.name) else { return vec![] };
        let term = |append: &dyn Fn(&mut Term)| {
            let mut term = path.clone();
            append(&mut term);
            term
        };
        match value {
            Scalar::Bool(yes) => vec![term(&|t| t.append_type_and_fast_value(*yes))],
            Scalar::Text(text) => {
                let mut terms = vec![term(&|t| t.append_type_and_str(text))];
                if let Some(read) = Scalar::read(text) {
                    terms.extend(self.attribute_terms(schema, &read));
                }
                terms
            }
            // The engine writes a whole number as i64 where it fits, else as u64, whatever its type was.
            _ => match value.whole() {
                Some(n) if i64::try_from(n).is_ok() => {
                    vec![term(&|t| t.append_type_and_fast_value(n as i64))]
                }
                Some(n) if u64::try_from(n).is_ok() => {
                    vec![term(&|t| t.append_type_and_fast_value(n as u64))]
                }
                _ => value.float().map(|x| term(&|t| t.append_type_and_fast_value(x))).into_iter().collect(),
            },
        }
    }

    /// Reads an interval.
    pub fn interval(&self, lower: Option<&v1::Bound>, upper: Option<&v1::Bound>) -> Result<Interval> {
        let bound = |bound: Option<&v1::Bound>| -> Result<Option<(Scalar, bool)>> {
            bound.map(|bound| Ok((self.scalar(bound.value.as_ref())?, bound.inclusive))).transpose()
        };
        let interval = Interval { lower: bound(lower)?, upper: bound(upper)? };
        if let (Some((a, _)), Some((b, _))) = (&interval.lower, &interval.upper)
            && a.family() != b.family()
        {
            return Err(Error::invalid(
                &self.name,
                format!("the bounds of {:?} are of different types", self.name),
            ));
        }
        Ok(interval)
    }
}

impl Scalar {
    fn family(&self) -> u8 {
        match self {
            Self::Text(_) => 0,
            Self::Whole(_) | Self::Float(_) => 1,
            Self::Bool(_) => 2,
        }
    }

    /// A number or bool in text form.
    fn read(text: &str) -> Option<Self> {
        match text {
            "true" => Some(Self::Bool(true)),
            "false" => Some(Self::Bool(false)),
            _ => match text.parse::<i128>() {
                Ok(n) => Some(Self::Whole(n)),
                Err(_) => text.parse::<f64>().ok().filter(|x| x.is_finite()).map(Self::Float),
            },
        }
    }

    /// The whole number that equals it.
    fn whole(&self) -> Option<i128> {
        match self {
            Self::Whole(n) => Some(*n),
            Self::Float(x) if x.fract() == 0.0 && x.abs() < 1e30 => Some(*x as i128),
            _ => None,
        }
    }

    /// The float that equals it.
    fn float(&self) -> Option<f64> {
        match self {
            Self::Float(x) => Some(x + 0.0),
            Self::Whole(n) => Some(*n as f64).filter(|x| *x as i128 == *n),
            _ => None,
        }
    }
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
                tantivy::columnar::TermOrdHit::Exact(ord) => (ord, true),
                tantivy::columnar::TermOrdHit::Next(ord) => (ord.min(words.num_terms() as u64), false),
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
