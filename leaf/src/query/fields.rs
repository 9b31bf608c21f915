//! Names and values of a query against the schema. An unknown name or a value of the wrong type is the caller's error
//! and names the field; a value that merely can't occur (300 in a field of bytes, 2.5 in whole numbers) matches nothing.
//!
//! An attribute of a map has a type per document, so its values are matched by type; text
//! that reads as a number or bool matches those too, because whoever parsed the query could not know.

use canopy_format::schema::Kind;
use canopy_indexer::index_schema::{IndexSchema, STATIC_RANK};
use canopy_proto::v1::{self, value};
use tantivy::{Term, schema::Field};

use super::interval::Interval;
use crate::error::{Error, Result};

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
    pub(super) fn family(&self) -> u8 {
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
